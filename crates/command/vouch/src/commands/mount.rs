use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vouch_mount_service::{
    MountPlan, MountSource, PlannedTree, Role, Supervised, start_in_background, supervise,
};
use vouch_tree_client::{Client, FaultObserver, Revision, Tree};
use vouch_tree_mount::{MountOptions, NamespaceTrees, Passthrough, XattrMode};

use crate::audit_options::AuditArgs;
use crate::cli::Global;
use crate::client_options::ClientArgs;
use crate::exit::{At as _, Failure, Outcome};
use crate::revision_options::RevisionArgs;
use crate::tree_path::TreePath;
use crate::{config, interrupt, output, size};

/// Mount a published tree, or the namespace of all trees.
///
/// All data is verified up to the key in the name. A new revision appears without a remount; open
/// files stay readable. While no replica is reachable, cached and valid data is still served; other
/// data gives an error within --timeout and never hangs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch mount @pub.example.org,HOSTID /mnt\n  vouch mount --background @pub.example.org,HOSTID /mnt --replica mirror.example\n  \
                  vouch mount --tag v1.2 @pub.example.org,HOSTID /mnt   stays at that revision\n  \
                  vouch mount --auto /vouch          then: ls /vouch/@pub.example.org,HOSTID/\n\n\
                  With --background the log goes to the system's log once it is mounted, unless --log-file is given. In the foreground it runs until Ctrl-C, SIGTERM or `vouch umount DIR`. SIGHUP opens the log file again and, with --audit, reads the audit rules anew."
)]
pub(crate) struct Args {
    /// The tree, or with --auto the mount point. A mount point alone is a tree of the configuration.
    #[arg(value_name = "NAME")]
    first: OsString,
    /// The mount point.
    #[arg(value_name = "DIR")]
    second: Option<PathBuf>,
    /// Mount the whole namespace: @HOST[:PORT],HOSTID appears when it is used, and links between
    /// trees work.
    #[arg(long, conflicts_with = "second")]
    auto: bool,
    /// Return when mounted, and continue in the background.
    #[arg(long, short)]
    background: bool,
    /// Set by the command itself for the background process.
    #[arg(long, hide = true)]
    detached: bool,
    /// Set by mount.vouch: print nothing, and succeed if this tree is mounted here already.
    #[arg(long, hide = true)]
    helper: bool,
    /// Serve in this process, without a supervisor. The mount then ends with the process, and
    /// `vouch upgrade` cannot replace it.
    #[arg(long)]
    no_supervisor: bool,
    /// Set by the command itself for the processes that it starts.
    #[arg(long, hide = true, default_value = "supervisor")]
    role: Role,
    #[command(flatten)]
    revision: RevisionArgs,
    /// Give other users access. Default for root; other users need user_allow_other in
    /// /etc/fuse.conf.
    #[arg(long, conflicts_with = "only_me")]
    allow_other: bool,
    /// Give no other user access, even if root mounts.
    #[arg(long)]
    only_me: bool,
    /// Honour set-user-id bits: this trusts the publisher with privileges.
    #[arg(long)]
    suid: bool,
    /// Honour device nodes.
    #[arg(long)]
    dev: bool,
    /// Forbid execution.
    #[arg(long)]
    noexec: bool,
    /// Extended attributes: auto shows them unless the tree has none. `off` also turns off
    /// user.vouch.*.
    #[arg(long, value_name = "MODE", default_value = "auto")]
    xattrs: Xattrs,
    /// Threads that answer the kernel; the default is one for each core, 2 to 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Read-ahead of the kernel.
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = size::parse)]
    read_ahead: u64,
    /// Let the kernel itself read large, wholly cached files (FUSE passthrough): as fast as local
    /// files, but each open asks the daemon. `auto` stops when opens of small files cost more than
    /// is gained. Needs root, a disk cache and kernel support; otherwise acts as `never`. A file
    /// opened this way stays readable after the tree has expired or was revoked; use `never` if
    /// that is not acceptable. SECURITY.md says what protects the copies.
    #[arg(long, value_name = "WHEN", default_value = "auto", num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    passthrough: PassthroughArg,
    /// Address of the metrics and health page. The same is on the status socket, see vouch-status(1).
    #[arg(long, alias = "audit-metrics", value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    audit: AuditArgs,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Xattrs {
    Auto,
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PassthroughArg {
    Never,
    Auto,
    Always,
}

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        !self.background || self.detached
    }
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let (tree, point) = match (&args.second, args.auto) {
        (Some(point), false) => (Some(TreePath::parse(&args.first)?), point.clone()),
        (None, true) => (None, PathBuf::from(&args.first)),
        _ => match config::loaded().mounted_at(Path::new(&args.first)) {
            Some((_, entry)) => (
                Some(TreePath { name: entry.name.clone(), path: Vec::new() }),
                PathBuf::from(&args.first),
            ),
            None => {
                return Err(Failure::usage("DIR", "missing").cure(
                    "give the mount point, or `dir` in [tree.NAME.mount] of the configuration",
                ));
            }
        },
    };
    if args.background && !args.detached {
        let label =
            tree.as_ref().map_or_else(|| config::AUTO.to_owned(), |tree| tree.name.to_string());
        if args.helper && vouch_tree_mount::is_mounted(&label, &point) {
            return Ok(());
        }
        interrupt::watch().at("signals")?;
        let line = start_in_background(config::arguments().into_iter().skip(1))?;
        return if args.helper { Ok(()) } else { output::text(&line) };
    }
    if args.role == Role::Successor || args.role == Role::Supervisor && !args.no_supervisor {
        let supervised = Supervised {
            arguments: config::arguments().into_iter().skip(1).collect(),
            configuration: config::loaded().trees_text(),
            is_detached: args.detached,
        };
        return Ok(supervise(args.role, supervised)?);
    }
    if args.auto && !args.revision.is_newest() {
        return Err(Failure::usage("--auto", "always shows the newest revisions")
            .cure("mount one tree to choose its revision"));
    }
    if tree.as_ref().is_some_and(|tree| !tree.path.is_empty()) {
        return Err(Failure::usage("NAME", "a whole tree is mounted, not a path in it"));
    }
    let plan = MountPlan {
        tree: tree.map(|tree| PlannedTree {
            options: args.client.tree_options(&tree.name),
            name: tree.name,
        }),
        namespace: namespace_trees(&args.client),
        point,
        options: mount_options(&args)?,
        trail: args.audit.config(),
        metrics: args.metrics,
        is_detached: args.detached,
        program: VERSION,
    };
    vouch_mount_service::run(args.role, &plan, &args)
}

impl MountSource for Args {
    type Error = Failure;

    async fn client(&self, observer: Option<Arc<dyn FaultObserver>>) -> Outcome<Arc<Client>> {
        self.client.client_before(observer).await
    }

    async fn revision(&self, tree: &Arc<Tree>) -> Outcome<Option<Arc<Revision>>> {
        if self.revision.is_newest() { Ok(None) } else { self.revision.find(tree).await.map(Some) }
    }

    fn announce(&self, line: &str) -> Outcome {
        output::text(line)
    }
}

fn namespace_trees(client: &ClientArgs) -> NamespaceTrees {
    let trees = &config::loaded().trees;
    NamespaceTrees {
        options: client.common_tree_options(),
        by_key: trees
            .values()
            .map(|tree| (*tree.name.hostid(), client.tree_options(&tree.name)))
            .collect(),
        short_names: trees.iter().map(|(short, tree)| (short.clone(), tree.name.clone())).collect(),
    }
}

fn mount_options(args: &Args) -> Outcome<MountOptions> {
    Ok(MountOptions {
        allow_other: if args.allow_other { Some(true) } else { args.only_me.then_some(false) },
        suid: args.suid,
        dev: args.dev,
        exec: !args.noexec,
        threads: args.threads.map(usize::from),
        read_ahead_bytes: u32::try_from(args.read_ahead)
            .map_err(|_| Failure::usage("--read-ahead", "is more than 4G"))?,
        xattrs: match args.xattrs {
            Xattrs::Auto => XattrMode::Auto,
            Xattrs::On => XattrMode::On,
            Xattrs::Off => XattrMode::Off,
        },
        passthrough: match args.passthrough {
            PassthroughArg::Never => Passthrough::Never,
            PassthroughArg::Auto => Passthrough::Auto,
            PassthroughArg::Always => Passthrough::Always,
        },
        deadline: args.client.answer_max(),
        ..MountOptions::default()
    })
}

const VERSION: &str = concat!("vouch mount ", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(more: &[&str]) -> Args {
        Command::parse_from([&["mount", "NAME", "DIR"], more].concat()).args
    }

    #[test]
    fn passthrough_default_is_automatic() {
        assert_eq!(parsed(&[]).passthrough, PassthroughArg::Auto);
        assert_eq!(parsed(&["--passthrough"]).passthrough, PassthroughArg::Auto);
        assert_eq!(parsed(&["--passthrough=never"]).passthrough, PassthroughArg::Never);
    }

    #[test]
    fn system_call_ends_a_second_after_its_timeout() {
        let options = mount_options(&parsed(&["--timeout", "40s"])).expect("valid options");
        assert_eq!(options.deadline, Duration::from_secs(41));
    }
}
