//! `vouch jobs`: jobs that outlive their tickets, against a real KDC with the LDAP back end, and the
//! ways in which tickets are refused and taken away.

pub(crate) mod array;
mod pods;
mod site;
mod slurm;

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vouch_testkit::{assert_contains, text_of, this_test, within, words};

use vouch_nfs4::Attributes;
use vouch_nfs4::op::{ShareAccess, StableHow};
use vouch_nfs4_client::{Client, Error};
use vouch_rpcsec_gss::Service;

use crate::export::{Export, ServerOptions};
use crate::own_client;
use site::Site;
use vouch_testkit::kdc::Kdc;

pub(crate) const SECONDS: &str = "VOUCH_TEST_SECONDS";
const NAMESPACES: &str = "VOUCH_TEST_JOBS_NAMESPACES";
/// Life of tickets in these tests.
const LIFE: Duration = Duration::from_secs(8);

/// The job's side: opens, writes, reads and closes files until its time is over.
pub(crate) async fn work(address: SocketAddr) {
    let seconds: u64 =
        std::env::var(SECONDS).expect("the parent sets it").parse().expect("a number");
    let end = Instant::now() + Duration::from_secs(seconds);
    let client = own_client::client(address, 1, Service::Privacy).await;
    let mut count = 0u32;
    while Instant::now() < end {
        use_file(&client, count)
            .await
            .unwrap_or_else(|error| panic!("after {count} files: {error}"));
        count += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("files: {count}");
}

async fn use_file(client: &Client, number: u32) -> Result<(), Error> {
    let name = format!("output {} {number}", std::process::id());
    let root = client.walk(b"export").await?;
    let file = client
        .open(&root.handle, name.as_bytes(), ShareAccess::BOTH, Some(&Attributes::default()))
        .await?;
    client.write(&file, 0, name.as_bytes(), StableHow::FileSync).await?;
    let (bytes, _) = client.read(&file, 0, 1000).await?;
    assert_eq!(bytes, name.as_bytes());
    client.close_file(file).await
}

/// A job of a user: has nothing but the cache of its user's number.
fn job(kdc: &Kdc, cache: &str, export: &Export, seconds: u64) -> Command {
    let mut command = this_test("own_client::client_process");
    command
        .envs(kdc.environment("strict"))
        .env("KRB5CCNAME", cache)
        .env("VOUCH_TEST_PORT", export.address.port().to_string())
        .env("VOUCH_TEST_ENCTYPE", "")
        .env("VOUCH_TEST_CASE", "job");
    command.env(SECONDS, seconds.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn export(site: &Site) -> Export {
    use std::os::unix::fs::PermissionsExt as _;
    let export = Export::start_with(
        &site.realm.kdc,
        ServerOptions { conf: "strict", ..ServerOptions::default() },
    );
    std::fs::set_permissions(export.data("."), std::fs::Permissions::from_mode(0o777))
        .expect("a directory");
    export
}

#[test]
#[ignore = "needs root and a KDC"]
fn job_outlives_its_tickets_and_fails_without_broker() {
    let mut site = Site::start(LIFE);
    let export = export(&site);
    site.begin("4711", "daemon", "n[1-2]", "1m").expect("registered");
    site.prolog("n1", "4711").expect("tickets");
    let tickets = site.klist("n1", "daemon");
    assert_contains!(tickets, "nfs/localhost@VOUCH.TEST"; "krbtgt", "vouch-jobs");
    let seconds = 3 * LIFE.as_secs();
    let kept = job(&site.realm.kdc, &site.cache("n1", "daemon"), &export, seconds)
        .spawn()
        .expect("this program starts");
    // The same job on a node whose agent dies.
    site.prolog("n2", "4711").expect("tickets");
    site.kill_agent("n2");
    let lost = job(&site.realm.kdc, &site.cache("n2", "daemon"), &export, seconds)
        .output()
        .expect("this program starts");
    let text = text_of(&lost);
    assert!(!lost.status.success() && text.contains("after "), "{text}");
    own_client::assert_success(kept, &export);
    site.epilog("n1", "4711").expect("removed");
    assert!(!site.cache_path("n1", "daemon").exists());
    assert!(!export.log().contains("root@"), "{}", export.log());
    // Its next start finds that the job has ended, and removes what was left.
    site.end("4711").expect("ended");
    assert!(site.cache_path("n2", "daemon").exists());
    site.start_agent("n2");
    within(60, "the cache of the dead agent is removed", || {
        !site.cache_path("n2", "daemon").exists()
    });
    within(60, "the job is forgotten", || site.list().trim() == "[]");
    let found = site.audit(&["--job", "4711"], &[&export.trail()]);
    let count = |what: &str| found.matches(what).count();
    assert!(count("ticket-minted") >= 5 && count("ticket-withdrawn") == 2, "{found}");
    assert!(count("job-begin") == 1 && count("job-end") == 1, "{found}");
    // What the job did with its tickets, from the trail of the export.
    assert!(count(" OPEN ok ") >= 10, "{found}");
    assert!(found.contains("daemon@VOUCH.TEST") && found.contains(" n1 "), "{found}");
    assert_eq!(site.leftovers(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and a KDC"]
fn others_get_no_tickets_and_a_reason() {
    let mut site = Site::start(LIFE);
    site.begin("1", "daemon", "n1", "1m").expect("registered");
    let refused = |answer: Result<(), String>, parts: &[&str]| {
        let text = answer.expect_err("it is refused");
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
    };
    refused(site.prolog("n2", "1"), &["does not run on node n2"]);
    refused(site.prolog("n1", "2"), &["no job 2 is registered"]);
    // A node with another node's key.
    site.start_agent_as("n1", "host/n2");
    refused(site.prolog("n1", "1"), &["may not speak for node n1", "host/n1@VOUCH.TEST"]);
    site.start_agent("n1");
    // The job's uid on the node is another one.
    refused(site.prolog_as("n1", "1", "4"), &["uid 4", "uid 1"]);
    assert!(!site.cache_path("n1", "daemon").exists());
    site.prolog("n1", "1").expect("tickets");
    site.end("1").expect("ended");
    refused(site.prolog("n1", "1"), &["has ended"]);
    within(60, "the cache is removed", || !site.cache_path("n1", "daemon").exists());
    // After the deadline.
    site.begin("3", "daemon", "n1", "2s").expect("registered");
    site.prolog("n1", "3").expect("tickets");
    within(60, "the job is past its deadline", || !site.cache_path("n1", "daemon").exists());
    let text = site.prolog("n1", "3").expect_err("it is refused");
    assert!(text.contains("past its deadline") || text.contains("no job 3"), "{text}");
    // Users whom the broker or the KDC refuses.
    refused(site.begin("4", "root", "n1", "1m"), &["root has uid 0"]);
    refused(site.begin("4", "no-such-user", "n1", "1m"), &["unknown on the broker's host"]);
    refused(site.begin("1", "daemon", "n[1-", "1m"), &["malformed"]);
    for (job, user, parts) in [
        ("5", "bin", &["bin@VOUCH.TEST", "create the user's principal"][..]),
        ("6", "games", &["games@VOUCH.TEST", "disallow_forwardable"]),
        ("9", "man", &["man@VOUCH.TEST", "revoked", "+allow_tix"]),
    ] {
        site.begin(job, user, "n1", "1m").expect("registered");
        refused(site.prolog("n1", job), parts);
    }
    // A deadline beyond the limit is cut, and the scheduler learns it.
    let mut long = site.vouch();
    long.args(words("begin --job 10 --user daemon --nodes n1 --for 60d --socket"))
        .arg(site.socket());
    let out = long.output().expect("the binary starts");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && text.contains("--job-life-max"), "{text}");
    // Users of this host who are not the scheduler.
    refused(site.begin_as_user("7"), &["not the scheduler's"]);
    // A service for which the KDC allows no delegation.
    site.start_broker_for(&["nfs/localhost", "nfs/other"]);
    site.begin("8", "daemon", "n1", "1m").expect("registered");
    refused(site.prolog("n1", "8"), &["nfs/other", "krbAllowedToDelegateTo"]);
    let found = site.audit(&["--result", "failure"], &[]);
    for part in [
        "does not run on node n2",
        "may not speak for node n1",
        "disallow_forwardable",
        "job:3",
        "root has uid 0",
    ] {
        assert!(found.contains("ticket-refused") && found.contains(part), "{part}: {found}");
    }
    assert_eq!(site.leftovers(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and a KDC"]
fn job_goes_on_when_broker_agent_and_kdc_are_killed() {
    let mut site = Site::start(LIFE);
    let export = export(&site);
    site.begin("9", "daemon", "n1", "1m").expect("registered");
    site.prolog("n1", "9").expect("tickets");
    let running = job(&site.realm.kdc, &site.cache("n1", "daemon"), &export, 3 * LIFE.as_secs())
        .spawn()
        .expect("this program starts");
    site.kill_broker();
    std::thread::sleep(Duration::from_secs(2));
    site.start_broker();
    site.kill_agent("n1");
    std::thread::sleep(Duration::from_secs(1));
    site.start_agent("n1");
    site.realm.kdc.restart(Duration::from_secs(2));
    own_client::assert_success(running, &export);
    // The end of a job that begins while the broker runs and ends while it does not.
    site.begin("10", "bin", "n1", "10m").expect("registered");
    site.kill_broker();
    site.end("10").expect("noted for the broker");
    site.start_broker();
    within(60, "the broker learns of the end", || !site.list().contains("\"job\": \"10\""));
    assert!(site.list().contains("\"job\": \"9\""), "{}", site.list());
    // Without a broker until the tickets have ended: they are removed, and come back with it.
    site.kill_broker();
    within(60, "the tickets that cannot be renewed are removed", || {
        !site.cache_path("n1", "daemon").exists()
    });
    site.start_broker();
    within(60, "the job has tickets again", || site.cache_path("n1", "daemon").exists());
    // The end while the agent is away, and the broker is killed after it.
    site.kill_agent("n1");
    site.end("9").expect("ended");
    site.kill_broker();
    site.start_broker();
    site.start_agent("n1");
    within(60, "the cache is removed", || !site.cache_path("n1", "daemon").exists());
    within(60, "the job is forgotten", || site.list().trim() == "[]");
    assert_eq!(site.leftovers(), Vec::<String>::new());
    // A connection that says nothing has the only place of its address, and makes room.
    site.connections_max = 4;
    site.start_broker();
    site.begin("11", "daemon", "n1", "1m").expect("registered");
    let _silent = site.connect();
    site.prolog("n1", "11").expect("tickets");
}

#[test]
#[ignore = "needs root and a KDC"]
fn status_and_check_name_faults_of_broker_and_agent() {
    let mut site = Site::start(LIFE);
    site.begin("1", "daemon", "n1", "5m").expect("registered");
    site.prolog("n1", "1").expect("tickets");
    let status = site.status(&[]);
    for part in ["BROKERS OF JOBS", "AGENTS OF JOBS", "vouch-jobs/localhost@VOUCH.TEST", "n2"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    let metrics = |site: &Site, machine| {
        site.status(&["--metrics", &site.status_socket(machine).display().to_string()])
    };
    for (machine, parts) in [
        (
            None,
            &[
                "vouch_jobs_live 1",
                "vouch_jobs_holders 1",
                "vouch_jobs_kdc_unavailable 0",
                "vouch_jobs_audit_healthy 1",
            ][..],
        ),
        (
            Some("n1"),
            &[
                "vouch_jobs_agent_jobs 1",
                "vouch_jobs_agent_users_without_tickets 0",
                "vouch_jobs_agent_broker_unavailable 0",
            ],
        ),
    ] {
        let text = metrics(&site, machine);
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
        assert!(site.health(machine).starts_with("HTTP/1.1 200"), "{}", site.health(machine));
    }
    let found = site.check();
    assert!(
        !found.lines().any(|line| line.starts_with("PROBLEM") && line.contains("jobs ")),
        "{found}"
    );
    site.begin("2", "no-such-user", "n1", "1m").expect_err("it is refused");
    site.prolog("n2", "1").expect_err("it is refused");
    let found = site.check();
    for part in [
        "note     user-without-account: job 2 of no-such-user@VOUCH.TEST",
        "note     tickets-refused: job 1 on n2",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
    // Without its KDC, and without the broker.
    site.realm.kdc.stop();
    site.prolog("n1", "1").expect_err("the KDC is away");
    let found = site.check();
    assert!(found.contains("PROBLEM  kdc-unavailable: jobs broker"), "{found}");
    assert!(site.health(None).starts_with("HTTP/1.1 503"), "{}", site.health(None));
    site.realm.kdc.start_again();
    site.prolog("n1", "1").expect("tickets");
    assert!(!site.check().contains("kdc-unavailable"), "{}", site.check());
    site.kill_broker();
    within(60, "the agent's tickets end", || {
        site.health(Some("n1")).contains("\"users_without_tickets\":1")
    });
    let found = site.check();
    assert_contains!(
        found,
        "PROBLEM  broker-unavailable: jobs agent of node n1",
        "PROBLEM  tickets-missing"
    );
    // The key at the KDC is newer than the one in the keytab.
    site.realm.kdc.rekey("vouch-jobs/localhost");
    site.start_broker();
    site.prolog("n1", "1").expect_err("the broker's key is stale");
    assert!(site.check().contains("PROBLEM  keytab-stale-key: jobs"), "{}", site.check());
}

#[test]
#[ignore = "needs root, a KDC and nftables"]
fn nodes_behind_one_address_with_one_keytab_are_told_apart() {
    let net = crate::nat::NatNetwork::make("jobs", 2);
    net.run_test(
        "jobs::process_in_the_namespace_of_the_broker",
        (NAMESPACES, &net.clients.join(",")),
    );
}

/// The child; does nothing without its variable.
#[test]
fn process_in_the_namespace_of_the_broker() {
    let Ok(namespaces) = std::env::var(NAMESPACES) else { return };
    let (first, second) = namespaces.split_once(',').expect("two names");
    let mut site = Site::start_on(crate::nat::SERVER.into(), LIFE);
    site.namespaces = [("n1", first), ("n2", second), ("n3", second)]
        .map(|(machine, of)| (machine, of.to_owned()))
        .into();
    site.shared = true;
    site.start_broker();
    for node in ["n1", "n2"] {
        site.start_agent_as(node, "host/image");
    }
    site.begin("1", "daemon", "n1", "5m").expect("registered");
    let refused = site.prolog("n2", "1").expect_err("it is refused");
    assert!(refused.contains("does not run on node n2"), "{refused}");
    site.prolog("n1", "1").expect("tickets");
    // Another machine with the keytab of the image calls itself n1, and claims to have removed the
    // tickets of the job.
    for is_liar in [false, true] {
        if is_liar {
            site.forge_left("n3", "1");
        }
        site.start_agent_named("n3", "n1", "host/image");
        if is_liar {
            within(60, "the false report is sent", || !site.state("n3").contains("false report"));
        }
        let refused = site.prolog("n3", "1").expect_err("it is refused");
        assert!(refused.contains("another agent that calls itself n1"), "{refused}");
    }
    // Two jobs of a user share a cache, which stays until the last has ended.
    site.begin("2", "daemon", "n[1-2]", "5m").expect("registered");
    site.prolog("n1", "2").expect("tickets");
    site.prolog("n2", "2").expect("tickets");
    site.epilog("n1", "1").expect("removed");
    assert!(site.cache_path("n1", "daemon").exists());
    site.epilog("n1", "2").expect("removed");
    assert!(!site.cache_path("n1", "daemon").exists());
    assert!(site.cache_path("n2", "daemon").exists(), "the other node's tickets stay");
    // All have one address, and the trail tells the nodes apart.
    let found = site.audit(&["--json", "--job", "2"], &[]);
    let contains_part = |line: &str, part: &str| line.contains(&format!("\"{part}\""));
    let minted = |node| {
        found.lines().any(|line| {
            ["ticket-minted", node, "10.77.2.1"].into_iter().all(|part| contains_part(line, part))
        })
    };
    assert!(minted("n1") && minted("n2"), "{found}");
}
