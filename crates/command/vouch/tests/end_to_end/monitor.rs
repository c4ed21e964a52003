//! `vouch monitor` with real replicas: a thief, two histories, a stopped log, kills.

use vouch_log::key::VerifierKey;

use crate::prelude::*;
use crate::witnesses::server::{HonestWitness, WitnessServer};

/// The publisher's replica and a mirror, both asked by the monitor.
struct Watched {
    site: TestSite,
    mirror_port: u16,
}

impl Watched {
    fn new() -> Self {
        let site = TestSite::published();
        Self { site, mirror_port: free_port() }
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let mirror = format!("127.0.0.1:{}", self.mirror_port);
        let name = self.site.name("");
        let fixed = ["monitor", "--json", "--replica", &mirror, "--no-cache", &name];
        fixed.iter().chain(more).map(|&argument| argument.to_owned()).collect()
    }

    /// The events of one look, which ends with this exit code.
    fn look(&self, code: i32, more: &[&str]) -> Vec<Value> {
        let output = self.site.run(self.arguments(&[&["--once"], more].concat()));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        events(&output.stdout)
    }

    fn state(&self) -> PathBuf {
        let hostid = self.site.name("").rsplit_once(',').expect("a name").1.to_owned();
        self.site.path("state/monitor").join(hostid)
    }

    fn evidence(&self, kind: &str) -> PathBuf {
        let alarms = std::fs::read_dir(self.state().join("alarms")).expect("a directory");
        let mut alarms = alarms.map(|entry| entry.expect("an entry").path());
        let found = alarms.find(|path| path.to_string_lossy().contains(kind));
        found.unwrap_or_else(|| panic!("no evidence of {kind}"))
    }

    /// With the publisher's keys and a copy of its database.
    fn thief_publishes(&self, times: usize) {
        self.site.write("src/hello", "of the thief\n");
        let location = self.site.location();
        for _ in 0..times {
            let line =
                ["publish", "src", "--db", "thief", "--keys", "keys", "--location", &location];
            self.site.run_ok(line);
        }
    }
}

fn events(output: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(output);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The value of the sample of the metrics that has this text.
fn sample(page: &str, text: &str) -> Option<u64> {
    let line = page.lines().find(|line| !line.starts_with('#') && line.contains(text))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind || event["kind"] == kind).collect()
}

#[test]
fn monitor_reports_each_revision_once() {
    let watched = Watched::new();
    let site = &watched.site;
    let _replica = site.serve();
    site.publish_with(&["--tag", "v1"]);
    let seen = watched.look(0, &["--expect", "db"]);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!((&seen[1]["revision"], &seen[1]["index"]), (&2.into(), &1.into()));
    assert_eq!((&seen[1]["tag"], &seen[1]["known"]), (&"v1".into(), &true.into()));
    assert_eq!(seen[1]["signing_key"].as_str().map(str::len), Some(16));
    assert!(watched.look(0, &["--expect", "db"]).is_empty());
    site.run_ok("certify keys");
    site.publish();
    let seen = watched.look(0, &["--expect", "db"]);
    assert_eq!((seen.len(), &seen[0]["certificate"]), (1, &2.into()));
    // The copy is a log that stock tools read.
    let copy = std::fs::read(watched.state().join("log/checkpoint")).expect("a copy");
    assert!(copy == std::fs::read(site.path("db/log/checkpoint")).expect("a checkpoint"));
}

/// The thief has the signing key and not the log's: its revision can't be in the log.
#[test]
fn revision_outside_of_the_log_is_found_at_one_mirror() {
    let watched = Watched::new();
    let site = &watched.site;
    let _replica = site.serve();
    watched.look(0, &[]);
    for name in ["log.key", "log.cert", "log.pub"] {
        std::fs::rename(site.path("keys").join(name), site.path(name)).expect("keygen writes it");
    }
    watched.thief_publishes(3);
    let _thief = site.serve_db("thief", watched.mirror_port);
    let seen = watched.look(1, &[]);
    assert_eq!(of_kind(&seen, "unlogged_revision").len(), 1, "{seen:?}");
    assert_eq!(of_kind(&seen, "revision")[0]["revision"], 3);
    assert!(watched.evidence("unlogged_revision").join("theirs.fsinfo").exists());
    let expected = watched.look(1, &["--expect", "db"]);
    assert_eq!(of_kind(&expected, "unknown_revision").len(), 1, "{expected:?}");
    // The alarms last, and are reported once.
    assert!(watched.look(1, &["--expect", "db"]).is_empty());
    std::fs::remove_dir_all(watched.state().join("alarms")).expect("a person has seen them");
    assert_eq!(watched.look(1, &["--expect", "db"]).len(), 1);
}

/// The thief has all keys and a copy of the database. A round begins at each interval.
#[test]
fn thief_is_found_by_the_next_round() {
    let watched = Watched::new();
    let site = &watched.site;
    let _replica = site.serve();
    site.run_tool("cp", &["-r", "db", "thief"]);
    let page = format!("127.0.0.1:{}", free_port());
    let more = ["--expect", "db", "--interval", "1s", "--metrics", &page];
    let output = std::fs::File::create(site.path("events")).expect("a file");
    let mut command = site.command(watched.arguments(&more));
    let _monitor = KillOnDrop(command.stdout(output).spawn().expect("the binary starts"));
    let count = |kind: &str| {
        let text = std::fs::read(site.path("events")).expect("a file");
        of_kind(&events(&text), kind).len()
    };
    let get = |path: &str| {
        use std::io::{Read as _, Write as _};
        let mut stream = TcpStream::connect(&page).expect("the page");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let rounds = |page: &str| sample(page, "vouch_monitor_rounds_total{").expect("a counter");
    let alarms = |page: &str| sample(page, "kind=\"unknown_revision\"}");
    within(60, "the first revision is not reported", || count("revision") == 1);
    assert_eq!(count("alarm"), 0);
    watched.thief_publishes(1);
    let _thief = site.serve_db("thief", watched.mirror_port);
    // The round that runs now may have asked the mirror before. The one after it begins later.
    let next = rounds(&get("/metrics")) + 2;
    let mut shown = String::new();
    within(60, "the monitor has no more rounds", || {
        shown = get("/metrics");
        rounds(&shown) >= next
    });
    assert_eq!(alarms(&shown), Some(1), "{shown}");
    assert_eq!(count("unknown_revision"), 1);
    let seen = events(&std::fs::read(site.path("events")).expect("a file"));
    let stolen = of_kind(&seen, "revision").into_iter().find(|event| event["known"] == false);
    let stolen = stolen.expect("the thief's revision");
    assert_eq!((&stolen["revision"], &stolen["index"]), (&2.into(), &1.into()));
    for name in ["theirs.checkpoint", "theirs.evidence", "theirs.entry-1", "theirs.fsinfo"] {
        assert!(watched.evidence("unknown_revision").join(name).exists(), "{name}");
    }
    assert_contains!(get("/healthz"), "503", "unknown_revision");
}

#[test]
fn split_view_is_found_with_both_heads() {
    let watched = Watched::new();
    let site = &watched.site;
    let _replica = site.serve();
    site.run_tool("cp", &["-r", "db", "thief"]);
    site.publish();
    watched.look(0, &[]);
    watched.thief_publishes(2);
    let _thief = site.serve_db("thief", watched.mirror_port);
    let seen = watched.look(1, &[]);
    let alarm = of_kind(&seen, "split_view");
    assert_eq!(alarm.len(), 1, "{seen:?}");
    assert_contains!(alarm[0]["text"].as_str().expect("text"), "differ from entry 1 on");
    assert_eq!(of_kind(&seen, "revision").len(), 2, "{seen:?}");
    let evidence = watched.evidence("split_view");
    for name in ["ours.checkpoint", "ours.evidence", "theirs.checkpoint", "theirs.evidence"] {
        assert!(evidence.join(name).exists(), "{name}");
    }
    let size = |name: &str| {
        let text = std::fs::read_to_string(evidence.join(name)).expect("a checkpoint");
        text.lines().nth(1).map(str::to_owned)
    };
    assert_eq!(size("ours.checkpoint").as_deref(), Some("2"));
    assert_eq!(size("theirs.checkpoint").as_deref(), Some("3"));
    let shown = site.run_ok([
        "verify",
        "--fork",
        evidence.to_str().expect("text"),
        site.name("").rsplit_once(',').expect("a name").1,
    ]);
    assert_contains!(shown, "PROVEN: the log of 3 entries does not continue that of 2");
    // Our copy goes on with the publisher's history.
    site.publish();
    assert_eq!(of_kind(&watched.look(1, &[]), "revision").len(), 1);
}

/// A witness of the tree's log, in the policy `policy` of publisher and monitor.
fn witness(site: &TestSite, shows_heads: bool) -> WitnessServer {
    let witness = HonestWitness::new(1, log_key(site), || {
        std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
    });
    let witness = if shows_heads { witness.open() } else { witness };
    let key = witness.signer.verifier().to_text();
    let server = WitnessServer::honest(witness, Duration::ZERO);
    site.write("policy", format!("witness w {key} {}\nquorum w\n", server.url));
    server
}

/// The thief's log has the witness's cosignature, and one victim as reader.
#[test]
fn head_that_only_a_witness_knows_raises_an_alarm() {
    for shows_heads in [true, false] {
        let watched = Watched::new();
        let site = &watched.site;
        let _replica = site.serve();
        let _witness = witness(site, shows_heads);
        let location = site.location();
        let publish = |db: &str| {
            let fixed = ["publish", "src", "--db", db, "--keys", "keys", "--location", &location];
            site.run_ok([&fixed[..], &["--policy", "policy"]].concat());
        };
        publish("db");
        let more = ["--policy", "policy"];
        let expecting = ["--policy", "policy", "--expect", "db"];
        watched.look(0, &expecting);
        site.run_tool("cp", &["-r", "db", "thief"]);
        publish("thief");
        // It could be a revision that its publisher is about to show.
        assert!(watched.look(0, &more).is_empty());
        let path = watched.state().join("state.json");
        let mut state: Value =
            serde_json::from_slice(&std::fs::read(&path).expect("a state")).expect("JSON");
        let since = state["hidden"][1].as_u64().expect("the monitor remembers it");
        state["hidden"][1] = (since - 60).into();
        std::fs::write(&path, state.to_string()).expect("a file");
        let seen = watched.look(1, &more);
        assert_eq!(of_kind(&seen, "hidden_head").len(), 1, "{seen:?}");
        let evidence = watched.evidence("hidden_head");
        assert_eq!(evidence.join("theirs.checkpoint").exists(), shows_heads);
        // The publisher's own database tells at once.
        std::fs::remove_dir_all(watched.state().join("alarms")).expect("a person has seen them");
        let text = watched.look(1, &expecting)[0]["text"].to_string();
        assert_contains!(text, "has cosigned 3 entries", "no replica shows more than 2");
    }
}

#[test]
fn history_that_only_a_witness_knows_is_a_split_view() {
    for shows_heads in [true, false] {
        let watched = Watched::new();
        let site = &watched.site;
        let _replica = site.serve();
        let _witness = witness(site, shows_heads);
        site.run_tool("cp", &["-r", "db", "thief"]);
        let location = site.location();
        let thief = ["publish", "src", "--db", "thief", "--keys", "keys", "--location", &location];
        site.write("src/hello", "of the thief\n");
        site.run_ok([&thief[..], &["--policy", "policy"]].concat());
        site.write("src/hello", "of the publisher\n");
        site.publish();
        let seen = watched.look(1, &["--policy", "policy", "--expect", "db"]);
        assert_eq!(of_kind(&seen, "split_view").len(), 1, "{seen:?}");
        if shows_heads {
            let evidence = watched.evidence("split_view");
            let hostid = site.name("").rsplit_once(',').expect("a name").1.to_owned();
            let shown = site.run_ok([
                "verify",
                "--fork",
                evidence.to_str().expect("text"),
                hostid.as_str(),
            ]);
            assert_contains!(shown, "PROVEN");
        }
    }
}

/// Its witnesses may know it for long before readers do.
#[test]
fn revision_that_waits_for_witnesses_raises_no_alarm_beside_its_publisher() {
    let watched = Watched::new();
    let site = &watched.site;
    let _replica = site.serve();
    let server = witness(site, true);
    let live = std::fs::read_to_string(site.path("policy")).expect("a policy");
    let other = HonestWitness::new(2, log_key(site), || 1).signer.verifier().to_text();
    let line = live.lines().next().expect("a witness");
    let dead = format!("witness dead {other} http://127.0.0.1:{}", free_port());
    site.write("both", format!("{line}\n{dead}\ngroup all all w dead\nquorum all\n"));
    let location = site.location();
    let publish = ["publish", "src", "--db", "db", "--keys", "keys", "--location", &location];
    let hold = ["--policy", "both", "--too-few", "hold", "--witness-wait", "1s"];
    site.run_ok([&publish[..], &hold].concat());
    let seen = watched.look(0, &["--policy", "policy", "--expect", "db"]);
    assert_eq!(of_kind(&seen, "revision").len(), 1, "{seen:?}");
    drop(server);
}

fn log_key(site: &TestSite) -> VerifierKey {
    let keys = std::fs::read_to_string(site.path("keys/log.pub")).expect("keygen writes it");
    VerifierKey::parse(keys.lines().next().expect("a key")).expect("a key")
}

#[test]
fn stopped_log_raises_an_alarm_that_its_next_head_clears() {
    let watched = Watched::new();
    let site = &watched.site;
    let replica = site.serve();
    watched.look(0, &["--stale-after", "1h"]);
    within(30, "the log does not stop", || {
        !site.run(watched.arguments(&["--once", "--stale-after", "1s"])).status.success()
    });
    let output = site.run(watched.arguments(&["--once", "--stale-after", "1s"]));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    site.publish();
    let seen = watched.look(0, &["--stale-after", "1h"]);
    assert_eq!((of_kind(&seen, "revision").len(), of_kind(&seen, "cleared").len()), (1, 1));
    drop(replica);
    watched.look(6, &["--stale-after", "1h", "--timeout", "2s"]);
}

#[test]
fn mirror_behind_the_publisher_raises_no_alarm() {
    let watched = Watched::new();
    let site = &watched.site;
    let _replica = site.serve();
    site.run_ok(["pull", &site.name(""), "--db", "mirror"]);
    let _mirror = site.serve_db("mirror", watched.mirror_port);
    for _ in 0..2 {
        site.publish();
        watched.look(0, &["--expect", "db"]);
    }
}

#[test]
fn killed_monitor_reports_every_revision_and_keeps_its_history() {
    let watched = Watched::new();
    let site = &watched.site;
    let _replica = site.serve();
    let mut indexes = std::collections::BTreeSet::new();
    for round in 0..12u64 {
        site.publish();
        let output = std::fs::File::create(site.path("events")).expect("a file");
        let mut command = site.command(watched.arguments(&["--interval", "1s"]));
        let mut monitor = KillOnDrop(command.stdout(output).spawn().expect("the binary starts"));
        std::thread::sleep(Duration::from_millis(40 * round));
        monitor.kill().expect("it runs");
        monitor.wait().expect("a child");
        let text = std::fs::read_to_string(site.path("events")).expect("a file");
        // The last line may be cut.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        indexes
            .extend(events(&text.as_bytes()[..whole]).iter().map(|event| event["index"].as_u64()));
    }
    indexes
        .extend(watched.look(0, &["--expect", "db"]).iter().map(|event| event["index"].as_u64()));
    assert_eq!(indexes, (0..13).map(Some).collect());
    assert!(watched.look(0, &["--expect", "db"]).is_empty());
}

#[test]
fn monitor_refuses_wrong_arguments() {
    let watched = Watched::new();
    let site = &watched.site;
    let name = site.name("");
    site.expect_err(2, ["monitor", "--once", &site.name("/hello")], &["whole tree"]);
    let other = TestSite::published();
    let other = other.path("db").display().to_string();
    let line = ["monitor", "--once", "--expect", &other, &name];
    site.expect_err(2, line, &["none of these trees"]);
    site.expect_err(4, ["monitor", "--once", "--expect", "nothing", &name], &["nothing"]);
}
