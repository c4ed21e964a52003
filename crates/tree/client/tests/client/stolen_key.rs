use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{Content, Iv, TreeName};
use vouch_tree_client::{
    Client, ClientOptions, Error, ErrorClass, PullOptions, PullReport, Tree, pull, pull_watch,
};
use vouch_tree_store::Database;

use crate::fixture::network::TestNetwork;
use crate::fixture::replica::{Fault, TestReplica};
use crate::fixture::{NOW, Published, Publisher, client, options, text};

fn with_thief(seed: u8, number: u64) -> (Publisher, Published, Publisher) {
    let mut publisher = Publisher::new(seed);
    let first = publisher.publish(&text("genuine"), NOW - 50);
    let mut thief = Publisher::new(seed);
    (thief.revision, thief.previous) = (number - 1, publisher.previous);
    (publisher, first, thief)
}

fn certify(publisher: &mut Publisher) {
    publisher.signing = SecretKey::from_seed(&[222; 32]);
    publisher.cert = SigningCert::issue(
        &publisher.root,
        publisher.signing.public(),
        2,
        NOW - 1_000_000,
        NOW + 100_000_000,
    );
}

fn pull_options(dir: &TempDir) -> PullOptions {
    PullOptions { lock_wait: Duration::from_secs(10), ..PullOptions::new(dir.path().join("db")) }
}

async fn watch(
    client: &Arc<Client>,
    name: &TreeName,
    options: &PullOptions,
    actions: impl AsyncFnOnce(&mut UnboundedReceiver<Result<PullReport, Error>>),
) {
    let (sender, mut outcomes) = unbounded_channel();
    let done = move |outcome| sender.send(outcome).unwrap();
    tokio::select! {
        ended = pull_watch(client, name, options, &|_| {}, &done) => panic!("{ended:?}"),
        done = tokio::time::timeout(Duration::from_secs(120), actions(&mut outcomes)) => done.unwrap(),
    }
}

async fn read(tree: &Arc<Tree>) -> Result<Vec<u8>, Error> {
    let Content::Regular { blob, .. } =
        tree.lookup_path(tree.newest().root(), b"file").await?.content
    else {
        panic!("no file")
    };
    Ok(tree.read(&blob, 0, 100).await?.to_vec())
}

#[tokio::test(start_paused = true)]
async fn later_certificate_overrides_higher_number() {
    for number in [2, 5, u64::MAX] {
        let (mut publisher, first, mut thief) = with_thief(90, number);
        let (replica, network) = publisher.serve(&first);
        let tree = publisher.opened_by(&client(&network)).await.unwrap();
        let mut orders = vec![tree.newest().order()];
        replica.serve_revision(&thief.publish(&text("forged"), NOW - 40));
        assert!(tree.refresh().await.unwrap());
        orders.push(tree.newest().order());
        assert_eq!(read(&tree).await.unwrap(), b"forged");
        certify(&mut publisher);
        replica.serve_revision(&publisher.publish(&text("mended"), NOW - 30));
        assert!(tree.refresh().await.unwrap(), "a newer revision is in force");
        orders.push(tree.newest().order());
        assert_eq!((tree.newest().number(), read(&tree).await.unwrap()), (2, b"mended".to_vec()));
        assert!(orders.is_sorted_by(|a, b| a < b), "{orders:?}");
        assert!(!tree.refresh().await.unwrap(), "a repeated call succeeds");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_iv_blocks_until_next_certificate() {
    let (mut publisher, first, mut thief) = with_thief(91, 5);
    let (replica, network) = publisher.serve(&first);
    let tree = publisher.opened_by(&client(&network)).await.unwrap();
    thief.iv = Iv::from_bytes([9; 32]);
    replica.serve_revision(&thief.publish(&text("forged"), NOW - 40));
    assert!(tree.refresh().await.unwrap_err().to_string().contains("another iv"));
    assert!(read(&tree).await.is_err(), "a newer revision was seen, so the older is refused");
    replica.serve_revision(&first);
    assert!(tree.refresh().await.is_err() && tree.revision().is_err(), "a second offer is refused");
    certify(&mut publisher);
    replica.serve_revision(&publisher.publish(&text("mended"), NOW - 30));
    assert!(tree.refresh().await.unwrap());
    assert_eq!(read(&tree).await.unwrap(), b"mended");
}

#[tokio::test]
async fn mirror_recovers_from_stolen_key() {
    for (seed, number) in [(92, 2), (93, 5)] {
        let dir = tempfile::tempdir().unwrap();
        let options = pull_options(&dir);
        let (mut publisher, first, mut thief) = with_thief(seed, number);
        let (replica, network) = publisher.serve(&first);
        let name = publisher.name();
        let client = client(&network);
        pull(&client, &name, &options, &|_| {}).await.unwrap();
        replica.serve_revision(&thief.publish(&text("forged"), NOW - 40));
        assert_eq!(pull(&client, &name, &options, &|_| {}).await.unwrap().revision, number);
        certify(&mut publisher);
        let mended = publisher.publish(&text("mended"), NOW - 30);
        replica.serve_revision(&mended);
        let report = pull(&client, &name, &options, &|_| {}).await.unwrap();
        assert_eq!((report.revision, report.was_current), (2, false));
        let snapshot = Database::open_read(&options.db).unwrap();
        assert_eq!(snapshot.head().as_deref(), Some(&mended.signed[..]));
        assert_eq!(
            snapshot.revisions().iter().map(|r| r.number).collect::<Vec<_>>(),
            [1, 2],
            "the thief's revision is removed"
        );
        assert!(Database::verify(&options.db, None).unwrap().is_sound());
    }
}

#[tokio::test]
async fn watching_mirror_recovers_from_stolen_key() {
    let dir = tempfile::tempdir().unwrap();
    let (mut publisher, first, mut thief) = with_thief(94, 5);
    let (replica, network) = publisher.serve(&first);
    let refresh_interval = Some(Duration::from_millis(50));
    let client = Client::new(ClientOptions { refresh_interval, ..options(&network) }).unwrap();
    let name = publisher.name();
    watch(&client, &name, &pull_options(&dir), async |outcomes| {
        let mut next = async || outcomes.recv().await.unwrap().unwrap().revision;
        assert_eq!(next().await, 1);
        replica.serve_revision(&thief.publish(&text("forged"), NOW - 40));
        assert_eq!(next().await, 5);
        certify(&mut publisher);
        replica.serve_revision(&publisher.publish(&text("mended"), NOW - 30));
        assert_eq!(next().await, 2);
    })
    .await;
}

#[tokio::test]
async fn watching_mirror_waits_out_changed_iv() {
    let dir = tempfile::tempdir().unwrap();
    let options = pull_options(&dir);
    let (mut publisher, first, mut thief) = with_thief(95, 5);
    let (replica, network) = publisher.serve(&first);
    let name = publisher.name();
    let head = || Database::open_read(&options.db).unwrap().head().unwrap().to_vec();
    pull(&client(&network), &name, &options, &|_| {}).await.unwrap();
    thief.iv = Iv::from_bytes([9; 32]);
    replica.serve_revision(&thief.publish(&text("forged"), NOW - 40));
    let error = pull(&client(&network), &name, &options, &|_| {}).await.unwrap_err();
    assert!(
        matches!(error, Error::OtherIv { .. }) && error.class() == ErrorClass::Refused,
        "{error}"
    );
    watch(&client(&network), &name, &options, async |outcomes| {
        assert!(matches!(outcomes.recv().await, Some(Err(Error::OtherIv { .. }))));
        assert_eq!(head(), first.signed, "the mirror keeps its revision");
        certify(&mut publisher);
        let mended = publisher.publish(&text("mended"), NOW - 30);
        replica.serve_revision(&mended);
        loop {
            match outcomes.recv().await {
                Some(Ok(report)) => {
                    break assert_eq!((report.revision, report.was_current), (2, false));
                }
                Some(Err(Error::OtherIv { .. })) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(head(), mended.signed);
    })
    .await;
}

#[tokio::test]
async fn watching_mirror_waits_out_lying_replicas() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::new(96);
    let replica = TestReplica::new(&publisher.publish(&text("true"), NOW - 50), Fault::Garbage, 1);
    let network = TestNetwork::of(&publisher.location, &[Arc::clone(&replica)]);
    watch(&client(&network), &publisher.name(), &pull_options(&dir), async |outcomes| {
        assert!(matches!(outcomes.recv().await, Some(Err(Error::Lied { .. }))));
        replica.set_fault(Fault::None);
        while outcomes.recv().await.unwrap().is_err() {}
    })
    .await;
}
