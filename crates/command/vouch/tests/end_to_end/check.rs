use std::os::unix::fs::PermissionsExt as _;

use crate::prelude::*;
use crate::replica_attacks::{copy, flip_data};

fn site() -> TestSite {
    let mut site = TestSite::new();
    site.environment.push(("VOUCH_RUNTIME_DIR", site.path("run").display().to_string()));
    site
}

fn published() -> TestSite {
    let site = site();
    site.small_tree();
    site.publish();
    site
}

fn expect_problem(output: &Output, fault: &str) -> Value {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    let found: Value = serde_json::from_str(&out).expect("JSON");
    let problems: Vec<_> = found["findings"]
        .as_array()
        .expect("an array")
        .iter()
        .filter(|finding| finding["verdict"] == "problem")
        .collect();
    assert!(
        problems.iter().any(|finding| finding["fault"] == fault && finding["cure"].is_string()),
        "{fault} is not in {out}"
    );
    let is_ours = |finding: &&&Value| finding["fault"] != "mount-dead";
    assert!(
        problems.iter().filter(is_ours).all(|finding| finding["fault"] == fault),
        "more than {fault} in {out}"
    );
    found
}

fn problem(site: &TestSite, fault: &str, args: &[&str]) -> Value {
    expect_problem(&site.run([&["check", "--json"], args].concat()), fault)
}

fn in_mount_namespace(site: &TestSite, preparation: &str, args: &[&str]) -> Output {
    let script = format!("{preparation} && exec \"$@\"");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_vouch")])
        .args(["check", "--json"])
        .args(args);
    let like = site.command(["check"]);
    command
        .envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(site.path(""));
    command.output().expect("unshare(1)")
}

#[test]
fn healthy_machine_has_no_problem() {
    let site = published();
    let _replica = site.serve();
    site.run_ok(["cat", &site.name("/hello")]);
    let output = site.run(["check", "--deep", &site.name("")]);
    let text = String::from_utf8_lossy(&output.stdout);
    let without_fuse = text.contains("no-fuse");
    assert!(
        without_fuse || output.status.code() == Some(0) && text.ends_with("no problem found\n"),
        "{text}"
    );
    assert!(text.contains("all data is verified") && text.contains("offers revision 1"), "{text}");
}

#[test]
#[ignore = "needs root"]
fn missing_device_is_named() {
    require("root", is_root());
    let nodes = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9";
    expect_problem(&in_mount_namespace(&site(), nodes, &[]), "no-fuse");
}

/// The limit is of the whole machine, so only a mount namespace sees this one.
#[test]
#[ignore = "needs root and FUSE"]
fn request_limit_of_the_kernel_below_the_timeout_is_named() {
    require("root", is_root());
    let (site, _replica) = TestSite::served();
    fs::create_dir(site.path("mnt")).expect("a directory");
    let limit =
        "mkdir -p fuse && echo 8 >fuse/max_request_timeout && mount --bind fuse /proc/sys/fs/fuse";
    let mount = format!(
        "{limit} && {0} mount --background --log-file log --timeout 30s '{1}' mnt && cat mnt/hello && {0} umount mnt",
        env!("CARGO_BIN_EXE_vouch"),
        site.name("")
    );
    let output = in_mount_namespace(&site, &mount, &["--timeout", "30s"]);
    let found = String::from_utf8_lossy(&output.stdout);
    assert_contains!(found, "hello world\n", "\"fault\": \"fuse-request-timeout\"");
    let log = fs::read_to_string(site.path("log")).expect("a log");
    assert!(log.contains("takes 8s") && log.contains("requests fail after 6s"), "{log}");
}

#[test]
#[ignore = "needs root"]
fn full_cache_disk_is_named() {
    require("root", is_root());
    let site = site();
    std::fs::create_dir(site.path("small")).expect("a directory");
    let fill = "mount -t tmpfs -o size=1m none small && ! dd if=/dev/zero of=small/data bs=64k 2>/dev/null";
    let found =
        expect_problem(&in_mount_namespace(&site, fill, &["--cache", "small"]), "cache-disk-full");
    assert!(found.to_string().contains("--cache-quota"), "{found}");
}

#[test]
#[ignore = "needs FUSE"]
fn expired_tree_is_named() {
    let site = site();
    site.small_tree();
    site.publish_with(&["--duration", "1s"]);
    let _replica = site.serve();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let found = problem(&site, "tree-expired", &["--timeout", "5s", &site.name("")]);
    assert!(found.to_string().contains("must publish again"), "{found}");
}

#[test]
#[ignore = "needs FUSE"]
fn wrong_hostid_is_named() {
    let site = published();
    let _replica = site.serve();
    site.run_ok(["keygen", "--out", "other-keys"]);
    let name = site.run_ok(&format!("name other-keys --location {}", site.location()));
    problem(&site, "wrong-hostid", &["--timeout", "5s", name.trim()]);
}

#[test]
#[ignore = "needs FUSE"]
fn name_that_does_not_resolve_is_named() {
    let site = published();
    let hostid = site.name("").split_once(',').expect("a name").1.to_owned();
    let name = format!("@no-such-host.invalid,{hostid}");
    let found = problem(&site, "name-unresolved", &["--timeout", "5s", &name]);
    assert!(found.to_string().contains("no-such-host.invalid"), "{found}");
    let url =
        format!("--timeout 5s --only-replicas --replica http://no-such-host.invalid/db {name}");
    let url = words(&url);
    problem(&site, "name-unresolved", &url);
    site.expect_err(
        6,
        [&["cat"], &url[..5], &[&format!("{name}/hello")]].concat(),
        &["the name no-such-host.invalid does not resolve"],
    );
}

struct Network(String);

impl Network {
    fn new() -> Network {
        require_program("nft");
        let name = format!("vouch-check-{}", std::process::id());
        require("root and network namespaces", run(&format!("ip netns add {name}")));
        assert!(run(&format!("ip -n {name} link set lo up")));
        Network(name)
    }

    fn nft(&self, line: &str) {
        assert!(run(&format!("ip netns exec {} nft {line}", self.0)), "{line}");
    }

    fn command(&self, site: &TestSite, args: &[&str]) -> Command {
        let mut command = in_namespace(&self.0, &site.command(args));
        command.current_dir(site.path(""));
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        run(&format!("ip netns del {}", self.0));
    }
}

#[test]
#[ignore = "needs root and nftables"]
fn blocked_port_is_named() {
    let network = Network::new();
    let site = published();
    let address = format!("127.0.0.1:{}", site.port);
    let mut replica = network
        .command(&site, &["serve", "--db", "db", "--listen", &address])
        .stdout(Stdio::null())
        .spawn()
        .expect("ip(8)");
    let name = site.name("");
    let check = || {
        network
            .command(&site, &["check", "--json", "--timeout", "3s", &name])
            .output()
            .expect("ip(8)")
    };
    let works = eventually(std::time::Duration::from_secs(20), || check().status.code() == Some(0));
    network.nft("add table inet filter");
    network.nft("add chain inet filter input { type filter hook input priority 0 ; }");
    network.nft(&format!("add rule inet filter input tcp dport {} drop", site.port));
    let dropped = check();
    network.nft("flush chain inet filter input");
    network.nft(&format!(
        "add rule inet filter input tcp dport {} reject with icmpx type admin-prohibited",
        site.port
    ));
    let rejected = check();
    crate::test_site::signal("TERM", replica.id());
    let _ = replica.wait();
    assert!(
        works,
        "the replica cannot be reached before its port is blocked: {}",
        String::from_utf8_lossy(&check().stdout)
    );
    let found = expect_problem(&dropped, "port-blocked");
    assert!(found.to_string().contains("drops packets to port"), "{found}");
    expect_problem(&rejected, "port-blocked");
    problem(&site, "port-closed", &["--timeout", "3s", &name]);
}

#[test]
#[ignore = "needs FUSE"]
fn lying_replica_is_named() {
    let site = published();
    copy(&site.path("db"), &site.path("liar"));
    assert!(flip_data(&site.path("liar/packs")) > 0);
    let (honest, liar) = (site.serve(), site.serve_db("liar", 0));
    let found = problem(
        &site,
        "replica-lies",
        &["--timeout", "5s", "--replica", &liar.address, &site.name("")],
    );
    let accused = |address: &str| {
        found["findings"]
            .as_array()
            .expect("an array")
            .iter()
            .any(|finding| finding["fault"] == "replica-lies" && finding["subject"] == address)
    };
    assert!(accused(&liar.address) && !accused(&honest.address), "{found}");
}

#[test]
#[ignore = "needs FUSE"]
fn state_directory_with_wrong_rights_is_named() {
    let site = site();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(site.path(name), std::fs::Permissions::from_mode(mode))
            .expect("its owner")
    };
    std::fs::create_dir(site.path("state")).expect("a directory");
    mode("state", 0o777);
    let found = problem(&site, "state-rights", &[]);
    assert!(found.to_string().contains("chmod 700"), "{found}");
    mode("state", 0o700);
    std::fs::create_dir(site.path("export-state")).expect("a directory");
    site.write("export-state/filehandle.key", "00");
    mode("export-state", 0o755);
    problem(&site, "state-rights", &["export-state"]);
}

#[test]
#[ignore = "needs root and guests"]
fn wrong_clock_is_named() {
    require_programs(&["linux.uml", "busybox"]);
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../script/guest/run");
    let runner = runner.to_str().expect("UTF-8");
    assert!(run(&format!("{runner} up {CLOCK_GUEST}")), "no network for a guest");
    let site = published();
    let address = format!("10.77.{CLOCK_GUEST}.1:{}", free_port());
    let (_replica, _, _) =
        start_listener(&mut site.command(["serve", "--db", "db", "--listen", &address]));
    let check = format!(
        "$JOB/vouch check --json --no-cache --timeout 20s --only-replicas --replica {address} '{}'",
        site.name("")
    );
    let clocks = ["-90000", "+180000", "+7200"].map(|error_s| {
        format!("date -s @$((now {error_s})) >/dev/null; {check}; echo status $?\n")
    });
    site.write(
        "script",
        format!(
            "export HOME=/tmp VOUCH_RUNTIME_DIR=/tmp/run; now=$(date +%s)\n{}",
            clocks.concat()
        ),
    );
    let mut command = Command::new(runner);
    command
        .args(["-i", CLOCK_GUEST, "-t", "120", "-f", env!("CARGO_BIN_EXE_vouch")])
        .arg(site.path("script"));
    let output = command.output().expect("the guest's script");
    run(&format!("{runner} down {CLOCK_GUEST}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let answers: Vec<&str> = text.split_inclusive("status ").collect();
    assert_eq!(
        answers.len(),
        clocks.len() + 1,
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let finding = |answer: &str, fault: &str| {
        let json = &answer[answer.find('{').expect("JSON")..answer.rfind('}').expect("JSON") + 1];
        let found: Value = serde_json::from_str(json).expect("JSON");
        let findings = found["findings"].as_array().expect("an array").clone();
        findings
            .into_iter()
            .find(|finding| finding["fault"] == fault)
            .unwrap_or_else(|| panic!("{fault} is not in {answer}"))
    };
    let says = |finding: &Value, parts: [&str; 2]| {
        assert!(
            parts
                .iter()
                .all(|part| finding["what"].as_str().is_some_and(|what| what.contains(part))),
            "{finding}"
        );
    };
    says(&finding(answers[0], "clock-off"), ["behind", "in 24 hours"]);
    says(&finding(answers[1], "clock-off"), ["is ahead", "2 days ago"]);
    assert!(!answers[1].contains("tree-expired"), "{}", answers[1]);
    let note = finding(answers[2], "clocks-differ");
    says(&note, ["is ahead of the replica's", "which says"]);
    assert_eq!(note["verdict"], "note");
}

const CLOCK_GUEST: &str = "95";

#[test]
#[ignore = "needs FUSE"]
fn dead_mount_is_named() {
    let Mounted { mount, site, replica: _replica } = mounted();
    mount.kill();
    let found = problem(&site, "mount-dead", &["mnt"]);
    assert!(found.to_string().contains("vouch umount"), "{found}");
    site.run_ok(["umount", "mnt"]);
}

#[test]
#[ignore = "needs FUSE"]
fn stopped_mount_is_named() {
    let Mounted { mount, site, replica: _replica } = mounted();
    signal("STOP", mount.worker().expect("a worker"));
    problem(&site, "daemon-silent", &["mnt"]);
    mount.kill();
    site.run_ok(["umount", "mnt"]);
}

#[test]
#[ignore = "needs FUSE"]
fn check_of_a_mount_looks_at_its_replicas() {
    let Mounted { mount: _mount, site, mut replica } = mounted();
    assert_eq!(site.run(["check", "--json", "mnt"]).status.code(), Some(0));
    replica.kill();
    problem(&site, "port-closed", &["--timeout", "3s", "mnt"]);
}

#[test]
fn check_of_the_machine_looks_at_its_gateways() {
    let site = published();
    let mut replica = site.serve();
    let gateway = crate::gateway::Gateway::start(&site, &[]);
    let output = site.run(["check", "--timeout", "3s"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_contains!(text, &format!("{}: served by process", gateway.address), "offers revision 1");
    replica.kill();
    let text = String::from_utf8_lossy(&site.run(["check", "--timeout", "3s"]).stdout).into_owned();
    assert!(text.contains("port-closed"), "{text}");
}

fn mounted() -> Mounted {
    let site = published();
    let replica = site.serve();
    let mount = Mount::new(&site, "mnt", &[&site.name("")]);
    Mounted { mount, replica, site }
}

#[test]
fn unknown_targets_are_refused() {
    let site = site();
    assert!(site.run_err(4, ["check", "no-such-directory"]).contains("no-such-directory"));
    assert!(site.run_err(3, ["check", "@host"]).contains("@host"));
}
