use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vouch_tree::verify::Refusal;
use vouch_tree_client::{Client, ClientOptions, FaultKind, FaultObserver, ReplicaFault};

use crate::fixture::network::TestNetwork;
use crate::fixture::replica::{Fault, TestReplica};
use crate::fixture::{DURATION_S, NOW, Node, Publisher, TestClock, noise, options, text};

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl FaultObserver for Notes {
    fn replica_fault(&self, fault: &ReplicaFault<'_>) {
        let kind = match fault.kind {
            FaultKind::Lie => "lie".to_owned(),
            FaultKind::Stale { offered } => format!("stale {offered}"),
            FaultKind::Refused(Refusal::Expired { .. }) => "expired".to_owned(),
            FaultKind::Refused(_) => "refused".to_owned(),
        };
        assert!(fault.tree.to_string().contains(fault.host) && !fault.detail.is_empty());
        self.0.lock().push(format!("{} {kind}", fault.replica));
    }
}

fn client(network: &Arc<TestNetwork>, clock: &Arc<TestClock>, notes: &Arc<Notes>) -> Arc<Client> {
    let (clock, fault_observer) = (Arc::clone(clock) as Arc<_>, Some(Arc::clone(notes) as Arc<_>));
    let options = ClientOptions { clock, fault_observer, ..options(network) };
    Client::new(options).unwrap()
}

#[tokio::test(start_paused = true)]
async fn reports_lie_that_another_replica_heals() {
    let (clock, notes) = (TestClock::at(NOW), Arc::new(Notes::default()));
    let mut publisher = Publisher::new(30);
    let files =
        (0..40u64).map(|n| (format!("f{n}").into_bytes(), Node::File(noise(n, 20_000)))).collect();
    let published = publisher.publish(&Node::Dir(files), NOW - 10);
    let [liar, honest] =
        [Fault::FlipFrame, Fault::None].map(|fault| TestReplica::new(&published, fault, 3));
    *honest.delay.lock() = Duration::from_millis(20);
    let network = TestNetwork::of(&publisher.location, &[liar, honest]);
    let tree = publisher.opened_by(&client(&network, &clock, &notes)).await.unwrap();
    for n in 0..40u64 {
        let found =
            tree.lookup_path(tree.newest().root(), format!("f{n}").as_bytes()).await.unwrap();
        let vouch_tree::Content::Regular { blob, .. } = &found.content else {
            unreachable!("the path is a regular file")
        };
        assert_eq!(tree.read(blob, 0, 20_000).await.unwrap(), noise(n, 20_000));
    }
    let (reports, lies) = (notes.0.lock().clone(), tree.counters().lies);
    assert!(
        lies > 0
            && reports.len() as u64 == lies
            && reports.iter().all(|note| note == "10.0.0.1:4340 lie"),
        "{lies}: {reports:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn reports_stale_offer_once_until_it_changes() {
    let (clock, notes) = (TestClock::at(NOW), Arc::new(Notes::default()));
    let mut publisher = Publisher::new(31);
    let published: Vec<_> =
        (1..=3).map(|n| publisher.publish(&text(&n.to_string()), NOW - 40 + n)).collect();
    let [good, lagging] = [2, 2].map(|n: usize| TestReplica::new(&published[n], Fault::None, 4));
    let network = TestNetwork::of(&publisher.location, &[good, Arc::clone(&lagging)]);
    let tree = publisher.opened_by(&client(&network, &clock, &notes)).await.unwrap();
    let refresh = async |times| {
        for _ in 0..times {
            let _ = tree.refresh().await;
        }
    };
    refresh(2).await;
    assert!(notes.0.lock().is_empty(), "{:?}", notes.0.lock());
    lagging.serve_revision(&published[0]);
    refresh(3).await;
    lagging.serve_revision(&published[1]);
    refresh(3).await;
    lagging.serve_revision(&published[2]);
    refresh(2).await;
    lagging.serve_revision(&published[1]);
    refresh(2).await;
    assert_eq!(
        *notes.0.lock(),
        ["10.0.0.2:4340 stale 1", "10.0.0.2:4340 stale 2", "10.0.0.2:4340 stale 2"]
    );
    notes.0.lock().clear();
    clock.set(NOW + u64::from(DURATION_S));
    let notes = Arc::new(Notes::default());
    assert!(publisher.opened_by(&client(&network, &clock, &notes)).await.is_err());
    let mut reports = notes.0.lock().clone();
    reports.sort();
    reports.dedup();
    assert_eq!(reports, ["10.0.0.1:4340 expired", "10.0.0.2:4340 expired"]);
}
