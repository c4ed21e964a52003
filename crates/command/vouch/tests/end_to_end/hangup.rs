//! SIGHUP to each daemon, as logrotate(8) sends it.

use crate::prelude::*;
use vouch_testkit::kill_on_drop::KillOnDrop;

#[test]
#[ignore = "needs FUSE"]
fn daemons_survive_hangup_and_write_to_a_new_log_file() {
    let site = TestSite::new();
    site.small_tree();
    site.publish();
    let _replica = site.serve();
    site.run_ok(["audit", "keygen", "trail"]);
    let address = || format!("127.0.0.1:{}", free_port());
    let (name, export, gateway, mirror) = (site.name(""), address(), address(), address());
    let mut daemons = vec![
        vec!["serve", "--db", "db", "--listen", &mirror],
        vec!["gateway", &name, "--listen", &gateway],
        vec!["pull", "--watch", &name, "--db", "copy"],
        vec!["export", "--dir", "src", "--listen", &export, "--state", "exporting"],
        words("audit send trail --to syslog+tcp://127.0.0.1:9 --position position"),
    ];
    fs::create_dir(site.path("mnt")).expect("a new directory");
    daemons.push(vec!["mount", &name, "mnt"]);
    let start = |(number, arguments): (usize, &Vec<&str>)| {
        let log = format!("{number}.log");
        let logging = ["--log-file", &log, "--log-level", "debug"];
        let mut command = site.command([&arguments[..], &logging].concat());
        KillOnDrop(
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts"),
        )
    };
    let mut running: Vec<KillOnDrop> = daemons.iter().enumerate().map(start).collect();
    for (number, child) in running.iter_mut().enumerate() {
        let (log, rotated) =
            (site.path(format!("{number}.log")), site.path(format!("{number}.log.1")));
        // A signal before `main` ends a process, as always.
        let handles = |mask: u64| {
            fs::read_to_string(format!("/proc/{}/status", child.id()))
                .is_ok_and(|status| catches(&status, mask))
        };
        let (hup, usr1) = (1 << 0, 1 << 9);
        assert!(
            eventually(Duration::from_secs(60), || handles(hup | usr1) && log.exists()),
            "{:?}",
            daemons[number]
        );
        fs::rename(&log, &rotated).expect("a log file");
        assert!(
            eventually(Duration::from_secs(60), || {
                signal("USR1", child.id());
                signal("HUP", child.id());
                log.exists()
            }),
            "{:?}: {}",
            daemons[number],
            fs::read_to_string(&rotated).unwrap_or_default()
        );
        assert_eq!(child.try_wait().expect("a child"), None, "{:?}", daemons[number]);
        let mode = std::os::unix::fs::MetadataExt::mode(&log.metadata().expect("a log file"));
        assert_eq!(mode & 0o022, 0, "others can write the log of {:?}", daemons[number]);
    }
    // The signal may have come before the mount.
    let is_shown =
        || fs::read_to_string(site.path("mnt/hello")).is_ok_and(|text| text == "hello world\n");
    within(60, "still mounted", is_shown);
    site.run_ok(["umount", "mnt"]);
}

/// SigCgt of /proc/PID/status.
#[test]
fn replica_survives_hangup_during_its_start() {
    let site = TestSite::published();
    // The start waits for a writer of this pipe.
    site.run_tool("mkfifo", &["slow.pem"]);
    let listen = format!("127.0.0.1:{}", free_port());
    let mut command = site.command(&format!(
        "serve --db db --listen {listen} --tls-cert slow.pem --tls-key slow.pem"
    ));
    let mut child = KillOnDrop(
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts"),
    );
    let handles = || {
        fs::read_to_string(format!("/proc/{}/status", child.id()))
            .is_ok_and(|status| catches(&status, 1 << 0 | 1 << 9))
    };
    assert!(eventually(Duration::from_secs(20), handles));
    signal("HUP", child.id());
    signal("USR1", child.id());
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(child.try_wait().expect("a child"), None);
}

fn catches(status: &str, mask: u64) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .is_some_and(|caught| caught & mask == mask)
}
