use vouch_log::key::VerifierKey;

use crate::litewitness::{self, Litewitness};
use crate::prelude::*;

#[allow(dead_code, reason = "shared with the tests of the client")]
#[path = "../../../../tree/client/tests/witnesses/server.rs"]
pub(crate) mod server;

use server::{HonestWitness, WitnessServer, signer};

fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_secs()
}

/// A witness that knows the log of the site's tree.
pub(crate) fn witness(site: &TestSite, seed: u8) -> WitnessServer {
    let keys = fs::read_to_string(site.path("keys/log.pub")).expect("keygen writes it");
    let key = VerifierKey::parse(keys.lines().next().expect("a key")).expect("a key");
    WitnessServer::honest(HonestWitness::new(seed, key, now), Duration::ZERO)
}

pub(crate) fn line(seed: u8, url: &str) -> String {
    format!("witness w{seed} {} {url}\n", signer(seed).verifier().to_text())
}

/// Nobody listens there.
const DEAD: &str = "http://127.0.0.1:1";

/// The root key of the tree demands two of three witnesses.
fn demand(site: &TestSite, urls: [&str; 3]) {
    let lines: String = (1..).zip(urls).map(|(seed, url)| line(seed, url)).collect();
    site.write("policy", format!("{lines}group two 2 w1 w2 w3\nquorum two\n"));
    site.run_ok("certify keys --policy policy --keep-log-key keys/log.cert");
}

#[test]
fn quorum_of_the_root_key_is_collected_and_believed() {
    let site = TestSite::new();
    site.small_tree();
    let servers = [witness(&site, 1), witness(&site, 2)];
    demand(&site, [&servers[0].url, &servers[1].url, DEAD]);
    let output = site.run(&site.publication());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert_contains!(error, "no cosignature", "refused", "w3");
    let _replica = site.serve();
    let name = site.name("");
    site.write("own", line(2, "") + "quorum w2\n");
    for (state, more) in [("first", &[][..]), ("second", &["--policy", "own"])] {
        let ls = [&["ls", &name, "--state", state], more].concat();
        assert_contains!(site.run_ok(ls), "hello");
    }
    assert_contains!(
        site.run_ok(["verify", &name]),
        "cosigned by 2 of 3 witnesses, from 20",
        "quorum at 20"
    );
    let verified: Value =
        serde_json::from_str(&site.run_ok(["verify", &name, "--json"])).expect("JSON");
    assert_eq!(verified["witnesses"]["cosigned"], 2);
    assert!(verified["witnesses"]["quorum_time"].is_string());
    site.run_ok(["pull", &name, "--db", "mirror", "--state", "third"]);
    let output = site.run("witness mirror --witness-wait 1s --json");
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["cosigned"].as_array().expect("a list").len(), 2);
    assert_eq!(report["missing"][0]["witness"], "w3");
    assert!(report["quorum_time"].is_string() && report.get("waits_for_witnesses").is_none());
    // The next revision and a rollback continue what the witnesses have seen.
    assert!(site.publish().get("waits_for_witnesses").is_none());
    assert!(!site.run_ok("rollback --db db --keys keys").contains("waits"));
    assert_eq!(site.run_ok(["log", &name, "--state", "first"]).lines().count(), 4);
}

#[test]
fn too_few_cosignatures_publish_hold_or_fail() {
    let site = TestSite::new();
    site.small_tree();
    let first = witness(&site, 1);
    demand(&site, [&first.url, DEAD, DEAD]);
    let publish = |choice: &str| {
        let more = format!(" --witness-wait 1s {choice}");
        site.run(&(site.publication() + &more))
    };
    // Readers that come first do not believe it.
    assert!(publish("--too-few publish").status.success());
    let _replica = site.serve();
    let name = site.name("");
    let ls = |state: &str| ["ls".to_owned(), name.clone(), "--state".to_owned(), state.to_owned()];
    assert_contains!(site.run_err(10, ls("a")), "the cosignatures of w1 do not suffice");
    let output = publish("");
    assert!(output.status.success());
    assert_contains!(String::from_utf8_lossy(&output.stdout), "2 until", "waits for witnesses");
    let revision = |db: &str| site.run_ok(["log", "--db", db]).lines().count() - 1;
    assert_eq!(revision("db"), 1);
    let failed = publish("--too-few fail");
    assert_eq!(failed.status.code(), Some(10));
    assert_contains!(String::from_utf8_lossy(&failed.stderr), "revision 2 waits for witnesses");
    for command in ["rollback --to 1", "tag t"] {
        let line = format!("{command} --db db --keys keys --witness-wait 1s");
        assert_contains!(site.run_err(10, &line), "revision 2 waits for witnesses");
    }
    let asked = site.run("witness db --witness-wait 1s");
    assert_eq!(asked.status.code(), Some(10));
    assert_contains!(
        String::from_utf8_lossy(&asked.stdout),
        "waits for witnesses",
        "w1",
        "missing"
    );
    assert_contains!(
        String::from_utf8_lossy(&asked.stderr),
        "revision 2: too few cosignatures: the cosignatures of w1 do not suffice"
    );
    assert_eq!(revision("db"), 1);

    // The second witness has moved to another address.
    let second = witness(&site, 2);
    site.run_ok(["witness", "db", "--witness-wait", "60s", "--witness", &second.url]);
    assert_eq!(revision("db"), 2);
    within(30, "the reader does not believe it", || site.run(ls("a")).status.success());
    assert_contains!(site.run_ok(["log", "--entries", &name]), "ENTRY");
    // The content of the revision that fails is there, and readers see the one before.
    let failed = publish("--too-few fail");
    assert_eq!(failed.status.code(), Some(10));
    assert_contains!(String::from_utf8_lossy(&failed.stderr), "revision 3: too few cosignatures");
    assert_contains!(site.run_ok(ls("a")), "hello");
}

#[test]
fn witnesses_of_the_publisher_alone() {
    let site = TestSite::published();
    let servers = [witness(&site, 1), witness(&site, 2)];
    let named = |seed: u8| {
        let url = &servers[usize::from(seed) - 1].url;
        format!("{} {url}", signer(seed).verifier().to_text())
    };
    site.publish_with(&["--witness", &named(1), "--witness", &named(2)]);
    let evidence = fs::read_to_string(site.path("db/log/checkpoint")).expect("a checkpoint");
    assert_contains!(evidence, "— w1.example ", "— w2.example ");
    let url = &servers[0].url;
    let refused = site.run_err(2, ["witness", "db", "--witness", url]);
    assert_contains!(refused, "give the key in front of the URL");
    assert_contains!(site.run_err(2, "witness db"), "no witnesses are known");
    let refused = site.run("witness db --witness ftp://x");
    assert_eq!(refused.status.code(), Some(2));
    for name in ["log.key", "log.cert", "log.pub"] {
        fs::remove_file(site.path("keys").join(name)).expect("keygen writes it");
    }
    let line = site.publication();
    let publish: Vec<&str> = line.split(' ').chain(["--witness", url]).collect();
    assert_contains!(site.run_err(2, publish), "there is no log to cosign");
}

/// Requests that a replica answers while a client without state and cache opens the tree and reads a
/// file.
fn requests_of_cold_client(site: &TestSite, policy: &[&str]) -> u64 {
    use std::io::{Read as _, Write as _};
    let replica = site.serve();
    let path = site.name("/hello");
    let args = [&["cat", &path, "--no-cache", "--state", "none"], policy].concat();
    assert_eq!(site.run_ok(args), "hello world\n");
    fs::remove_dir_all(site.path("none")).expect("a directory");
    let mut stream = TcpStream::connect(&replica.page).expect("the page");
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("the metrics");
    let counts = page.lines().filter(|line| line.starts_with("vouch_requests_total{"));
    let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    counts.sum()
}

#[test]
fn witnesses_cost_a_cold_reader_no_request() {
    let site = TestSite::published();
    let before = requests_of_cold_client(&site, &[]);
    assert!(before > 0);
    let servers = [witness(&site, 1), witness(&site, 2), witness(&site, 3)];
    demand(&site, [&servers[0].url, &servers[1].url, &servers[2].url]);
    site.publish();
    site.run_ok("witness db --witness-wait 60s");
    assert_eq!(requests_of_cold_client(&site, &["--policy", "policy"]), before);
}

#[test]
#[ignore = "needs FUSE"]
fn mount_shows_cosignatures_that_come_later() {
    let mut site = TestSite::new();
    site.environment.push(("VOUCH_RUNTIME_DIR", site.path("run").display().to_string()));
    site.small_tree();
    let servers = [witness(&site, 1), witness(&site, 2), witness(&site, 3)];
    demand(&site, [&servers[0].url, &servers[1].url, DEAD]);
    site.publish();
    let _replica = site.serve();
    let mount = Mount::new(&site, "mnt", &[&site.name("")]);
    let cosigned = || {
        let status: Value = serde_json::from_str(&site.run_ok("status --json")).expect("JSON");
        let daemons = status["daemons"].as_array().expect("a list").iter();
        let mount = daemons.into_iter().find(|daemon| daemon["kind"] == "mount");
        mount.expect("the mount answers")["detail"]["trees"][0]["witnesses"].clone()
    };
    let before = cosigned();
    assert_eq!((&before["cosigned"], &before["witnesses"]), (&2.into(), &3.into()));
    assert_contains!(site.run_ok("status"), "WITNESSES OF MOUNTS", "2 of 3");
    // The next second, so that the quorum has a later time.
    within(30, "the clock stands", || now() > before["newest"].as_u64().expect("a time"));
    site.run_ok(["witness", "db", "--witness", &servers[2].url, "--witness-wait", "60s"]);
    within(30, "the mount does not take the third cosignature", || {
        site.run_ok("refresh mnt");
        cosigned()["cosigned"] == 3
    });
    assert!(cosigned()["quorum_time"].as_u64() > before["quorum_time"].as_u64());
    assert_eq!(mount.terminate(), Some(0));
}

#[test]
#[ignore = "needs Go and ssh-agent"]
fn litewitness_cosigns_beside_a_dead_and_a_slow_witness() {
    let site = TestSite::new();
    site.small_tree();
    litewitness::install(&site);
    let one = Litewitness::new(&site, "one");
    let mut two = Litewitness::new(&site, "two");
    let slow = WitnessServer::silent();
    site.write(
        "policy",
        format!(
            "witness one {}\nwitness two {}\n{}{}group g 2 one two w3 w4\nquorum g\n",
            one.line,
            two.line,
            line(3, &slow.url),
            line(4, DEAD)
        ),
    );
    site.run_ok("certify keys --policy policy --keep-log-key keys/log.cert");
    let _replica = {
        // Three revisions: from nothing, by a proof, and after a rollback.
        site.publish_with(&["--witness-wait", "1h"]);
        site.serve()
    };
    site.write("src/hello", "changed\n");
    site.publish_with(&["--witness-wait", "1h"]);
    site.run_ok("rollback --to 1 --db db --keys keys --witness-wait 1h");
    let name = site.name("");
    for (state, more) in [("first", &[][..]), ("second", &["--policy", "policy"])] {
        assert_contains!(site.run_ok([&["ls", &name, "--state", state], more].concat()), "hello");
    }
    let report = site.run_ok("witness db --witness-wait 1h --json");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["log_entries"], 3);
    let missing: Vec<_> =
        report["missing"].as_array().expect("a list").iter().map(|one| &one["witness"]).collect();
    assert_eq!(missing, ["w3", "w4"]);
    // One alone is no quorum.
    two.kill();
    site.run_tool("cp", &["-r", "db", "earlier"]);
    let failed = site.run(&(site.publication() + " --witness-wait 2s --too-few fail"));
    assert_eq!(failed.status.code(), Some(10));
    assert_eq!(site.run_ok(["log", "--db", "db"]).lines().count(), 4);
    // It knows a head that readers do not see: of the publisher, or of a thief.
    let look = ["monitor", "--once", "--timeout", "3s", &name, "--expect"];
    site.run_ok([&look[..], &["db"]].concat());
    let alarm = site.run([&look[..], &["earlier"]].concat());
    assert_eq!(alarm.status.code(), Some(1));
    let text = String::from_utf8_lossy(&alarm.stdout);
    assert_contains!(text, "ALARM hidden_head", "witness one", "4 entries");
}
