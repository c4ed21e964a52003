use vouch_nfs4::op::{LockType, ShareAccess, StableHow};
use vouch_nfs4::{Attributes, Status, Verifier};
use vouch_nfs4_client::{Client, Config, Identity, OpenFile, Plain};
use vouch_oncrpc::AuthSys;

use super::*;
use crate::exports::changes::Origin;
use crate::management::{Answer, Order, OrderError, StateKind, send};

type Outcome = Result<Answer, OrderError>;

fn order(server: &Running, order: Order) -> Outcome {
    send(&state_directory::control_path(&server.state, None), &order)
}

fn add(server: &Running, path: &str, keep: bool) -> Outcome {
    let clients = vec!["*(rw,insecure,no_root_squash)".to_owned()];
    order(server, Order::AddExport { path: path.into(), clients, keep })
}

fn remove(server: &Running, path: &str, keep: bool) -> Outcome {
    order(server, Order::RemoveExport { path: path.into(), keep })
}

fn exports(server: &Running) -> Vec<(String, Origin)> {
    let answer = order(server, Order::ListExports).unwrap();
    answer.exports.unwrap().into_iter().map(|rule| (rule.path, rule.origin)).collect()
}

fn listed(list: &[(&str, Origin)]) -> Vec<(String, Origin)> {
    list.iter().map(|&(path, origin)| (path.to_owned(), origin)).collect()
}

async fn client(server: &Running, name: &str) -> Result<Client, vouch_nfs4_client::Error> {
    let root =
        AuthSys { stamp: 0, machine_name: b"test".to_vec(), uid: 0, gid: 0, gids: Vec::new() };
    let identity = Identity::new(name, Verifier([1; 8]));
    Client::connect(Config::new(server.address, 1, identity, Plain::sys(&root))).await
}

async fn open(client: &Client, export: &str, name: &str) -> OpenFile {
    let directory = client.walk(export.as_bytes()).await.unwrap().handle;
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    client.open(&directory, name.as_bytes(), ShareAccess::BOTH, Some(&mode)).await.unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn exports_change_while_the_server_runs_and_kept_ones_survive_it() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let start = || {
        let state = state.clone();
        Running::start(move |config| config.state = state)
    };
    let mut server = start();
    use Origin::{Kept, List, Temporary};
    assert_eq!(exports(&server), listed(&[("/data", List)]));
    add(&server, "/new", false).unwrap();
    add(&server, "/with\\040blank", true).unwrap();
    let all = [("/data", List), ("/with blank", Kept), ("/new", Temporary)];
    assert_eq!(exports(&server), listed(&all));
    block_on(async {
        let client = client(&server, "a").await.unwrap();
        open(&client, "/new", "f").await;
        open(&client, "/with blank", "f").await;
        // Its state goes with it, and calls get STALE.
        let file = open(&client, "/data", "f").await;
        remove(&server, "/data", false).unwrap();
        let read = client.read(&file, 0, 1).await;
        assert!(read.is_err_and(|error| error.status() == Some(Status::STALE)));
    });
    let hidden = order(&server, Order::ListExports).unwrap().hidden;
    assert_eq!((exports(&server).len(), hidden), (2, vec!["/data".to_owned()]));
    // A reload keeps the changes, and one that discards them ends them.
    status_client::reload(&state_directory::control_path(&state, None)).unwrap();
    assert_eq!(exports(&server).len(), 2);
    order(&server, Order::DiscardChanges).unwrap();
    assert_eq!(exports(&server), listed(&[("/data", List), ("/with blank", Kept)]));
    remove(&server, "/data", false).unwrap();
    server.stop().unwrap();
    let server = start();
    assert_eq!(exports(&server), listed(&[("/data", List), ("/with blank", Kept)]));
    remove(&server, "/with\\040blank", true).unwrap();
    assert_eq!(exports(&server), listed(&[("/data", List)]));
}

#[test]
fn wrong_orders_change_nothing_and_say_why() {
    let server = Running::start(|_| ());
    let set = |path: &str, client: &str, keep| {
        let (path, clients) = (path.to_owned(), vec![client.to_owned()]);
        order(&server, Order::SetExport { path, clients, keep })
    };
    let add_client = |client: &str| {
        let clients = vec![client.to_owned()];
        order(&server, Order::AddExport { path: "/x".into(), clients, keep: true })
    };
    let outcomes = [
        (add(&server, "/data", false), "is exported already"),
        (add(&server, "relative", false), "not an absolute path"),
        (add_client("*(rw,nonsense)"), "nonsense"),
        (add_client("*(rw)\n/etc *(rw)"), "2 exports"),
        (add_client("*(rw,xprtsec=tls)"), "xprtsec=tls"),
        (add_client("*(rw,mp)"), "/x is not exported: nothing is mounted on /x"),
        (set("/none", "*(rw)", false), "is not exported"),
        (set("/data", "*(rw)", true), "in the lists"),
        (remove(&server, "/data", true), "in the lists"),
        (remove(&server, "/data", false), "nothing to export"),
        (order(&server, Order::EvictClient { client: "host".into() }), "neither an id"),
        (order(&server, Order::EvictClient { client: "192.0.2.1".into() }), "no client"),
        (order(&server, Order::Unlock { path: "/data/none".into() }), "/data/none"),
    ];
    for (outcome, expected) in outcomes {
        let error = outcome.map(|answer| format!("{answer:?}")).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert_eq!(exports(&server), listed(&[("/data", Origin::List)]), "{expected}");
    }
    assert!(!server.state.join("exports").exists());
}

#[test]
fn states_are_listed_and_ended_by_file_and_by_client() {
    let server = Running::start(|_| ());
    block_on(async {
        let (a, b) = (client(&server, "a").await.unwrap(), client(&server, "b").await.unwrap());
        let (mut held, other) = (open(&a, "/data", "held").await, open(&a, "/data", "other").await);
        let _of_b = open(&b, "/data", "third").await;
        a.lock(&mut held, b"o", LockType::Write, 10, 20).await.unwrap().unwrap();
        let states = order(&server, Order::ListState { client: None }).unwrap().states.unwrap();
        let locks: Vec<_> = states.iter().filter(|state| state.kind == StateKind::Lock).collect();
        let [lock] = locks[..] else { panic!("{states:?}") };
        assert_eq!((lock.locks[0].offset, lock.locks[0].length), (10, Some(20)));
        assert!(lock.locks[0].exclusive && lock.export == "/data");
        let opens = |client: &str| {
            let found = states
                .iter()
                .filter(|state| state.kind == StateKind::Open && state.client == client);
            found.count()
        };
        assert_eq!(opens(&lock.client), 2);

        // One file: its lock and its open end, and another client gets the lock.
        let ended = order(&server, Order::Unlock { path: "/data/held".into() }).unwrap().ended;
        assert_eq!(ended, Some(1));
        let read = a.read(&held, 0, 1).await.unwrap_err().status();
        assert_eq!(read, Some(Status::ADMIN_REVOKED));
        assert!(a.read(&other, 0, 1).await.is_ok());
        let mut again = open(&b, "/data", "held").await;
        b.lock(&mut again, b"o", LockType::Write, 10, 20).await.unwrap().unwrap();

        // One client: all its state ends, and that of others stays.
        let evicted = order(&server, Order::EvictClient { client: lock.client.clone() }).unwrap();
        assert_eq!(evicted.ended, Some(1));
        let states = order(&server, Order::ListState { client: None }).unwrap().states.unwrap();
        assert!(!states.is_empty() && states.iter().all(|state| state.client != lock.client));
        assert!(b.read(&again, 0, 1).await.is_ok());
    });
}

#[test]
fn draining_server_keeps_its_clients_and_takes_no_others() {
    let server = Running::start(|_| ());
    block_on(async {
        let old = client(&server, "old").await.unwrap();
        order(&server, Order::Drain { on: true }).unwrap();
        assert!(server.status().draining);
        open(&old, "/data", "f").await;
        let refused = client(&server, "new").await.err().and_then(|error| error.status());
        assert_eq!(refused, Some(Status::DELAY));
        order(&server, Order::Drain { on: false }).unwrap();
        client(&server, "new").await.unwrap();
    });
}

#[test]
fn quota_is_changed_and_ended_while_the_server_runs() {
    const PART_LEN: usize = 256 << 10;
    let server = Running::start(|config| {
        let ExportList::Files(files) = &config.exports else { panic!("a file") };
        std::fs::write(&files[0], "/data *(rw,insecure,no_root_squash,quota=1M)\n").unwrap();
    });
    let quota = || server.status().exports[0].quota.clone();
    let set = |options: &str| {
        let clients = vec![format!("*(rw,insecure,no_root_squash{options})")];
        let path = "/data".into();
        order(&server, Order::SetExport { path, clients, keep: false }).unwrap();
    };
    block_on(async {
        let client = client(&server, "a").await.unwrap();
        let file = open(&client, "/data", "f").await;
        let write = async |at: u64| {
            let part = vec![1; PART_LEN];
            let written = client.write(&file, at * PART_LEN as u64, &part, StableHow::Unstable);
            written.await.map(drop).map_err(|error| error.status())
        };
        for at in 0..4 {
            assert_eq!(write(at).await, Ok(()));
        }
        assert_eq!(write(4).await, Err(Some(Status::DQUOT)));
        let full = quota().unwrap();
        assert_eq!((full.used, full.limit), (1 << 20, 1 << 20));
        let socket = state_directory::control_path(&server.state, None);
        let page = status_client::metrics(&socket).unwrap();
        assert!(
            page.contains("vouch_export_quota_limit_bytes{export=\"/data\"} 1048576"),
            "{page}"
        );
        set(",quota=2M");
        assert_eq!(write(4).await, Ok(()));
        assert_eq!(quota().unwrap().limit, 2 << 20);
        set("");
        assert!(quota().is_none());
        for at in 5..9 {
            assert_eq!(write(at).await, Ok(()));
        }
        // Those of the list come back.
        order(&server, Order::DiscardChanges).unwrap();
        assert_eq!(write(9).await, Err(Some(Status::DQUOT)));
    });
}
