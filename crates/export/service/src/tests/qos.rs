use vouch_daemon::status_client;
use vouch_nfs4_client::{Identity, Pipeline, Plain};
use vouch_oncrpc::AuthSys;

use super::load::{load, walk};
use super::*;
use crate::monitoring::status::QosStatus;
use vouch_nfs4::Verifier;

fn limited(qos: &str) -> Running {
    let options = format!("/data *(rw,insecure,no_root_squash,{qos})\n");
    Running::start(|config| {
        let ExportList::Files(files) = &config.exports else { panic!("a file") };
        std::fs::write(&files[0], &options).unwrap();
    })
}

fn client_from(server: &Running, host: u8, uid: u32) -> Pipeline {
    let owner = format!("client {host} {uid}").into_bytes();
    let source = Some([127, 0, 0, host].into());
    let identity = Identity { source, ..Identity::new(owner, Verifier([host; 8])) };
    let user = AuthSys { stamp: 0, machine_name: b"test".to_vec(), uid, gid: 0, gids: Vec::new() };
    Pipeline::connect(server.address, 1, 1, &identity, Box::new(Plain::sys(&user))).unwrap()
}

fn account(server: &Running, client: &str) -> QosStatus {
    server.status().qos.into_iter().find(|one| one.client == client).unwrap()
}

fn call_once(pipeline: &mut Pipeline) {
    load(pipeline, 1, |_, call, w| walk(&["data"], call, w), |_, _| Ok(()));
}

/// Without the reload, its calls would take a minute more than the test waits.
#[test]
fn held_client_leaves_others_alone_and_goes_on_after_reload() {
    let server = limited("qos=ops:10+burst:1s");
    let (mut greedy, mut other) = (client_from(&server, 1, 0), client_from(&server, 2, 0));
    load(
        &mut greedy,
        1500,
        |_, call, w| walk(&["data"], call, w),
        |number, _| {
            if number == 30 {
                call_once(&mut other);
                let held = account(&server, "127.0.0.1");
                assert!(held.held > 0 && held.ops_per_second == Some(10), "{held:?}");
                assert!((30..1500).contains(&held.operations), "{held:?}");
                let other = account(&server, "127.0.0.2");
                assert_eq!((other.operations, other.held, other.held_by), (1, 0, None));
                let list = server._directory.path().join("exports");
                std::fs::write(list, "/data *(rw,insecure,no_root_squash)\n").unwrap();
                let socket = state_directory::control_path(&server.state, None);
                status_client::reload(&socket).unwrap();
                assert!(server.status().qos.is_empty());
            }
            Ok(())
        },
    );
}

#[test]
fn holds_end_by_themselves() {
    let server = limited("qos=ops:100+burst:100ms");
    let mut client = client_from(&server, 1, 0);
    load(&mut client, 200, |_, call, w| walk(&["data"], call, w), |_, _| Ok(()));
    let account = account(&server, "127.0.0.1");
    assert_eq!(account.operations, 200);
    assert!(account.held > 0 && account.held_ms > 0, "{account:?}");
}

#[test]
fn users_of_one_host_have_accounts_of_their_own() {
    let server = limited("qos=ops:100+all-ops:150+by:principal");
    let (mut one, mut two) = (client_from(&server, 1, 1000), client_from(&server, 1, 1001));
    (0..3).for_each(|_| call_once(&mut one));
    call_once(&mut two);
    let operations = |client| account(&server, client).operations;
    assert_eq!(["uid 1000", "uid 1001", "all"].map(operations), [3, 1, 4]);
}

#[test]
fn server_with_held_client_stops() {
    let mut server = limited("qos=ops:10+burst:1ms");
    let mut client = client_from(&server, 1, 0);
    for number in 0..32 {
        client.submitter().submit(number, |call, w| walk(&["data"], call, w)).unwrap();
    }
    let mut replies = 0;
    while replies == 0 {
        client.poll(Some(Duration::from_secs(20)), |_, _, _| replies += 1).unwrap();
    }
    server.stop().unwrap();
}
