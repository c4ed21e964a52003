//! A dry run of an export list: serves nothing, and writes nothing.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use vouch_nfs4_server::Transport;
use vouch_vfs::FileSystem;
use vouch_vfs::memory::MemoryFs;
use vouch_vfs_posix::{ExportError, PosixFs};

use super::changes::Changes;
use super::effective::{EffectiveExport, effective};
use super::source_error::SourceError;
use super::sources::{ExportList, Sources};
use super::syntax::{Options, Source};
use crate::hosts::Hosts;
use crate::hosts::resolver;
use crate::state_directory::kept_exports_path;
use crate::tls::{TlsConfig, TlsServiceError, check_files};

#[derive(Debug, Default)]
pub struct CheckedList {
    pub exports: Vec<EffectiveExport>,
    pub warnings: Vec<String>,
    /// Listed sources that a server could not export now.
    pub left_out: Vec<String>,
    pub lists_kerberos: bool,
}

impl ExportList {
    /// Reads the list, resolves its hosts and opens its directories, as a server with these
    /// TLS files does. `state`: the directory whose kept changes count too. `client`: show only the
    /// rules that count for this address. Blocks.
    pub fn check(
        &self,
        state: Option<&Path>,
        tls: Option<&TlsConfig>,
        client: Option<IpAddr>,
    ) -> Result<CheckedList, SourceError> {
        let hosts = Arc::new(Hosts::new(Arc::new(resolver::System)));
        self.check_by(hosts, Box::new(open), state, tls, client)
    }

    fn check_by(
        &self,
        hosts: Arc<Hosts>,
        open: super::sources::OpenFileSystem,
        state: Option<&Path>,
        tls: Option<&TlsConfig>,
        client: Option<IpAddr>,
    ) -> Result<CheckedList, SourceError> {
        let changes = state.map(|state| Changes::read(&kept_exports_path(state))).transpose()?;
        let offered = match tls {
            None => Transport::Clear,
            Some(tls) if tls.files.client_authorities.is_none() => Transport::Tls,
            Some(_) => Transport::MutualTls,
        };
        let sources =
            Sources::new(self.clone(), hosts.clone(), open).offering(offered).with_state(state);
        let mut warnings = Vec::new();
        let entries = sources.entries(&changes.unwrap_or_default(), &mut warnings)?;
        client.into_iter().for_each(|client| hosts.look_up_if_stale(client));
        let exports =
            effective(&entries, &hosts, client).into_iter().map(|(_, rule)| rule).collect();
        let loaded = sources.load_entries(entries, warnings)?;
        Ok(CheckedList {
            exports,
            warnings: loaded.warnings,
            left_out: loaded.left_out,
            lists_kerberos: loaded.kerberos.is_some(),
        })
    }
}

/// A published tree is not opened, because that fetches data. Neither is a store of names, which
/// would be written.
fn open(source: &Source, options: &Options) -> io::Result<Arc<dyn FileSystem>> {
    match source {
        Source::Directory(path) => {
            let plain = vouch_vfs_posix::Options {
                cross_mounts: options.cross_mounts,
                ..vouch_vfs_posix::Options::default()
            };
            match PosixFs::open(Path::new(OsStr::from_bytes(path)), plain) {
                Ok(file_system) => Ok(Arc::new(file_system)),
                Err(ExportError::NeedsIds(_)) => Ok(Arc::new(MemoryFs::new())),
                Err(ExportError::Open { source, .. }) => Err(source),
                Err(error) => Err(io::Error::other(error.to_string())),
            }
        }
        Source::Tree(database) => {
            let path = Path::new(OsStr::from_bytes(database));
            if path.is_absolute() {
                fs::read_dir(path)?;
            }
            Ok(Arc::new(MemoryFs::new()))
        }
    }
}

/// What a server with these files would log.
pub struct CheckedTls {
    pub certificate: String,
    pub days_left: i64,
    pub is_revocation_overdue: bool,
}

impl TlsConfig {
    /// Reads certificate, key, authorities, revocation lists and certificate map.
    pub fn check(&self) -> Result<CheckedTls, TlsServiceError> {
        check_files(self)
    }
}

/// Reads a file of `--principal-map`.
pub fn check_principal_map(path: &Path) -> Result<(), crate::ExportError> {
    super::reload::read_principal_map(Some(path)).map(drop)
}

/// The keytab of a server that names none.
pub fn system_keytab() -> Option<PathBuf> {
    crate::system_hooks::keytab_path(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::blocking::Nobody;

    fn check(text: &str, client: Option<&str>) -> Result<CheckedList, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let list = ExportList::Files(vec![file.path().to_owned()]);
        let open = |source: &Source, _: &Options| match source {
            Source::Directory(path) if path.ends_with(b"missing") => {
                Err(io::ErrorKind::NotFound.into())
            }
            _ => Ok(Arc::new(MemoryFs::new()) as Arc<dyn FileSystem>),
        };
        let hosts = Arc::new(Hosts::new(Arc::new(Nobody)));
        list.check_by(
            hosts,
            Box::new(open),
            None,
            None,
            client.map(|client| client.parse().unwrap()),
        )
        .map_err(|error| error.to_string())
    }

    fn lines(checked: &CheckedList) -> Vec<String> {
        checked
            .exports
            .iter()
            .map(|export| format!("{} {}({})", export.path, export.client, export.options))
            .collect()
    }

    #[test]
    fn shows_effective_options_in_order_of_precedence() {
        let checked = check(
            "/a *(ro) 192.0.2.0/24(sec=krb5p:krb5i,rw,sec=sys,ro,all_squash,anonuid=7,async) 192.0.2.9(rw,insecure,no_root_squash,crossmnt)\n",
            None,
        );
        assert_eq!(
            lines(&checked.unwrap()),
            [
                "/a 192.0.2.9(sync,wdelay,hide,no_subtree_check,sec=sys,rw,insecure,no_root_squash,no_all_squash)",
                "/a 192.0.2.0/24(sync,wdelay,hide,no_subtree_check,sec=krb5p:krb5i,rw,secure,root_squash,no_all_squash,anonuid=7,sec=sys,ro,secure,root_squash,all_squash,anonuid=7)",
                "/a *(sync,wdelay,hide,no_subtree_check,sec=sys,ro,secure,root_squash,no_all_squash)",
            ]
        );
    }

    #[test]
    fn shown_options_are_a_valid_list_with_the_same_rights() {
        let text = "/a 192.0.2.0/24(sec=krb5,rw,anongid=9,fsid=7,mp=/m) @g(ro,insecure,machine_writes,replicas=/p@h+[2001:db8::1]:/q@i)\n\
                    tree:@x,y *(no_delegations,no_acl,no_xattr,security_label,uncacheable,pnfs=192.0.2.1+192.0.2.2:2050,fsid=00112233445566778899aabbccddeeff,crossmnt)\n\
                    /c *(snapshots=/snaps/daily-*/data,snapdir=visible)\n/d *(snapshots=.snap,quota=2T,io=direct:64k)\n";
        let first = lines(&check(text, None).unwrap());
        let shown: String = first.iter().map(|line| format!("{line}\n")).collect();
        for option in [
            "no_delegations,no_acl,no_xattr,security_label,uncacheable",
            "snapshots=/snaps/daily-*/data,snapdir=visible",
            "quota=2199023255552,io=direct:65536,snapshots=./.snap/*",
        ] {
            assert!(shown.contains(&format!(",{option},")), "{shown}");
        }
        let mut second = check(&shown, None).unwrap();
        second.warnings.retain(|warning| !warning.contains("not exported"));
        assert_eq!((lines(&second), &second.warnings[..]), (first, &[][..]));
    }

    #[test]
    fn rule_of_a_client_is_the_most_specific_one() {
        let of = |client| {
            lines(&check("/a *(ro) 192.0.2.0/24(rw)\n/b 198.51.100.1\n", Some(client)).unwrap())
        };
        assert_eq!(of("192.0.2.7").len(), 1);
        assert!(
            of("192.0.2.7")[0].starts_with("/a 192.0.2.0/24(")
                && of("203.0.113.1")[0].starts_with("/a *(")
        );
        assert_eq!(of("198.51.100.1").len(), 2);
    }

    #[test]
    fn faults_are_told_as_a_server_tells_them() {
        assert!(
            check("/a *(rw,nonsense)\n", None).unwrap_err().contains("line 1: option nonsense")
        );
        assert!(check("/a *(xprtsec=tls)\n", None).unwrap_err().contains("--tls-cert"));
        assert!(check("/a *(fsid=7)\n/b *(fsid=7)\n", None).unwrap_err().contains("same number"));
        let checked = check("/missing *(sec=krb5)\n/b *\n", None).unwrap();
        assert_eq!((checked.left_out, checked.lists_kerberos), (vec!["/missing".to_owned()], true));
    }

    #[test]
    fn real_directory_is_opened_and_nothing_is_written() {
        let root = tempfile::tempdir().unwrap();
        let list = |path: &Path| ExportList::One {
            source: path.as_os_str().as_bytes().to_vec(),
            pseudo: "/x".into(),
            options: "rw".into(),
        };
        let checked = list(root.path()).check(None, None, None).unwrap();
        assert_eq!((checked.exports.len(), fs::read_dir(root.path()).unwrap().count()), (1, 0));
        assert!(list(&root.path().join("none")).check(None, None, None).is_err());
    }
}
