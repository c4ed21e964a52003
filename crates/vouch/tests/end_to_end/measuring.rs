//! `vouch bench` against our own server: every workload to its end in small, what it leaves behind, and the page in a real browser.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::world::{World, eventually, free_port, have_fuse};

/// A server of an empty directory, in a world without a tree.
pub(crate) struct Served {
    pub(crate) server: Child,
    pub(crate) port: u16,
    // After the server, which works in it.
    pub(crate) world: World,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Served {
    pub(crate) fn new() -> Self {
        let world = World::new();
        std::fs::create_dir(world.path("data")).expect("a directory");
        let port = free_port();
        let listen = format!("127.0.0.1:{port}");
        let mut command =
            world.command(["export", "--dir", "data", "--options", "rw,insecure,no_root_squash", "--listen", &listen, "--lease", "5"]);
        let server = command.arg("--state").arg(world.path("exporting")).stdout(Stdio::null()).spawn().expect("the binary starts");
        let served = Self { server, port, world };
        assert!(eventually(Duration::from_secs(60), || std::net::TcpStream::connect(&listen).is_ok()), "the export does not start");
        served
    }

    pub(crate) fn target(&self) -> String {
        format!("nfs://127.0.0.1:{}/export", self.port)
    }

    /// Runs a workload on two subjects that are the same server, and returns its record.
    fn record(&self, workload: &[&str]) -> Value {
        let (one, two) = (format!("one={}", self.target()), format!("two={}", self.target()));
        let args = [&["bench"], workload, &["--target", &one, "--target", &two, "--quick", "--json", "run.json"]].concat();
        let table = self.world.ok(args);
        assert!(table.contains("one") && table.contains("two") && table.contains("ratio [range of"), "{table}");
        self.is_left_clean();
        let text = std::fs::read_to_string(self.world.path("run.json")).expect("the record");
        serde_json::from_str(&text).expect("JSON")
    }

    pub(crate) fn is_left_clean(&self) {
        let left: Vec<_> =
            std::fs::read_dir(self.world.path("data")).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Every result has both subjects, each with samples, work done, an interval and no error.
fn is_sound(record: &Value, results: usize) {
    let all = record["results"].as_array().expect("results");
    assert!(all.len() >= results, "{} results", all.len());
    for result in all {
        let subjects = result["subjects"].as_array().expect("subjects");
        // Steps beyond the knee of one are measured on the other alone; beyond the baseline's there is no ratio.
        assert!(!subjects.is_empty(), "{result}");
        let baseline = subjects[0]["label"] == record["subjects"][0]["label"];
        for subject in subjects {
            assert!(subject["operations"].as_u64().expect("a count") > 0, "{result}");
            assert_eq!(subject["errors"], 0, "{result}");
            assert!(subject["figure"]["low"].as_f64() <= subject["figure"]["high"].as_f64(), "{result}");
            assert!(subject["calls"]["p50_us"].as_f64().expect("a latency") > 1.0, "{result}");
            match subject["ratio"]["median"].as_f64() {
                Some(ratio) => assert!(baseline && ratio > 0.0, "{result}"),
                None => assert!(!baseline, "{result}"),
            }
        }
    }
}

#[test]
fn files_are_copied_there_and_back() {
    let served = Served::new();
    let small = ["transfer", "--sizes", "64K,2M", "--small-files", "20", "--large-files", "2", "--large-size", "2M"];
    let record = served.record(&small);
    is_sound(&record, 8);
    assert_eq!(record["schema"], "vouch-bench");
    let server_s: f64 = record["results"][0]["subjects"][0]["samples"]
        .as_array()
        .expect("samples")
        .iter()
        .filter_map(|sample| sample["server_cpu_s"].as_f64())
        .sum();
    assert!(server_s > 0.0, "the server's CPU is read: it listens on this machine");
}

#[test]
fn curves_and_levels_are_measured() {
    let served = Served::new();
    let record = served.record(&["iops", "--steps", "20", "--seconds", "0.05", "--rounds", "1", "--file-size", "2M", "--depth", "8"]);
    is_sound(&record, 8);
    assert!(
        record["results"].as_array().expect("results").iter().any(|result| result["case"]["rate"].as_f64().is_some()),
        "a step has a rate"
    );
    curves_are_of_calls_that_were_made(&record);
    let outputs = ["--csv", "run.csv", "--html", "run.html"];
    let record = served
        .record(&[&["concurrency", "--seconds", "0.05", "--rounds", "2", "--file-size", "2M", "--depth", "8"], &outputs[..]].concat());
    is_sound(&record, 14);
    let csv = std::fs::read_to_string(served.world.path("run.csv")).expect("lines");
    assert!(csv.lines().count() > 14 * 2 * 2 - 1 && csv.lines().all(|line| line.matches(',').count() >= 18), "{csv}");
    // A record makes the same page again.
    served.world.ok(["bench", "report", "run.json", "--html", "again.html"]);
    let read = |name: &str| std::fs::read_to_string(served.world.path(name)).expect("a page");
    assert!(read("run.html") == read("again.html"));
    let compared = served.world.ok(["bench", "compare", "run.json", "run.json"]);
    assert!(compared.contains("1.00") && !compared.contains("  faster"), "{compared}");
    looks_right_in_a_browser(&served.world, "run.html");
}

/// Each call that was due is told, once, and at a twentieth of what the fastest does, where the server is idle between two calls, all are done.
fn curves_are_of_calls_that_were_made(record: &Value) {
    let steps = record["results"].as_array().expect("results").iter().filter(|result| result["case"]["rate"].as_f64().is_some());
    let (mut panel, mut low, mut held) = (Value::Null, 0, 0);
    for step in steps {
        let lowest = step["panel"] != panel;
        panel = step["panel"].clone();
        let (rate, seconds) = (step["case"]["rate"].as_f64().expect("a rate"), step["case"]["seconds"].as_f64().expect("a time"));
        for subject in step["subjects"].as_array().expect("subjects") {
            for sample in subject["samples"].as_array().expect("samples") {
                let count = |name: &str| sample[name].as_u64().unwrap_or(0) as f64;
                assert!(sample["seconds"].as_f64() >= Some(seconds), "a step lasts as long as it is to: {sample}");
                let told = count("operations") + count("errors") + count("unsent");
                assert!((told - rate * seconds).abs() <= 2.0, "{told} of {} that were due: {sample}", rate * seconds);
                low += u32::from(lowest);
                held += u32::from(lowest && count("unsent") == 0.0 && count("operations") >= 0.95 * rate * seconds - 1.0);
            }
        }
    }
    // A machine that stops at the end of a step is let off.
    assert!(low >= 8 && held * 2 > low, "{held} of {low} were held");
}

/// Opens the page in a browser that shows nothing: plots are there, nothing complains, nothing is fetched.
fn looks_right_in_a_browser(world: &World, page: &str) {
    let text = std::fs::read_to_string(world.path(page)).expect("a page");
    for outside in ["src=", "href=\"http", "url(", "@import", "<script"] {
        assert!(!text.contains(outside), "the page holds {outside}");
    }
    let browser = ["chromium-headless-shell", "chromium"].into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    let Some(browser) = browser else {
        println!("skipped: needs the package chromium-headless-shell");
        return;
    };
    let run = |options: &[&str]| {
        let mut command = Command::new(browser);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--hide-scrollbars",
        ]);
        command.arg(format!("--user-data-dir={}", world.path("browser").display())).args(options);
        command.arg(format!("file://{}", world.path(page).display())).stdin(Stdio::null()).output().expect("the browser starts")
    };
    let dom = run(&["--dump-dom", "--virtual-time-budget=2000"]);
    let (html, said) = (String::from_utf8_lossy(&dom.stdout), String::from_utf8_lossy(&dom.stderr));
    assert!(dom.status.success(), "{said}");
    assert!(
        html.matches("<svg").count() >= 4 && html.matches("class=\"bar ").count() >= 20 && html.contains("What was measured"),
        "{html}"
    );
    assert!(!said.contains("CONSOLE"), "{said}");
    let (light, dark) = (world.path("light.png"), world.path("dark.png"));
    for (picture, scheme) in [(&light, "--blink-settings=preferredColorScheme=1"), (&dark, "--blink-settings=preferredColorScheme=0")] {
        let shot = run(&["--window-size=900,2400", scheme, &format!("--screenshot={}", picture.display())]);
        assert!(shot.status.success(), "{}", String::from_utf8_lossy(&shot.stderr));
    }
    let read = |picture| std::fs::read(picture).expect("a picture");
    // A blank page packs to a few kilobytes.
    assert!(read(&light).len() > 20_000 && read(&light) != read(&dark), "two pictures, one dark");
}

#[test]
fn a_directory_that_holds_something_is_left_alone() {
    let served = Served::new();
    served.world.write("data/mine", "mine");
    let target = served.target();
    let args = [
        "bench",
        "transfer",
        "--target",
        &target,
        "--quick",
        "--sizes",
        "64K",
        "--small-files",
        "2",
        "--large-files",
        "1",
        "--large-size",
        "1M",
    ];
    let said = served.world.fails(3, args);
    assert!(said.contains("--not-empty"), "{said}");
    served.world.ok([&args[..], &["--not-empty"]].concat());
    let left: Vec<_> =
        std::fs::read_dir(served.world.path("data")).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["mine"]);
}

#[test]
fn an_interrupted_run_cleans_up_and_tells_what_it_has() {
    let served = Served::new();
    let mut command = served.world.command([
        "bench",
        "concurrency",
        "--target",
        &served.target(),
        "--seconds",
        // Long enough that no machine is done before it is interrupted.
        "5",
        "--file-size",
        "2M",
        "--json",
        "run.json",
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
    assert!(
        eventually(Duration::from_secs(60), || std::fs::read_dir(served.world.path("data")).is_ok_and(|entries| entries.count() > 0)),
        "it begins"
    );
    std::thread::sleep(Duration::from_secs(3));
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
    let mut table = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().expect("piped"), &mut table).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    served.is_left_clean();
    assert!(table.contains("interrupted"), "{table}");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(served.world.path("run.json")).expect("the record")).expect("JSON");
    assert_eq!(record["interrupted"], true);
}

#[test]
fn mounts_and_scp_are_measured_too() {
    let world = World::new();
    std::fs::create_dir(world.path("a")).expect("a directory");
    std::fs::create_dir(world.path("b")).expect("a directory");
    let sizes = ["--sizes", "64K", "--small-files", "5", "--large-files", "1", "--large-size", "2M", "--quick", "--rounds", "1"];
    let scp: &[&str] = if std::path::Path::new("/usr/sbin/sshd").exists() { &["--target", "scp://"] } else { &[] };
    if scp.is_empty() {
        println!("skipped: needs the package openssh-server");
    }
    let table = world.ok([&["bench", "transfer", "--mount", "a=a", "--mount", "b=b"], scp, &sizes].concat());
    assert!(table.contains("5 × 5 kB") && (scp.is_empty() || table.contains("scp")), "{table}");
    if Command::new("fio").arg("--version").output().is_err() {
        println!("skipped: needs the package fio");
        return;
    }
    let short = ["--quick", "--rounds", "1", "--seconds", "0.05", "--file-size", "2M", "--depth", "4"];
    let table = world.ok([&["bench", "concurrency", "--mount", "b=b"], &short[..]].concat());
    assert!(table.contains("sequential 50% reads") && table.contains("metadata"), "{table}");
    let table = world.ok([&["bench", "iops", "--mount", "a=a", "--cache", "both", "--steps", "1"], &short[..]].concat());
    assert!(table.contains("a second") && table.contains("a cold") && table.contains("a warm"), "{table}");
    for name in ["a", "b"] {
        assert_eq!(std::fs::read_dir(world.path(name)).expect("a directory").count(), 0);
    }
}

#[test]
fn agents_measure_together_for_who_knows_the_token() {
    use std::os::unix::fs::PermissionsExt as _;
    let served = Served::new();
    for (name, secret) in [("token", "a secret of some length"), ("guess", "another of some length!")] {
        served.world.write(name, secret);
        std::fs::set_permissions(served.world.path(name), std::fs::Permissions::from_mode(0o600)).expect("our own file");
    }
    let mut agents: Vec<(Child, String)> = (0..2)
        .map(|_| {
            let mut command = served.world.command(["bench", "agent", "--listen", "127.0.0.1:0", "--token-file", "token"]);
            let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
            let mut line = String::new();
            BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
            (child, line.trim().strip_prefix("agent on ").expect("an address").to_owned())
        })
        .collect();
    let target = served.target();
    let mut args = vec![
        "bench",
        "concurrency",
        "--target",
        &target,
        "--quick",
        "--seconds",
        "0.05",
        "--rounds",
        "1",
        "--file-size",
        "2M",
        "--depth",
        "4",
        "--json",
        "run.json",
    ];
    agents.iter().for_each(|(_, address)| args.extend(["--agent", address]));
    let refused = served.world.fails(5, [&args[..], &["--token-file", "guess"]].concat());
    assert!(refused.contains("token"), "{refused}");
    served.world.ok([&args[..], &["--token-file", "token"]].concat());
    served.is_left_clean();
    let record: Value = serde_json::from_str(&std::fs::read_to_string(served.world.path("run.json")).expect("the record")).expect("JSON");
    for result in record["results"].as_array().expect("results") {
        let sample = &result["subjects"][0]["samples"][0];
        let nodes = sample["nodes"].as_array().expect("figures of each node");
        let sum: u64 = nodes.iter().filter_map(|node| node[1]["operations"].as_u64()).sum();
        assert_eq!((nodes.len(), Some(sum)), (2, sample["operations"].as_u64()), "{result}");
    }
    for (child, _) in &mut agents {
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[test]
fn a_published_tree_is_read_beside_its_directory() {
    if !have_fuse() {
        return;
    }
    let world = World::new();
    std::fs::create_dir(world.path("place")).expect("a directory");
    let table = world.ok(["bench", "tree", "--dir", "place", "--quick", "--rounds", "1", "--json", "tree.json"]);
    assert!(table.contains("tree cold") && table.contains("local directory") && table.contains("a name of three"), "{table}");
    let text = std::fs::read_to_string(world.path("tree.json")).expect("the record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let result = |kind: &str| record["results"].as_array().expect("results").iter().find(|result| result["case"]["kind"] == kind).cloned();
    let labels = |result: &Value| -> Vec<String> {
        result["subjects"].as_array().expect("subjects").iter().map(|subject| subject["label"].as_str().unwrap_or("").to_owned()).collect()
    };
    let is_here = |program: &str, option: &str| Command::new(program).arg(option).output().is_ok();
    if is_here("cc", "--version") {
        let compiled = labels(&result("compile").expect("a compile"));
        assert!(compiled.contains(&"tree cold".to_owned()) && compiled.contains(&"local directory".to_owned()), "{compiled:?}");
        assert!(compiled.contains(&"sshfs cold".to_owned()) || text.contains("sshfs cold: "), "{compiled:?}, nor is it left out");
        let replayed = result("replay").expect("clients that replay it");
        let sample = &replayed["subjects"][0]["samples"][0];
        assert!(sample["operations"].as_u64() > Some(6) && sample["bytes"].as_u64() > Some(10_000), "{replayed}");
    } else {
        println!("skipped: needs a C compiler (cc)");
    }
    let connected = labels(&result("connect").expect("connections"));
    if is_here("/usr/sbin/nginx", "-v") {
        assert_eq!(connected, ["replica", "nginx HTTP", "nginx HTTPS"]);
    } else {
        println!("skipped: needs the package nginx");
        assert!(text.contains("nginx is not installed"), "it is said");
    }
    assert_eq!(std::fs::read_dir(world.path("place")).expect("a directory").count(), 0);
}

#[test]
fn what_needs_no_server_runs_alone() {
    let world = World::new();
    let null: Value = serde_json::from_str(&world.ok(["bench", "null", "--json"])).expect("JSON");
    assert!(null["calls"].as_u64().expect("a count") > 1000, "{null}");
    let one = ["--enctypes", "aes256-cts-hmac-sha1-96", "--sizes", "4K"];
    let table = world.ok([&["bench", "seal", "--quick", "--rounds", "1"], &one[..]].concat());
    assert!(table.contains("aes256-cts-hmac-sha1-96") && table.contains("16 together") && !table.contains("aes128"), "{table}");
    std::fs::create_dir(world.path("work")).expect("a directory");
    world.ok(["bench", "work", "files", "200", "work"]);
    assert_eq!(std::fs::read_dir(world.path("work")).expect("a directory").count(), 0);
    let said = world.fails(2, ["bench", "iops"]);
    assert!(said.contains("--target"), "{said}");
}

#[test]
fn a_trail_is_measured_beside_an_export_without_one() {
    let world = World::new();
    std::fs::create_dir(world.path("place")).expect("a directory");
    let place = world.path("place").display().to_string();
    let args = ["bench", "audit", "--no-kernel", "--quick", "--rounds", "1", "--files", "200", "--json", "run.json", "--dir", &place];
    let table = world.ok(args);
    assert!(table.contains("export, trail"), "{table}");
    let text = std::fs::read_to_string(world.path("run.json")).expect("the record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let [result] = &record["results"].as_array().expect("results")[..] else { panic!("{record}") };
    let [plain, trail] = &result["subjects"].as_array().expect("subjects")[..] else { panic!("{result}") };
    for subject in [plain, trail] {
        assert_eq!(subject["operations"], 200, "{subject}");
        assert_eq!(subject["errors"], 0, "{subject}");
    }
    // Made, opened again and removed, with what is between; and nothing is lost. What is not recorded tells nothing of it.
    let other = |subject: &Value, name: &str| {
        subject["samples"][0]["others"].as_array().and_then(|all| all.iter().find(|other| other[0] == name)).map(|other| other[1].as_f64())
    };
    assert!(other(trail, "records").flatten().expect("a count") >= 1000.0, "{trail}");
    assert_eq!(other(trail, "records lost").flatten(), Some(0.0), "{trail}");
    assert!(other(plain, "records").is_none(), "{plain}");
    assert_eq!(std::fs::read_dir(world.path("place")).expect("a directory").count(), 0);
}
