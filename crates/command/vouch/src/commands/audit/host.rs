use std::path::PathBuf;

use vouch_audit_pipeline::kernel_events::{KernelEvents, Source, record};

use crate::cli::Global;
use crate::exit::Outcome;

/// Record this machine's kernel audit events in a trail of its own, with the same search and
/// verification as a server's trail.
///
/// The kernel's rules (auditctl) select the events. Events come from auditd's log and its rotated
/// files, or from the kernel's audit netlink group beside a running auditd. After a restart, the
/// command continues behind the last event in the trail, which it finds in the log or in rotated
/// logs (audit.log.1 and so on). Records hold user, path, device and inode, key and result. `vouch
/// audit search` accepts several trails.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch audit keygen /var/lib/vouch/host > host.pub\n  \
                  vouch audit host --realm EXAMPLE.ORG /var/lib/vouch/host          go along with /var/log/audit/audit.log\n  \
                  vouch audit search --principal alice@EXAMPLE.ORG /var/lib/vouch/audit /var/lib/vouch/host")]
pub(crate) struct Args {
    /// Directory of the trail, with a key from `vouch audit keygen`.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// auditd's log.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/log/audit/audit.log",
        conflicts_with = "netlink"
    )]
    log: PathBuf,
    /// Listen to the kernel instead of reading a log; needs CAP_AUDIT_READ.
    #[arg(long, conflicts_with = "once")]
    netlink: bool,
    /// Stop at the end of the log.
    #[arg(long)]
    once: bool,
    /// Kerberos realm of this machine's users: the login user alice is recorded as alice@REALM.
    #[arg(long, value_name = "REALM")]
    realm: Option<String>,
    /// File of the trail's key, if not in the trail's directory.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        self.netlink || !self.once
    }
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let source = if args.netlink {
        Source::Netlink
    } else {
        Source::Log { path: args.log, once: args.once }
    };
    Ok(record(&KernelEvents {
        directory: args.directory,
        source,
        realm: args.realm,
        key: args.key,
    })?)
}
