//! One file by two exports: what is held by one path is heeded at the other, serves there alone,
//! and goes with its export.

use super::*;

/// The file by another export.
const OTHER: u8 = BY_ANOTHER | 1;

const READ: u32 = 1;
const BOTH: u32 = 3;

#[test]
fn opens_of_one_file_by_two_exports_deny_each_other() {
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    world.open(&a, 1, READ, READ).unwrap();
    assert_eq!(world.open(&b, OTHER, READ, 0), Err(Status::SHARE_DENIED));
    world.open(&b, BY_ANOTHER | 2, READ, 0).unwrap();
    let anonymous = world.state.io(Some(b.client), &Stateid::ANONYMOUS, &file(OTHER), Io::Read, 0);
    assert!(matches!(anonymous, Err(Status::LOCKED)), "{anonymous:?}");
}

#[test]
fn locks_of_one_file_by_two_exports_conflict_and_who_waits_is_told_by_his_own_handle() {
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let (first, second) = (world.open(&a, 1, BOTH, 0).unwrap(), world.open(&b, OTHER, BOTH, 0).unwrap());
    let held = world.lock(&a, &first, "l", 1, (0, 10), Mode::Exclusive).unwrap();
    let denied = world.lock_call(&b, &second, "m", OTHER, (5, 1), Mode::Shared, true, false);
    assert!(matches!(denied, Err(LockError::Denied(_))), "{denied:?}");
    let range = Range::new(0, 10).unwrap();
    world.state.unlock(Some(a.client), &held, &file(1), range, world.now).unwrap();
    let told = world.callbacks();
    let [CallbackOp::NotifyLock { file: told, .. }] = &told.iter().map(|callback| callback.op.clone()).collect::<Vec<_>>()[..] else {
        panic!("{told:?}")
    };
    assert_eq!((told.export, told.file), (file(OTHER).export, file(OTHER).file));
    world.lock(&b, &second, "m", OTHER, (5, 1), Mode::Shared).unwrap();
}

#[test]
fn a_delegation_is_recalled_from_whoever_has_it_by_the_handle_that_it_was_given_with() {
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let opened = world.open_as(&a, "o", 1, share(BOTH, 0), Claim::New, Want::Write).unwrap();
    assert!(matches!(opened.delegation, Granted::Write(_)), "{opened:?}");
    assert_eq!(world.open(&b, OTHER, READ, 0), Err(Status::DELAY));
    let recalled = world.callbacks();
    let CallbackOp::Recall { file: told, .. } = recalled[0].op else { panic!("{recalled:?}") };
    assert_eq!((told.export, told.file), (file(1).export, file(1).file));
}

#[test]
fn a_client_that_knows_a_file_by_two_exports_has_no_delegation_by_one_against_the_other() {
    let mut world = World::new();
    let a = world.peer("a");
    let opened = world.open_as(&a, "o", 1, share(BOTH, 0), Claim::New, Want::Write).unwrap();
    let Granted::Write(delegation) = opened.delegation else { panic!("{opened:?}") };
    // What it has written may lie in the cache that it has of the other path.
    assert_eq!(world.open(&a, OTHER, READ, 0), Err(Status::DELAY));
    assert!(matches!(world.callbacks()[0].op, CallbackOp::Recall { .. }));
    world.state.return_delegation(Some(a.client), &delegation, &file(1), 0).unwrap();
    world.open(&a, OTHER, READ, 0).unwrap();
    let refused = world.open_as(&a, "p", BY_ANOTHER | 1, share(BOTH, 0), Claim::New, Want::Write).unwrap();
    assert!(matches!(refused.delegation, Granted::Refused(_)), "{refused:?}");
}

#[test]
fn a_stateid_serves_by_the_export_that_granted_it_alone() {
    let mut world = World::new();
    let a = world.peer("a");
    let by_one = world.open(&a, 1, BOTH, 0).unwrap();
    let write = |world: &mut World, stateid: &Stateid, number| world.state.io(Some(a.client), stateid, &file(number), Io::Write, 0).is_ok();
    assert!(write(&mut world, &by_one, 1) && !write(&mut world, &by_one, OTHER));
    // The same owner's open by the other is another one, with rights of its own.
    let by_other = world.open(&a, OTHER, READ, 0).unwrap();
    assert_ne!(by_one.other, by_other.other);
    assert!(!write(&mut world, &by_other, OTHER));
    world.state.close(Some(a.client), &by_one, &file(1), 0).unwrap();
    assert!(world.state.io(Some(a.client), &by_other, &file(OTHER), Io::Read, 0).is_ok());
}

#[test]
fn what_was_granted_by_an_export_goes_with_it_and_the_rest_stays() {
    let mut world = World::new();
    let (a, b, c) = (world.peer("a"), world.peer("b"), world.peer("c"));
    let (first, second) = (world.open(&a, 1, BOTH, 0).unwrap(), world.open(&b, OTHER, BOTH, 0).unwrap());
    world.lock(&a, &first, "l", 1, (0, 10), Mode::Exclusive).unwrap();
    assert!(world.lock_call(&b, &second, "m", OTHER, (5, 1), Mode::Exclusive, true, false).is_err());
    let opened = world.open_as(&c, "o", 2, share(BOTH, 0), Claim::New, Want::Write).unwrap();
    let Granted::Write(delegation) = opened.delegation else { panic!("{opened:?}") };
    world.callbacks();
    let lost: Vec<Holding> = world.state.holdings(0).unwrap().into_iter().filter(|held| held.export() == ExportId(1)).collect();
    assert!(world.state.holdings(HOLDINGS_AT_ONCE).is_none());
    world.state.end_waits(&lost, world.now);
    assert_eq!(world.state.end_holdings(&lost, world.now), 3);
    assert_eq!(world.state.end_holdings(&lost, world.now), 0);
    // Who waited by the export that stays is told, and is let in.
    assert!(matches!(world.callbacks()[0].op, CallbackOp::NotifyLock { .. }));
    world.lock(&b, &second, "m", OTHER, (5, 1), Mode::Exclusive).unwrap();
    let gone = |world: &mut World, client, stateid: &Stateid, number| world.state.io(Some(client), stateid, &file(number), Io::Read, 0);
    assert!(matches!(gone(&mut world, a.client, &first, 1), Err(Status::BAD_STATEID)));
    assert!(matches!(gone(&mut world, c.client, &delegation, 2), Err(Status::DELEG_REVOKED)));
    assert!(gone(&mut world, b.client, &second, OTHER).is_ok());
    assert!(world.beat(&mut { c }).unwrap().contains(vouch_nfs4::op::SequenceFlags::RECALLABLE_STATE_REVOKED));
    // Nothing of it keeps a file open.
    assert_eq!(world.open_files(), 1);
}
