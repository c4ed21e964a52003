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
