//! Pods of Kubernetes, which get tickets by the tokens of their service accounts.

use std::time::{SystemTime, UNIX_EPOCH};

use vouch_jobs::names::JobId;
use vouch_jobs::pods::PodToken;
use vouch_jobs::wire::Request;
use vouch_jobs::{Error, ask_local};
use vouch_testkit::assert_contains;
use vouch_testkit::kubernetes::Cluster;

use super::site::Site;
use super::{LIFE, export, job, own_client};

fn enter(site: &Site, node: &str, token: String) -> Result<(), String> {
    let job = JobId::parse("pod-u1.data").expect("a job");
    let request = Request::EnterPod { job, token: PodToken::new(token) };
    match ask_local(&site.agent_socket(node), &request) {
        Ok(_) => Ok(()),
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
    site.cluster = Some(cluster);
    site.start_broker();
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
    super::wait_until("the job is forgotten", || site.list().trim() == "[]");
    let reason = site.prolog("n1", "pod-u1.data").expect_err("the pod has ended");
    assert_contains!(reason, "no job pod-u1.data is registered");
    let found = site.audit(&["--job", "pod-u1.data"], &[&export.trail()]);
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
