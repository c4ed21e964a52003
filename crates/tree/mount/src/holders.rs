//! What keeps an unmounted mount alive, from /proc. Processes of other users are seen by root alone.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::mount_point;

/// A process that keeps a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    pub command: String,
    /// The mount point in the process's mount namespace, or the file in use.
    pub path: PathBuf,
}

/// Processes of this mount namespace with an open file, a working directory or a root below `point`; at
/// most eight. Call it before the unmount, after which the paths no longer tell.
pub fn users_of(point: &Path) -> Vec<Holder> {
    let Ok(point) = mount_point::absolute(point) else { return Vec::new() };
    let uses = |process: &Path| {
        let fds = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .map(|entry| entry.path());
        let links = ["cwd", "root", "exe"].map(|name| process.join(name)).into_iter().chain(fds);
        links.filter_map(|link| fs::read_link(link).ok()).find(|path| path.starts_with(&point))
    };
    processes()
        .filter_map(|(pid, process)| {
            Some(Holder { pid, command: command(&process), path: uses(&process)? })
        })
        .take(HOLDERS_MAX)
        .collect()
}

/// One process of each mount namespace that has the mount of this device, at most eight.
pub fn namespaces_with(device: &str) -> Vec<Holder> {
    let mut seen = HashSet::new();
    let with_mount = |(pid, process): (u32, PathBuf)| {
        if !seen.insert(fs::read_link(process.join("ns/mnt")).ok()?) {
            return None;
        }
        let path =
            mount_point::point_of_device(&fs::read(process.join("mountinfo")).ok()?, device)?;
        Some(Holder { pid, command: command(&process), path })
    };
    processes().filter_map(with_mount).take(HOLDERS_MAX).collect()
}

fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

fn command(process: &Path) -> String {
    fs::read_to_string(process.join("comm"))
        .map(|name| name.trim_end().to_owned())
        .unwrap_or_default()
}

/// Enough to find the cause.
const HOLDERS_MAX: usize = 8;
