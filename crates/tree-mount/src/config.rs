//! What whoever mounts may choose, and what that means to FUSE.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Config, MountOption, SessionACL};
use vouch_tree_client::{Clock, SystemClock};

use crate::observer::Observer;

/// Where and how to mount.
#[derive(Clone)]
pub struct MountConfig {
    /// A directory.
    pub point: PathBuf,
    /// How.
    pub options: MountOptions,
}

/// How to mount. The defaults are what most want.
#[derive(Clone)]
pub struct MountOptions {
    /// Whether other users may look. `None`: yes for root, no for others, who need user_allow_other
    /// in /etc/fuse.conf.
    pub allow_other: Option<bool>,
    /// Whether set-user-id bits count. A publisher is trusted for content, seldom for privilege.
    pub suid: bool,
    /// Whether device nodes are devices.
    pub dev: bool,
    /// Whether files may be executed.
    pub exec: bool,
    /// Threads that answer the kernel. `None`: as many as there are CPUs, 2 to 8.
    pub threads: Option<usize>,
    /// The kernel's read-ahead in bytes. Above 128 KiB only root can set it.
    pub read_ahead_bytes: u32,
    /// Extended attributes.
    pub xattrs: XattrMode,
    /// Whether the kernel may read large files that are wholly cached by itself, from a verified
    /// copy in the disk cache. Needs a disk cache, root, and a kernel that has it; else it is
    /// as if this were off. The kernel then asks for each open of a file, which it does not
    /// otherwise.
    pub passthrough: Passthrough,
    /// Files from this length on are passed through.
    pub passthrough_len_min: u64,
    /// The clock by which freshness is judged; the client's own.
    pub clock: Arc<dyn Clock>,
    /// The longest that one request of the kernel may take.
    pub deadline: Duration,
    /// Who sees what is done. The kernel then asks at each open and each listing, and reads by
    /// itself only what nobody wants to know the reads of.
    pub observer: Option<Arc<dyn Observer>>,
}

/// Whether the kernel may read large cached files by itself. It can be told never to ask at an
/// open, for all files of a mount and for good, but not which files to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passthrough {
    /// No.
    #[default]
    Never,
    /// As long as it pays: once opens of small files have cost more than those of large ones may
    /// gain, the kernel is told not to ask again.
    Auto,
    /// To the end of the mount.
    Always,
}

/// Whether extended attributes are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrMode {
    /// As `On`, unless a single tree is mounted and its fsinfo says that no file has any: then the
    /// kernel is told so once, never asks again, and `ls -l` is spared two requests a file.
    /// Attributes that a later revision brings show after the next mount; the log says so when
    /// it happens. As an ACL may be among them, which the kernel would not heed, a file that
    /// has any is shown without its group's and others' rights until then.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
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
        }
    }
}

impl MountOptions {
    /// The session's configuration; `source` is what mount(8) shows as the device.
    pub(crate) fn session(&self, source: &str) -> Config {
        let mut config = Config::default();
        config.mount_options = vec![
            // A comma would end the option.
            MountOption::FSName(format!("{SOURCE_PREFIX}{}", source.replace(',', "."))),
            MountOption::Subtype(SUBTYPE.into()),
            MountOption::RO,
            MountOption::NoAtime,
            // The kernel checks modes, owners and groups: it knows the caller's, and it need not ask.
            MountOption::DefaultPermissions,
            if self.suid { MountOption::Suid } else { MountOption::NoSuid },
            if self.dev { MountOption::Dev } else { MountOption::NoDev },
            if self.exec { MountOption::Exec } else { MountOption::NoExec },
        ];
        config.acl = if self.allow_other.unwrap_or_else(is_root) { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(self.thread_count());
        config.clone_fd = true;
        config
    }

    fn thread_count(&self) -> usize {
        let cpus = || std::thread::available_parallelism().map_or(2, usize::from);
        self.threads.unwrap_or_else(|| cpus().clamp(THREADS_MIN, THREADS_MAX)).max(1)
    }
}

/// Whether this process may do as it likes.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Begins what mount(8) shows as the device; by it a dead mount is known for ours.
pub(crate) const SOURCE_PREFIX: &str = "vouch:";

/// The file system's type where it has one of its own: "fuse.vouch".
const SUBTYPE: &str = "vouch";

/// One that is busy must not keep others waiting.
const THREADS_MIN: usize = 2;

/// Beyond this they only contend.
const THREADS_MAX: usize = 8;
