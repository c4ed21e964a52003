//! This machine's own: device, state directory, disk cache.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::statvfs;
use vouch_tree_client::HttpConnector;
use vouch_trust::{Access, Exposure};

use crate::finding::{Fault, Finding, Findings};
use crate::{bytes, clock};

/// The settings of clients on this machine.
pub struct ClientSettings {
    /// Directory of the newest revisions seen.
    pub state_directory: Option<PathBuf>,
    /// Directory and quota of the disk cache, unless there is none.
    pub cache: Option<(PathBuf, u64)>,
    /// Files with policies of witnesses.
    pub policies: Vec<PathBuf>,
    /// The network, or why it cannot be used.
    pub connector: Result<Arc<HttpConnector>, String>,
    pub timeout: Duration,
    pub connect_timeout: Duration,
    /// Whether URLs are reached through a proxy, which resolves their hosts.
    pub has_proxy: bool,
}

/// Checks device, clock, state directory and disk cache.
pub fn check(client: &ClientSettings, findings: &mut Findings) {
    findings.add(fuse());
    let answer_max = client.timeout.saturating_add(Duration::from_secs(1));
    if let Some(limit) = vouch_tree_mount::request_timeout().filter(|limit| *limit <= answer_max) {
        let what = format!(
            "the kernel ends a mount whose request takes {} s, and a request may take {} s",
            limit.as_secs(),
            answer_max.as_secs()
        );
        findings.add(Finding::problem(Fault::FuseRequestTimeout, "fs.fuse.max_request_timeout", what).cure(format_args!(
            "set the sysctls fs.fuse.max_request_timeout and default_request_timeout to 0 or more than {}, or lower --timeout",
            answer_max.as_secs()
        )));
    }
    findings.add(clock::check());
    if let Some(state) = &client.state_directory {
        check_state(state, findings);
    }
    if let Some((cache, quota)) = &client.cache {
        check_cache(cache, *quota, findings);
    }
}

fn fuse() -> Finding {
    const DEVICE: &str = "/dev/fuse";
    let problem = |why: &str| Finding::problem(Fault::NoFuse, DEVICE, why);
    match fs::File::options().read(true).write(true).open(DEVICE) {
        Ok(_) if rustix::process::geteuid().is_root() || is_in_path("fusermount3") => Finding::ok(DEVICE, "can be opened"),
        Ok(_) => Finding::problem(Fault::NoFusermount, "fusermount3", "is not installed, so users other than root can neither mount nor unmount")
            .cure("install the package fuse3"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => problem("does not exist, so nothing can be mounted")
            .cure("run `modprobe fuse`; in a container, give it the device (--device /dev/fuse --cap-add SYS_ADMIN)"),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
            problem("has no driver: the kernel module fuse is not loaded").cure("run `modprobe fuse`")
        }
        Err(error) => problem(&format!("cannot be opened: {error}"))
            .cure("run `chmod 666 /dev/fuse`; in a container, give it the device (--device /dev/fuse --cap-add SYS_ADMIN)"),
    }
}

fn is_in_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    })
}

/// A state directory of a client: the newest revisions seen.
pub fn check_state(directory: &Path, findings: &mut Findings) {
    let problem = |what: String| Finding::problem(Fault::StateRights, directory.display(), what);
    let metadata = match fs::metadata(directory) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return findings.add(Finding::ok(
                directory.display(),
                "does not exist yet; it is made at the first use",
            ));
        }
        Err(error) => {
            return findings.add(
                problem(format!("cannot be entered: {error}"))
                    .cure("run as its owner, or name another by --state"),
            );
        }
    };
    let user = rustix::process::geteuid();
    if metadata.uid() != user.as_raw() && !user.is_root() {
        return findings.add(
            problem(format!(
                "belongs to user {}, not to user {} who runs this",
                metadata.uid(),
                user.as_raw()
            ))
            .cure(format_args!(
                "run `chown {} {}`, or name another by --state",
                user.as_raw(),
                directory.display()
            )),
        );
    }
    if let Err(Exposure { place, what, cure, .. }) =
        vouch_trust::check(directory, &metadata, Access::Nothing)
    {
        let finding = Finding::problem(
            Fault::StateRights,
            place.display(),
            format_args!("{what}; an older revision could be restored"),
        );
        return findings
            .add(finding.cure(format_args!("find out which users had access, then {cure}")));
    }
    findings.add(match probe(directory) {
        Ok(()) => Finding::ok(directory.display(), "state directory is private and writable"),
        Err(error) if is_full(&error) => {
            Finding::problem(Fault::StateDiskFull, directory.display(), error)
                .cure("free disk space")
        }
        Err(error) => problem(format!("cannot be written: {error}"))
            .cure("give it to the user of the daemon, and mount its file system writable"),
    });
}

/// The disk cache: room and rights.
pub fn check_cache(directory: &Path, quota: u64, findings: &mut Findings) {
    if !directory.exists() {
        return findings.add(Finding::ok(
            directory.display(),
            "disk cache does not exist yet; it is made at the first use",
        ));
    }
    let room = statvfs(directory)
        .map(|system| system.f_bavail.saturating_mul(system.f_frsize))
        .unwrap_or(u64::MAX);
    let full = |what: String| {
        Finding::problem(Fault::CacheDiskFull, directory.display(), what).cure(format_args!(
            "free space on its file system, or lower --cache-quota ({} now), or name another directory by --cache",
            bytes(quota)
        ))
    };
    findings.add(match probe(directory) {
        Err(error) if is_full(&error) => full(format!(
            "the disk of the cache is full: {error}; data is fetched again at each read"
        )),
        Err(error) => Finding::problem(
            Fault::CacheRights,
            directory.display(),
            format_args!("the disk cache cannot be written: {error}"),
        )
        .cure("give the directory to the user of the daemon, or name another by --cache"),
        Ok(()) if room < ROOM_MIN => {
            full(format!("only {} are free on the disk of the cache", bytes(room)))
        }
        Ok(()) => Finding::ok(
            directory.display(),
            format_args!("disk cache is writable, {} are free", bytes(room)),
        ),
    });
}

/// Writes and removes a file.
fn probe(directory: &Path) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".vouch-check-").tempfile_in(directory)?;
    file.write_all(&[1; PROBE_LEN])?;
    file.as_file().sync_all()
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

const PROBE_LEN: usize = 64 * 1024;

/// The smallest disk cache.
const ROOM_MIN: u64 = 4 << 20;
