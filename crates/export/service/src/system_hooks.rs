//! Parts of the system that tests replace.

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

pub(crate) struct SystemHooks {
    pub(crate) opener: sources::OpenFileSystem,
    pub(crate) replica_faults: Arc<audit::ReplicaFaultReporter>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) names: Arc<dyn NameService>,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) acceptor: Option<Arc<dyn Acceptor<Partial = Partial>>>,
}

impl SystemHooks {
    pub(crate) fn system(opener: sources::OpenFileSystem) -> Self {
        let (replica_faults, disk) = (Arc::default(), Arc::new(SystemDisk));
        SystemHooks {
            opener,
            replica_faults,
            disk,
            names: Arc::new(identity::System),
            resolver: Arc::new(resolver::System),
            acceptor: None,
        }
    }
}

/// The system's keytab may be missing, but not one that the user named.
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
            tracing::info!("Kerberos is off: {fault}");
            Ok(None)
        }
    }
}

pub(crate) fn keytab_path(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| file_of(&vouch_gss_mit::default_keytab()?))
}

fn file_of(keytab: &[u8]) -> Option<PathBuf> {
    // A name without a type is a file (MIT documentation, "keytab").
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
    fn keytab_type_selects_file() {
        let file =
            |keytab: &str| file_of(keytab.as_bytes()).map(|path| path.to_str().unwrap().to_owned());
        for (keytab, path) in
            [("FILE:/a", "/a"), ("WRFILE:/a:b", "/a:b"), ("/a", "/a"), ("/a:b", "/a:b"), ("a", "a")]
        {
            assert_eq!(file(keytab).as_deref(), Some(path), "{keytab}");
        }
        assert_eq!(file("MEMORY:a"), None);
    }
}
