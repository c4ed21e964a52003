//! Slurm of this machine, or of the suite that VOUCH_PEERS_SUITE names: slurmctld, slurmd and munged, set
//! up as docs/jobs.md says.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use vouch_testkit::kill_on_drop::KillOnDrop;
use vouch_testkit::{documented_block, peers_root, peers_suite, require, within};

use super::site::Site;

pub(super) struct Slurm {
    directory: tempfile::TempDir,
    /// Of the controller and of the node.
    ports: [u16; 2],
    node: Option<KillOnDrop>,
    controller: Option<KillOnDrop>,
    _munged: Option<KillOnDrop>,
}

const PAGE: &str = include_str!("../../../../../../docs/jobs.md");
const USER: &str = "daemon";
/// Runs a program of the root file system $0, with files of this machine.
const INSIDE: &str = r#"set -e
for path in "$1" "$2" /dev /proc /sys /etc/passwd /etc/group /etc/hosts; do
    if [ -d "$path" ]; then mkdir -p "$0$path"; else touch "$0$path"; fi
    mount --rbind "$path" "$0$path"
done
shift 2
exec chroot "$0" "$@"
"#;

/// Process 1 of a namespace. It waits for processes that have lost their parent, which Slurm would
/// otherwise count among those of a job.
const INIT: &str = r#""$@" & while :; do wait; sleep 0.2; done"#;

impl Slurm {
    /// A cluster with one node, `n1`, whose agent the site runs, and which runs this number of jobs at
    /// once.
    pub(super) fn start(site: &Site, job_count: u32) -> Slurm {
        let root = peers_suite().map_or_else(String::new, |_| peers_root("slurm"));
        let needs = ["sbin/slurmctld", "sbin/slurmd", "sbin/munged", "bin/squeue"];
        require(
            "the packages slurmctld, slurmd, slurm-client and munge",
            needs.iter().all(|path| Path::new(&format!("{root}/usr/{path}")).exists()),
        );
        let directory = tempfile::tempdir().expect("a directory");
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let ports = ports.map(|socket| socket.local_addr().expect("bound").port());
        let mut slurm = Slurm { directory, ports, node: None, controller: None, _munged: None };
        let chmod = |name: &str, mode| {
            std::fs::set_permissions(slurm.path(name), std::fs::Permissions::from_mode(mode))
                .expect("an own file");
        };
        chmod(".", 0o755);
        for name in ["munge", "state", "spool", "output"] {
            std::fs::create_dir(slurm.path(name)).expect("a directory");
        }
        let user = nix::unistd::User::from_name("slurm").expect("the name service");
        let user = user.expect("the package slurmctld makes this user").uid.as_raw();
        std::os::unix::fs::chown(slurm.path("state"), Some(user), None).expect("an own directory");
        std::fs::write(slurm.path("munge.key"), [7; 128]).expect("a file");
        std::fs::write(slurm.path("scripts.log"), "").expect("a file");
        // The user slurm must reach the program.
        std::fs::copy(env!("CARGO_BIN_EXE_vouch"), slurm.path("vouch")).expect("a copy");
        for (name, mode) in [("output", 0o777), ("munge.key", 0o400), ("scripts.log", 0o666)] {
            chmod(name, mode);
        }
        slurm.write_configuration(job_count);
        slurm.start_munged();
        slurm.start_controller();
        let configuration = slurm.configuration();
        slurm.node = Some(slurm.spawn(
            "slurmd",
            &["-D", "-N", "n1", "-f", configuration.to_str().expect("a temporary name")],
        ));
        slurm.wait_until_idle();
        slurm.follow_page(site);
        slurm
    }

    fn start_munged(&mut self) {
        let option = |option: &str, name: &str| format!("--{option}={}", self.path(name).display());
        let (socket, pid) = (option("socket", "munge/socket"), option("pid-file", "munge/pid"));
        let (key, seed) = (option("key-file", "munge.key"), option("seed-file", "munge/seed"));
        let munged = self.spawn("munged", &["--foreground", "--force", &socket, &pid, &key, &seed]);
        self._munged = Some(munged);
        within(60, "munged listens", || self.path("munge/socket").exists());
    }

    fn start_controller(&mut self) {
        self.controller = None;
        within(60, "its port is free", || TcpListener::bind(("127.0.0.1", self.ports[0])).is_ok());
        let configuration = self.configuration();
        let configuration = configuration.to_str().expect("a temporary name");
        self.controller = Some(self.spawn("slurmctld", &["-D", "-i", "-f", configuration]));
    }

    pub(super) fn wait_until_idle(&self) {
        within(60, "the node is free", || {
            self.output("sinfo", &["--noheader", "--format", "%T"]).trim() == "idle"
        });
    }

    /// Writes the scripts and lines of the page, and takes the page's steps.
    fn follow_page(&mut self, site: &Site) {
        let here = self.directory.path().display().to_string();
        let mut configuration = std::fs::read_to_string(self.configuration()).expect("a file");
        for line in documented_block(PAGE, "PrologSlurmctld=").lines() {
            let (setting, command) = line.split_once("# exec vouch").unwrap_or((line, ""));
            let setting = setting.trim_end().replace("/etc/slurm", &here);
            if let Some((_, script)) = setting.split_once('=').filter(|_| !command.is_empty()) {
                self.write_script(Path::new(script), command, site);
            }
            configuration.push_str(&format!("{setting}\n"));
        }
        std::fs::write(self.configuration(), configuration).expect("a file");
        assert!(documented_block(PAGE, "scontrol").contains("# scontrol reconfigure"));
        if self.output("scontrol", &["--version"]).contains(" 22.05") {
            self.start_controller();
            self.wait_until_idle();
        }
        self.output("scontrol", &["reconfigure"]);
        self.wait_until_idle();
    }

    /// `exec vouch` and this command, at the sockets of the test.
    fn write_script(&self, file: &Path, command: &str, site: &Site) {
        let socket =
            if command.contains("slurm") { site.socket() } else { site.agent_socket("n1") };
        let mut command = format!("{command} --socket {}", socket.display());
        if command.contains(" end ") {
            command.push_str(&format!(" --spool {}", site.path("spool").display()));
        }
        let (conf, log) = (self.configuration(), self.path("scripts.log"));
        let (vouch, conf, log) = (self.path("vouch"), conf.display(), log.display());
        let vouch = vouch.display();
        let text =
            format!("#!/bin/sh\nexport SLURM_CONF={conf}\nexec {vouch}{command} >>{log} 2>&1\n");
        std::fs::write(file, text).expect("a file");
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).expect("a file");
    }

    /// A program of Slurm's system.
    pub(super) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        if peers_suite().is_some() {
            let binaries = Path::new(env!("CARGO_BIN_EXE_vouch")).parent().expect("a directory");
            command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-c", INSIDE]);
            command.arg(peers_root("slurm")).arg(std::env::temp_dir()).arg(binaries).arg(name);
        }
        command.env("SLURM_CONF", self.configuration());
        command
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configuration(&self) -> PathBuf {
        self.path("slurm.conf")
    }

    /// Slurm's daemons leave their process when they read their configuration again, so a namespace
    /// ends them.
    fn spawn(&self, program: &str, args: &[&str]) -> KillOnDrop {
        let log = std::fs::File::create(self.path(&format!("{program}.log"))).expect("a file");
        let inside = self.program(program);
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", INIT, "init"])
            .arg(inside.get_program())
            .args(inside.get_args())
            .args(args)
            .env("SLURM_CONF", self.configuration())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log);
        KillOnDrop(command.spawn().expect("unshare(1)"))
    }

    fn write_configuration(&self, job_count: u32) {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = host.split('.').next().expect("a name");
        let here = self.directory.path().display();
        let text = format!(
            "ClusterName=vouch\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=slurm\nSlurmdUser=root\nSlurmctldPort={}\nSlurmdPort={}\n\
             AuthType=auth/munge\nAuthInfo=socket={here}/munge/socket\nCredType=cred/munge\nMpiDefault=none\nReturnToService=2\n\
             StateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool\nSlurmctldPidFile={here}/slurmctld.pid\n\
             SlurmdPidFile={here}/slurmd.pid\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSlurmdParameters=config_overrides\nKillWait=2\n\
             NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs={job_count}\n\
             PartitionName=all Nodes=n1 Default=YES MaxTime=INFINITE State=UP\n",
            self.ports[0], self.ports[1]
        );
        std::fs::write(self.configuration(), text).expect("a file");
    }

    pub(super) fn output(&self, program: &str, args: &[&str]) -> String {
        let out = self.program(program).args(args).output().expect("the file exists");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Returns the job's number.
    pub(super) fn submit(&self, user: &str, script: &str, options: &[&str]) -> String {
        let user =
            nix::unistd::User::from_name(user).expect("the name service").expect("a system user");
        let file = self.path("job.sh");
        std::fs::write(&file, script).expect("a file");
        let mut command = self.program("setpriv");
        command
            .args([format!("--reuid={}", user.uid), format!("--regid={}", user.gid)])
            .args(["--clear-groups", "sbatch", "--parsable", "--time=5"])
            .args(["--output", "out-%j", "--chdir"])
            .arg(self.path("output"))
            .args(options)
            .arg(&file)
            .current_dir("/");
        let out = command.output().expect("sbatch(1)");
        assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stderr), self.logs());
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    /// Numbers of the jobs that were tasks of an array and had tickets.
    fn tasks(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.path("output"))
            .expect("a directory")
            .flatten()
            .map(|file| file.path());
        let is_task = |file: &PathBuf| {
            std::fs::read_to_string(file).is_ok_and(|text| text.starts_with("task "))
        };
        let number = |file: PathBuf| {
            file.display().to_string().rsplit('-').next().expect("a name").to_owned()
        };
        files.filter(is_task).map(number).collect()
    }

    pub(super) fn logs(&self) -> String {
        let names = ["slurmctld.log", "slurmd.log", "scripts.log", "munged.log"];
        names
            .map(|name| {
                format!(
                    "{name}:\n{}\n",
                    std::fs::read_to_string(self.path(name)).unwrap_or_default()
                )
            })
            .concat()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

#[test]
#[ignore = "needs root, Slurm and a KDC"]
fn job_of_slurm_has_tickets_until_its_end() {
    let life = Duration::from_secs(6);
    let mut site = Site::start(life);
    let slurm = Slurm::start(&site, 1);
    site.open_for_users();
    let cache = site.cache("n1", USER);
    let krb5 = site.realm.kdc.path("strict.conf");
    // The user's own view: valid tickets all the time, longer than one of them lives.
    let script = format!(
        "#!/bin/sh\nexport KRB5_CONFIG={}\nfor i in $(seq 1 {}); do klist -s -c {cache} || exit 1; sleep 0.5; done\necho to the end\n",
        krb5.display(),
        3 * life.as_secs()
    );
    let job = slurm.submit(USER, &script, &[]);
    let output = slurm.path("output").join(format!("out-{job}"));
    within(60, "the job runs", || site.cache_path("n1", USER).exists());
    assert!(site.list().contains(&format!("\"job\": \"{job}\"")), "{}", site.list());
    within(60, "the job ends", || slurm.output("squeue", &["--noheader"]).trim().is_empty());
    let text = std::fs::read_to_string(&output).unwrap_or_default();
    assert!(text.contains("to the end"), "{text}\n{}", slurm.logs());
    within(60, "its tickets are removed", || !site.cache_path("n1", USER).exists());
    within(60, "the job is forgotten", || site.list().trim() == "[]");
    // A job that is cancelled.
    let cancelled = slurm.submit(USER, "#!/bin/sh\nsleep 60\n", &[]);
    within(60, "the job has tickets", || site.cache_path("n1", USER).exists());
    // A job whose name looks like another job's line.
    let forged = format!("x\nJobId={cancelled} JobState=COMPLETED ");
    slurm.submit(USER, "#!/bin/sh\n", &["--job-name", &forged, "--comment", &forged]);
    end_missed_jobs(&site, &slurm, &job, &cancelled);
    slurm.output("scancel", &[&cancelled]);
    within(60, "its tickets are removed", || !site.cache_path("n1", USER).exists());
    // Each task of an array is a job of its own.
    let script = format!(
        "#!/bin/sh\nexport KRB5_CONFIG={}\nklist -s -c {cache} && echo task $SLURM_ARRAY_TASK_ID\n",
        krb5.display()
    );
    slurm.submit(USER, &script, &["--array=1-5"]);
    within(60, "the tasks end", || slurm.output("squeue", &["--noheader"]).trim().is_empty());
    let tasks = slurm.tasks();
    assert_eq!(tasks.len(), 5, "{tasks:?}\n{}", slurm.logs());
    within(60, "the jobs are forgotten", || site.list().trim() == "[]");
    for id in tasks.iter().chain([&job, &cancelled]) {
        let found = site.audit(&["--job", id], &[]);
        for act in ["job-begin", "ticket-minted", "ticket-withdrawn", "job-end"] {
            assert!(found.contains(act), "{act}: {found}\n{}", slurm.logs());
        }
    }
    assert_eq!(site.leftovers(), Vec::<String>::new());
    // Without broker and agent, jobs run without tickets, and the node stays.
    site.kill_broker();
    site.kill_agent("n1");
    let job = slurm.submit(USER, "#!/bin/sh\necho to the end\n", &[]);
    within(60, "the job ends", || slurm.output("squeue", &["--noheader"]).trim().is_empty());
    let text = std::fs::read_to_string(slurm.path("output").join(format!("out-{job}")))
        .unwrap_or_default();
    assert!(text.contains("to the end"), "{text}\n{}", slurm.logs());
    slurm.wait_until_idle();
}

/// Jobs that Slurm runs or does not know go on.
fn end_missed_jobs(site: &Site, slurm: &Slurm, ended: &str, live: &str) {
    const UNKNOWN: &str = "999999";
    for job in [ended, UNKNOWN] {
        site.begin(job, USER, "n1", "1h").expect("the job is registered");
    }
    let end_missed = |mut command: Command| {
        command.args(["jobs", "end", "--slurm", "--missed", "--socket"]).arg(site.socket());
        command.env("SLURM_CONF", slurm.configuration()).output().expect("the binary starts")
    };
    let mut without_path = Command::new(slurm.path("vouch"));
    without_path.env("PATH", "/nonexistent");
    let without_slurm = end_missed(without_path);
    let error = String::from_utf8_lossy(&without_slurm.stderr).into_owned();
    assert!(!without_slurm.status.success() && error.contains("squeue"), "{error}");
    let vouch = slurm.path("vouch");
    let output = end_missed(slurm.program(vouch.to_str().expect("a temporary name")));
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output, format!("job {ended} has ended\n"), "{live} runs: {}", site.list());
    site.end(UNKNOWN).expect("the job ends");
}
