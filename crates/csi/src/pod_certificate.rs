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
    // A key alone is no identity, and its mount may be other pods' too.
    if !["ca.crt", "tls.crt"].iter().any(|file| is_in(secrets, file)) {
        return Ok(());
    }
    // All pods of a node share the memory.
    let is_long = |file: &str| secrets.get(file).is_some_and(|text| text.len() > FILE_LEN_MAX);
    if let Some((file, _)) = FILES.iter().find(|(file, _)| is_long(file)) {
        let why = format!("{file} of the Secret is longer than {FILE_LEN_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
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

const FILE_LEN_MAX: usize = 64 << 10;
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_no_long_file_and_no_key_alone() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("secrets");
        let secret = |file: &str, len| HashMap::from([(file.to_owned(), "x".repeat(len))]);
        store(&root, "k", &secret("tls.key", 1)).unwrap();
        let error = store(&root, "k", &secret("tls.crt", FILE_LEN_MAX + 1)).unwrap_err();
        assert!(error.to_string().starts_with("tls.crt "), "{error}");
        assert!(!root.exists());
    }
}
