use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use vouch_tree::TreeName;
use vouch_tree::statement::{Body, KeyStatement};
use vouch_tree_client::{
    Client, ClientOptions, Error, ErrorClass, ReplicaState, Tree, TreeOptions,
};
use vouch_xdr::Xdr;

use crate::fixture::network::TestNetwork;
use crate::fixture::replica::{Fault, TestReplica};
use crate::fixture::{DURATION_S, NOW, Node, Publisher, TestClock, dir, options, text};

fn client_with(
    network: &Arc<TestNetwork>,
    clock: &Arc<TestClock>,
    change: impl FnOnce(&mut ClientOptions),
) -> Arc<Client> {
    let mut options = ClientOptions { clock: Arc::clone(clock) as Arc<_>, ..options(network) };
    change(&mut options);
    Client::new(options).unwrap()
}

fn publisher_of_one_replica(seed: u8) -> (Publisher, Arc<TestReplica>, Arc<TestNetwork>) {
    let mut publisher = Publisher::new(seed);
    let published = publisher.publish(&text("x"), NOW);
    let (replica, network) = publisher.serve(&published);
    (publisher, replica, network)
}

fn open_remembering(
    network: &Arc<TestNetwork>,
    clock: &Arc<TestClock>,
    dir: &Path,
    name: TreeName,
) -> impl Future<Output = Result<Arc<Tree>, Error>> + use<> {
    let client = client_with(network, clock, remembering(dir));
    async move { client.open(&name, &TreeOptions::default()).await }
}

fn remembering(dir: &Path) -> impl FnOnce(&mut ClientOptions) {
    let dir = dir.to_owned();
    move |options| {
        options.state_dir = Some(dir);
        options.state_required = true;
    }
}

#[tokio::test(start_paused = true)]
async fn refuses_rollback_after_restart() {
    let (state, clock) = (tempfile::tempdir().unwrap(), TestClock::at(NOW));
    let mut publisher = Publisher::new(20);
    let (old, new) =
        (publisher.publish(&text("old"), NOW - 20), publisher.publish(&text("new"), NOW - 10));
    let (replica, network) = publisher.serve(&new);
    let open = || client_with(&network, &clock, remembering(state.path()));
    assert_eq!(publisher.opened_by(&open()).await.unwrap().newest().number(), 2);
    replica.serve_revision(&old);
    let tree = publisher.opened_by(&open()).await.unwrap();
    assert_eq!(tree.newest().number(), 2, "uses the stored revision");
    assert!(tree.refresh().await.is_err());
    // Refused, not damaged: the replica lacks the newer frame.
    let error = tree.lookup_path(tree.newest().root(), b"file").await.err().unwrap();
    assert!(
        error.class() == ErrorClass::Refused
            && error.to_string().contains("10.0.0.1:4340: offers the old revision 1;"),
        "{error}"
    );
    clock.set(NOW + u64::from(DURATION_S));
    let error = publisher.opened_by(&open()).await.err().unwrap();
    assert!(error.to_string().contains("old revision 1"), "{error}");
}

#[tokio::test]
async fn restarts_without_replicas_from_stored_revision() {
    let (state, clock) = (tempfile::tempdir().unwrap(), TestClock::at(NOW));
    let (publisher, replica, network) = publisher_of_one_replica(21);
    let cache = state.path().join("cache");
    let open = || {
        client_with(&network, &clock, |options| {
            remembering(&state.path().join("state"))(options);
            options.disk_cache = Some(vouch_tree_client::DiskCacheOptions {
                dir: cache.clone(),
                quota_bytes: 8 << 20,
            });
        })
    };
    let client = open();
    let tree = publisher.opened_by(&client).await.unwrap();
    tree.lookup_path(tree.newest().root(), b"file").await.unwrap();
    client.flush().await;
    drop((tree, client));
    replica.set_fault(Fault::Refuse);
    let tree = publisher.opened_by(&open()).await.unwrap();
    assert_eq!(
        tree.try_lookup_path(tree.newest().root(), b"file").unwrap().unwrap().size(),
        1,
        "from the disk cache"
    );
}

#[tokio::test(start_paused = true)]
async fn expired_revision_fails_closed() {
    let clock = TestClock::at(NOW);
    let (mut publisher, replica, network) = publisher_of_one_replica(22);
    let tree = publisher.opened_by(&client_with(&network, &clock, |_| {})).await.unwrap();
    let root = tree.revision().unwrap().root().clone();
    assert!(tree.lookup_path(&root, b"file").await.is_ok());
    clock.set(NOW + u64::from(DURATION_S));
    let error = tree.lookup_path(&root, b"file").await.unwrap_err();
    assert_eq!((error.class(), error.errno()), (ErrorClass::Expired, 5), "{error}");
    assert!(tree.try_lookup_path(&root, b"file").unwrap().is_err(), "a cached file is refused");
    clock.set(NOW - 10_000_000);
    assert!(tree.lookup_path(&root, b"file").await.is_err(), "a clock set back does not revive it");
    clock.set(NOW + u64::from(DURATION_S));
    replica.serve_revision(&publisher.publish(&text("y"), NOW + u64::from(DURATION_S) - 5));
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(tree.lookup_path(&root, b"file").await.is_ok(), "refreshed on demand");
    assert_eq!(tree.newest().number(), 2);
}

#[tokio::test(start_paused = true)]
async fn revision_expires_even_if_clock_stops() {
    let clock = TestClock::at(NOW);
    let (publisher, _, network) = publisher_of_one_replica(23);
    let tree = publisher.opened_by(&client_with(&network, &clock, |_| {})).await.unwrap();
    clock.set(NOW - 1_000_000);
    tokio::time::sleep(Duration::from_secs(u64::from(DURATION_S) + 1)).await;
    assert!(matches!(tree.revision(), Err(Error::Expired { .. })));
}

#[tokio::test(start_paused = true)]
async fn expiry_survives_restart_and_clock_set_back() {
    let (state, clock) = (tempfile::tempdir().unwrap(), TestClock::at(NOW));
    let mut publisher = Publisher::new(40);
    let replica = TestReplica::new(&publisher.publish_for(&text("x"), NOW, 8), Fault::None, 1);
    let network = TestNetwork::of(&publisher.location, &[Arc::clone(&replica)]);
    let open = || open_remembering(&network, &clock, state.path(), publisher.name());
    assert!(open().await.is_ok());
    clock.set(NOW + 10);
    assert_eq!(open().await.err().unwrap().class(), ErrorClass::Expired);
    clock.set(NOW + 2);
    assert_eq!(open().await.err().unwrap().class(), ErrorClass::Expired, "the time went back");
}

#[tokio::test(start_paused = true)]
async fn fast_clock_does_not_expire_later_revisions() {
    let (state, clock) = (tempfile::tempdir().unwrap(), TestClock::at(NOW));
    let (mut publisher, replica, network) = publisher_of_one_replica(41);
    let next = publisher.publish(&text("y"), NOW + 5);
    let open = || open_remembering(&network, &clock, state.path(), publisher.name());
    clock.set(NOW + 100 * u64::from(DURATION_S));
    assert_eq!(open().await.err().unwrap().class(), ErrorClass::Expired);
    clock.set(NOW + 5);
    replica.serve_revision(&next);
    assert_eq!(
        open().await.unwrap().newest().number(),
        2,
        "the next revision ends after the expired one"
    );
}

#[tokio::test(start_paused = true)]
async fn background_refresh_announces_new_revision() {
    let clock = TestClock::at(NOW);
    let (mut publisher, replica, network) = publisher_of_one_replica(24);
    let tree = publisher.opened_by(&client_with(&network, &clock, |_| {})).await.unwrap();
    let old = tree.revision().unwrap();
    let mut news = tree.watch();
    replica.serve_revision(&publisher.publish(&text("yy"), NOW + 1));
    tokio::time::timeout(Duration::from_secs(2 * 3600), news.changed()).await.unwrap().unwrap();
    assert_eq!(tree.newest().number(), 2);
    assert_eq!(tree.lookup_path(tree.newest().root(), b"file").await.unwrap().size(), 2);
    assert_eq!(
        tree.lookup_path(old.root(), b"file").await.unwrap().size(),
        1,
        "the old revision is usable while it is served"
    );
}

#[tokio::test(start_paused = true)]
async fn newest_offer_wins_and_others_are_stale() {
    let mut publisher = Publisher::new(25);
    let (old, new) =
        (publisher.publish(&text("old"), NOW - 20), publisher.publish(&text("new"), NOW - 10));
    let replicas = [&old, &new, &old].map(|published| TestReplica::new(published, Fault::None, 1));
    let network = TestNetwork::of(&publisher.location, &replicas);
    let tree =
        publisher.opened_by(&client_with(&network, &TestClock::at(NOW), |_| {})).await.unwrap();
    assert_eq!(tree.newest().number(), 2);
    let states: Vec<_> = tree.replicas().iter().map(|r| r.state).collect();
    assert_eq!(states, [ReplicaState::Stale, ReplicaState::Up, ReplicaState::Stale]);
}

#[tokio::test(start_paused = true)]
async fn revocation_is_permanent() {
    let (state, clock) = (tempfile::tempdir().unwrap(), TestClock::at(NOW));
    let (publisher, replica, network) = publisher_of_one_replica(26);
    let open = || client_with(&network, &clock, remembering(state.path()));
    let tree = publisher.opened_by(&open()).await.unwrap();
    let root = tree.revision().unwrap().root().clone();
    tree.lookup_path(&root, b"file").await.unwrap();
    let revocation =
        KeyStatement::issue(&publisher.root, NOW, Body::Revocation { reason: "stolen".into() });
    replica.alter(|served| served.statements = vec![revocation.to_xdr()]);
    assert!(matches!(tree.refresh().await, Err(Error::Revoked { .. })));
    assert!(matches!(tree.try_lookup_path(&root, b"file"), Some(Err(Error::Revoked { .. }))));
    replica.alter(|served| served.statements.clear());
    let error = publisher.opened_by(&open()).await.err().unwrap();
    assert!(
        matches!(error, Error::Revoked { .. }),
        "a stored statement must count without the replica: {error}"
    );
}

#[tokio::test(start_paused = true)]
async fn reads_statements_from_directories_and_trees() {
    let (dir_of_certs, clock) = (tempfile::tempdir().unwrap(), TestClock::at(NOW));
    let mut publisher = Publisher::new(27);
    let published = publisher.publish(&text("x"), NOW);
    let (_, network) = publisher.serve(&published);
    let revocation =
        KeyStatement::issue(&publisher.root, NOW, Body::Revocation { reason: "stolen".into() });
    let file = format!("{}.revoked", publisher.hostid());
    std::fs::write(dir_of_certs.path().join(&file), revocation.to_text()).unwrap();
    std::fs::write(dir_of_certs.path().join("README"), b"noise").unwrap();
    let client = client_with(&network, &clock, |options| {
        options.certificate_dirs = vec![dir_of_certs.path().into()]
    });
    assert!(matches!(publisher.opened_by(&client).await, Err(Error::Revoked { .. })));

    // May be a truncated revocation. A file named after another key is not about this one.
    let path = dir_of_certs.path().join(&file);
    for damaged in [&b""[..], b"noise", &revocation.to_text().as_bytes()[..40]] {
        std::fs::write(&path, damaged).unwrap();
        let client = client_with(&network, &clock, |options| {
            options.certificate_dirs = vec![dir_of_certs.path().into()]
        });
        let error = publisher.opened_by(&client).await.err().unwrap();
        assert!(
            matches!(&error, Error::Statement { path: found, .. } if *found == path)
                && error.class() == ErrorClass::Input,
            "{error}"
        );
    }
    std::fs::rename(
        &path,
        dir_of_certs.path().join(format!("{}.revoked", Publisher::new(29).hostid())),
    )
    .unwrap();
    let client = client_with(&network, &clock, |options| {
        options.certificate_dirs = vec![dir_of_certs.path().into()]
    });
    publisher.opened_by(&client).await.unwrap();

    let mut authority = Publisher::new(28);
    authority.location = "authority.test".into();
    let listed =
        Node::Dir([(file.into_bytes(), Node::File(revocation.to_text().into_bytes()))].into());
    network.add(
        "authority.test",
        &TestReplica::new(&authority.publish(&dir([("certs", listed)]), NOW), Fault::None, 1),
    );
    let client = client_with(&network, &clock, |_| {});
    let tree = publisher.opened_by(&client).await.unwrap();
    let authority_tree = authority.opened_by(&client).await.unwrap();
    client.add_certificate_tree(&authority_tree, b"certs");
    assert!(matches!(tree.refresh().await, Err(Error::Revoked { .. })));
    assert!(matches!(publisher.opened_by(&client).await, Err(Error::Revoked { .. })));
}

#[tokio::test(start_paused = true)]
async fn follows_forwarding_but_no_cycle() {
    let clock = TestClock::at(NOW);
    let (mut old, mut new) = (Publisher::new(29), Publisher::new(30));
    new.location = "new.test".into();
    let published = old.publish(&text("old"), NOW);
    let (replica, network) = old.serve(&published);
    let new_replica = TestReplica::new(&new.publish(&text("new"), NOW), Fault::None, 1);
    network.add("new.test", &new_replica);
    let point = |from: &Publisher, to: TreeName| {
        KeyStatement::issue(&from.root, NOW, Body::Forwarding { to }).to_xdr()
    };
    replica.alter(|served| {
        (served.statements, served.signed) = (vec![point(&old, new.name())], Vec::new())
    });
    let open = |options: TreeOptions| {
        let (client, name) = (client_with(&network, &clock, |_| {}), old.name());
        async move { client.open(&name, &options).await }
    };
    assert_eq!(open(TreeOptions::default()).await.unwrap().name(), &new.name());
    let refused = open(TreeOptions { refuse_forwarding: true, ..TreeOptions::default() })
        .await
        .err()
        .unwrap();
    assert!(matches!(refused, Error::Forwarded { to } if to == new.name()));
    new_replica.alter(|served| served.statements = vec![point(&new, old.name())]);
    assert!(matches!(open(TreeOptions::default()).await, Err(Error::Forwarded { .. })));
}

#[tokio::test(start_paused = true)]
async fn required_state_must_be_writable() {
    let state = tempfile::NamedTempFile::new().unwrap();
    let mut publisher = Publisher::new(31);
    let published = publisher.publish(&text("x"), NOW);
    let (_, network) = publisher.serve(&published);
    let strict = client_with(&network, &TestClock::at(NOW), remembering(state.path()));
    assert!(matches!(publisher.opened_by(&strict).await, Err(Error::StateUnreadable { .. })));
    let lenient = client_with(&network, &TestClock::at(NOW), |options| {
        options.state_dir = Some(state.path().into())
    });
    assert!(publisher.opened_by(&lenient).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn forwarded_key_may_still_revoke_or_redirect() {
    let (state, clock) = (tempfile::tempdir().unwrap(), TestClock::at(NOW));
    let (mut old, mut new, mut newer) =
        (Publisher::new(42), Publisher::new(43), Publisher::new(44));
    (new.location, newer.location) = ("new.test".into(), "newer.test".into());
    let published = old.publish(&text("old"), NOW);
    let (replica, network) = old.serve(&published);
    network.add("new.test", &TestReplica::new(&new.publish(&text("new"), NOW), Fault::None, 1));
    network
        .add("newer.test", &TestReplica::new(&newer.publish(&text("newer"), NOW), Fault::None, 1));
    let say = |time, body| {
        let statement = KeyStatement::issue(&old.root, time, body).to_xdr();
        replica.alter(|served| served.statements = vec![statement]);
    };
    let open = || open_remembering(&network, &clock, state.path(), old.name());
    say(NOW, Body::Forwarding { to: new.name() });
    let followed = open().await.unwrap();
    assert_eq!(followed.name(), &new.name());

    say(NOW + 1, Body::Forwarding { to: newer.name() });
    let again = open().await.unwrap();
    assert_eq!(again.name(), &newer.name(), "a stored pointer is not final");
    let moved = followed.refresh().await;
    assert!(matches!(&moved, Err(Error::Forwarded { to }) if *to == newer.name()), "{moved:?}");
    assert!(followed.revision().is_err());
    assert!(again.refresh().await.is_ok(), "no new statement");

    say(NOW + 2, Body::Revocation { reason: "stolen".into() });
    let revoked = again.refresh().await;
    assert!(
        matches!(&revoked, Err(Error::Revoked { hostid, .. }) if *hostid == old.hostid()),
        "{revoked:?}"
    );
    assert!(matches!(again.revision(), Err(Error::Revoked { .. })));
    let refused = open().await.err().unwrap();
    assert!(matches!(refused, Error::Revoked { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn follows_stored_pointer_if_old_host_is_gone() {
    let (state, clock) = (tempfile::tempdir().unwrap(), TestClock::at(NOW));
    let (mut old, mut new) = (Publisher::new(45), Publisher::new(46));
    new.location = "new.test".into();
    let published = old.publish(&text("old"), NOW);
    let (replica, network) = old.serve(&published);
    network.add("new.test", &TestReplica::new(&new.publish(&text("new"), NOW), Fault::None, 1));
    let pointer = KeyStatement::issue(&old.root, NOW, Body::Forwarding { to: new.name() }).to_xdr();
    replica.alter(|served| served.statements = vec![pointer]);
    let open = || open_remembering(&network, &clock, state.path(), old.name());
    open().await.unwrap();
    replica.set_fault(Fault::Stall);
    let begun = tokio::time::Instant::now();
    assert_eq!(open().await.unwrap().name(), &new.name());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
