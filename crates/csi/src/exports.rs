//! Directories that `vouch export` serves to the nodes that use them, and to nobody else.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::Command;

use tonic::Status;
use vouch_daemon::status_client::{self, ReloadError};

use crate::provisioned::{Provisioned, ProvisionedVolumes};
use crate::records::replace;

/// The server that the controller provisions on, on the same machine.
#[derive(Clone, Debug)]
pub struct ExportServer {
    /// Each volume is a directory here.
    pub root: PathBuf,
    /// A file of exports that the driver owns; the server reads it too.
    pub list: PathBuf,
    /// The server's control socket, by which it reads its lists anew.
    pub socket: PathBuf,
    /// Capacity is enforced, by `quota=` of each export.
    pub has_quota: bool,
}

impl ExportServer {
    pub(crate) fn create(&self, id: &str, mode: u32) -> io::Result<()> {
        let path = self.root.join(id);
        match DirBuilder::new().mode(0o700).create(&path) {
            // A controller that was killed has made it.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // The umask of this process is no concern of the volume's users.
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        File::open(&self.root)?.sync_all()
    }

    /// The directory gets another name first: a removal that is interrupted continues with the next one.
    pub(crate) fn delete(&self, id: &str) -> Result<(), Status> {
        let removed = self.root.join(format!("{REMOVED}{id}"));
        match fs::rename(self.root.join(id), &removed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Status::internal(format!("{}: {error}", self.root.display())));
            }
            _ => {}
        }
        // Pods make directories as deep as they like. remove_dir_all() takes a descriptor for each
        // level, rm(1) does not.
        let options = ["-rf", "--one-file-system", "--"].map(OsStr::new);
        run("rm", &[&options[..], &[removed.as_os_str()]].concat(), "the image needs coreutils")
    }

    /// Writes the list of all volumes that nodes use, and waits until it is in force.
    pub(crate) fn publish(&self, volumes: &ProvisionedVolumes) -> Result<(), Status> {
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

fn run(program: &str, arguments: &[&OsStr], needs: &str) -> Result<(), Status> {
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

const REMOVED: &str = ".removed-";

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
        };
        (name.to_owned(), volume)
    }

    fn server(root: &Path, has_quota: bool) -> ExportServer {
        let (list, socket) = (root.join("list"), root.join("socket"));
        ExportServer { root: root.into(), list, socket, has_quota }
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
