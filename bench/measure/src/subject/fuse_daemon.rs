//! Its CPU time counts as the client's.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::cpu::ServerCpu;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Daemon {
    None,
    Found(ServerCpu),
    Hidden,
    /// Kernel threads do part of the work, and their CPU time cannot be attributed.
    Kernel,
}

impl Daemon {
    pub(super) fn for_directory(directory: &Path) -> Self {
        let (Ok(at), Ok(table)) =
            (directory.canonicalize(), fs::read_to_string("/proc/self/mountinfo"))
        else {
            return Self::None;
        };
        let mounts: Vec<Mounted> = table.lines().filter_map(mounted).collect();
        // Of stacked mounts, the last one is visible.
        let Some(of) = mounts
            .iter()
            .filter(|mount| at.starts_with(&mount.at))
            .enumerate()
            .max_by_key(|(order, mount)| (mount.at.as_os_str().len(), *order))
        else {
            return Self::None;
        };
        let of = of.1;
        if !of.fuse {
            return if of.network { Self::Kernel } else { Self::None };
        }
        let alone = mounts.iter().filter(|mount| mount.fuse).all(|mount| mount.at == of.at);
        // The kernel numbers FUSE connections by the minor device number.
        let connection =
            fs::metadata(&of.at).ok().map(|metadata| rustix::fs::minor(metadata.dev()));
        choose(&holders(), &of.at, connection, alone)
            .map_or(Self::Hidden, |pid| Self::Found(ServerCpu::Process(pid)))
    }
}

#[derive(Debug, PartialEq)]
struct Mounted {
    at: PathBuf,
    fuse: bool,
    network: bool,
}

/// proc_pid_mountinfo(5): the fifth field is the mount point, and the type follows " - ".
fn mounted(line: &str) -> Option<Mounted> {
    let at = line.split(' ').nth(4)?.replace("\\040", " ");
    let kind = line.split_once(" - ")?.1.split(' ').next()?;
    let fuse = kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.");
    Some(Mounted { at: at.into(), fuse, network: NETWORK.contains(&kind) })
}

/// Kernel threads do part of their work.
const NETWORK: [&str; 8] = ["nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "9p", "afs"];

#[derive(Debug, Clone, PartialEq)]
struct Holder {
    pid: u32,
    connections: Vec<u32>,
    words: Vec<PathBuf>,
}

fn holders() -> Vec<Holder> {
    let processes = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes.filter(|pid| *pid != std::process::id()).filter_map(holder).collect()
}

fn holder(pid: u32) -> Option<Holder> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let held = fs::read_dir(process.join("fd"))
        .ok()?
        .flatten()
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == Path::new("/dev/fuse")));
    let infos: Vec<String> = held
        .map(|entry| {
            fs::read_to_string(process.join("fdinfo").join(entry.file_name())).unwrap_or_default()
        })
        .collect();
    if infos.is_empty() {
        return None;
    }
    let number = |info: &String| {
        info.lines().find_map(|line| line.strip_prefix("fuse_connection:")?.trim().parse().ok())
    };
    let directory = fs::read_link(process.join("cwd")).unwrap_or_default();
    let words = String::from_utf8_lossy(&fs::read(process.join("cmdline")).unwrap_or_default())
        .split('\0')
        .skip(1)
        .map(|word| directory.join(word))
        .collect();
    Some(Holder { pid, connections: infos.iter().filter_map(number).collect(), words })
}

/// Chooses by connection number, then by mount point in the arguments, then the only daemon of the
/// only mount.
fn choose(holders: &[Holder], at: &Path, connection: Option<u32>, alone: bool) -> Option<u32> {
    let least = |found: &mut dyn Iterator<Item = &Holder>| found.map(|holder| holder.pid).min();
    let numbered =
        least(&mut holders.iter().filter(|holder| {
            connection.is_some_and(|number| holder.connections.contains(&number))
        }));
    // A daemon with other connection numbers does not match by arguments.
    let mut silent = holders.iter().filter(|holder| holder.connections.is_empty());
    let is_at = |word: &PathBuf| word == at || word.canonicalize().is_ok_and(|word| word == at);
    numbered
        .or_else(|| least(&mut silent.clone().filter(|holder| holder.words.iter().any(is_at))))
        .or_else(|| match (silent.next(), silent.next()) {
            (Some(only), None) if alone && holders.len() == 1 => Some(only.pid),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_daemon_by_number_or_arguments_without_guessing() {
        let holder = |pid, connections: &[u32], word: &str| Holder {
            pid,
            connections: connections.to_vec(),
            words: vec![word.into()],
        };
        let at = Path::new("/mnt/a");
        assert_eq!(
            choose(&[holder(7, &[50], "/x"), holder(8, &[51], "/mnt/a")], at, Some(50), false),
            Some(7)
        );
        assert_eq!(
            choose(&[holder(7, &[], "/x"), holder(8, &[], "/mnt/a")], at, Some(50), false),
            Some(8)
        );
        assert_eq!(
            choose(&[holder(9, &[], "/mnt/a"), holder(8, &[], "/mnt/a")], at, None, false),
            Some(8)
        );
        assert_eq!(choose(&[holder(7, &[], "/x")], at, Some(50), true), Some(7));
        assert_eq!(choose(&[holder(7, &[], "/x")], at, Some(50), false), None);
        assert_eq!(choose(&[holder(7, &[], "/x"), holder(8, &[], "/y")], at, Some(50), true), None);
        assert_eq!(choose(&[holder(7, &[51], "/mnt/a")], at, Some(50), true), None);
        assert_eq!(choose(&[], at, Some(50), true), None);
    }

    #[test]
    fn parses_mountinfo() {
        let line = |at: &str, kind: &str| {
            mounted(&format!("36 35 0:50 / {at} rw,nosuid - {kind} source rw"))
        };
        assert_eq!(
            line("/mnt/a\\040b", "fuse.sshfs"),
            Some(Mounted { at: "/mnt/a b".into(), fuse: true, network: false })
        );
        assert_eq!(line("/mnt", "fusectl").map(|mount| mount.fuse), Some(false));
        for (kind, network) in
            [("nfs", true), ("nfs4", true), ("lustre", true), ("ext4", false), ("nfsd", false)]
        {
            assert_eq!(
                line("/mnt", kind).map(|mount| (mount.fuse, mount.network)),
                Some((false, network)),
                "{kind}"
            );
        }
        assert_eq!(Daemon::for_directory(Path::new("/proc/self")), Daemon::None);
    }
}
