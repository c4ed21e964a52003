//! What a server has of the system, for tests to put something else in its place.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use vouch_audit::trail::{Disk, SystemDisk};
use vouch_gss_mit::Partial;
use vouch_rpcsec_gss::Acceptor;

use crate::exports::sources;
use crate::hosts::resolver::{self, Resolver};
use crate::identity::{self, NameService};
use crate::{ExportError, audit, gss};

/// The system as the server sees it.
pub(crate) struct SystemHooks {
    /// Opens what is exported.
    pub(crate) opener: sources::OpenFileSystem,
    /// What file systems tell their trail by.
    pub(crate) disbelief: Arc<audit::Disbelief>,
    /// Where the trail is written.
    pub(crate) disk: Arc<dyn Disk>,
    /// Users and groups.
    pub(crate) names: Arc<dyn NameService>,
    /// Hosts.
    pub(crate) resolver: Arc<dyn Resolver>,
    /// The mechanism of Kerberos; that of the keytab if `None`.
    pub(crate) acceptor: Option<Arc<dyn Acceptor<Partial = Partial>>>,
}

impl SystemHooks {
    /// The system itself.
    pub(crate) fn system(opener: sources::OpenFileSystem) -> Self {
        let (disbelief, disk) = (Arc::default(), Arc::new(SystemDisk));
        SystemHooks { opener, disbelief, disk, names: Arc::new(identity::System), resolver: Arc::new(resolver::System), acceptor: None }
    }
}

/// Kerberos by a keytab that was named, which must be good; or by the system's, if there is one.
pub(crate) fn open_gss(
    acceptor: Option<Arc<dyn Acceptor<Partial = Partial>>>,
    keytab: Option<&std::path::Path>,
    on_room: impl Fn() + Send + Sync + 'static,
) -> Result<Option<Arc<gss::Gss>>, ExportError> {
    if let Some(acceptor) = acceptor {
        return Ok(Some(Arc::new(gss::Gss::by(acceptor, on_room))));
    }
    match gss::Gss::open(keytab, on_room) {
        Ok(gss) => Ok(Some(Arc::new(gss))),
        Err(fault) if keytab.is_some() => Err(fault.into()),
        Err(fault) => {
            tracing::info!("no Kerberos: {fault}");
            Ok(None)
        }
    }
}

/// The file of the keytab that is used: the one that was named, or the library's. None of one that
/// is in no file.
pub(crate) fn keytab_path(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| file_of(&vouch_gss_mit::default_keytab()?))
}

/// The file of a keytab of this type and name.
fn file_of(keytab: &[u8]) -> Option<PathBuf> {
    // Without a type it is a file's name (MIT's documentation, "keytab").
    let path = match keytab.iter().position(|byte| *byte == b':') {
        Some(at) if !keytab[..at].contains(&b'/') => match &keytab[..at] {
            b"FILE" | b"WRFILE" => &keytab[at + 1..],
            _ => return None,
        },
        _ => keytab,
    };
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_keytab_is_found_by_its_type() {
        let file = |keytab: &str| file_of(keytab.as_bytes()).map(|path| path.to_str().unwrap().to_owned());
        for (keytab, path) in [("FILE:/a", "/a"), ("WRFILE:/a:b", "/a:b"), ("/a", "/a"), ("/a:b", "/a:b"), ("a", "a")] {
            assert_eq!(file(keytab).as_deref(), Some(path), "{keytab}");
        }
        assert_eq!(file("MEMORY:a"), None);
    }
}
