use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::sync::atomic::AtomicUsize;

use vouch_bench::case::{Load, Order};
use vouch_bench::nfs::{NfsOptions, NfsSubject};
use vouch_bench::runner::{PlannedCase, ProgressSink, Rounds, Runner};
use vouch_bench::target::{Sec, Target};
use vouch_bench::{Case, Run, StopFlag};
use vouch_oncrpc::RecordReader;

use crate::bench::BenchServer;
use crate::prelude::*;

#[test]
fn refusal_comes_with_advice() {
    let served = BenchServer::with_options("rw,insecure,all_squash");
    let target = served.target();
    if rustix::process::geteuid().is_root() {
        served.site.expect_err(
            5,
            ["bench", "iops", "--quick", "--target", &target],
            &[&target, "NFS4ERR_ACCESS", "no_root_squash"],
        );
    }
    let nowhere = target.replace("export", "nowhere");
    served.site.expect_err(
        4,
        ["bench", "iops", "--quick", "--target", &nowhere],
        &[&nowhere, "no such file"],
    );
}

struct Silent;

impl ProgressSink for Silent {
    fn update(&mut self, _: f64, _: f64, _: &str) {}
}

#[test]
fn dropped_calls_count_as_errors_and_the_run_goes_on() {
    let served = BenchServer::new();
    let address = relay_with_limit(served.export.address, 20);
    let Ok(Target::Nfs(target)) = format!("nfs://{address}/export").parse() else {
        panic!("a target")
    };
    let (sec, service, server_cpu) = (Sec::Sys, None, None);
    let options = NfsOptions {
        label: "drops".into(),
        target,
        sec,
        service,
        tls: None,
        sessions: 1,
        connections: 1,
        slots: 32,
        server_cpu,
        not_empty: false,
    };
    let stop = StopFlag::default();
    let subject = NfsSubject::connect(options, &stop).expect("a session");
    let rounds = Rounds { min: 2, max: 2, spread_max: 0.0, warm_up: false };
    let mut bench = Runner::new(
        Run::begin("test".into(), true),
        vec![Box::new(subject)],
        rounds,
        Box::new(Silent),
        stop,
    );
    let load = |depth| {
        Case::Load(Load {
            order: Order::Random,
            block: 4096,
            read_percent: 100,
            depth,
            rate: None,
            seconds: 0.5,
            file_len: 1 << 20,
        })
    };
    let plan = [
        PlannedCase::new("iops", "deep", "reads", load(32)),
        PlannedCase::new("iops", "shallow", "reads", load(16)),
    ];
    let outcome = bench.run_all(&plan);
    let run = bench.finish(&outcome);
    assert!(outcome.is_ok(), "{outcome:?}");
    let [deep, shallow] = &run.results[..] else { panic!("{:?} {:?}", run.left_out, run.notes) };
    let (deep, shallow) = (&deep.subjects[0], &shallow.subjects[0]);
    let counts: Vec<_> = deep
        .samples
        .iter()
        .map(|sample| (sample.unanswered, sample.errors, sample.operations))
        .collect();
    assert!(
        counts.len() == 2
            && counts.iter().all(|counts| counts.0 > 0 && counts.0 == counts.1 && counts.2 > 0),
        "{counts:?}"
    );
    let calls = deep.calls.as_ref().expect("latencies");
    assert_eq!(calls.histogram.count(), deep.operations + deep.errors);
    assert_eq!((shallow.errors, shallow.rounds().unanswered), (0, 0));
    assert!(
        run.notes.iter().any(|note| note.contains("had no answer") && note.contains("window")),
        "{:?}",
        run.notes
    );
    served.assert_clean();
}

fn relay_with_limit(server: SocketAddr, limit: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("a port");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a client");
            let server = TcpStream::connect(server).expect("the server");
            let in_flight = Arc::new(AtomicUsize::new(0));
            let (from, to, flying) = (
                client.try_clone().expect("a socket"),
                server.try_clone().expect("a socket"),
                in_flight.clone(),
            );
            pump(from, to, move || {
                let fits = flying.load(Ordering::SeqCst) < limit;
                if fits {
                    flying.fetch_add(1, Ordering::SeqCst);
                }
                fits
            });
            pump(server, client, move || {
                let _ = in_flight
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
                true
            });
        }
    });
    address
}

fn pump(
    mut from: TcpStream,
    mut to: TcpStream,
    mut may_pass: impl FnMut() -> bool + Send + 'static,
) {
    std::thread::spawn(move || {
        let (mut reader, mut bytes) = (RecordReader::new(4 << 20), vec![0; 64 * 1024]);
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            let mut input = &bytes[..n];
            while let Ok(Some(record)) = reader.next(&mut input) {
                if may_pass() {
                    let _ = to.write_all(&vouch_oncrpc::record(|w| w.raw(&record)));
                }
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
}

#[test]
fn run_that_loses_a_server_reports_the_rest_and_fails() {
    let (stays, mut goes) = (BenchServer::new(), BenchServer::new());
    let targets = [format!("stays={}", stays.target()), format!("goes={}", goes.target())];
    let mut command = stays
        .site
        .command("bench concurrency --quick --seconds 0.2 --file-size 2M --json run.json");
    command.args(["--target", &targets[0], "--target", &targets[1]]);
    let child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let begins = || {
        std::fs::read_dir(goes.site.path("data"))
            .is_ok_and(|mut all| all.any(|of| of.is_ok_and(|of| of.path().join("large").exists())))
    };
    within(60, "the run does not begin", begins);
    goes.export.child.kill().expect("the process runs");
    let output = child.wait_with_output().expect("the child ends");
    let (table, output_text) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(9), "{table}{output_text}");
    assert!(
        table.contains("incomplete") && output_text.contains("left out"),
        "{table}{output_text}"
    );
    let record = std::fs::read_to_string(stays.site.path("run.json")).expect("the record");
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    assert_eq!(record["incomplete"], true);
    assert_eq!(record["results"].as_array().map(Vec::len), Some(14), "{table}");
    stays.assert_clean();
}

#[test]
fn contradictory_options_are_refused_before_anything_is_made() {
    let site = TestSite::with_directories(&["a", "b"]);
    let (mount, quick) = (["--mount", "a=a"], "--quick");
    for (args, says) in [
        ([&["bench", "iops", quick, "--server-cpu", "c=pid:1"], &mount[..]].concat(), "c=…"),
        ([&["bench", "iops", quick, "--client-cpu", "c=pid:1"], &mount[..]].concat(), "c=…"),
        (
            [&["bench", "transfer", quick, "--agent", "127.0.0.1:9"], &mount[..]].concat(),
            "agents measure only NFS servers",
        ),
        (
            ["bench", "transfer", quick, "--agent", "127.0.0.1:9", "--target", "scp://"].to_vec(),
            "agents measure only NFS servers",
        ),
    ] {
        site.expect_err(2, args.clone(), &[says]);
        assert!(
            ["a", "b"]
                .iter()
                .all(|name| std::fs::read_dir(site.path(name))
                    .is_ok_and(|entries| entries.count() == 0)),
            "{args:?}"
        );
    }
    for option in ["--sizes", "--large-size"] {
        let output = site
            .command(["bench", "transfer", quick, option, "0", "--mount", "a=a"])
            .output()
            .expect("the binary starts");
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && output_text.contains("at least one byte"),
            "{option}: {output_text}"
        );
    }
    let output_text = site.run_err(4, ["bench", "audit", "--no-kernel", quick, "--dir", "nowhere"]);
    assert!(!output_text.contains("bench: bench"), "{output_text}");
}

#[test]
#[ignore = "needs FUSE"]
fn interrupted_tree_preparation_is_removed() {
    let site = TestSite::with_directories(&["place"]);
    let count = || site.count("place");
    let mut child = site
        .command(["bench", "tree", "--dir", "place"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    within(60, "the run does not begin", || count() > 0);
    signal("INT", child.id());
    assert_eq!(child.wait().expect("the child ends").code(), Some(130));
    assert_eq!(count(), 0);
}

#[test]
#[ignore = "needs openssh-server"]
fn ctrl_c_removes_files_that_scp_copied() {
    require_program("sshd");
    let site = TestSite::new();
    let endless =
        words("bench transfer --target scp:// --sizes 64K --rounds 1000 --tight 0 --json run.json");
    let mut command = site.command(endless);
    let mut child = command
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let mut place = None;
    let begun = eventually(Duration::from_secs(60), || {
        place = place.take().or_else(|| scp_directory(child.id()));
        place.is_some()
    });
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
    rustix::process::kill_process_group(pid, rustix::process::Signal::INT)
        .expect("the process exists");
    let ended = child.wait().expect("the child ends").code();
    assert!(begun, "scp does not start");
    assert_eq!(ended, Some(130));
    let place = place.expect("the directory of scp");
    assert!(!std::path::Path::new(&place).exists(), "{place} was left behind");
    let record = std::fs::read_to_string(site.path("run.json")).expect("the record");
    assert!(record.contains("\"interrupted\""), "{record}");
}

fn scp_directory(run: u32) -> Option<String> {
    let processes = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter_map(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()?;
            let words =
                (parent == run).then(|| std::fs::read(format!("/proc/{pid}/cmdline")).ok())??;
            let words = String::from_utf8_lossy(&words).into_owned();
            let place = words.split('\0').find_map(|word| word.strip_prefix("127.0.0.1:"))?;
            Some(place.rsplit_once('/')?.0.to_owned())
        })
        .next()
}
