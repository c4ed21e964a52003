//! Directories that `vouch export` serves to the nodes that use them, and to nobody else.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
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
    /// Capacity is enforced by project quotas, with setquota(8) and chattr(1).
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
        let text = list(&self.root, &volumes.all());
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

    /// The capacity as a project quota.
    pub(crate) fn limit(&self, id: &str, volume: &Provisioned) -> Result<(), Status> {
        if !self.has_quota || volume.capacity_bytes == 0 {
            return Ok(());
        }
        let path = self.root.join(id);
        let table =
            vouch_tree_mount::mounts().map_err(|error| Status::internal(error.to_string()))?;
        let holds = |point: &Path| self.root.starts_with(point);
        let point = table
            .into_iter()
            .map(|(point, _)| point)
            .filter(|point| holds(point))
            .max_by_key(|point| point.components().count());
        let point = point.unwrap_or_else(|| "/".into());
        let (project, limit_kib) =
            (volume.project.to_string(), (volume.capacity_bytes / 1024).to_string());
        run(
            "chattr",
            // Not what is below: a pod could put a link in place of a directory meanwhile. New files
            // inherit the number.
            &["-p".as_ref(), project.as_ref(), "+P".as_ref(), path.as_os_str()],
            NEEDS_QUOTA,
        )?;
        let limits = ["0", &limit_kib, "0", "0"].map(OsStr::new);
        run(
            "setquota",
            &[&["-P".as_ref(), project.as_ref()], &limits[..], &[point.as_os_str()]].concat(),
            NEEDS_QUOTA,
        )
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

/// In the syntax of exports(5). A volume that no node uses is not exported.
fn list(root: &Path, volumes: &[(String, Provisioned)]) -> String {
    let mut text = String::from("# Written by vouch csi: changes are lost.\n");
    for (id, volume) in volumes.iter().filter(|(_, volume)| !volume.nodes.is_empty()) {
        let path = root.join(id);
        text.push_str(&format!("\"{}\"", path.display()));
        for node in &volume.nodes {
            text.push_str(&format!(" {node}({})", volume.export_options));
        }
        text.push('\n');
    }
    text
}

const REMOVED: &str = ".removed-";

const NEEDS_QUOTA: &str =
    "--quota needs e2fsprogs, quota and a file system with project quotas (mount option prjquota)";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    fn volume(name: &str, nodes: &[&str]) -> (String, Provisioned) {
        let nodes: BTreeSet<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        let volume = Provisioned {
            name: name.into(),
            capacity_bytes: 0,
            attributes: Default::default(),
            export_options: "rw,sec=krb5p".into(),
            nodes,
            project: 0,
        };
        (name.to_owned(), volume)
    }

    #[test]
    fn list_has_only_nodes_that_use_a_volume() {
        let volumes = [volume("a", &["10.0.0.1", "10.0.0.2"]), volume("b", &[])];
        let text = list(Path::new("/srv/v"), &volumes);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, ["\"/srv/v/a\" 10.0.0.1(rw,sec=krb5p) 10.0.0.2(rw,sec=krb5p)"]);
    }

    #[test]
    fn deep_directories_of_a_pod_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let exports = ExportServer {
            root: root.path().into(),
            list: root.path().join("list"),
            socket: root.path().join("socket"),
            has_quota: false,
        };
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
