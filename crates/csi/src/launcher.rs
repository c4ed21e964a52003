//! Starts `vouch mount` and `vouch nfs-mount` so that their processes outlive the driver.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use sha2::{Digest as _, Sha256};
use tonic::{Code, Status};
use vouch_daemon::failure::{At as _, Outcome};

/// Keeps the mounts' processes apart from the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// A process of its own session: for a driver that runs on the node itself.
    Process,
    /// A systemd scope of the node, started from within the driver's pod (`hostPID`, privileged). It
    /// has its own control group, so the end of the pod does not end it.
    Systemd,
}

impl Launch {
    /// Systemd if the node has it and this process may enter the node's namespaces.
    pub fn detect() -> Self {
        let init = std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
        let is_container = std::fs::read_link("/proc/1/ns/mnt").ok()
            != std::fs::read_link("/proc/self/ns/mnt").ok();
        if init.trim() == "systemd" && is_container { Self::Systemd } else { Self::Process }
    }
}

pub(crate) struct Launcher {
    launch: Launch,
    program: PathBuf,
    /// Options of each mount of a tree.
    options: Vec<OsString>,
    /// The program on the node was replaced, so that running mounts can be upgraded.
    pub(crate) is_new_program: bool,
}

impl Launcher {
    /// With [`Launch::Systemd`], copies this program into `directory`, which the node sees at the same
    /// path: the image's own files end with the pod.
    pub(crate) fn new(launch: Launch, directory: &Path, options: Vec<OsString>) -> Outcome<Self> {
        let own = std::env::current_exe().at("this program")?;
        let (program, is_new_program) = match launch {
            Launch::Process => (own, false),
            Launch::Systemd => {
                let program = directory.join("vouch");
                let is_new = install(&own, &program).at(program.display())?;
                (program, is_new)
            }
        };
        Ok(Self { launch, program, options, is_new_program })
    }

    /// Returns when the tree is mounted.
    pub(crate) async fn mount_tree(
        &self,
        key: &str,
        options: &[OsString],
        name: &str,
        point: &Path,
    ) -> Result<(), Status> {
        let mut arguments: Vec<OsString> = vec!["mount".into(), "--background".into()];
        arguments.extend(self.options.iter().chain(options).cloned());
        arguments.extend(["--".into(), name.into(), point.into()]);
        self.run(key, &arguments, None).await
    }

    /// Returns when the export is mounted. `cache` has the tickets.
    pub(crate) async fn mount_export(
        &self,
        key: &str,
        options: &[OsString],
        cache: Option<&Path>,
        source: &str,
        point: &Path,
    ) -> Result<(), Status> {
        // Pods with user namespaces need an idmapped mount.
        let mut arguments: Vec<OsString> =
            ["nfs-mount", "--background", "--idmap"].map(OsString::from).into();
        arguments.extend(options.iter().cloned());
        arguments.extend(["--".into(), source.into(), point.into()]);
        self.run(key, &arguments, cache).await
    }

    /// Replaces the process of a mount by one of the installed program.
    pub(crate) async fn upgrade(&self, key: &str, point: &Path) -> Result<(), Status> {
        self.run(key, &["upgrade".into(), "--".into(), point.into()], None).await
    }

    async fn run(
        &self,
        key: &str,
        arguments: &[OsString],
        cache: Option<&Path>,
    ) -> Result<(), Status> {
        let line = command_line(self.launch, key, &self.program, arguments);
        let mut command = tokio::process::Command::new(&line[0]);
        command.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C in the driver's terminal is no signal to mounts.
        command.process_group(0);
        if let Some(cache) = cache {
            let mut name = OsString::from("FILE:");
            name.push(cache);
            command.env("KRB5CCNAME", name);
        }
        let failed = |error: io::Error| {
            Status::internal(format!("{}: {error}", Path::new(&line[0]).display()))
        };
        let child = command.spawn().map_err(failed)?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let output = tokio::time::timeout(START_MAX, child.wait_with_output()).await;
        let Ok(output) = output else {
            group.map(|group| kill_process_group(group, Signal::KILL));
            let seconds = START_MAX.as_secs();
            return Err(Status::unavailable(format!(
                "the server has not answered for {seconds} s"
            )));
        };
        let output = output.map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let why = text.lines().rev().find_map(|line| line.strip_prefix("vouch: "));
        let why = why.or(text.lines().next_back()).unwrap_or("no message");
        Err(Status::new(code(output.status.code()), why.to_owned()))
    }
}

/// Less than the time after which kubelet ends its call.
const START_MAX: Duration = Duration::from_secs(100);

/// The program and its arguments.
fn command_line(
    launch: Launch,
    key: &str,
    program: &Path,
    arguments: &[OsString],
) -> Vec<OsString> {
    let mut line: Vec<OsString> = match launch {
        Launch::Process => Vec::new(),
        // A scope runs in the caller's namespaces, which are those of the node now.
        Launch::Systemd => [
            "nsenter",
            "--target=1",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--cgroup",
            "--",
            "sh",
            "-c",
            LEAVE_CONTROL_GROUPS,
            "sh",
            "systemd-run",
            "--scope",
            "--quiet",
            "--collect",
        ]
        .map(OsString::from)
        .into_iter()
        .chain([unit(key).into(), "--".into()])
        .collect(),
    };
    line.push(program.into());
    line.extend(arguments.iter().cloned());
    line
}

/// The former mount of the same key may still be ending.
fn unit(key: &str) -> String {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    format!("--unit=vouch-csi-{key}-{}-{number}", std::process::id())
}

/// Of version 1: systemd moves a scope in the hierarchies of some controllers only. A process that stays
/// in a group of the driver's container keeps the container from its end.
const LEAVE_CONTROL_GROUPS: &str = r#"[ -e /sys/fs/cgroup/cgroup.procs ] ||
    for group in /sys/fs/cgroup/*/cgroup.procs; do echo $$ >"$group"; done 2>/dev/null
exec "$@""#;

/// From exit codes of `vouch`.
fn code(exit: Option<i32>) -> Code {
    match exit {
        Some(2 | 3) => Code::InvalidArgument,
        Some(4) => Code::NotFound,
        Some(5 | 10) => Code::FailedPrecondition,
        Some(6 | 8) => Code::Unavailable,
        _ => Code::Internal,
    }
}

/// True if the file was replaced. A mount that runs keeps the program that it was started from.
fn install(own: &Path, program: &Path) -> io::Result<bool> {
    let content = std::fs::read(own)?;
    if std::fs::read(program).is_ok_and(|there| Sha256::digest(&there) == Sha256::digest(&content))
    {
        return Ok(false);
    }
    let new = program.with_extension("new");
    std::fs::write(&new, content)?;
    std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    std::fs::File::open(&new)?.sync_all()?;
    std::fs::rename(&new, program)?;
    Ok(true)
}

/// mount(8), for exports. It knows nothing of the driver.
pub(crate) async fn run_tool(program: &str, arguments: &[&OsStr]) -> Result<(), Status> {
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|error| Status::internal(format!("{program}: {error}; the image needs it")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let why = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").trim();
    Err(Status::internal(format!(
        "{program}: {why} (exit code {})",
        output.status.code().unwrap_or(-1)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_is_started_in_the_namespaces_of_the_node() {
        let line = command_line(
            Launch::Systemd,
            "k",
            Path::new("/p/vouch"),
            &["mount".into(), "@a".into()],
        );
        let line = line.join(OsStr::new(" ")).into_string().unwrap();
        assert!(line.starts_with("nsenter --target=1 --mount "), "{line}");
        assert!(
            line.contains(" sh systemd-run --scope --quiet --collect --unit=vouch-csi-k-"),
            "{line}"
        );
        assert!(line.ends_with(" -- /p/vouch mount @a"), "{line}");
        assert_ne!(unit("k"), unit("k"));
    }

    #[test]
    fn program_is_replaced_only_by_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let (own, program) = (directory.path().join("own"), directory.path().join("vouch"));
        std::fs::write(&own, "1").unwrap();
        assert!(install(&own, &program).unwrap());
        assert!(!install(&own, &program).unwrap());
        std::fs::write(&own, "2").unwrap();
        assert!(install(&own, &program).unwrap());
        assert_eq!(std::fs::read(program).unwrap(), b"2");
    }
}
