use crate::browser::check_page_in_browser;
use crate::prelude::*;
use crate::test_site::start;

pub(crate) struct BenchServer {
    pub(crate) export: Export,
    pub(crate) site: TestSite,
}

impl BenchServer {
    pub(crate) fn new() -> Self {
        Self::with_options("rw,insecure,no_root_squash")
    }

    pub(crate) fn with_options(options: &str) -> Self {
        let site = TestSite::with_directories(&["data"]);
        BenchServer { export: Export::start(&site, &["--dir", "data", "--options", options]), site }
    }

    pub(crate) fn target(&self) -> String {
        format!("nfs://{}/export", self.export.address)
    }

    fn record(&self, workload: &[&str]) -> Value {
        let (one, two) = (format!("one={}", self.target()), format!("two={}", self.target()));
        let args = [
            &["bench"],
            workload,
            &["--target", &one, "--target", &two, "--quick", "--json", "run.json"],
        ]
        .concat();
        let table = self.site.run_ok(args);
        assert_contains!(table, "one", "two", "ratio [range of");
        self.assert_clean();
        self.site.json("run.json")
    }

    pub(crate) fn assert_clean(&self) {
        let left: Vec<_> = std::fs::read_dir(self.site.path("data"))
            .expect("a directory")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn assert_sound(record: &Value, results: usize) {
    let all = record["results"].as_array().expect("results");
    assert!(all.len() >= results, "{} results", all.len());
    for result in all {
        let subjects = result["subjects"].as_array().expect("subjects");
        assert!(!subjects.is_empty(), "{result}");
        let baseline = subjects[0]["label"] == record["subjects"][0]["label"];
        for subject in subjects {
            assert!(subject["operations"].as_u64().expect("a count") > 0, "{result}");
            assert_eq!(subject["errors"], 0, "{result}");
            assert!(
                subject["figure"]["low"].as_f64() <= subject["figure"]["high"].as_f64(),
                "{result}"
            );
            assert!(subject["calls"]["p50_us"].as_f64().expect("a latency") > 1.0, "{result}");
            match subject["ratio"]["median"].as_f64() {
                Some(ratio) => assert!(baseline && ratio > 0.0, "{result}"),
                None => assert!(!baseline, "{result}"),
            }
        }
    }
}

#[test]
fn transfers_copy_files_in_both_directions() {
    let served = BenchServer::new();
    let small = words("transfer --sizes 64K,2M --small-files 20 --large-files 2 --large-size 2M");
    let record = served.record(&small);
    assert_sound(&record, 8);
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
#[ignore = "needs Chromium"]
fn curves_and_levels_are_measured() {
    let served = BenchServer::new();
    let record =
        served.record(&words("iops --steps 20 --seconds 0.05 --rounds 1 --file-size 2M --depth 8"));
    assert_sound(&record, 8);
    assert!(
        record["results"]
            .as_array()
            .expect("results")
            .iter()
            .any(|result| result["case"]["rate"].as_f64().is_some()),
        "a step has a rate"
    );
    check_latency_curves(&record);
    let outputs = ["--csv", "run.csv", "--html", "run.html"];
    let record = served.record(
        &[&words("concurrency --seconds 0.05 --rounds 2 --file-size 2M --depth 8"), &outputs[..]]
            .concat(),
    );
    assert_sound(&record, 14);
    let csv = std::fs::read_to_string(served.site.path("run.csv")).expect("lines");
    assert!(
        csv.lines().count() > 14 * 2 * 2 - 1
            && csv.lines().all(|line| line.matches(',').count() >= 18),
        "{csv}"
    );
    let table = served.site.run_ok("bench report run.json --html again.html --keep kept.jsonl");
    assert_eq!(
        served.site.run_ok(["bench", "report", "kept.jsonl#run", "--html", "kept.html"]),
        table
    );
    let page = |name: &str| std::fs::read_to_string(served.site.path(name)).expect("a page");
    assert_eq!(page("kept.html"), page("again.html"));
    served.site.run_ok(["bench", "compare", "kept.jsonl#run", "run.json"]);
    assert_contains!(
        served.site.run_err(3, ["bench", "report", "run.json", "--keep", "kept.jsonl"]),
        "has a run run"
    );
    assert_contains!(
        served.site.run_err(2, ["bench", "report", "kept.jsonl#run", "--csv", "run.csv"]),
        "no single rounds"
    );
    assert_contains!(
        served.site.run_err(3, ["bench", "report", "kept.jsonl#other"]),
        "no run \"other\""
    );
    let read = |name: &str| std::fs::read_to_string(served.site.path(name)).expect("a page");
    assert!(read("run.html") == read("again.html"));
    let compared = served.site.run_ok(["bench", "compare", "run.json", "run.json"]);
    assert!(compared.contains("1.00") && !compared.contains("  faster"), "{compared}");
    check_page_in_browser(&served.site, "run.html", 20);
}

fn check_latency_curves(record: &Value) {
    let steps = record["results"]
        .as_array()
        .expect("results")
        .iter()
        .filter(|result| result["case"]["rate"].as_f64().is_some());
    let (mut panel, mut low, mut held) = (Value::Null, 0, 0);
    for step in steps {
        let lowest = step["panel"] != panel;
        panel = step["panel"].clone();
        let (rate, seconds) = (
            step["case"]["rate"].as_f64().expect("a rate"),
            step["case"]["seconds"].as_f64().expect("a time"),
        );
        for subject in step["subjects"].as_array().expect("subjects") {
            for sample in subject["samples"].as_array().expect("samples") {
                let count = |name: &str| sample[name].as_u64().unwrap_or(0) as f64;
                assert!(
                    sample["seconds"].as_f64() >= Some(seconds),
                    "a step was too short: {sample}"
                );
                let counted = count("operations") + count("errors") + count("unsent");
                assert!(
                    (counted - rate * seconds).abs() <= 2.0,
                    "{counted} of {} scheduled calls: {sample}",
                    rate * seconds
                );
                low += u32::from(lowest);
                held += u32::from(
                    lowest
                        && count("unsent") == 0.0
                        && count("operations") >= 0.95 * rate * seconds - 1.0,
                );
            }
        }
    }
    // One step may miss its rate, because the machine may have stalled.
    assert!(low >= 8 && held * 2 > low, "{held} of {low} steps kept their rate");
}

#[test]
fn nonempty_target_directory_is_left_alone() {
    let served = BenchServer::new();
    served.site.write("data/mine", "mine");
    let target = served.target();
    let sizes =
        ["--sizes", "64K", "--small-files", "2", "--large-files", "1", "--large-size", "1M"];
    let args = [&["bench", "transfer", "--quick", "--target", &target], &sizes[..]].concat();
    served.site.expect_err(3, &args, &["--not-empty"]);
    served.site.run_ok([&args[..], &["--not-empty"]].concat());
    let left: Vec<_> = std::fs::read_dir(served.site.path("data"))
        .expect("a directory")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(left, ["mine"]);
}

#[test]
fn interrupted_run_cleans_up_and_reports_its_results() {
    let served = BenchServer::new();
    let long =
        ["--seconds", "5", "--file-size", "2M", "--json", "run.json", "--target", &served.target()];
    let mut command = served.site.command([&["bench", "concurrency"], &long[..]].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
    within(60, "the run does not begin", || {
        std::fs::read_dir(served.site.path("data")).is_ok_and(|entries| entries.count() > 0)
    });
    std::thread::sleep(Duration::from_secs(3));
    signal("INT", child.id());
    let mut table = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().expect("piped"), &mut table)
        .expect("text");
    assert_eq!(child.wait().expect("the child ends").code(), Some(130));
    served.assert_clean();
    assert!(table.contains("interrupted"), "{table}");
    let record = served.site.json("run.json");
    assert_eq!(record["interrupted"], true);
}

#[test]
#[ignore = "needs fio and openssh-server"]
fn mounts_and_scp_are_measured_too() {
    let site = TestSite::with_directories(&["a", "b"]);
    let sizes =
        words("--sizes 64K --small-files 5 --large-files 1 --large-size 2M --quick --rounds 1");
    require_programs(&["sshd", "fio"]);
    let targets = ["bench", "transfer", "--mount", "a=a", "--mount", "b=b", "--target", "scp://"];
    let table = site.run_ok([&targets[..], &sizes].concat());
    assert!(table.contains("5 × 5 kB") && table.contains("scp"), "{table}");
    let short =
        ["--quick", "--rounds", "1", "--seconds", "0.05", "--file-size", "2M", "--depth", "4"];
    let table = site.run_ok([&["bench", "concurrency", "--mount", "b=b"], &short[..]].concat());
    assert!(table.contains("sequential 50% reads") && table.contains("metadata"), "{table}");
    let table = site.run_ok(
        [&["bench", "iops", "--mount", "a=a", "--cache", "both", "--steps", "1"], &short[..]]
            .concat(),
    );
    assert_contains!(table, "a second", "a cold", "a warm");
    for name in ["a", "b"] {
        assert_eq!(site.count(name), 0);
    }
}

#[test]
fn agents_measure_together_if_the_token_matches() {
    use std::os::unix::fs::PermissionsExt as _;
    let served = BenchServer::new();
    for (name, secret) in
        [("token", "a secret of some length"), ("guess", "another of some length!")]
    {
        served.site.write(name, secret);
        std::fs::set_permissions(served.site.path(name), std::fs::Permissions::from_mode(0o600))
            .expect("our own file");
    }
    let agents = [0, 1].map(|_| {
        let (child, line) =
            start(&mut served.site.command("bench agent --listen 127.0.0.1:0 --token-file token"));
        (child, line.trim().strip_prefix("agent on ").expect("an address").to_owned())
    });
    let target = served.target();
    let short = words("--quick --seconds 0.05 --rounds 1 --file-size 2M --depth 4 --json run.json");
    let mut args = [&["bench", "concurrency", "--target", &target], &short[..]].concat();
    agents.iter().for_each(|(_, address)| args.extend(["--agent", address]));
    served.site.expect_err(5, [&args[..], &["--token-file", "guess"]].concat(), &["token"]);
    served.site.run_ok([&args[..], &["--token-file", "token"]].concat());
    served.assert_clean();
    let record = served.site.json("run.json");
    for result in record["results"].as_array().expect("results") {
        let sample = &result["subjects"][0]["samples"][0];
        let nodes = sample["nodes"].as_array().expect("figures of each node");
        let sum: u64 = nodes.iter().filter_map(|node| node[1]["operations"].as_u64()).sum();
        let at_work = if result["panel"] == "Low concurrency" { 1 } else { 2 };
        assert_eq!((nodes.len(), Some(sum)), (at_work, sample["operations"].as_u64()), "{result}");
    }
}

#[test]
fn server_cpu_time_is_read_from_its_source() {
    let served = BenchServer::new();
    let port = free_port();
    let metrics = format!("127.0.0.1:{port}");
    let other = TestSite::with_directories(&["other"]);
    let server = Export::start(
        &other,
        &["--dir", "other", "--options", "rw,insecure,no_root_squash", "--metrics", &metrics],
    );
    within(60, "no metrics", || std::net::TcpStream::connect(&metrics).is_ok());
    let (target, source) =
        (format!("nfs://{}/export", server.address), format!("http://{metrics}/metrics"));
    let small =
        words("--sizes 2M --small-files 20 --large-files 2 --large-size 2M --quick --rounds 2");
    let args = [
        &["bench", "transfer", "--target", &target, "--server-cpu", &source, "--json", "run.json"],
        &small[..],
    ]
    .concat();
    served.site.run_ok(args);
    drop(server);
    let record = served.site.json("run.json");
    let results = record["results"].as_array().expect("results");
    let samples = results.iter().flat_map(|result| {
        result["subjects"][0]["samples"].as_array().cloned().unwrap_or_default()
    });
    let seconds: Vec<_> = samples.map(|sample| sample["server_cpu_s"].as_f64()).collect();
    assert!(!seconds.is_empty() && seconds.iter().all(Option::is_some), "{seconds:?}");
    assert!(seconds.iter().flatten().sum::<f64>() > 0.0, "{seconds:?}");
    let output_text = served.site.run_err(
        6,
        [&["bench", "transfer", "--target", &served.target(), "--server-cpu", &source], &small[..]]
            .concat(),
    );
    assert!(output_text.contains(&metrics), "{output_text}");
}

/// Those of script/mutants, which has a build of its own.
#[test]
fn program_contains_no_seeded_faults() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_vouch")).expect("the program");
    let marker = b"VOUCH_MUTANT";
    assert!(!program.windows(marker.len()).any(|part| part == marker));
}
