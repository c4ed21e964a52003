//! 4.0: who may act on what somebody proven has opened.

use super::v40::{client, open, open_by, proven_client};
use super::*;

fn heard(world: &mut World, stateid: &Stateid, caller: Option<&str>) -> Result<(), Status> {
    world.state.heard_by(stateid, caller.map(Arc::from).as_ref(), world.now)
}

fn silent_ms(world: &World) -> u64 {
    world.state.status(world.now).clients[0].silent_ms
}

#[test]
fn what_was_opened_by_a_proven_user_serves_him_and_his_machine_and_renews_for_nobody_else() {
    let mut world = World::new();
    let peer = proven_client(&mut world);
    let stateid = open_by(&mut world, &peer, "alice's", Some("alice@R"));
    world.pass(1000);
    for stranger in [Some("mallory@R"), Some("alice@S"), None] {
        assert_eq!(heard(&mut world, &stateid, stranger), Err(Status::ACCESS));
    }
    // Rights are judged elsewhere; the lease is none of a stranger's.
    assert!(world.state.io(None, &stateid, &file(1), Io::Read, world.now).is_ok());
    assert_eq!(silent_ms(&world), 1000);
    for one in ["alice@R", "host/a@R"] {
        assert_eq!((heard(&mut world, &stateid, Some(one)), silent_ms(&world)), (Ok(()), 0));
        world.pass(1000);
    }
    // A mount of the same client under AUTH_SYS.
    let said = open_by(&mut world, &peer, "somebody's", None);
    assert_eq!([None, Some("mallory@R")].map(|caller| heard(&mut world, &said, caller)), [Ok(()); 2]);
}

#[test]
fn a_lock_owner_is_its_openers_also_where_its_name_is_known() {
    let mut world = World::new();
    let peer = proven_client(&mut world);
    let stateid = open_by(&mut world, &peer, "alice's", Some("alice@R"));
    let by = LockBy::New { open: &stateid, owner: b"l", seq: vouch_nfs4::OwnerSeq(1) };
    let range = Range::new(0, 10).unwrap();
    let call = LockCall { client: None, file: file(1), by, range, mode: Mode::Exclusive, wait: false, reclaim: false };
    let lock = world.state.lock(&call, world.now).unwrap();
    assert_eq!(heard(&mut world, &lock, Some("mallory@R")), Err(Status::ACCESS));
    let admits = |world: &mut World, name: &[u8], caller: &str| world.state.lock_owner_admits(peer.client, name, Some(&caller.into()));
    assert_eq!(admits(&mut world, b"l", "mallory@R"), Err(Status::ACCESS));
    for (name, caller) in [(&b"l"[..], "alice@R"), (b"l", "host/a@R"), (b"new", "mallory@R")] {
        assert_eq!(admits(&mut world, name, caller), Ok(()), "{caller}");
    }
}

// Linux without a keytab introduces itself under AUTH_SYS.
#[test]
fn users_of_a_client_that_is_not_proven_are_told_apart_by_what_they_prove() {
    let mut world = World::new();
    let peer = client(&mut world, "said");
    let stateid = open_by(&mut world, &peer, "alice's", Some("alice@R"));
    assert_eq!(heard(&mut world, &stateid, Some("mallory@R")), Err(Status::ACCESS));
    assert_eq!([Some("alice@R"), None].map(|caller| heard(&mut world, &stateid, caller)), [Ok(()); 2]);
    let mut world = World::new();
    let peer = client(&mut world, "said");
    let stateid = open(&mut world, &peer);
    assert_eq!([None, Some("mallory@R")].map(|caller| heard(&mut world, &stateid, caller)), [Ok(()); 2]);
}
