//! Several replicas: failover, hedging, spreading, liars, and the time that each takes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use vouch_tree::{Blob, Content};
use vouch_tree_client::{Client, ClientOptions, Error, ErrorClass, ReplicaState, Tree, TreeOptions};

use crate::world::network::TestNetwork;
use crate::world::replica::{Fault, TestReplica};
use crate::world::{NOW, Node, Published, Publisher, TestClock, noise};

/// 200 files of 3,000 bytes, and one of `big` bytes.
fn published(publisher: &mut Publisher, big: usize) -> Published {
    let mut files: std::collections::BTreeMap<Vec<u8>, Node> =
        (0..200u64).map(|n| (format!("f{n}").into_bytes(), Node::File(noise(n, 3000)))).collect();
    files.insert(b"big".to_vec(), Node::File(noise(7777, big)));
    publisher.publish(&Node::Dir(files), NOW)
}

async fn open(publisher: &Publisher, replicas: &[Arc<TestReplica>]) -> Arc<Tree> {
    let connector = TestNetwork::of(&publisher.location, replicas);
    let options = ClientOptions { connector, clock: TestClock::at(NOW), seed: Some(1), ..ClientOptions::default() };
    Client::new(options).unwrap().open(&publisher.name(), &TreeOptions::default()).await.unwrap()
}

async fn blob(tree: &Tree, name: &str) -> Blob {
    match tree.walk(tree.newest().root(), name.as_bytes()).await.unwrap().content {
        Content::Regular { blob, .. } => blob,
        other => panic!("{other:?}"),
    }
}

async fn read(tree: &Tree, n: u64) -> Result<(), Error> {
    let inode = tree.walk(tree.newest().root(), format!("f{n}").as_bytes()).await?;
    let Content::Regular { blob, .. } = &inode.content else { panic!("a file was published") };
    assert_eq!(tree.read(blob, 0, 5000).await?, noise(n, 3000));
    Ok(())
}

fn calls(replica: &TestReplica) -> u64 {
    replica.calls.load(Ordering::Relaxed)
}

fn delay(replica: &TestReplica, ms: u64) {
    *replica.delay.lock() = Duration::from_millis(ms);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_turns_slow_is_hedged_then_asked_less_and_never_called_down() {
    let mut publisher = Publisher::new(60);
    let published = published(&mut publisher, 10);
    let replicas = [1, 2].map(|seed| TestReplica::new(&published, Fault::None, seed));
    replicas.iter().zip([1, 3]).for_each(|(replica, ms)| delay(replica, ms));
    let tree = open(&publisher, &replicas).await;
    for n in 0..20 {
        read(&tree, n).await.unwrap();
    }
    delay(&replicas[0], 800);
    let begun = Instant::now();
    for n in 20..60 {
        read(&tree, n).await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?} for 40 reads", begun.elapsed());
    assert!(tree.counters().hedges > 0);
    let before = calls(&replicas[0]);
    for n in 60..100 {
        read(&tree, n).await.unwrap();
    }
    assert!(calls(&replicas[0]) - before < 10, "{} of 40", calls(&replicas[0]) - before);
    assert!(tree.replicas().iter().all(|r| !matches!(r.state, ReplicaState::Down | ReplicaState::Liar)), "{:?}", tree.replicas());
}

#[tokio::test(start_paused = true)]
async fn a_liar_is_set_aside_and_not_asked_again() {
    let mut publisher = Publisher::new(61);
    let published = published(&mut publisher, 10);
    let replicas = [Fault::FlipFrame, Fault::None].map(|fault| TestReplica::new(&published, fault, 5));
    delay(&replicas[1], 20);
    let tree = open(&publisher, &replicas).await;
    for n in 0..10 {
        read(&tree, n).await.unwrap();
    }
    let status = tree.replicas();
    assert_eq!((status[0].state, status[1].state), (ReplicaState::Liar, ReplicaState::Up));
    let proof = status[0].last_error.clone().unwrap();
    assert!(proof.contains("asked for frame") && proof.contains("hash to"), "{proof}");
    let before = calls(&replicas[0]);
    for n in 10..100 {
        read(&tree, n).await.unwrap();
    }
    assert_eq!(calls(&replicas[0]), before);
}

#[tokio::test(start_paused = true)]
async fn dead_replicas_cost_a_live_one_little_time() {
    for fault in [Fault::Refuse, Fault::Blackhole, Fault::Stall, Fault::HalfStall] {
        let mut publisher = Publisher::new(62);
        let published = published(&mut publisher, 10);
        let replicas: Vec<_> = (0..3).map(|n| TestReplica::new(&published, if n < 2 { fault } else { Fault::None }, n)).collect();
        let begun = Instant::now();
        let tree = open(&publisher, &replicas).await;
        for n in 0..100 {
            read(&tree, n).await.unwrap();
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?} with two replicas that {fault:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn when_all_are_gone_reads_fail_soon_what_is_cached_goes_on_and_their_return_is_noticed() {
    let mut publisher = Publisher::new(63);
    let published = published(&mut publisher, 10);
    let replica = TestReplica::new(&published, Fault::OneShot, 1);
    let tree = open(&publisher, &[Arc::clone(&replica)]).await;
    read(&tree, 0).await.unwrap();
    replica.set_fault(Fault::Refuse);
    for n in 1..20 {
        let begun = Instant::now();
        let error = read(&tree, n).await.unwrap_err();
        assert_eq!((error.class(), error.errno()), (ErrorClass::Unreachable, 5), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    }
    read(&tree, 0).await.unwrap();
    replica.set_fault(Fault::None);
    tokio::time::sleep(Duration::from_secs(31)).await;
    read(&tree, 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sole_replica_that_stalls_ends_each_read_in_time() {
    for fault in [Fault::Stall, Fault::Drip, Fault::HalfStall] {
        let mut publisher = Publisher::new(64);
        let published = published(&mut publisher, 10);
        let replica = TestReplica::new(&published, Fault::None, 1);
        let tree = open(&publisher, &[Arc::clone(&replica)]).await;
        replica.set_fault(fault);
        for n in 0..5 {
            let begun = Instant::now();
            assert!(read(&tree, n).await.is_err(), "{fault:?}");
            assert!(begun.elapsed() <= Duration::from_secs(31), "{:?} of {fault:?}", begun.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_such_handle_is_believed_only_of_all() {
    let mut publisher = Publisher::new(65);
    let published = published(&mut publisher, 10);
    let replicas: Vec<_> = (0..4).map(|n| TestReplica::new(&published, if n < 3 { Fault::Withhold } else { Fault::None }, n)).collect();
    let tree = open(&publisher, &replicas).await;
    read(&tree, 1).await.unwrap();
    replicas[3].set_fault(Fault::Withhold);
    let begun = Instant::now();
    assert!(matches!(read(&tree, 2).await, Err(Error::Missing { asked: 4, .. })));
    assert!(begun.elapsed() < Duration::from_secs(1), "all have answered: there is nothing to wait for");
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_together_goes_in_few_calls_and_over_all_replicas() {
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
        assert!(file.read(offset, 128 * 1024).await.unwrap() == whole[offset as usize..offset as usize + 128 * 1024]);
    }
    let made = [0, 1].map(|n| calls(&replicas[n]) - before[n]);
    assert!(made.iter().sum::<u64>() < 100, "{made:?} calls for 192 leaves");
    assert!(made.iter().all(|&calls| calls >= 5), "{made:?}: both are used");
}

#[tokio::test(start_paused = true)]
async fn connections_that_are_closed_after_each_answer_cost_no_failure() {
    let mut publisher = Publisher::new(67);
    let published = published(&mut publisher, 10);
    let replica = TestReplica::new(&published, Fault::OneShot, 1);
    let tree = open(&publisher, &[Arc::clone(&replica)]).await;
    let begun = Instant::now();
    for n in 0..50 {
        read(&tree, n).await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    assert_eq!(tree.replicas()[0].failed, 0);
}

#[test]
fn a_client_whose_runtime_has_ended_gives_an_error_and_does_not_spin() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let mut publisher = Publisher::new(75);
    let replica = TestReplica::new(&published(&mut publisher, 10), Fault::None, 1);
    let first = runtime();
    let tree = first.block_on(open(&publisher, &[replica]));
    first.block_on(read(&tree, 0)).unwrap();
    drop(first);
    let error = runtime().block_on(read(&tree, 1)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Unreachable, "{error}");
}
