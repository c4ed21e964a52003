//! Pods of Kubernetes, which get tickets by the tokens of their service accounts.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use vouch_jobs::names::JobId;
use vouch_jobs::pods::PodToken;
use vouch_jobs::wire::{Reply, Request};
use vouch_jobs::{Error, ask_local};
use vouch_testkit::kubernetes::Cluster;
use vouch_testkit::{assert_contains, succeed, within};

use super::site::Site;
use super::{LIFE, export, job, own_client};

const JOB: &str = "pod-u1.data";

fn enter(site: &Site, node: &str, token: String) -> Result<(), String> {
    ask(site, node, JOB, token, false).map(drop)
}

fn ask(
    site: &Site,
    node: &str,
    job: &str,
    token: String,
    owns_cache: bool,
) -> Result<Reply, String> {
    let job = JobId::parse(job).expect("a job");
    let request = Request::EnterPod { job, token: PodToken::new(token), owns_cache };
    match ask_local(&site.agent_socket(node), &request) {
        Ok(reply) => Ok(reply),
        Err(Error::Refused(reason)) => Err(reason),
        Err(error) => panic!("{error}"),
    }
}

#[test]
#[ignore = "needs root and a KDC"]
fn pod_works_as_its_user_by_its_token() {
    let mut site = Site::start(LIFE);
    let export = export(&site);
    let token = |seconds| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a year after 1970");
        Cluster::new("").token(now.as_secs() + seconds)
    };
    let reason = enter(&site, "n1", token(600)).expect_err("no cluster is known");
    assert_contains!(reason, "--pod-issuer");
    let cluster = Cluster::new("physics/simulation daemon\n");
    let end_s = 600 + SystemTime::now().duration_since(UNIX_EPOCH).expect("now").as_secs();
    let shown = cluster.token(end_s);
    std::fs::write(cluster.users(), "physics/simulation nosuchuser\n").expect("written");
    let users = cluster.users();
    site.cluster = Some(cluster);
    site.start_broker();
    assert_contains!(enter(&site, "n1", shown.clone()).expect_err("nobody"), "nosuchuser");
    std::fs::write(users, "physics/simulation daemon\n").expect("written");
    // Another cluster's, and the right one on another node, which has stolen it.
    assert_contains!(enter(&site, "n1", token(600)).expect_err("a forgery"), "not signed");
    assert_contains!(enter(&site, "n2", shown.clone()).expect_err("a thief"), "runs on node n1");
    assert!(!site.cache_path("n1", "daemon").exists() && !site.cache_path("n2", "daemon").exists());

    enter(&site, "n1", shown.clone()).expect("tickets");
    assert_contains!(site.klist("n1", "daemon"), "nfs/localhost@VOUCH.TEST"; "krbtgt");
    // Longer than its first tickets.
    let seconds = LIFE.as_secs() + LIFE.as_secs() / 2;
    let worked = job(&site.realm.kdc, &site.cache("n1", "daemon"), &export, seconds).spawn();
    own_client::assert_success(worked.expect("this program starts"), &export);
    site.epilog("n1", "pod-u1.data").expect("removed");
    assert!(!site.cache_path("n1", "daemon").exists());
    // The node says that the pod is gone, and gets nothing more for it without a token.
    within(60, "the job is forgotten", || site.list().trim() == "[]");
    let reason = site.prolog("n1", "pod-u1.data").expect_err("the pod has ended");
    assert_contains!(reason, "no job pod-u1.data is registered");
    let found = site.audit(&["--job", "pod-u1.data"], &[&export.trail()]);
    let refused = found.lines().find(|line| line.contains("user nosuchuser")).expect("a record");
    assert_contains!(refused, "n1", "127.0.0.1");
    assert_contains!(
        found,
        "for service account physics/simulation",
        "ticket-minted",
        "ticket-withdrawn",
        "job-end",
        "runs on node n1",
        " OPEN ok "
    );
}

#[test]
#[ignore = "needs root, FUSE and a KDC"]
fn mount_of_a_pod_has_tickets_that_no_process_of_its_user_reaches() {
    let mut site = Site::start(LIFE);
    let export = export(&site);
    let cluster = Cluster::new("physics/simulation daemon\n");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a year after 1970");
    let shown = cluster.token(now.as_secs() + 600);
    site.cluster = Some(cluster);
    site.start_broker();
    let Reply::Cache { path } = ask(&site, "n1", JOB, shown, true).expect("tickets") else {
        panic!("a cache");
    };
    assert!(path.exists() && !site.cache_path("n1", "daemon").exists());
    let directory = tempfile::tempdir().expect("a directory");
    let vouch = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command.envs(site.realm.kdc.environment("strict"));
        command.env("KRB5CCNAME", format!("FILE:{}", path.display()));
        succeed(command.args(args).arg(directory.path()));
    };
    let port = export.address.port().to_string();
    let mount = ["nfs-mount", "--background", "--idmap", "--sec", "krb5p", "--port", &port];
    vouch(&[&mount[..], &["localhost:/export"]].concat());
    let daemon = nix::unistd::User::from_name("daemon").expect("users").expect("daemon").uid;
    let write = |name: &str| {
        std::fs::write(directory.path().join(name), name).expect("written");
        let file = std::fs::metadata(export.data(name)).expect("the server's");
        assert_eq!(file.uid(), daemon.as_raw());
    };
    // Beyond the life of the first tickets.
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < LIFE * 3 / 2 {
        write(&format!("file {count}"));
        count += 1;
        std::thread::sleep(Duration::from_millis(200));
    }
    vouch(&["umount"]);
    site.epilog("n1", JOB).expect("removed");
    assert!(!path.exists());
}
