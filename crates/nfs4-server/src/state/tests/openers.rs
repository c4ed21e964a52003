//! 4.0: who may act on what somebody proven has opened.

use super::v40::{client, open, open_by, proven_client, try_open_by};
use super::*;
use crate::state::client::Dialect;

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
fn a_name_that_is_known_names_nobody_elses_owner() {
    let names = [None, Some("alice@R"), Some("mallory@R")].map(|caller| known_as(b"l", caller.map(Arc::from).as_ref()));
    assert!(names[0] != names[1] && names[0] != names[2] && names[1] != names[2]);
    // Nor one that looks like another's.
    assert_ne!(known_as(&names[1], None), names[1]);
    assert_ne!(known_as(&names[1][1..], Some(&"mallory@R".into())), names[1]);
    let mut world = World::new();
    let peer = proven_client(&mut world);
    for known in names {
        assert_eq!(&*world.state.told_name(peer.client, &known.into()), b"l");
    }
}

#[test]
fn who_only_names_a_client_renews_no_lease() {
    let mut world = World::new();
    let peer = proven_client(&mut world);
    open_by(&mut world, &peer, "alice's", Some("alice@R"));
    let id = world.state.status(world.now).clients[0].id;
    world.pass(1000);
    for (caller, silent) in [(Some("mallory@R"), 1000), (None, 1000), (Some("alice@R"), 0)] {
        assert_eq!(world.state.client_of_40(id, caller.map(Arc::from).as_ref(), world.now), Ok(peer.client));
        assert_eq!(silent_ms(&world), silent, "{caller:?}");
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

#[test]
fn a_stranger_who_opens_all_he_can_leaves_room_for_the_clients_own_users() {
    let mut config = config();
    config.limits.opens_per_client_max = 20;
    let mut world = World::with(config.clone(), &[]);
    let peer = proven_client(&mut world);
    let greedy = |world: &mut World, peer: &Peer, who: &str| {
        (0..100).take_while(|number| try_open_by(world, peer, &format!("{who}{number}"), Some(who)).is_ok()).count()
    };
    // Four fifths of what is left, each.
    assert_eq!((greedy(&mut world, &peer, "mallory@R"), greedy(&mut world, &peer, "alice@R")), (16, 4));
    // All, for who introduced it.
    let mut world = World::with(config, &[]);
    let peer = proven_client(&mut world);
    assert_eq!(greedy(&mut world, &peer, "host/a@R"), 20);
}

#[test]
fn a_stranger_who_locks_all_he_can_leaves_room_for_the_clients_own_users_and_what_ends_is_not_counted() {
    let mut config = config();
    config.limits.locks_per_client_max = 20;
    let mut world = World::with(config, &[]);
    let peer = proven_client(&mut world);
    let opens = ["mallory@R", "alice@R"].map(|who| open_by(&mut world, &peer, who, Some(who)));
    let greedy = |world: &mut World, who: usize| {
        let lock = |number: u64| {
            let name = format!("{who}-{number}");
            let by = LockBy::New { open: &opens[who], owner: name.as_bytes(), seq: vouch_nfs4::OwnerSeq(1) };
            let range = Range::new(number, 1).unwrap();
            let call = LockCall { client: None, file: file(1), by, range, mode: Mode::Shared, wait: false, reclaim: false };
            world.state.lock(&call, world.now).ok()
        };
        (0..100).map_while(lock).collect::<Vec<_>>()
    };
    let held = [0, 1].map(|who| greedy(&mut world, who));
    assert_eq!(held.each_ref().map(Vec::len), [16, 4]);
    for lock in held.iter().flatten() {
        world.state.unlock(None, lock, &file(1), Range::new(0, 100).unwrap(), world.now).unwrap();
    }
    let again = greedy(&mut world, 1);
    assert_eq!(again.len(), 16);
    for lock in &again {
        world.state.unlock(None, lock, &file(1), Range::new(0, 100).unwrap(), world.now).unwrap();
    }
    for open in &opens {
        world.state.close(None, open, &file(1), world.now).unwrap();
    }
    let Dialect::V40(v40) = &world.state.clients[peer.client].dialect else { panic!("it is one of 4.0") };
    assert!(v40.openers.is_empty(), "{:?}", v40.openers.values());
}
