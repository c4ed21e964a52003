//! Directories that `vouch export` serves to the nodes that use them, and to nobody else.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::Command;

use parking_lot::Mutex;
use tonic::Status;
use vouch_daemon::status_client::{self, ReloadError};

use crate::copies::{self, CopyMethod};
use crate::provisioned::{Provisioned, ProvisionedVolumes, Source};
use crate::records::replace;

/// The server that the controller provisions on, on the same machine.
#[derive(Debug)]
pub struct ExportServer {
    /// Each volume is a directory here.
    pub root: PathBuf,
    /// A file of exports that the driver owns; the server reads it too.
    pub list: PathBuf,
    /// The server's control socket, by which it reads its lists anew.
    pub socket: PathBuf,
    /// Capacity is enforced, by `quota=` of each export.
    pub has_quota: bool,
    copy_method: Option<CopyMethod>,
    /// The list has all volumes, so one at a time writes it.
    writing: Mutex<()>,
}

impl ExportServer {
    /// # Errors
    /// If nothing can be written to `root`.
    pub fn new(root: PathBuf, list: PathBuf, socket: PathBuf, has_quota: bool) -> io::Result<Self> {
        copies::remove_interrupted(&root)?;
        if root.join(SNAPSHOTS).exists() {
            copies::remove_interrupted(&root.join(SNAPSHOTS))?;
        }
        let copy_method = CopyMethod::detect(&root)?;
        Ok(Self { root, list, socket, has_quota, copy_method, writing: Mutex::default() })
    }

    pub(crate) fn create(&self, id: &str, mode: u32) -> Result<(), Status> {
        let path = self.root.join(id);
        copies::create(self.copy_method, &path)?;
        // The umask of this process is no concern of the volume's users.
        let finish = || -> io::Result<()> {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            File::open(&self.root)?.sync_all()
        };
        finish().map_err(|error| Status::internal(format!("{}: {error}", path.display())))
    }

    /// A new volume from another one, or from a snapshot.
    pub(crate) fn create_from(&self, source: &Source, id: &str) -> Result<(), Status> {
        let from = match source {
            Source::Volume(id) => self.root.join(id),
            Source::Snapshot(id) => self.snapshot_path(id),
        };
        copies::copy(self.copy_method()?, &from, &self.root.join(id), false)
    }

    pub(crate) fn create_snapshot(&self, volume_id: &str, id: &str) -> Result<(), Status> {
        let directory = self.root.join(SNAPSHOTS);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|error| Status::internal(format!("{}: {error}", directory.display())))?;
        let from = self.root.join(volume_id);
        copies::copy(self.copy_method()?, &from, &self.snapshot_path(id), true)
    }

    pub(crate) fn delete_snapshot(&self, id: &str) -> Result<(), Status> {
        copies::remove(&self.snapshot_path(id))
    }

    pub(crate) fn delete(&self, id: &str) -> Result<(), Status> {
        copies::remove(&self.root.join(id))
    }

    pub(crate) fn has_copies(&self) -> bool {
        self.copy_method.is_some()
    }

    pub(crate) fn copy_method(&self) -> Result<CopyMethod, Status> {
        self.copy_method.ok_or_else(|| {
            Status::failed_precondition(format!(
                "{}: snapshots and clones need a file system with reflinks, as XFS, or btrfs",
                self.root.display()
            ))
        })
    }

    fn snapshot_path(&self, id: &str) -> PathBuf {
        self.root.join(SNAPSHOTS).join(id)
    }

    /// Writes the list of all volumes that nodes use, and waits until it is in force.
    pub(crate) fn publish(&self, volumes: &ProvisionedVolumes) -> Result<(), Status> {
        let _writing = self.writing.lock();
        let text = self.list(&volumes.all());
        replace(&self.list, text.as_bytes())
            .map_err(|error| Status::internal(format!("{}: {error}", self.list.display())))?;
        match status_client::reload(&self.socket) {
            Ok(_) => Ok(()),
            Err(ReloadError::Refused(why)) => {
                Err(Status::internal(format!("vouch export refuses its lists: {why}")))
            }
            Err(ReloadError::Io(error)) => Err(Status::unavailable(format!(
                "{}: {error}; does `vouch export` run, and may the driver use its status socket?",
                self.socket.display()
            ))),
        }
    }

    /// In the syntax of exports(5). A volume that no node uses is not exported.
    fn list(&self, volumes: &[(String, Provisioned)]) -> String {
        let mut text = String::from("# Written by vouch csi: changes are lost.\n");
        for (id, volume) in volumes.iter().filter(|(_, volume)| !volume.nodes.is_empty()) {
            text.push_str(&format!("\"{}\"", self.root.join(id).display()));
            let has_quota = self.has_quota && volume.capacity_bytes > 0;
            let quota =
                has_quota.then(|| format!(",quota={}", volume.capacity_bytes.max(QUOTA_MIN)));
            for node in &volume.nodes {
                let quota = quota.as_deref().unwrap_or_default();
                text.push_str(&format!(" {node}({}{quota})", volume.export_options));
            }
            text.push('\n');
        }
        text
    }

    pub(crate) fn free_bytes(&self) -> io::Result<i64> {
        let space = rustix::fs::statvfs(&self.root)?;
        Ok(i64::try_from(space.f_bavail.saturating_mul(space.f_frsize)).unwrap_or(i64::MAX))
    }
}

pub(crate) fn run(program: &str, arguments: &[&OsStr], needs: &str) -> Result<(), Status> {
    let failed = |why: String| Status::internal(format!("{program}: {why}; {needs}"));
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

/// Beside the volumes, and exported to nobody.
const SNAPSHOTS: &str = ".snapshots";

/// The smallest one of vouch export.
const QUOTA_MIN: i64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    fn volume(name: &str, nodes: &[&str]) -> (String, Provisioned) {
        let nodes: BTreeSet<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        let volume = Provisioned {
            name: name.into(),
            capacity_bytes: 5_000_000,
            attributes: Default::default(),
            export_options: "rw,sec=krb5p".into(),
            nodes,
            source: None,
        };
        (name.to_owned(), volume)
    }

    fn server(root: &Path, has_quota: bool) -> ExportServer {
        let (list, socket) = (root.join("list"), root.join("socket"));
        ExportServer {
            root: root.into(),
            list,
            socket,
            has_quota,
            copy_method: None,
            writing: Mutex::default(),
        }
    }

    #[test]
    fn list_has_only_nodes_that_use_a_volume() {
        let volumes = [volume("a", &["10.0.0.1", "10.0.0.2"]), volume("b", &[])];
        for (has_quota, options) in [(false, "rw,sec=krb5p"), (true, "rw,sec=krb5p,quota=5000000")]
        {
            let text = server(Path::new("/srv/v"), has_quota).list(&volumes);
            let lines: Vec<&str> = text.lines().skip(1).collect();
            let wanted = format!("\"/srv/v/a\" 10.0.0.1({options}) 10.0.0.2({options})");
            assert_eq!(lines, [wanted]);
        }
    }

    #[test]
    fn start_removes_interrupted_work() {
        let root = tempfile::tempdir().unwrap();
        for path in ["a", "b.partial/c", "b.removed/c", ".snapshots/s.partial/c", ".snapshots/t"] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        let (list, socket) = (root.path().join("list"), root.path().join("socket"));
        ExportServer::new(root.path().into(), list, socket, false).unwrap();
        let left = [root.path().into(), root.path().join(".snapshots")]
            .map(|directory: PathBuf| fs::read_dir(directory).unwrap().count());
        assert_eq!(left, [2, 1]);
    }

    #[test]
    fn deep_directories_of_a_pod_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let exports = server(root.path(), false);
        exports.create("v", 0o700).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut directory = open(root.path().join("v"), flags, Mode::empty()).unwrap();
        for _ in 0..DEPTH {
            mkdirat(&directory, "d", Mode::RWXU).unwrap();
            directory = openat(&directory, "d", flags, Mode::empty()).unwrap();
        }
        let limit = Rlimit { current: Some(DEPTH as u64 / 2), ..getrlimit(Resource::Nofile) };
        setrlimit(Resource::Nofile, limit).unwrap();
        exports.delete("v").unwrap();
        exports.delete("v").unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    /// More than a recursion has stack for.
    const DEPTH: usize = 2000;
}
