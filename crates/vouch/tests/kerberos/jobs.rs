//! `vouch jobs`: jobs that outlive their tickets, against a real KDC with the LDAP back end, and the
//! ways in which tickets are refused and taken away.

mod site;
mod slurm;

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use vouch_nfs4::Attributes;
use vouch_nfs4::op::{ShareAccess, StableHow};
use vouch_rpcsec_gss::Service;

use crate::export::{Export, ServerOptions};
use crate::kdc::Kdc;
use crate::own_client;
use site::{Site, wait_until};

const SECONDS: &str = "VOUCH_TEST_SECONDS";
/// Life of tickets in these tests.
const LIFE: Duration = Duration::from_secs(8);

/// The job's side: opens, writes, reads and removes files until its time is over.
pub(crate) async fn work(address: SocketAddr) {
    let seconds: u64 = std::env::var(SECONDS).expect("the parent sets it").parse().expect("a number");
    let end = Instant::now() + Duration::from_secs(seconds);
    let client = own_client::client(address, 1, Service::Privacy).await;
    let mut count = 0u32;
    while Instant::now() < end {
        let name = format!("output {} {count}", std::process::id());
        let root = client.walk(b"export").await.unwrap_or_else(|error| panic!("after {count} files: {error}"));
        let file = client.open(&root.handle, name.as_bytes(), ShareAccess::BOTH, Some(&Attributes::default())).await;
        let file = file.unwrap_or_else(|error| panic!("after {count} files: {error}"));
        client.write(&file, 0, name.as_bytes(), StableHow::FileSync).await.unwrap_or_else(|error| panic!("{error}"));
        let (bytes, _) = client.read(&file, 0, 1000).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(bytes, name.as_bytes());
        client.close_file(file).await.unwrap_or_else(|error| panic!("{error}"));
        count += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("files: {count}");
}

/// A job of a user: has nothing but the cache of its user's number.
fn job(kdc: &Kdc, cache: &str, export: &Export, seconds: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "own_client::client_process", "--nocapture"]).envs(kdc.environment("strict")).env("KRB5CCNAME", cache);
    command.env("VOUCH_TEST_PORT", export.address.port().to_string()).env("VOUCH_TEST_ENCTYPE", "").env("VOUCH_TEST_CASE", "job");
    command.env(SECONDS, seconds.to_string()).stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command
}

fn export(site: &Site) -> Export {
    use std::os::unix::fs::PermissionsExt as _;
    let export = Export::start_with(&site.realm.kdc, ServerOptions { conf: "strict", ..ServerOptions::default() });
    std::fs::set_permissions(export.data("."), std::fs::Permissions::from_mode(0o777)).expect("a directory");
    export
}

#[test]
fn job_outlives_its_tickets_and_fails_without_broker() {
    let Some(mut site) = Site::start(LIFE) else { return };
    let export = export(&site);
    site.begin("4711", "daemon", "n[1-2]", "1m").expect("registered");
    site.prolog("n1", "4711").expect("tickets");
    let tickets = site.klist("n1", "daemon");
    assert!(tickets.contains("nfs/localhost@VOUCH.TEST") && !tickets.contains("krbtgt") && !tickets.contains("vouch-jobs"), "{tickets}");
    let seconds = 3 * LIFE.as_secs();
    let kept = job(&site.realm.kdc, &site.cache("n1", "daemon"), &export, seconds).spawn().expect("this program starts");
    // The same job on a node whose agent dies.
    site.prolog("n2", "4711").expect("tickets");
    site.kill_agent("n2");
    let lost = job(&site.realm.kdc, &site.cache("n2", "daemon"), &export, seconds).output().expect("this program starts");
    let text = format!("{}{}", String::from_utf8_lossy(&lost.stdout), String::from_utf8_lossy(&lost.stderr));
    assert!(!lost.status.success() && text.contains("after "), "{text}");
    own_client::assert_success(kept, &export);
    site.epilog("n1", "4711").expect("removed");
    assert!(!site.cache_path("n1", "daemon").exists());
    assert!(!export.log().contains("root@"), "{}", export.log());
    // Its next start finds that the job has ended, and removes what was left.
    site.end("4711").expect("ended");
    assert!(site.cache_path("n2", "daemon").exists());
    site.start_agent("n2");
    wait_until("the cache of the dead agent is removed", || !site.cache_path("n2", "daemon").exists());
    wait_until("the job is forgotten", || site.list().trim() == "[]");
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
fn others_get_no_tickets_and_a_reason() {
    let Some(mut site) = Site::start(LIFE) else { return };
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
    wait_until("the cache is removed", || !site.cache_path("n1", "daemon").exists());
    // After the deadline.
    site.begin("3", "daemon", "n1", "2s").expect("registered");
    site.prolog("n1", "3").expect("tickets");
    wait_until("the job is past its deadline", || !site.cache_path("n1", "daemon").exists());
    let text = site.prolog("n1", "3").expect_err("it is refused");
    assert!(text.contains("past its deadline") || text.contains("no job 3"), "{text}");
    // Users whom the broker or the KDC refuses.
    refused(site.begin("4", "root", "n1", "1m"), &["root has uid 0"]);
    refused(site.begin("4", "no-such-user", "n1", "1m"), &["unknown on the broker's host"]);
    refused(site.begin("1", "daemon", "n[1-", "1m"), &["malformed"]);
    for (job, user, parts) in [
        ("5", "bin", &["bin@VOUCH.TEST", "create the user's principal"][..]),
        ("6", "games", &["games@VOUCH.TEST", "disallow_forwardable"]),
    ] {
        site.begin(job, user, "n1", "1m").expect("registered");
        refused(site.prolog("n1", job), parts);
    }
    // Users of this host who are not the scheduler.
    refused(site.begin_as_user("7"), &["not the scheduler's"]);
    // A service for which the KDC allows no delegation.
    site.start_broker_for(&["nfs/localhost", "nfs/other"]);
    site.begin("8", "daemon", "n1", "1m").expect("registered");
    refused(site.prolog("n1", "8"), &["nfs/other", "krbAllowedToDelegateTo"]);
    let found = site.audit(&["--result", "failure"], &[]);
    for part in ["does not run on node n2", "may not speak for node n1", "disallow_forwardable", "job:3", "root has uid 0"] {
        assert!(found.contains("ticket-refused") && found.contains(part), "{part}: {found}");
    }
    assert_eq!(site.leftovers(), Vec::<String>::new());
}

#[test]
fn job_goes_on_when_broker_agent_and_kdc_are_killed() {
    let Some(mut site) = Site::start(LIFE) else { return };
    let export = export(&site);
    site.begin("9", "daemon", "n1", "1m").expect("registered");
    site.prolog("n1", "9").expect("tickets");
    let running = job(&site.realm.kdc, &site.cache("n1", "daemon"), &export, 3 * LIFE.as_secs()).spawn().expect("this program starts");
    site.kill_broker();
    std::thread::sleep(Duration::from_secs(2));
    site.start_broker();
    site.kill_agent("n1");
    std::thread::sleep(Duration::from_secs(1));
    site.start_agent("n1");
    site.realm.kdc.restart(Duration::from_secs(2));
    own_client::assert_success(running, &export);
    // Without a broker until the tickets have ended: they are removed, and come back with it.
    site.kill_broker();
    wait_until("the tickets that cannot be renewed are removed", || !site.cache_path("n1", "daemon").exists());
    site.start_broker();
    wait_until("the job has tickets again", || site.cache_path("n1", "daemon").exists());
    // The end while the agent is away, and the broker is killed after it.
    site.kill_agent("n1");
    site.end("9").expect("ended");
    site.kill_broker();
    site.start_broker();
    site.start_agent("n1");
    wait_until("the cache is removed", || !site.cache_path("n1", "daemon").exists());
    wait_until("the job is forgotten", || site.list().trim() == "[]");
    assert_eq!(site.leftovers(), Vec::<String>::new());
}

#[test]
fn nodes_of_one_image_share_a_principal() {
    let Some(mut site) = Site::start(LIFE) else { return };
    site.shared = true;
    site.start_broker();
    for node in ["n1", "n2"] {
        site.start_agent_as(node, "host/image");
    }
    site.begin("1", "daemon", "n1", "1m").expect("registered");
    let refused = site.prolog("n2", "1").expect_err("it is refused");
    assert!(refused.contains("does not run on node n2"), "{refused}");
    site.prolog("n1", "1").expect("tickets");
    // Another machine with the keytab of the image calls itself n1.
    site.start_agent_named("n3", "n1", "host/image");
    let refused = site.prolog("n3", "1").expect_err("it is refused");
    assert!(refused.contains("another agent that calls itself n1"), "{refused}");
    // Two jobs of a user share a cache, which stays until the last has ended.
    site.begin("2", "daemon", "n[1-2]", "1m").expect("registered");
    site.prolog("n1", "2").expect("tickets");
    site.epilog("n1", "1").expect("removed");
    assert!(site.cache_path("n1", "daemon").exists());
    site.epilog("n1", "2").expect("removed");
    assert!(!site.cache_path("n1", "daemon").exists());
}
