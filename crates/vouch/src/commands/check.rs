//! `vouch check`: looks at this machine and names causes of trouble with their cures.

mod export;
mod finding;
mod local;
mod mount;
mod network;
mod tree;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use finding::{Finding, Findings};
use vouch_tree_client::TreeOptions;

use super::status::MachineStatus;
use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Code, Failure, Outcome};
use crate::tree_path::TreePath;
use crate::{config, output};

/// Look for causes of trouble, and name their cures.
///
/// Checks the device for mounts, the clock, the state directory and the disk cache; then each
/// target. Without a target, it checks all mounts and exports that run on this machine, and the trees
/// of the configuration. It reads a part of each tree from each replica and leaves nothing behind.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch check                               this machine and its daemons\n  vouch check @pub.example.org,HOSTID       a tree, from here\n  \
                  vouch check /software                     a mount\n  vouch check /var/lib/vouch/export         an export, by its state directory\n  \
                  vouch check --keytab /etc/krb5.keytab     a keytab of an export\n\n\
                  Exit codes: 0 no problem found; 1 a problem was found; 2 invalid command line; 4 a target does not exist. docs/troubleshooting.md lists all faults by name."
)]
pub(crate) struct Args {
    /// A tree by its name or short name, a mount point, or the state directory of an export or a client.
    #[arg(value_name = "TARGET")]
    targets: Vec<OsString>,
    /// Check that this keytab has a key of the service nfs.
    #[arg(long, value_name = "FILE")]
    keytab: Option<PathBuf>,
    /// Read each tree whole from each replica, instead of 16 MiB or for 5 seconds.
    #[arg(long)]
    deep: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// What is checked.
enum Target {
    Tree(TreePath),
    Mount(PathBuf),
    Export(PathBuf),
    State(PathBuf),
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let targets = args.targets.iter().map(Target::parse).collect::<Outcome<Vec<_>>>()?;
    let machine = MachineStatus::read()?;
    let mut findings = Findings::default();
    local::check(&args.client, &mut findings);
    if let Some(keytab) = &args.keytab {
        findings.add(export::check_keytab(keytab));
    }
    let whole = if args.deep { tree::Extent::All } else { tree::Extent::Sample };
    let check_tree = |name: &TreePath, options: TreeOptions, findings: &mut Findings| {
        client_options::block_on(async {
            tree::check(&args.client, &name.name, options, whole, findings).await;
            Ok(())
        })
    };
    for target in &targets {
        match target {
            Target::Tree(name) => check_tree(name, args.client.tree_options(&name.name), &mut findings)?,
            Target::Mount(point) => {
                for (name, options) in mount::check(point, &machine, &mut findings) {
                    check_tree(&name, options, &mut findings)?;
                }
            }
            Target::Export(state) => export::check(state, &machine, &mut findings),
            Target::State(state) => local::check_state(state, &mut findings),
        }
    }
    if targets.is_empty() && args.keytab.is_none() {
        let points = machine.mounts().map(|(_, mount)| mount.point).chain(machine.mounts_without_status.iter().cloned());
        for point in points.collect::<Vec<_>>() {
            for (name, options) in mount::check(&point, &machine, &mut findings) {
                check_tree(&name, options, &mut findings)?;
            }
        }
        for (_, status) in machine.exports() {
            export::check(Path::new(&status.site.state), &machine, &mut findings);
        }
        let shown: Vec<String> = machine.mounts().flat_map(|(_, mount)| mount.trees).map(|tree| tree.name).collect();
        for entry in config::loaded().trees.values().filter(|entry| !shown.contains(&entry.name.to_string())) {
            let name = TreePath { name: entry.name.clone(), path: Vec::new() };
            check_tree(&name, args.client.tree_options(&name.name), &mut findings)?;
        }
        machine.unanswered.iter().for_each(|daemon| {
            findings.add(
                Finding::problem("daemon-silent", daemon.socket.display(), &daemon.why)
                    .cure("its process may be stuck or stopped: look at its log, and restart it"),
            );
        });
    }
    if args.json {
        output::json(&findings)?
    } else {
        output::text(&findings.to_string())?
    }
    if findings.has_problems() { Err(Failure::silent(Code::Differs)) } else { Ok(()) }
}

impl Target {
    fn parse(text: &OsString) -> Outcome<Self> {
        let is_short_name = text.to_str().is_some_and(|text| config::loaded().tree(text).is_some());
        if text.as_bytes().starts_with(b"@") || is_short_name {
            return Ok(Target::Tree(TreePath::parse(text)?));
        }
        let path = PathBuf::from(text);
        // A dead mount cannot be resolved.
        let absolute = path.canonicalize().or_else(|_| std::path::absolute(&path)).at(path.display())?;
        if vouch_tree_mount::mount_points().at("/proc/self/mountinfo")?.contains(&absolute) {
            return Ok(Target::Mount(absolute));
        }
        let metadata = std::fs::metadata(&path).at(path.display())?;
        if !metadata.is_dir() {
            return Err(Failure::input(path.display(), "neither a tree's name nor a directory").cure("see `vouch help check`"));
        }
        let is_export = ["filehandle.key", "recovery.redb"].iter().any(|file| path.join(file).exists());
        Ok(if is_export { Target::Export(absolute) } else { Target::State(absolute) })
    }
}
