use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use vouch_tree::{Blob, Content};
use vouch_tree_client::{Error, ErrorClass, ReplicaState, Tree, VerifyEvent};

use crate::fixture::replica::{Fault, TestReplica};
use crate::fixture::{self, NOW, Node, Published, Publisher, assert_took, noise};

fn published(publisher: &mut Publisher, big: usize) -> Published {
    let mut files: std::collections::BTreeMap<Vec<u8>, Node> =
        (0..200u64).map(|n| (format!("f{n}").into_bytes(), Node::File(noise(n, 3000)))).collect();
    files.insert(b"big".to_vec(), Node::File(noise(7777, big)));
    publisher.publish(&Node::Dir(files), NOW)
}

async fn open(publisher: &Publisher, replicas: &[Arc<TestReplica>]) -> Arc<Tree> {
    fixture::open(publisher, replicas).await.unwrap()
}

async fn blob(tree: &Tree, name: &str) -> Blob {
    match tree.lookup_path(tree.newest().root(), name.as_bytes()).await.unwrap().content {
        Content::Regular { blob, .. } => blob,
        other => panic!("{other:?}"),
    }
}

async fn read(tree: &Tree, n: u64) -> Result<(), Error> {
    let inode = tree.lookup_path(tree.newest().root(), format!("f{n}").as_bytes()).await?;
    let Content::Regular { blob, .. } = &inode.content else { panic!("a file was published") };
    assert_eq!(tree.read(blob, 0, 5000).await?, noise(n, 3000));
    Ok(())
}

async fn read_all(tree: &Tree, numbers: std::ops::Range<u64>) {
    for n in numbers {
        read(tree, n).await.unwrap();
    }
}

async fn open_from(seed: u8, faults: &[Fault]) -> (Arc<Tree>, Vec<Arc<TestReplica>>) {
    let mut publisher = Publisher::new(seed);
    let published = published(&mut publisher, 10);
    let replicas: Vec<_> =
        (1..).zip(faults).map(|(seed, fault)| TestReplica::new(&published, *fault, seed)).collect();
    (open(&publisher, &replicas).await, replicas)
}

fn set_fault_later(replica: &Arc<TestReplica>, ms: u64, fault: Fault) {
    let replica = Arc::clone(replica);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        replica.set_fault(fault);
    });
}

fn calls(replica: &TestReplica) -> u64 {
    replica.calls.load(Ordering::Relaxed)
}

fn delay(replica: &TestReplica, ms: u64) {
    *replica.delay.lock() = Duration::from_millis(ms);
}

#[tokio::test(start_paused = true)]
async fn slow_replica_is_hedged_and_asked_less() {
    let mut publisher = Publisher::new(60);
    let published = published(&mut publisher, 10);
    let replicas = [1, 2].map(|seed| TestReplica::new(&published, Fault::None, seed));
    replicas.iter().zip([1, 3]).for_each(|(replica, ms)| delay(replica, ms));
    let tree = open(&publisher, &replicas).await;
    read_all(&tree, 0..20).await;
    delay(&replicas[0], 800);
    let begun = Instant::now();
    read_all(&tree, 20..60).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?} for 40 reads", begun.elapsed());
    assert!(tree.counters().hedges > 0);
    let before = calls(&replicas[0]);
    read_all(&tree, 60..100).await;
    assert!(calls(&replicas[0]) - before < 10, "{} of 40", calls(&replicas[0]) - before);
    assert!(
        tree.replicas().iter().all(|r| !matches!(r.state, ReplicaState::Down | ReplicaState::Liar)),
        "{:?}",
        tree.replicas()
    );
}

#[tokio::test(start_paused = true)]
async fn lying_replica_is_excluded() {
    let mut publisher = Publisher::new(61);
    let published = published(&mut publisher, 10);
    let replicas =
        [Fault::FlipFrame, Fault::None].map(|fault| TestReplica::new(&published, fault, 5));
    delay(&replicas[1], 20);
    let tree = open(&publisher, &replicas).await;
    read_all(&tree, 0..10).await;
    let status = tree.replicas();
    assert_eq!((status[0].state, status[1].state), (ReplicaState::Liar, ReplicaState::Up));
    let proof = status[0].last_error.clone().unwrap();
    assert!(proof.contains("asked for frame") && proof.contains("hash to"), "{proof}");
    let before = calls(&replicas[0]);
    read_all(&tree, 10..100).await;
    assert_eq!(calls(&replicas[0]), before);
}

#[tokio::test(start_paused = true)]
async fn dead_replicas_cost_little_time() {
    for fault in [Fault::Refuse, Fault::Blackhole, Fault::Stall, Fault::HalfStall] {
        let begun = Instant::now();
        let (tree, _) = open_from(62, &[fault, fault, Fault::None]).await;
        read_all(&tree, 0..100).await;
        assert_took(begun, Duration::from_secs(5), fault);
    }
}

#[tokio::test(start_paused = true)]
async fn reads_try_until_deadline_and_recover_soon() {
    for fault in [Fault::Refuse, Fault::HalfAnswer, Fault::Decline] {
        let (tree, replicas) = open_from(63, &[Fault::OneShot]).await;
        read(&tree, 0).await.unwrap();
        replicas[0].set_fault(fault);
        for n in 1..4 {
            let begun = Instant::now();
            let error = read(&tree, n).await.unwrap_err();
            assert_eq!((error.class(), error.errno()), (ErrorClass::Unreachable, 5), "{error}");
            assert!(error.to_string().contains("10.0.0.1:4340: "), "{error}");
            assert!(
                (30..=31).contains(&begun.elapsed().as_secs()),
                "{fault:?}: {:?}",
                begun.elapsed()
            );
        }
        read(&tree, 0).await.unwrap();
        set_fault_later(&replicas[0], 12_000, Fault::None);
        let begun = Instant::now();
        read(&tree, 1).await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_took(begun, Duration::from_millis(14_500), fault);
    }
}

#[tokio::test(start_paused = true)]
async fn reads_from_stalled_replica_end_in_time() {
    for fault in [Fault::Stall, Fault::Drip, Fault::HalfStall] {
        let (tree, replicas) = open_from(64, &[Fault::None]).await;
        replicas[0].set_fault(fault);
        for n in 0..5 {
            let begun = Instant::now();
            assert!(read(&tree, n).await.is_err(), "{fault:?}");
            assert_took(begun, Duration::from_secs(31), fault);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reads_fail_soon_if_all_replicas_lie() {
    for fault in [
        Fault::FlipFrame,
        Fault::Truncate,
        Fault::WrongHandle,
        Fault::Garbage,
        Fault::FewResults,
        Fault::Oversize,
    ] {
        for count in [1, 3] {
            let (tree, replicas) = open_from(76, &[Fault::None; 3][..count]).await;
            replicas.iter().for_each(|replica| replica.set_fault(fault));
            for n in 0..5 {
                let begun = Instant::now();
                let error = read(&tree, n).await.unwrap_err();
                assert!(matches!(error, Error::Lied { .. }), "{fault:?} of {count}: {error}");
                assert_eq!((error.class(), error.errno()), (ErrorClass::Refused, 5), "{error}");
                assert_took(begun, Duration::from_secs(3), (fault, count));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_failed_replica_beside_lying_one() {
    let (tree, replicas) = open_from(77, &[Fault::None; 2]).await;
    replicas[0].set_fault(Fault::FlipFrame);
    replicas[1].set_fault(Fault::Withhold);
    let begun = Instant::now();
    let error = read(&tree, 1).await.unwrap_err();
    assert!(
        matches!(error, Error::Lied { .. }) && error.to_string().contains("lacks the frame"),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    replicas[1].set_fault(Fault::Decline);
    set_fault_later(&replicas[1], 1000, Fault::None);
    read(&tree, 2).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn retries_after_one_lie_of_sole_replica() {
    let (tree, replicas) = open_from(78, &[Fault::None]).await;
    for (fault, n) in [(Fault::FlipFrame, 1), (Fault::Garbage, 150)] {
        replicas[0].set_fault(fault);
        set_fault_later(&replicas[0], 100, Fault::None);
        read(&tree, n).await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    }
    assert_eq!(tree.counters().lies, 2);
}

#[tokio::test(start_paused = true)]
async fn verification_against_faulty_replica_ends_in_time() {
    let mut publisher = Publisher::new(82);
    let published = published(&mut publisher, 4 << 20);
    // Paused time. An operation takes 30 s at most; a replica that lies fails sooner.
    for (fault, limit_s) in [(Fault::FlipFrame, 3), (Fault::HalfAnswer, 31), (Fault::Stall, 31)] {
        let replica = TestReplica::new(&published, Fault::None, 1);
        let tree = open(&publisher, &[Arc::clone(&replica)]).await;
        replica.set_fault(fault);
        let begun = Instant::now();
        let mut verification = tree.verify_all(&tree.newest());
        let mut last = None;
        while let Some(event) = verification.next().await {
            last = Some(event);
        }
        match last.unwrap() {
            Ok(event) => assert!(
                fault == Fault::FlipFrame && matches!(event, VerifyEvent::Done { bad: 1.., .. }),
                "{fault:?}: {event:?}"
            ),
            Err(error) => {
                assert!(
                    error.class() == ErrorClass::Unreachable && fault != Fault::FlipFrame,
                    "{fault:?}: {error}"
                );
                assert!(error.to_string().contains("10.0.0.1:4340: "), "{fault:?}: {error}");
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(limit_s), "{fault:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn opening_against_lying_replica_fails_soon() {
    let mut publisher = Publisher::new(80);
    let published = published(&mut publisher, 10);
    for fault in [Fault::Garbage, Fault::Oversize] {
        let begun = Instant::now();
        let error = fixture::open(&publisher, &[TestReplica::new(&published, fault, 1)])
            .await
            .err()
            .unwrap();
        assert!(matches!(error, Error::Lied { .. }), "{fault:?}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn error_names_replicas_without_answer() {
    let mut publisher = Publisher::new(81);
    let published = published(&mut publisher, 10);
    let replicas = [
        TestReplica::new(&published, Fault::Stall, 1),
        TestReplica::new(&published, Fault::NoTree, 2),
    ];
    let error = fixture::open(&publisher, &replicas).await.err().unwrap();
    let said = error.to_string();
    assert!(
        said.contains("10.0.0.1:4340: no answer within")
            && said.contains("10.0.0.2:4340: does not serve this tree"),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn frame_is_missing_only_if_all_replicas_say_so() {
    let (tree, replicas) =
        open_from(65, &[Fault::Withhold, Fault::Withhold, Fault::Withhold, Fault::None]).await;
    read(&tree, 1).await.unwrap();
    replicas[3].set_fault(Fault::Withhold);
    let begun = Instant::now();
    assert!(matches!(read(&tree, 2).await, Err(Error::Missing { asked: 4, .. })));
    assert!(begun.elapsed() < Duration::from_secs(1), "all have answered");
}

#[tokio::test(start_paused = true)]
async fn batches_requests_and_spreads_them() {
    let mut publisher = Publisher::new(66);
    let published = published(&mut publisher, 24 << 20);
    let replicas = [1, 2].map(|seed| TestReplica::new(&published, Fault::None, seed));
    replicas.iter().for_each(|replica| delay(replica, 5));
    let tree = open(&publisher, &replicas).await;
    let blob = blob(&tree, "big").await;
    let whole = noise(7777, 24 << 20);
    let before = replicas.each_ref().map(|r| calls(r));
    assert!(tree.read(&blob, 0, 8 << 20).await.unwrap() == whole[..8 << 20]);
    let file = tree.open_file(blob);
    for offset in (8 << 20..24 << 20).step_by(128 * 1024) {
        assert!(
            file.read(offset, 128 * 1024).await.unwrap()
                == whole[offset as usize..offset as usize + 128 * 1024]
        );
    }
    let made = [0, 1].map(|n| calls(&replicas[n]) - before[n]);
    assert!(made.iter().sum::<u64>() < 100, "{made:?} calls for 192 leaves");
    assert!(made.iter().all(|&calls| calls >= 5), "{made:?}: both are used");
}

#[tokio::test(start_paused = true)]
async fn connection_closed_after_each_answer_is_no_failure() {
    let (tree, _) = open_from(67, &[Fault::OneShot]).await;
    let begun = Instant::now();
    read_all(&tree, 0..50).await;
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    assert_eq!(tree.replicas()[0].failed, 0);
}

#[test]
fn ended_runtime_is_an_error() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let mut publisher = Publisher::new(75);
    let replica = TestReplica::new(&published(&mut publisher, 10), Fault::None, 1);
    let first = runtime();
    let tree = first.block_on(open(&publisher, &[replica]));
    first.block_on(read(&tree, 0)).unwrap();
    drop(first);
    let error = runtime().block_on(read(&tree, 1)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Unreachable, "{error}");
}
