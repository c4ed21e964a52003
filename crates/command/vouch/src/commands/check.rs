mod bucket;
mod configured; // What the configuration names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use vouch_diagnose::{
    ClientSettings, Extent, Fault, Finding, Findings, MachineStatus, check_export, check_gateway,
    check_jobs_agent, check_jobs_broker, check_keytab, check_machine, check_mount, check_state,
    check_tree, check_user,
};
use vouch_tree::TreeName;
use vouch_tree_client::{TreeOptions, without_userinfo};

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Code, Failure, Outcome};
use crate::tree_path::TreePath;
use crate::{config, output};

/// Look for causes of trouble, and name their cures.
///
/// Checks the device for mounts, the clock, the state directory and the disk cache; then each
/// target. Without a target, it checks all mounts, gateways, exports, and brokers and agents of jobs
/// that run on this machine, and the trees, keytabs, databases and directories of the configuration. It reads a part of each tree from each replica and leaves nothing behind.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch check                               this machine and its daemons\n  vouch check @pub.example.org,HOSTID       a tree, from here\n  \
                  vouch check /software                     a mount\n  vouch check /var/lib/vouch/export         an export, by its state directory\n  \
                  vouch check --keytab /etc/krb5.keytab     a keytab of an export\n  vouch check --user alice                  a user of an export\n  \
                  vouch check s3://BUCKET/PREFIX            whether publishers can share a bucket\n\n\
                  In a bucket, eight writers race for each of ten objects, which are deleted.\n\n\
                  Exit codes: 0 no problem found, or a bucket is fit; 1 a problem was found, or a bucket is unfit; 2 invalid command line; 3 there is no such bucket; \
                  4 a target does not exist; 5 a bucket's server refuses the credentials; 6 it does not answer. docs/troubleshooting.md lists all faults by name."
)]
pub(crate) struct Args {
    /// A tree by its name or short name, a mount point, the state directory of an export or a client, or s3://BUCKET/PREFIX.
    #[arg(value_name = "TARGET")]
    targets: Vec<OsString>,
    /// Check that this keytab has a key of the service nfs.
    #[arg(long, value_name = "FILE")]
    keytab: Option<PathBuf>,
    /// Look this user and its groups up as an export does; may be repeated.
    #[arg(long, value_name = "NAME")]
    user: Vec<String>,
    /// Read each tree whole from each replica, instead of 16 MiB or for 5 seconds.
    #[arg(long)]
    deep: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

enum Target {
    Bucket(String),
    Tree(TreePath),
    Mount(PathBuf),
    Export(PathBuf),
    State(PathBuf),
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let targets = args.targets.iter().map(Target::parse).collect::<Outcome<Vec<_>>>()?;
    let machine = MachineStatus::read()?;
    let mut check = Check {
        args: &args,
        settings: args.client.settings(),
        machine: &machine,
        findings: Findings::default(),
    };
    // Then the exit code speaks of the buckets alone.
    let is_machine_concerned =
        targets.is_empty() || !targets.iter().all(|target| matches!(target, Target::Bucket(_)));
    if is_machine_concerned {
        check_machine(&check.settings, &mut check.findings);
    }
    if let Some(keytab) = &args.keytab {
        check.findings.add(check_keytab(keytab));
    }
    args.user.iter().for_each(|name| check.findings.add(check_user(name)));
    for target in &targets {
        check.target(target)?;
    }
    if targets.is_empty() && args.keytab.is_none() && args.user.is_empty() {
        check.everything()?;
    }
    let findings = check.findings;
    if args.json {
        output::json(&findings)?
    } else {
        output::text(&findings.to_string())?
    }
    if findings.has_problems() { Err(Failure::silent(Code::Differs)) } else { Ok(()) }
}

struct Check<'a> {
    args: &'a Args,
    settings: ClientSettings,
    machine: &'a MachineStatus,
    findings: Findings,
}

impl Check<'_> {
    fn target(&mut self, target: &Target) -> Outcome {
        match target {
            Target::Bucket(address) => self.findings.add(bucket::check(address)?),
            Target::Tree(name) => {
                self.tree(&name.name, self.args.client.tree_options(&name.name))?
            }
            Target::Mount(point) => self.mount(point)?,
            Target::Export(state) => check_export(state, self.machine, &mut self.findings),
            Target::State(state) => check_state(state, &mut self.findings),
        }
        Ok(())
    }

    /// All services and mounts that run, and the trees of the configuration.
    fn everything(&mut self) -> Outcome {
        let machine = self.machine;
        let points = machine
            .mounts()
            .map(|(_, mount)| mount.point)
            .chain(machine.mounts_without_status.iter().cloned());
        for point in points.collect::<Vec<_>>() {
            self.mount(&point)?;
        }
        for (_, status) in machine.exports() {
            check_export(Path::new(&status.site.state), machine, &mut self.findings);
        }
        for (daemon, status) in machine.jobs_brokers() {
            check_jobs_broker(daemon, &status, &mut self.findings);
        }
        for (daemon, status) in machine.jobs_agents() {
            check_jobs_agent(daemon, &status, &mut self.findings);
        }
        let mut shown: Vec<String> =
            machine.mounts().flat_map(|(_, mount)| mount.trees).map(|tree| tree.name).collect();
        for (daemon, gateway) in machine.gateways() {
            if let Some(name) = check_gateway(daemon, &gateway, &mut self.findings)
                && !shown.contains(&gateway.tree)
            {
                self.tree(&name, self.args.client.tree_options(&name))?;
                shown.push(gateway.tree);
            }
        }
        for entry in
            config::loaded().trees.values().filter(|entry| !shown.contains(&entry.name.to_string()))
        {
            self.tree(&entry.name, self.args.client.tree_options(&entry.name))?;
        }
        let cache = self.settings.cache.clone();
        let seen = self
            .settings
            .state_directory
            .iter()
            .chain(cache.as_ref().map(|(directory, _)| directory))
            .cloned()
            .collect();
        configured::check(
            machine,
            cache.map_or(u64::MAX, |(_, quota)| quota),
            seen,
            &mut self.findings,
        );
        for daemon in &machine.unanswered {
            let (socket, fault) = (daemon.socket.display(), Fault::DaemonSilent);
            self.findings.add(if daemon.is_forbidden {
                Finding::note(fault, socket, &daemon.why).cure("run as root to see it")
            } else {
                Finding::problem(fault, socket, &daemon.why)
                    .cure("its process may be stuck or stopped: look at its log, and restart it")
            });
        }
        Ok(())
    }

    fn mount(&mut self, point: &Path) -> Outcome {
        for (name, mut options) in check_mount(point, self.machine, &mut self.findings) {
            // The mount does not tell the passwords in its URLs.
            let configured = self.args.client.tree_options(&name).replicas;
            for replica in &mut options.replicas {
                if let Some(whole) =
                    configured.iter().find(|whole| without_userinfo(&with_slash(whole)) == *replica)
                {
                    replica.clone_from(whole);
                }
            }
            self.tree(&name, options)?;
        }
        Ok(())
    }

    fn tree(&mut self, name: &TreeName, options: TreeOptions) -> Outcome {
        let extent = if self.args.deep { Extent::All } else { Extent::Sample };
        client_options::block_on(async {
            check_tree(&self.settings, name, options, extent, &mut self.findings).await;
            Ok(())
        })
    }
}

/// As a mount shows the URL of a replica.
fn with_slash(url: &str) -> String {
    if url.ends_with('/') { url.to_owned() } else { format!("{url}/") }
}

impl Target {
    fn parse(text: &OsString) -> Outcome<Self> {
        if text.as_bytes().starts_with(b"s3://") {
            return Ok(Target::Bucket(text.to_string_lossy().into_owned()));
        }
        let is_short_name = text.to_str().is_some_and(|text| config::loaded().tree(text).is_some());
        if text.as_bytes().starts_with(b"@") || is_short_name {
            return Ok(Target::Tree(TreePath::parse(text)?));
        }
        let path = PathBuf::from(text);
        // A dead mount cannot be resolved.
        let absolute =
            path.canonicalize().or_else(|_| std::path::absolute(&path)).at(path.display())?;
        if vouch_tree_mount::mount_points().at("/proc/self/mountinfo")?.contains(&absolute) {
            return Ok(Target::Mount(absolute));
        }
        let metadata = std::fs::metadata(&path).at(path.display())?;
        if !metadata.is_dir() {
            return Err(Failure::input(path.display(), "neither a tree's name nor a directory")
                .cure("see `vouch help check`"));
        }
        let is_export =
            ["filehandle.key", "recovery.redb"].iter().any(|file| path.join(file).exists());
        Ok(if is_export { Target::Export(absolute) } else { Target::State(absolute) })
    }
}
