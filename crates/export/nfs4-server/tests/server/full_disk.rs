use crate::prelude::*;

/// Of a WRITE, bytes.
const PART_LEN: usize = 512 << 10;
const SPACE_LEN: u64 = 8 << 20;

/// A client that holds a removed file of 6 MiB of 8, and a lock on a file that has its name.
fn with_holder(
    quota: Option<u64>,
) -> (&'static Fixture, Client<'static>, Client<'static>, [Stateid; 2]) {
    let files = Arc::new(MemoryFs::new());
    files.set_capacity(if quota.is_some() { 1 << 30 } else { SPACE_LEN });
    let limited = Export { quota, ..export(7, &["export"], &files, sys_access()) };
    let fixture: &'static Fixture =
        Box::leak(Box::new(Fixture::with_exports(files, vec![limited])));
    assert!(fixture.server.apply_quotas().is_empty());
    let mut holder = Client::new(fixture, "one", 0);
    let (removed, kept) = (holder.create("removed"), holder.create("kept"));
    let part = vec![7; PART_LEN];
    for at in 0..12 {
        let write = write(removed, at * PART_LEN as u64, &part);
        assert_eq!(holder.status(&["export", "removed"], &[write]), Status::OK);
    }
    assert_eq!(holder.status(&["export"], &[remove("removed")]), Status::OK);
    let other = Client::new(fixture, "other", 0);
    (fixture, holder, other, [removed, kept])
}

/// Its status, and whether the thread of the connection had to give it away.
fn write_six(client: &mut Client<'_>, stateid: Stateid) -> (Vec<Status>, bool) {
    let part = vec![8; PART_LEN];
    let mut has_waited = false;
    let statuses = (0..6).map(|at| {
        let mut call = client.begin(&[lookup("new"), write(stateid, at * PART_LEN as u64, &part)]);
        let mut run = call.run(&client.fixture.server, Blocking::Forbidden);
        if matches!(run.progress, Progress::Blocked(_)) {
            has_waited = true;
            run = call.run(&client.fixture.server, Blocking::Allowed);
        }
        let Progress::Done(Some(reply)) = run.progress else { panic!("no reply") };
        results(reply.bytes[28..].to_vec()).0
    });
    (statuses.collect(), has_waited)
}

#[test]
fn removed_file_of_expired_client_makes_room_before_error() {
    for (quota, full) in [(None, Status::NOSPC), (Some(SPACE_LEN), Status::DQUOT)] {
        let (fixture, mut holder, mut other, [removed, kept]) = with_holder(quota);
        let new = other.create("new");
        // Not of a client that has its lease.
        let half_full = [[Status::OK; 4].as_slice(), &[full; 2]].concat();
        assert_eq!(write_six(&mut other, new), (half_full, false));
        fixture.advance(6_000);
        assert_eq!(other.status(&["export"], &[]), Status::OK, "its lease lives");
        fixture.advance(5_000);
        assert_eq!(fixture.files.open_count(), 3);
        assert_eq!(write_six(&mut other, new), (vec![Status::OK; 6], true));
        assert_eq!(fixture.files.open_count(), 2, "the file is closed, and no other");
        // The client comes back, and has lost that file alone.
        let read_of = |stateid| read(stateid, 0, 10);
        assert_eq!(holder.status(&["export", "kept"], &[read_of(kept)]), Status::OK);
        let lost = holder.status(&["export", "kept"], &[read_of(removed)]);
        assert_eq!(lost, Status::EXPIRED);
    }
}

#[test]
fn space_and_quota_attributes_show_limit_of_export() {
    let (_fixture, _holder, mut other, _) = with_holder(Some(SPACE_LEN));
    const WANTED: [u32; 6] = [38, 39, 40, 42, 43, 44];
    let values = attributes(&other.run_at(&["export"], &[getattr(&WANTED)]).1[0]);
    let (used, left) = (6 << 20, SPACE_LEN - (6 << 20));
    let quota = (values.quota_avail_hard, values.quota_avail_soft, values.quota_used);
    assert_eq!(quota, (Some(left), Some(left), Some(used)));
    let space = (values.space_avail, values.space_free, values.space_total);
    assert_eq!(space, (Some(left), Some(left), Some(SPACE_LEN)));
}

#[test]
fn create_is_retried_before_4_0_owner_gets_its_answer() {
    let (fixture, _holder, _, _) = with_holder(None);
    expire_holder(fixture);
    let (connection, user) = (fixture.connect(), user(0));
    let call = |ops: &[Args<'_>]| results(fixture.call(&connection, &user, compound(0, ops)).0);
    let list = expect_ok(call(&[setclientid("c")]));
    let [Results::Setclientid(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    let confirm = op::SetclientidConfirmArgs { client: ok.client, confirm: ok.confirm };
    expect_ok(call(&[Args::SetclientidConfirm(confirm)]));
    // On the connection's thread, and on one that may block.
    let calls = AtomicUsize::new(0);
    fixture.files.set_fault(move |call, _| {
        let fails = call == Call::Create && calls.fetch_add(1, Ordering::Relaxed) < 2;
        fails.then_some(vouch_vfs::Error::NoSpace)
    });
    let attrs = mode(0o644);
    let how = OpenHow::Create(CreateHow::Guarded(attrs.fattr()));
    let claim = OpenClaim::Null(Name(b"new"));
    let open = open_as(ok.client, b"owner", 7, ShareAccess::BOTH, how, claim);
    let ops = [Args::Putrootfh, lookup("export"), open];
    assert_eq!(fixture.files.open_count(), 2);
    let first = expect_ok(call(&ops));
    assert_eq!(fixture.files.open_count(), 2, "one was closed, one is new");
    assert_eq!(expect_ok(call(&ops)), first, "a retry gets the same answer");
}

/// The lease is 10 s.
fn expire_holder(fixture: &Fixture) {
    fixture.advance(11_000);
}
