use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vouch_testkit::this_test;
use vouch_tree::SignedFsinfo;
use vouch_tree_client::{
    ChangeKind, Client, Diff, Error, ErrorClass, PullOptions, PullReport, Tree, VerifyEvent, pull,
    pull_watch,
};
use vouch_tree_store::{Database, FrameSource};
use vouch_xdr::Xdr;

use crate::fixture::network::TestNetwork;
use crate::fixture::replica::{Fault, TestReplica};
use crate::fixture::{self, NOW, Node, Published, Publisher, client, dir, noise};

const CHILD_DB: &str = "VOUCH_TEST_PULL_INTO";

fn files(seed: u64, count: u64) -> BTreeMap<Vec<u8>, Node> {
    (0..count)
        .map(|n| {
            (
                format!("file-{n:05}").into_bytes(),
                Node::File(noise(seed + n, 2000 + (n % 7) as usize * 900)),
            )
        })
        .collect()
}

fn large_tree() -> Node {
    let dirs = (0..6u64).map(|n| {
        (
            format!("dir-{n}").into_bytes(),
            Node::Dir(files(n * 100_000, if n == 0 { 900 } else { 40 })),
        )
    });
    let mut root: BTreeMap<Vec<u8>, Node> = dirs.collect();
    root.insert(b"big".to_vec(), Node::File(noise(9, 5 << 20)));
    root.insert(b"twin".to_vec(), Node::File(noise(9, 5 << 20)));
    Node::Dir(root)
}

fn with(tree: &Node, path: [&str; 2], node: Option<Node>) -> Node {
    let Node::Dir(mut root) = tree.clone() else { unreachable!("roots are directories") };
    let Some(Node::Dir(dir)) = root.get_mut(path[0].as_bytes()) else {
        unreachable!("the test names a directory")
    };
    match node {
        Some(node) => drop(dir.insert(path[1].as_bytes().to_vec(), node)),
        None => drop(dir.remove(path[1].as_bytes())),
    }
    Node::Dir(root)
}

fn into(db: impl Into<std::path::PathBuf>) -> PullOptions {
    PullOptions { lock_wait: Duration::from_secs(10), ..PullOptions::new(db) }
}

async fn pull_quietly(
    client: &Arc<Client>,
    publisher: &Publisher,
    options: &PullOptions,
) -> Result<PullReport, Error> {
    pull(client, &publisher.name(), options, &|_| {}).await
}

fn assert_whole(db: &Path, published: &Published) {
    let snapshot = Database::open_read(db).unwrap();
    assert_eq!(snapshot.head().as_deref(), Some(&published.signed[..]));
    let verified = Database::verify(db, None).unwrap();
    assert!(verified.is_sound(), "{verified:?}");
    assert!(
        snapshot
            .get(&published.fsinfo.previous.unwrap_or_else(|| snapshot.revisions()[0].fsinfo))
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn second_pull_copies_only_changes() {
    let dir = tempfile::tempdir().unwrap();
    let options = into(dir.path().join("db"));
    let mut publisher = Publisher::new(40);
    let tree = large_tree();
    let first = publisher.publish(&tree, NOW - 50);
    let (replica, network) = publisher.serve(&first);
    let client = client(&network);
    let report = pull_quietly(&client, &publisher, &options).await.unwrap();
    assert_eq!((report.revision, report.was_current), (1, false));
    assert_whole(&options.db, &first);

    let report = pull_quietly(&client, &publisher, &options).await.unwrap();
    assert_eq!((report.was_current, report.new_frames), (true, 0));

    let changed = with(&tree, ["dir-0", "file-00400"], Some(Node::File(noise(5, 3000))));
    publisher.publish(&with(&tree, ["dir-1", "file-00001"], None), NOW - 40);
    let third = publisher.publish(&changed, NOW - 30);
    replica.serve_revision(&third);
    let calls = replica.calls.load(std::sync::atomic::Ordering::Relaxed);
    let report = pull_quietly(&client, &publisher, &options).await.unwrap();
    assert_eq!((report.revision, report.history_frames), (3, 1));
    assert!(report.new_frames <= 5, "one leaf and one page per level: {report:?}");
    assert!(report.present_frames < 60, "unchanged subtrees are not visited: {report:?}");
    assert!(replica.calls.load(std::sync::atomic::Ordering::Relaxed) - calls < 12);
    assert_whole(&options.db, &third);
}

#[tokio::test]
async fn drops_revisions_that_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let options = PullOptions { keep: Some(1.into()), ..into(dir.path().join("db")) };
    let mut publisher = Publisher::new(41);
    let first = publisher.publish(&dir_of(3 << 20, 1), NOW - 50);
    let (replica, network) = publisher.serve(&first);
    let client = client(&network);
    pull_quietly(&client, &publisher, &options).await.unwrap();
    let second = publisher.publish(&dir_of(3 << 20, 2), NOW - 40);
    replica.serve_revision(&second);
    let report = pull_quietly(&client, &publisher, &options).await.unwrap();
    assert!(report.collected_bytes > 2 << 20, "{report:?}");
    assert_whole(&options.db, &second);
    assert_eq!(Database::open_read(&options.db).unwrap().revisions().len(), 1);
}

fn dir_of(len: usize, seed: u64) -> Node {
    dir([("file", Node::File(noise(seed, len)))])
}

#[tokio::test(start_paused = true)]
async fn one_honest_replica_suffices() {
    for (seed, fault) in [
        Fault::FlipFrame,
        Fault::Withhold,
        Fault::HalfAnswer,
        Fault::Stall,
        Fault::Swap,
        Fault::Garbage,
    ]
    .into_iter()
    .enumerate()
    {
        let dir = tempfile::tempdir().unwrap();
        let mut publisher = Publisher::new(42 + seed as u8);
        let published = publisher.publish(&Node::Dir(files(1, 300)), NOW);
        let replicas =
            [TestReplica::new(&published, fault, 3), TestReplica::new(&published, Fault::None, 4)];
        let network = TestNetwork::of(&publisher.location, &replicas);
        let options = into(dir.path().join("db"));
        pull_quietly(&client(&network), &publisher, &options).await.unwrap();
        let snapshot = Database::open_read(&options.db).unwrap();
        assert_eq!(snapshot.head().as_deref(), Some(&published.signed[..]));
        assert!(Database::verify(&options.db, None).unwrap().is_sound(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn incomplete_pull_is_not_committed_and_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::new(50);
    let published = publisher.publish(&large_tree(), NOW);
    let replica = TestReplica::new(&published, Fault::None, 1);
    let last = published.fsinfo.root.clone();
    let missing = published
        .frames
        .iter()
        .find(|(_, frame)| frame.len() > 4000 && frame[0] == 1)
        .map(|(handle, _)| *handle)
        .unwrap();
    replica.alter(|served| {
        let mut frames = (*served.frames).clone();
        frames.remove(&missing);
        served.frames = Arc::new(frames);
    });
    let network = TestNetwork::of(&publisher.location, &[Arc::clone(&replica)]);
    let options = into(dir.path().join("db"));
    let error = pull_quietly(&client(&network), &publisher, &options).await.unwrap_err();
    assert!(matches!(error, Error::Missing { handle, .. } if handle == missing), "{error}");
    assert!(
        Database::open_read(&options.db).unwrap().head().is_none(),
        "an incomplete revision is not committed"
    );
    replica.serve_revision(&published);
    let report = pull_quietly(&client(&network), &publisher, &options).await.unwrap();
    assert!(report.present_frames > 0, "{report:?}");
    assert!(Database::verify(&options.db, None).unwrap().is_sound());
    assert_eq!(last, published.fsinfo.root);
}

#[tokio::test]
async fn refuses_foreign_or_busy_database() {
    let dir = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Publisher::new(51), Publisher::new(52));
    two.location = "two.test".into();
    let published = one.publish(&large_tree(), NOW);
    let (_, network) = one.serve(&published);
    network.add("two.test", &TestReplica::new(&two.publish(&large_tree(), NOW), Fault::None, 1));
    let (client, options) = (client(&network), into(dir.path().join("db")));
    pull_quietly(&client, &one, &options).await.unwrap();
    assert_eq!(pull_quietly(&client, &two, &options).await.unwrap_err().class(), ErrorClass::Local);
    let _writer = Database::open_write(&options.db, Default::default()).unwrap();
    let at_once = PullOptions { lock_wait: Duration::ZERO, ..options };
    assert_eq!(pull_quietly(&client, &one, &at_once).await.unwrap_err().class(), ErrorClass::Busy);
}

#[tokio::test(start_paused = true)]
async fn watch_keeps_database_current() {
    let dir = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::new(53);
    let published = publisher.publish(&dir_of(5000, 1), NOW);
    let (replica, network) = publisher.serve(&published);
    let (client, options, name) = (client(&network), into(dir.path().join("db")), publisher.name());
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reports);
    let watcher = tokio::spawn(async move {
        pull_watch(&client, &name, &options, &|_| {}, &move |report| {
            sink.lock().push(report.unwrap().revision)
        })
        .await
    });
    for revision in 2..5 {
        while reports.lock().last() != Some(&(revision - 1)) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        replica.serve_revision(&publisher.publish(&dir_of(5000, revision), NOW + revision));
    }
    while reports.lock().last() != Some(&4) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    watcher.abort();
}

fn slow_site() -> (Publisher, Published, Arc<TestReplica>) {
    let mut publisher = Publisher::new(54);
    let published = publisher.publish(&large_tree(), NOW);
    let replica = TestReplica::new(&published, Fault::None, 1);
    (publisher, published, replica)
}

#[tokio::test]
async fn child_that_is_killed() {
    let Some(db) = std::env::var_os(CHILD_DB) else { return };
    let (publisher, _, replica) = slow_site();
    *replica.delay.lock() = Duration::from_millis(4);
    let network = TestNetwork::of(&publisher.location, &[replica]);
    println!("pulling");
    pull_quietly(
        &client(&network),
        &publisher,
        &PullOptions { in_flight_bytes: 1 << 20, ..into(db) },
    )
    .await
    .unwrap();
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    entries
        .map(|e| {
            if e.path().is_dir() {
                bytes_below(&e.path())
            } else {
                e.metadata().map_or(0, |m| m.len())
            }
        })
        .sum()
}

#[tokio::test]
async fn killed_pull_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let (publisher, published, replica) = slow_site();
    let mut offered = 0;
    for round in 0..11u64 {
        let mut child = this_test("pull::child_that_is_killed")
            .env(CHILD_DB, &db)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let target = round * 1_100_000;
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        while bytes_below(&db) <= target
            && tokio::time::Instant::now() < until
            && child.try_wait().unwrap().is_none()
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if Database::exists(&db) {
            let snapshot = Database::open_read(&db).unwrap();
            if let Some(head) = snapshot.head() {
                offered += 1;
                assert_eq!(&*head, &published.signed[..]);
                assert!(Database::verify(&db, None).unwrap().is_sound());
            }
        }
    }
    let network = TestNetwork::of(&publisher.location, &[replica]);
    let report = pull_quietly(&client(&network), &publisher, &into(&db)).await.unwrap();
    assert!(report.was_current == (offered > 0));
    assert!(
        offered > 0 || report.present_frames > 0,
        "frames of the killed pulls are used: {report:?}"
    );
    assert!(Database::verify(&db, None).unwrap().is_sound());
}

async fn open(publisher: &Publisher, replica: &Arc<TestReplica>) -> Arc<Tree> {
    fixture::open(publisher, &[Arc::clone(replica)]).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn verification_names_files_with_missing_frames() {
    let mut publisher = Publisher::new(55);
    let tree = dir([("a", dir_of(200_000, 1)), ("b", dir_of(5000, 2)), ("c", dir_of(10, 3))]);
    let published = publisher.publish(&tree, NOW);
    let replica = TestReplica::new(&published, Fault::None, 1);
    let open_tree = open(&publisher, &replica).await;
    let run = async |tree: &Arc<Tree>| {
        let (mut verification, mut bad) = (tree.verify_all(&tree.newest()), Vec::new());
        loop {
            match verification.next().await.unwrap().unwrap() {
                VerifyEvent::Progress { .. } => {}
                VerifyEvent::Bad { path, .. } => bad.push(String::from_utf8(path).unwrap()),
                VerifyEvent::Done { files, frames, .. } => return (bad, files, frames),
            }
        }
    };
    let (bad, files, frames) = run(&open_tree).await;
    assert_eq!((bad.len(), files), (0, 3));
    assert!(frames >= 7, "{frames}");
    let leaf =
        vouch_tree::frame::build(vouch_tree::FrameKind::Leaf, &noise(2, 5000), i32::from(55 % 2u8));
    replica.alter(|served| {
        let mut frames = (*served.frames).clone();
        assert!(frames.remove(&publisher.iv.handle_of(&leaf)).is_some());
        served.frames = Arc::new(frames);
    });
    assert_eq!(run(&open_tree).await.0, ["b/file"]);
}

#[tokio::test(start_paused = true)]
async fn history_goes_back_as_far_as_kept() {
    let mut publisher = Publisher::new(56);
    let published: Vec<Published> =
        (1..=5).map(|n| publisher.publish(&dir_of(10, n), NOW - 100 + n)).collect();
    let replica = TestReplica::new(&published[4], Fault::None, 1);
    let tree = open(&publisher, &replica).await;
    let mut history = tree.history();
    for n in (1..=5).rev() {
        let revision = history.next().await.unwrap().unwrap();
        assert_eq!((revision.number(), revision.fsinfo.start), (n, NOW - 100 + n));
        assert_eq!(
            SignedFsinfo::from_xdr(&revision.signed).unwrap().unverified().unwrap(),
            revision.fsinfo
        );
    }
    assert!(history.next().await.is_none());
    assert_eq!(tree.revision_at(2).await.unwrap().unwrap().number(), 2);
    assert!(tree.revision_at(9).await.unwrap().is_none());
    replica.alter(|served| {
        let mut frames = (*served.frames).clone();
        frames.remove(&published[3].fsinfo.previous.unwrap());
        served.frames = Arc::new(frames);
    });
    let tree = open(&publisher, &replica).await;
    assert!(matches!(tree.revision_at(1).await, Err(Error::Missing { .. })));
}

#[tokio::test(start_paused = true)]
async fn diff_reports_each_change_once_in_order() {
    let mut publisher = Publisher::new(57);
    let old = large_tree();
    publisher.publish(&old, NOW - 20);
    let steps = [
        (["dir-0", "file-00300"], Some(Node::File(noise(1, 10)))),
        (["dir-0", "file-00300x"], Some(Node::File(noise(1, 10)))),
        (["dir-1", "file-00001"], None),
        (["dir-2", "new"], Some(dir([("in", Node::File(vec![1])), ("side", dir([]))]))),
        (["dir-3", "file-00003"], Some(Node::Link(b"x".to_vec()))),
    ];
    let new = steps.into_iter().fold(old, |tree, (path, node)| with(&tree, path, node));
    let replica = TestReplica::new(&publisher.publish(&new, NOW - 10), Fault::None, 1);
    let tree = open(&publisher, &replica).await;
    let (old, new) = (tree.revision_at(1).await.unwrap().unwrap(), tree.newest());
    let before = tree.counters().network_frames;
    let (mut diff, mut lines) = (Diff::new((&tree, &old), (&tree, &new)), Vec::new());
    while let Some(change) = diff.next().await {
        let change = change.unwrap();
        let what = match change.kind {
            ChangeKind::Added => "added",
            ChangeKind::Removed => "removed",
            ChangeKind::Changed(fields) if fields.file_type => "type",
            ChangeKind::Changed(fields) if fields.content => "content",
            ChangeKind::Changed(_) => "other",
        };
        lines.push(format!("{what} {}", String::from_utf8(change.path).unwrap()));
    }
    let expected = [
        "content dir-0/file-00300",
        "added dir-0/file-00300x",
        "removed dir-1/file-00001",
        "added dir-2/new",
        "added dir-2/new/in",
        "added dir-2/new/side",
        "type dir-3/file-00003",
    ];
    assert_eq!(lines, expected);
    assert!(
        tree.counters().network_frames - before < 30,
        "{}",
        tree.counters().network_frames - before
    );
}
