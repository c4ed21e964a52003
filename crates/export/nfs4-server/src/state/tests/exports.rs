use super::*;

const OTHER: u8 = OTHER_EXPORT | 1;

const READ: u32 = 1;
const BOTH: u32 = 3;

#[test]
fn share_reservations_conflict_across_exports() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    fixture.open(&a, 1, READ, READ).unwrap();
    assert_eq!(fixture.open(&b, OTHER, READ, 0), Err(Status::SHARE_DENIED));
    fixture.open(&b, OTHER_EXPORT | 2, READ, 0).unwrap();
    let anonymous = fixture.io(&b, &Stateid::ANONYMOUS, OTHER, Io::Read);
    assert!(matches!(anonymous, Err(Status::LOCKED)), "{anonymous:?}");
}

#[test]
fn lock_conflicts_across_exports_notify_waiter_by_own_handle() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let (first, second) =
        (fixture.open(&a, 1, BOTH, 0).unwrap(), fixture.open(&b, OTHER, BOTH, 0).unwrap());
    let held_lock = fixture.lock(&a, &first, "l", 1, (0, 10), Mode::Exclusive).unwrap();
    let denied = fixture.lock_call(&b, &second, "m", OTHER, (5, 1), Mode::Shared, true, false);
    assert!(matches!(denied, Err(LockError::Denied(_))), "{denied:?}");
    fixture.unlock(&a, &held_lock, 1, (0, 10)).unwrap();
    let notified = fixture.callbacks();
    let [CallbackOp::NotifyLock { file: notified, .. }] =
        &notified.iter().map(|callback| callback.op.clone()).collect::<Vec<_>>()[..]
    else {
        panic!("{notified:?}")
    };
    assert_eq!((notified.export, notified.file), (file(OTHER).export, file(OTHER).file));
    fixture.lock(&b, &second, "m", OTHER, (5, 1), Mode::Shared).unwrap();
}

#[test]
fn recall_uses_filehandle_of_granting_export() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let opened = fixture.open_as(&a, "o", 1, share(BOTH, 0), Claim::New, Want::Write).unwrap();
    assert!(matches!(opened.delegation, Granted::Write(_)), "{opened:?}");
    assert_eq!(fixture.open(&b, OTHER, READ, 0), Err(Status::DELAY));
    let recalled = fixture.callbacks();
    let CallbackOp::Recall { file: notified, .. } = recalled[0].op else { panic!("{recalled:?}") };
    assert_eq!((notified.export, notified.file), (file(1).export, file(1).file));
}

#[test]
fn own_open_through_other_export_recalls_delegation() {
    let (mut fixture, [a]) = Fixture::with_peers(["a"]);
    let opened = fixture.open_as(&a, "o", 1, share(BOTH, 0), Claim::New, Want::Write).unwrap();
    let Granted::Write(delegation) = opened.delegation else { panic!("{opened:?}") };
    assert_eq!(fixture.open(&a, OTHER, READ, 0), Err(Status::DELAY));
    assert!(matches!(fixture.callbacks()[0].op, CallbackOp::Recall { .. }));
    fixture.return_delegation(&a, &delegation, 1).unwrap();
    fixture.open(&a, OTHER, READ, 0).unwrap();
    let refused = fixture
        .open_as(&a, "p", OTHER_EXPORT | 1, share(BOTH, 0), Claim::New, Want::Write)
        .unwrap();
    assert!(matches!(refused.delegation, Granted::Refused(_)), "{refused:?}");
}

#[test]
fn stateid_is_valid_only_through_granting_export() {
    let (mut fixture, [a]) = Fixture::with_peers(["a"]);
    let through_first = fixture.open(&a, 1, BOTH, 0).unwrap();
    let write = |fixture: &mut Fixture, stateid: &Stateid, number| {
        fixture.io(&a, stateid, number, Io::Write).is_ok()
    };
    assert!(write(&mut fixture, &through_first, 1) && !write(&mut fixture, &through_first, OTHER));
    let through_other = fixture.open(&a, OTHER, READ, 0).unwrap();
    assert_ne!(through_first.other, through_other.other);
    assert!(!write(&mut fixture, &through_other, OTHER));
    fixture.close(&a, &through_first, 1).unwrap();
    assert!(fixture.io(&a, &through_other, OTHER, Io::Read).is_ok());
}

#[test]
fn removed_export_ends_only_its_own_state() {
    let (mut fixture, [a, b, c]) = Fixture::with_peers(["a", "b", "c"]);
    let (first, second) =
        (fixture.open(&a, 1, BOTH, 0).unwrap(), fixture.open(&b, OTHER, BOTH, 0).unwrap());
    fixture.lock(&a, &first, "l", 1, (0, 10), Mode::Exclusive).unwrap();
    assert!(fixture.wait_for_lock(&b, &second, "m", OTHER, (5, 1)).is_err());
    let opened = fixture.open_as(&c, "o", 2, share(BOTH, 0), Claim::New, Want::Write).unwrap();
    let Granted::Write(delegation) = opened.delegation else { panic!("{opened:?}") };
    fixture.callbacks();
    let dropped: Vec<Holding> = fixture
        .state
        .holdings(0)
        .unwrap()
        .into_iter()
        .filter(|entry| entry.export() == ExportId(1))
        .collect();
    assert!(fixture.state.holdings(HOLDINGS_AT_ONCE).is_none());
    fixture.state.end_waits(&dropped, fixture.now);
    for ended in [3, 0] {
        let end = |_, _| ClientEnd::ByAdministrator;
        assert_eq!(fixture.state.end_holdings(&dropped, fixture.now, Loss::Revoked, end), ended);
    }
    assert!(matches!(fixture.callbacks()[0].op, CallbackOp::NotifyLock { .. }));
    fixture.lock(&b, &second, "m", OTHER, (5, 1), Mode::Exclusive).unwrap();
    assert!(matches!(fixture.io(&a, &first, 1, Io::Read), Err(Status::ADMIN_REVOKED)));
    assert!(matches!(fixture.io(&c, &delegation, 2, Io::Read), Err(Status::DELEG_REVOKED)));
    assert!(fixture.io(&b, &second, OTHER, Io::Read).is_ok());
    assert!(
        fixture
            .renew_lease(&mut { c })
            .unwrap()
            .contains(vouch_nfs4::op::SequenceFlags::RECALLABLE_STATE_REVOKED)
    );
    assert_eq!(fixture.open_files(), 1);
}
