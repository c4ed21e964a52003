//! The client certificate of a pod, from a Secret. Its files are in memory, at a path that the node sees.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};

use crate::records::{remove_if_there, replace_private};

/// Keys of a Secret of the type `kubernetes.io/tls`, as cert-manager writes it, and options of
/// `vouch nfs-mount`.
const FILES: [(&str, &str); 3] =
    [("ca.crt", "--tls-ca"), ("tls.crt", "--tls-cert"), ("tls.key", "--tls-key")];

/// True if the Secret has a certificate or an authority.
pub(crate) fn is_in(secrets: &HashMap<String, String>, file: &str) -> bool {
    secrets.get(file).is_some_and(|text| !text.is_empty())
}

/// Writes the files of one mount into `root`/`key`. A process that reads them meanwhile sees old or new
/// ones.
pub(crate) fn store(root: &Path, key: &str, secrets: &HashMap<String, String>) -> io::Result<()> {
    if !FILES.iter().any(|(file, _)| is_in(secrets, file)) {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    if statfs(root)?.f_type != TMPFS_MAGIC {
        let options = c"mode=0700,size=64m";
        mount("vouch-csi", root, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options)?;
    }
    let directory = root.join(key);
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    for (file, _) in FILES {
        let path = directory.join(file);
        match secrets.get(file) {
            Some(text) if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) => {}
            Some(text) => replace_private(&path, text.as_bytes())?,
            None => remove_if_there(&path)?,
        }
    }
    Ok(())
}

/// Options of `vouch nfs-mount` for the files that are there.
pub(crate) fn options(directory: &Path) -> Vec<OsString> {
    let files = FILES.iter().map(|(file, option)| (directory.join(file), option));
    files
        .filter(|(path, _)| path.exists())
        .flat_map(|(path, option)| [option.into(), path.into_os_string()])
        .collect()
}

const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
