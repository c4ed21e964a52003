use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Config, MountOption, SessionACL};
use vouch_tree_client::{Clock, Revision, SystemClock};

use crate::observer::Observer;

#[derive(Clone)]
pub struct MountConfig {
    pub point: PathBuf,
    pub options: MountOptions,
}

#[derive(Clone)]
pub struct MountOptions {
    /// Access of other users. `None`: only if root mounts. Needs user_allow_other in
    /// /etc/fuse.conf.
    pub allow_other: Option<bool>,
    pub suid: bool,
    pub dev: bool,
    pub exec: bool,
    pub threads: Option<usize>,
    /// Read-ahead of the kernel. Only root can exceed 128 KiB.
    pub read_ahead_bytes: u32,
    pub xattrs: XattrMode,
    /// Needs a disk cache, root, and kernel support, otherwise it has no effect.
    pub passthrough: Passthrough,
    pub passthrough_len_min: u64,
    /// Judges freshness; use the client's.
    pub clock: Arc<dyn Clock>,
    pub deadline: Duration,
    /// The kernel then sends a request for each open and listing. Passthrough is off while the
    /// observer wants reads.
    pub observer: Option<Arc<dyn Observer>>,
    /// Shown until the unmount. Its key and the newest revision must stay valid. `mount_tree` only.
    pub revision: Option<Arc<Revision>>,
    /// State for the next process of this mount: an empty file of
    /// [`create_journal`](crate::create_journal).
    pub journal: Option<Arc<File>>,
}

/// The kernel reads large cached files directly from verified copies. It sends open requests for
/// all files of the mount or for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passthrough {
    #[default]
    Never,
    /// Passthrough ends when opens of small files cost more than it gains.
    Auto,
    Always,
}

/// Visibility of extended attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrMode {
    /// Like `On`, unless a single tree is mounted whose fsinfo says that no file has any: `ls -l`
    /// then asks once per mount. Attributes of later revisions appear after the next mount; until
    /// then only the owner can access such a file, because it may have an ACL.
    #[default]
    Auto,
    On,
    /// Hides `user.vouch.*` too.
    Off,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            allow_other: None,
            suid: false,
            dev: false,
            exec: true,
            threads: None,
            read_ahead_bytes: 4 << 20,
            xattrs: XattrMode::Auto,
            passthrough: Passthrough::Never,
            passthrough_len_min: 1 << 20,
            clock: Arc::new(SystemClock),
            deadline: Duration::from_secs(60),
            observer: None,
            revision: None,
            journal: None,
        }
    }
}

impl MountOptions {
    pub(crate) fn session(&self, source: &str) -> Config {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(device_name(source)),
            MountOption::Subtype(SUBTYPE.into()),
            MountOption::RO,
            MountOption::NoAtime,
            // The kernel checks modes and owners.
            MountOption::DefaultPermissions,
            if self.suid { MountOption::Suid } else { MountOption::NoSuid },
            if self.dev { MountOption::Dev } else { MountOption::NoDev },
            if self.exec { MountOption::Exec } else { MountOption::NoExec },
        ];
        config.acl = if self.others_are_allowed() { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(self.thread_count());
        // A clone's requests are lost with this process.
        config.clone_fd = self.journal.is_none();
        config
    }

    pub(crate) fn others_are_allowed(&self) -> bool {
        self.allow_other.unwrap_or_else(is_root)
    }

    pub(crate) fn thread_count(&self) -> usize {
        let cpus = || std::thread::available_parallelism().map_or(2, usize::from);
        self.threads.unwrap_or_else(|| cpus().clamp(THREADS_MIN, THREADS_MAX)).max(1)
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The device in mount(8)'s tables, by which `vouch umount` knows its mounts.
pub fn device_name(label: &str) -> String {
    format!("{SOURCE_PREFIX}{}", label.replace(',', "."))
}

/// Identifies our dead mounts in mount(8).
pub(crate) const SOURCE_PREFIX: &str = "vouch:";

pub(crate) const SUBTYPE: &str = "vouch";

/// A busy thread must not block all requests.
const THREADS_MIN: usize = 2;

const THREADS_MAX: usize = 8;
