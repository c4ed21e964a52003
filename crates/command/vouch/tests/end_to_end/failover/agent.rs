//! The OCF agent with the built program, as pacemaker calls it.

use crate::prelude::*;

const SUCCESS: Option<i32> = Some(0);
const ERR_GENERIC: Option<i32> = Some(1);
const NOT_RUNNING: Option<i32> = Some(7);

struct Agent {
    site: TestSite,
    binary: String,
}

impl Agent {
    fn call(&self, action: &str) -> Option<i32> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../packaging/failover/vouch-export.ocf");
        let mut command = Command::new("sh");
        command.arg(program).arg(action).current_dir(self.site.path("")).stdin(Stdio::null());
        command.envs(
            self.site.command([""; 0]).get_envs().filter_map(|(name, value)| Some((name, value?))),
        );
        command.env("VOUCH_CONFIG", self.site.path("etc")).env("HA_RSCTMP", self.site.path("run"));
        command
            .env("OCF_FUNCTIONS_DIR", "/nonexistent")
            .env("OCF_RESKEY_binary", &self.binary)
            .env("OCF_RESKEY_head", "a");
        command
            .env("OCF_RESKEY_state", self.site.path("shared"))
            .env("OCF_RESKEY_log", self.site.path("log"));
        command.status().expect("sh").code()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.site.path("log")).unwrap_or_default()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.call("stop");
    }
}

#[test]
fn agent_starts_monitors_and_stops_head_with_default_configuration() {
    let site = TestSite::with_directories(&["data"]);
    site.state_directory("shared");
    site.write(
        "exports",
        format!("{} *(rw,insecure,no_root_squash)\n", site.path("data").display()),
    );
    let (exports, port) = (site.path("exports"), free_port());
    site.write(
        "etc/conf.d/export.toml",
        format!("[export]\nexports = {exports:?}\nlisten = \"127.0.0.1:{port}\"\n"),
    );
    let agent = Agent { site, binary: env!("CARGO_BIN_EXE_vouch").to_owned() };
    assert_eq!(agent.call("monitor"), NOT_RUNNING);
    assert_eq!(agent.call("start"), SUCCESS, "{}", agent.log());
    assert_eq!(
        (agent.call("monitor"), agent.call("start"), agent.call("reload")),
        (SUCCESS, SUCCESS, SUCCESS),
        "{}",
        agent.log()
    );
    assert_eq!(
        (agent.call("stop"), agent.call("monitor"), agent.call("stop")),
        (SUCCESS, NOT_RUNNING, SUCCESS),
        "{}",
        agent.log()
    );
    let record = fs::read_to_string(agent.site.path("shared/lease/epoch-1")).expect("the record");
    assert!(record.contains("\ntenure released\n"), "{record}");
}

/// As a server whose operation hangs in the storage after SIGTERM.
#[test]
#[ignore = "needs python3"]
fn process_without_main_thread_runs_while_another_thread_does() {
    require_program("python3");
    const SCRIPT: &str = "import ctypes, os, threading, time\nthreading.Thread(target=time.sleep, args=(10000,)).start()\n\
                          ctypes.CDLL(None).syscall(ctypes.c_long(60 if os.uname().machine == 'x86_64' else 93), 0)";
    let child =
        Command::new("python3").args(["-c", SCRIPT]).stdin(Stdio::null()).spawn().expect("python3");
    let (child, site) = (KillOnDrop(child), TestSite::with_directories(&["run"]));
    site.write("run/vouch-export-default.pid", child.id().to_string());
    let stat = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    within(120, "the main thread does not end", || stat().contains(") Z "));
    let comm = fs::read_to_string(format!("/proc/{}/comm", child.id())).expect("the process");
    let agent = Agent { site, binary: format!("/usr/bin/{}", comm.trim()) };
    assert_eq!(agent.call("monitor"), ERR_GENERIC);
    assert_eq!((agent.call("stop"), agent.call("monitor")), (SUCCESS, NOT_RUNNING));
}

#[test]
fn units_of_heads_start_again_however_long_the_storage_fails() {
    for unit in ["vouch-export.service", "vouch-export@.service"] {
        let text = fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/systemd").join(unit),
        )
        .expect("a unit");
        assert!(text.contains("\nStartLimitIntervalSec=0\n"), "{unit}");
    }
}
