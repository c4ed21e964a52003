//! Slurm of the distribution on this machine: slurmctld, slurmd and munged, whose prologs and
//! epilogs call `vouch jobs`.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use vouch_testkit::require;

use super::site::{Site, wait_until};

pub(super) struct Slurm {
    directory: tempfile::TempDir,
    daemons: Vec<Child>,
}

const USER: &str = "daemon";

impl Slurm {
    /// A cluster with one node, `n1`, whose agent the site runs, and which runs this number of jobs at
    /// once.
    pub(super) fn start(site: &Site, job_count: u32) -> Slurm {
        let needs =
            ["/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/munged", "/usr/bin/squeue"];
        require(
            "the packages slurmctld, slurmd, slurm-client and munge",
            needs.iter().all(|path| Path::new(path).exists()),
        );
        let mut slurm =
            Slurm { directory: tempfile::tempdir().expect("a directory"), daemons: Vec::new() };
        let path = |name: &str| slurm.directory.path().join(name);
        std::fs::set_permissions(path("."), std::fs::Permissions::from_mode(0o755))
            .expect("a directory");
        for name in ["munge", "state", "spool"] {
            std::fs::create_dir(path(name)).expect("a directory");
        }
        std::fs::create_dir(path("output")).expect("a directory");
        std::fs::set_permissions(path("output"), std::fs::Permissions::from_mode(0o777))
            .expect("a directory");
        std::fs::write(path("munge.key"), [7; 128]).expect("a file");
        std::fs::set_permissions(path("munge.key"), std::fs::Permissions::from_mode(0o400))
            .expect("a file");
        slurm.write_scripts(site);
        slurm.write_configuration(job_count);
        let here = slurm.directory.path().to_owned();
        let mut munged = Command::new("/usr/sbin/munged");
        munged.args(["--foreground", "--force"]);
        for (option, name) in [
            ("socket", "munge/socket"),
            ("key-file", "munge.key"),
            ("pid-file", "munge/pid"),
            ("seed-file", "munge/seed"),
        ] {
            munged.arg(format!("--{option}={}", here.join(name).display()));
        }
        slurm.spawn(munged, "munged.log");
        wait_until("munged listens", || here.join("munge/socket").exists());
        let mut controller = Command::new("/usr/sbin/slurmctld");
        controller.args(["-D", "-i", "-f"]).arg(slurm.configuration());
        slurm.spawn(controller, "slurmctld.log");
        let mut node = Command::new("/usr/sbin/slurmd");
        node.args(["-D", "-N", "n1", "-f"]).arg(slurm.configuration());
        slurm.spawn(node, "slurmd.log");
        wait_until("the node is up", || {
            slurm.output("sinfo", &["--noheader", "--format", "%T"]).trim() == "idle"
        });
        slurm
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configuration(&self) -> PathBuf {
        self.path("slurm.conf")
    }

    fn spawn(&mut self, mut command: Command, log: &str) {
        let log = std::fs::File::create(self.path(log)).expect("a file");
        command
            .env("SLURM_CONF", self.configuration())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log);
        self.daemons.push(command.spawn().expect("the file exists"));
    }

    fn write_scripts(&self, site: &Site) {
        let (broker, agent) = (site.socket(), site.agent_socket("n1"));
        let end = format!("end --slurm --spool {}", site.path("spool").display());
        for (name, command, socket) in [
            ("begin", "begin --slurm", &broker),
            ("end", &end, &broker),
            ("prolog", "prolog", &agent),
            ("epilog", "epilog", &agent),
        ] {
            let (vouch, log, conf) =
                (env!("CARGO_BIN_EXE_vouch"), self.path("scripts.log"), self.configuration());
            let text = format!(
                "#!/bin/sh\nexport SLURM_CONF={}\nexec {vouch} jobs {command} --socket {} >>{} 2>&1\n",
                conf.display(),
                socket.display(),
                log.display()
            );
            std::fs::write(self.path(name), text).expect("a file");
            std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o755))
                .expect("a file");
        }
    }

    fn write_configuration(&self, job_count: u32) {
        let ports: Vec<TcpListener> =
            (0..2).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let ports: Vec<u16> =
            ports.iter().map(|socket| socket.local_addr().expect("bound").port()).collect();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = host.split('.').next().expect("a name");
        let here = self.directory.path().display();
        let text = format!(
            "ClusterName=vouch\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\nSlurmctldPort={}\nSlurmdPort={}\n\
             AuthType=auth/munge\nAuthInfo=socket={here}/munge/socket\nCredType=cred/munge\nMpiDefault=none\nReturnToService=2\n\
             StateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool\nSlurmctldPidFile={here}/slurmctld.pid\n\
             SlurmdPidFile={here}/slurmd.pid\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSlurmdParameters=config_overrides\nKillWait=2\nPrologFlags=Alloc\nPrologSlurmctld={here}/begin\nEpilogSlurmctld={here}/end\nProlog={here}/prolog\n\
             Epilog={here}/epilog\nNodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs={job_count}\n\
             PartitionName=all Nodes=n1 Default=YES MaxTime=INFINITE State=UP\n",
            ports[0], ports[1]
        );
        std::fs::write(self.configuration(), text).expect("a file");
    }

    pub(super) fn output(&self, program: &str, args: &[&str]) -> String {
        let out = Command::new(program)
            .args(args)
            .env("SLURM_CONF", self.configuration())
            .output()
            .expect("the file exists");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Returns the job's number.
    pub(super) fn submit(&self, user: &str, script: &str, options: &[&str]) -> String {
        let user =
            nix::unistd::User::from_name(user).expect("the name service").expect("a system user");
        let file = self.path("job.sh");
        std::fs::write(&file, script).expect("a file");
        let mut command = Command::new("sbatch");
        command
            .args(["--parsable", "--time=5", "--output", "out-%j", "--chdir"])
            .arg(self.path("output"))
            .args(options)
            .arg(&file);
        command
            .uid(user.uid.as_raw())
            .gid(user.gid.as_raw())
            .env("SLURM_CONF", self.configuration())
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
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
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
    wait_until("the job runs", || site.cache_path("n1", USER).exists());
    assert!(site.list().contains(&format!("\"job\": \"{job}\"")), "{}", site.list());
    wait_until("the job ends", || slurm.output("squeue", &["--noheader"]).trim().is_empty());
    let text = std::fs::read_to_string(&output).unwrap_or_default();
    assert!(text.contains("to the end"), "{text}\n{}", slurm.logs());
    wait_until("its tickets are removed", || !site.cache_path("n1", USER).exists());
    wait_until("the job is forgotten", || site.list().trim() == "[]");
    // A job that is cancelled.
    let cancelled = slurm.submit(USER, "#!/bin/sh\nsleep 60\n", &[]);
    wait_until("the job has tickets", || site.cache_path("n1", USER).exists());
    // A job whose name looks like another job's line.
    let forged = format!("x\nJobId={cancelled} JobState=COMPLETED ");
    slurm.submit(USER, "#!/bin/sh\n", &["--job-name", &forged, "--comment", &forged]);
    end_missed_jobs(&site, &slurm, &job, &cancelled);
    slurm.output("scancel", &[&cancelled]);
    wait_until("its tickets are removed", || !site.cache_path("n1", USER).exists());
    // Each task of an array is a job of its own.
    let script = format!(
        "#!/bin/sh\nexport KRB5_CONFIG={}\nklist -s -c {cache} && echo task $SLURM_ARRAY_TASK_ID\n",
        krb5.display()
    );
    slurm.submit(USER, &script, &["--array=1-5"]);
    wait_until("the tasks end", || slurm.output("squeue", &["--noheader"]).trim().is_empty());
    let tasks = slurm.tasks();
    assert_eq!(tasks.len(), 5, "{tasks:?}\n{}", slurm.logs());
    wait_until("the jobs are forgotten", || site.list().trim() == "[]");
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
    wait_until("the job ends", || slurm.output("squeue", &["--noheader"]).trim().is_empty());
    let text = std::fs::read_to_string(slurm.path("output").join(format!("out-{job}")))
        .unwrap_or_default();
    assert!(text.contains("to the end"), "{text}\n{}", slurm.logs());
    wait_until("the node is free", || {
        slurm.output("sinfo", &["--noheader", "--format", "%T"]).trim() == "idle"
    });
}

/// Jobs that Slurm runs or does not know go on.
fn end_missed_jobs(site: &Site, slurm: &Slurm, ended: &str, live: &str) {
    const UNKNOWN: &str = "999999";
    for job in [ended, UNKNOWN] {
        site.begin(job, USER, "n1", "1h").expect("the job is registered");
    }
    let end_missed = |path: &str| {
        let mut command = site.vouch();
        command.args(["end", "--slurm", "--missed", "--socket"]).arg(site.socket());
        command
            .env("SLURM_CONF", slurm.configuration())
            .env("PATH", path)
            .output()
            .expect("the binary starts")
    };
    let without_slurm = end_missed("/nonexistent");
    let error = String::from_utf8_lossy(&without_slurm.stderr).into_owned();
    assert!(!without_slurm.status.success() && error.contains("squeue"), "{error}");
    let output =
        String::from_utf8_lossy(&end_missed(&std::env::var("PATH").expect("a path")).stdout)
            .into_owned();
    assert_eq!(output, format!("job {ended} has ended\n"), "{live} runs: {}", site.list());
    site.end(UNKNOWN).expect("the job ends");
}
