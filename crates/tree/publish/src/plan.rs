//! The options of a publication, checked, in the form that the walk uses.

use vouch_tree::PageRef;

use crate::error::Error;
use crate::exclusion::Exclusion;
use crate::options::Options;
use crate::printable::printable;
use crate::revision::{check_message, check_tag};

pub(crate) struct Plan<'a> {
    pub(crate) options: &'a Options,
    pub(crate) exclusion: Exclusion,
    /// Components of the paths of opaque directories.
    pub(crate) opaque: Vec<Vec<Vec<u8>>>,
    /// The database's directory, which must not be in the source.
    pub(crate) database: Option<(u64, u64)>,
    /// Pages of the root in the previous revision.
    pub(crate) previous: Option<PageRef>,
    /// Private files are counted and never read, and no revision is made.
    pub(crate) refuses_private: bool,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(options: &'a Options) -> Result<Self, Error> {
        let opaque = opaque_components(options)?;
        if let Some(tag) = &options.tag {
            check_tag(tag)?;
        }
        if let Some(message) = &options.message {
            check_message(message)?;
        }
        if options.duration_s == 0 {
            return Err(Error::Option("a revision must be valid for a second at least".to_owned()));
        }
        if options.keep == Some(0) {
            return Err(Error::Option("at least one revision is kept".to_owned()));
        }
        if !(0..=LEVEL_MAX).contains(&options.level) {
            return Err(Error::Option(format!("the level of compression is 0 to {LEVEL_MAX}")));
        }
        let exclusion = Exclusion::new(&options.exclude)?;
        let (database, previous, refuses_private) = (None, None, false);
        Ok(Plan { options, exclusion, opaque, database, previous, refuses_private })
    }
}

/// Refuses options that cannot be met, before anything is read.
pub fn check_options(options: &Options) -> Result<(), Error> {
    Plan::new(options).map(drop)
}

fn opaque_components(options: &Options) -> Result<Vec<Vec<Vec<u8>>>, Error> {
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Component;
    let mut all = Vec::new();
    for path in &options.opaque {
        let bad = |why: &str| {
            Error::Option(format!(
                "opaque directory {}: {why}",
                printable(path.as_os_str().as_bytes())
            ))
        };
        let mut components = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => components.push(name.as_bytes().to_vec()),
                Component::CurDir => {}
                _ => {
                    return Err(bad(
                        "give it relative to the directory that is published, without '..'",
                    ));
                }
            }
        }
        let at = std::fs::symlink_metadata(options.source.join(path));
        if !at.is_ok_and(|m| m.is_dir()) {
            return Err(bad("the published directory has no such subdirectory"));
        }
        all.push(components);
    }
    Ok(all)
}

const LEVEL_MAX: i32 = 19;
