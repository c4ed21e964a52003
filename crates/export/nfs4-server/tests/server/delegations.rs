//! RFC 8881 §10.4.3; RFC 9754.

use vouch_nfs4::op::{Delegation, OpenResultFlags};
use vouch_nfs4::{CallbackHead, ChangeId, Fattr, ReplyWriter, Time, cb};
use vouch_oncrpc::{Accepted, Reply};

use crate::name_order::with_call_blocked;
use crate::prelude::*;

pub(crate) fn open_with_want(
    client: &mut Client<'_>,
    want: ShareAccess,
    attrs: Option<&Packed>,
) -> (Stateid, OpenResultFlags, Delegation<'static>) {
    let how = attrs.map_or(op::OpenHow::NoCreate, |attrs| {
        op::OpenHow::Create(op::CreateHow::Unchecked(attrs.fattr()))
    });
    let (_, list) = client.run_at(
        &["export"],
        &[open(ShareAccess::BOTH | want, how, op::OpenClaim::Null(Name(b"f")))],
    );
    let [Results::Open(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    (ok.stateid, ok.flags, ok.delegation)
}

pub(crate) fn bind_backchannel(client: &Client<'_>) {
    let args = op::BindConnArgs {
        session: client.session,
        dir: op::ChannelDirClient::BackOrBoth,
        rdma: false,
    };
    assert_eq!(client.send(&[Args::BindConnToSession(args)]).0, Status::OK);
}

fn getattr_reply(record: &[u8], attrs: Fattr<'_>) -> Vec<u8> {
    let call = vouch_oncrpc::Call::decode(record).expect("a callback is a call");
    let mut r = Reader::new(call.args);
    let head = CallbackHead::decode(&mut r).unwrap();
    let Ok(cb::Args::Sequence(sequence)) = cb::Args::decode(head.minor, &mut r) else {
        panic!("CB_SEQUENCE comes first")
    };
    let Ok(cb::Args::Getattr(_)) = cb::Args::decode(head.minor, &mut r) else {
        panic!("CB_GETATTR comes next")
    };
    let ok = cb::CbSequenceOk {
        session: sequence.session,
        seq: sequence.seq,
        slot: sequence.slot,
        highest_slot: sequence.highest_slot,
        target_highest_slot: sequence.highest_slot,
    };
    let mut w = Writer::new();
    Reply::accepted(call.xid, Accepted::Success(&[])).encode(&mut w);
    let reply = ReplyWriter::begin(&mut w, head.tag);
    cb::Results::Sequence(Ok(ok)).encode(&mut w);
    cb::Results::Getattr(Ok(cb::CbGetattrOk { attrs })).encode(&mut w);
    reply.finish(&mut w, Status::OK, 2);
    w.into_bytes()
}

const TIMES: [u32; 2] = [84, 85];
const LATER: Time = Time { seconds: 1_700_000_000, nanoseconds: 5 };

#[test]
fn getattr_returns_answer_of_delegation_holder() {
    let fixture = Fixture::new();
    let [mut holder, mut other] = fixture.clients(["holder", "other"]);
    bind_backchannel(&holder);
    let (stateid, flags, delegation) = open_with_want(
        &mut holder,
        ShareAccess::WANT_WRITE_DELEG
            | ShareAccess::WANT_DELEG_TIMESTAMPS
            | ShareAccess::WANT_OPEN_XOR_DELEGATION,
        Some(&mode(0o644)),
    );
    assert!(stateid == Stateid::ANONYMOUS && flags.contains(OpenResultFlags::NO_OPEN_STATEID));
    let Delegation::WriteAttrs(delegation) = delegation else { panic!("{delegation:?}") };

    fixture.now_ms.store(5_000, std::sync::atomic::Ordering::Relaxed);
    let before = attributes(&holder.run_at(&["export", "f"], &[getattr(&[3, 4])]).1[0]);
    let change = ChangeId(before.change.unwrap().0 + 1);
    let answer = Attributes {
        change: Some(change),
        size: Some(77),
        time_deleg_access: Some(LATER),
        time_deleg_modify: Some(LATER),
        ..Attributes::default()
    };
    let answer = Packed::new(&[3, 4, 84, 85], &answer);
    let mut call = vec![
        other.next_sequence(false),
        Args::Putrootfh,
        lookup("export"),
        lookup("f"),
        getattr(&[3, 4, 47, 53]),
    ];
    let (connection, principal) = (&other.connection, &other.principal);
    let (reply, _) = fixture.call_with_effects(
        Flavour::Sys,
        connection,
        principal,
        compound(2, &call),
        answer_getattr(&fixture, &answer),
    );
    let list = expect_ok(results(reply));
    let seen = attributes(list.last().unwrap());
    assert_eq!((seen.change, seen.size), (Some(change), Some(77)));
    assert_eq!((seen.time_access, seen.time_modify), (Some(LATER), Some(LATER)));

    fixture.now_ms.store(9_000, std::sync::atomic::Ordering::Relaxed);
    call[0] = other.next_sequence(false);
    let (reply, effects) = other.call(&call);
    assert_eq!(results(reply).0, Status::DELAY);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Callback { .. })));

    let times = Attributes {
        time_deleg_access: Some(LATER),
        time_deleg_modify: Some(LATER),
        ..Attributes::default()
    };
    let times = Packed::new(&TIMES, &times);
    let set = |stateid| Args::Setattr(op::SetattrArgs { stateid, attrs: times.fattr() });
    assert_eq!(holder.status(&["export", "f"], &[set(Stateid::ANONYMOUS)]), Status::BAD_STATEID);
    let back = Args::Delegreturn(op::DelegreturnArgs { stateid: delegation.stateid });
    let list = expect_ok(
        holder.run_at(&["export", "f"], &[set(delegation.stateid), back, getattr(&[47, 53])]),
    );
    let seen = attributes(&list[2]);
    assert_eq!((seen.time_access, seen.time_modify), (Some(LATER), Some(LATER)));
}

fn answer_getattr<'a>(fixture: &'a Fixture, answer: &'a Packed) -> impl Fn(&[Effect]) + use<'a> {
    move |effects| {
        for effect in effects {
            let Effect::Callback { id, record, .. } = effect else { continue };
            fixture.server.callback_reply(
                *id,
                Ok(&getattr_reply(record, answer.fattr())),
                fixture.now(),
            );
        }
    }
}

const SIZE_AND_SPACE: [u32; 2] = [4, 42];

// The space is read after the size.
#[test]
fn attributes_show_what_holder_wrote_back_during_call() {
    for (path, asked) in [
        (&["export", "f"][..], getattr(&SIZE_AND_SPACE)),
        (&["export"], readdir(0, 4096, &SIZE_AND_SPACE)),
    ] {
        let fixture: &'static Fixture = Box::leak(Box::new(Fixture::new()));
        let [mut holder, mut other] = fixture.clients(["holder", "other"]);
        bind_backchannel(&holder);
        holder.create("before");
        let (_, _, delegation) =
            open_with_want(&mut holder, ShareAccess::WANT_WRITE_DELEG, Some(&mode(0o644)));
        let Delegation::Write(delegation) = delegation else { panic!("{delegation:?}") };
        let holder = Mutex::new(Some(holder));
        fixture.files.set_fault(move |call, _| {
            if call == Call::Space
                && let Some(mut holder) = holder.lock().take()
            {
                let back = Args::Delegreturn(op::DelegreturnArgs { stateid: delegation.stateid });
                let written = crate::ops::write(delegation.stateid, 0, b"data");
                expect_ok(holder.run_at(&["export", "f"], &[written, back]));
            }
            None
        });
        let unwritten =
            Attributes { change: Some(ChangeId(1)), size: Some(0), ..Attributes::default() };
        let unwritten = Packed::new(&[3, 4], &unwritten);
        let mut call = vec![other.next_sequence(false), Args::Putrootfh];
        call.extend(path.iter().map(|name| lookup(name)));
        call.push(asked);
        let (reply, _) = fixture.call_with_effects(
            Flavour::Sys,
            &other.connection,
            &other.principal,
            compound(2, &call),
            answer_getattr(fixture, &unwritten),
        );
        let list = results(reply).1;
        match list.last().unwrap() {
            Results::Readdir(Ok(listed)) => {
                let entry = listed.entries.iter().find(|entry| entry.name.0 == b"f").unwrap();
                assert_eq!(entry.attrs.attributes().unwrap().size, Some(4));
            }
            seen => assert_eq!(attributes(seen).size, Some(4)),
        }
    }
}

#[test]
fn readdir_and_nverify_ask_delegation_holder() {
    let fixture = Fixture::new();
    let [mut holder, mut other] = fixture.clients(["holder", "other"]);
    bind_backchannel(&holder);
    holder.create("before");
    let (_, _, delegation) =
        open_with_want(&mut holder, ShareAccess::WANT_WRITE_DELEG, Some(&mode(0o644)));
    assert!(matches!(delegation, Delegation::Write(_)), "{delegation:?}");
    let answer =
        Attributes { change: Some(ChangeId(1 << 60)), size: Some(77), ..Attributes::default() };
    let answer = Packed::new(&[3, 4], &answer);
    let call_as =
        |client: &mut Client<'_>, path: &[&str], op: Args<'static>, answer: &dyn Fn(&[Effect])| {
            let mut call = vec![client.next_sequence(false), Args::Putrootfh];
            call.extend(path.iter().map(|part| {
                Args::Lookup(op::LookupArgs { name: Name(part.as_bytes().to_vec().leak()) })
            }));
            call.push(op);
            let (reply, effects) = fixture.call_with_effects(
                Flavour::Sys,
                &client.connection,
                &client.principal,
                compound(2, &call),
                answer,
            );
            let (status, mut list) = results(reply);
            (status, list.pop().expect("a reply has results"), effects.len())
        };
    let sizes = |result: &Results<'static>| {
        let Results::Readdir(Ok(ok)) = result else { panic!("{result:?}") };
        let entries = ok.entries.iter().map(|entry| {
            (entry.name.0.to_vec(), entry.attrs.attributes().expect("valid attributes"))
        });
        entries
            .map(|(name, attrs)| (String::from_utf8(name).unwrap(), attrs.size, attrs.rdattr_error))
            .collect::<Vec<_>>()
    };
    for (client, wanted) in [(&mut holder, &[3, 4][..]), (&mut other, &[1, 33])] {
        let (status, _, callbacks) =
            call_as(client, &["export"], readdir(0, 4096, wanted), &|effects| {
                assert!(effects.is_empty(), "unexpected callback")
            });
        assert_eq!((status, callbacks), (Status::OK, 0));
    }
    let (status, listed, callbacks) = call_as(
        &mut other,
        &["export"],
        readdir(0, 4096, &[3, 4, 11]),
        &answer_getattr(&fixture, &answer),
    );
    assert_eq!((status, callbacks), (Status::OK, 1), "{listed:?}");
    let seen = sizes(&listed);
    assert!(
        seen.contains(&("f".into(), Some(77), Some(Status::OK)))
            && seen.contains(&("before".into(), Some(0), Some(Status::OK))),
        "{seen:?}"
    );

    fixture.now_ms.store(5_000, std::sync::atomic::Ordering::Relaxed);
    let compared = size(77);
    let compared: &'static Packed = Box::leak(Box::new(compared));
    let (status, ..) = call_as(
        &mut other,
        &["export", "f"],
        Args::Nverify(op::VerifyArgs { attrs: compared.fattr() }),
        &answer_getattr(&fixture, &answer),
    );
    assert_eq!(status, Status::SAME);

    fixture.now_ms.store(9_000, std::sync::atomic::Ordering::Relaxed);
    let (status, listed, _) =
        call_as(&mut other, &["export"], readdir(0, 4096, &[3, 4, 11]), &|_| ());
    let seen = sizes(&listed);
    assert_eq!(status, Status::OK);
    assert!(
        seen.contains(&("f".into(), None, Some(Status::DELAY)))
            && seen.contains(&("before".into(), Some(0), Some(Status::OK))),
        "{seen:?}"
    );
}

#[test]
fn delegated_times_move_forward_and_never_beyond_now() {
    let fixture = Fixture::new();
    let mut holder = Client::new(&fixture, "holder", 0);
    bind_backchannel(&holder);
    let (_, _, delegation) = open_with_want(
        &mut holder,
        ShareAccess::WANT_WRITE_DELEG | ShareAccess::WANT_DELEG_TIMESTAMPS,
        Some(&mode(0o644)),
    );
    let Delegation::WriteAttrs(delegation) = delegation else { panic!("{delegation:?}") };
    let first = Attributes {
        time_modify_set: Some(vouch_nfs4::SetTime::Client(Time { seconds: 1_000, nanoseconds: 0 })),
        ..Attributes::default()
    };
    let first = Packed::new(&[54], &first);
    fn set(stateid: Stateid, attrs: &Packed) -> Args<'_> {
        Args::Setattr(op::SetattrArgs { stateid, attrs: attrs.fattr() })
    }
    assert_eq!(holder.status(&["export", "f"], &[set(delegation.stateid, &first)]), Status::OK);
    for (seconds, expected) in [(999, 1_000), (i64::MAX, 1_700_000_001)] {
        let times = Attributes {
            time_deleg_modify: Some(Time { seconds, nanoseconds: 0 }),
            ..Attributes::default()
        };
        let times = Packed::new(&[85], &times);
        let list = expect_ok(
            holder.run_at(&["export", "f"], &[set(delegation.stateid, &times), getattr(&[53])]),
        );
        assert_eq!(attributes(&list[1]).time_modify.unwrap().seconds, expected);
    }
}

// Only a user who may set the times, and only in 4.2 (RFC 9754 §5 and 3).
#[test]
fn timestamp_delegation_requires_owner_and_minor_version_2() {
    let fixture = Fixture::new();
    let wanted = ShareAccess::WANT_WRITE_DELEG | ShareAccess::WANT_DELEG_TIMESTAMPS;
    let close = |client: &mut Client<'_>, stateid| {
        let args = op::CloseArgs { seq: OwnerSeq(0), stateid };
        assert_eq!(client.status(&["export", "f"], &[Args::Close(args)]), Status::OK);
    };
    let mut root = Client::new(&fixture, "root", 0);
    let (stateid, ..) = open_with_want(&mut root, ShareAccess::WANT_NO_DELEG, Some(&mode(0o666)));
    close(&mut root, stateid);
    let mut stranger = Client::new(&fixture, "stranger", 4321);
    bind_backchannel(&stranger);
    let (stateid, _, delegation) = open_with_want(&mut stranger, wanted, None);
    let Delegation::Write(delegation) = delegation else { panic!("{delegation:?}") };
    let back = Args::Delegreturn(op::DelegreturnArgs { stateid: delegation.stateid });
    assert_eq!(stranger.status(&["export", "f"], &[back]), Status::OK);
    close(&mut stranger, stateid);
    let mut old = Client::new(&fixture, "old", 0);
    old.minor = 1;
    bind_backchannel(&old);
    let (_, flags, delegation) =
        open_with_want(&mut old, wanted | ShareAccess::WANT_OPEN_XOR_DELEGATION, None);
    assert!(!flags.contains(OpenResultFlags::NO_OPEN_STATEID));
    assert!(
        !matches!(delegation, Delegation::WriteAttrs(_) | Delegation::ReadAttrs(_)),
        "{delegation:?}"
    );
    let arguments = |client: &mut Client<'_>| {
        attributes(&client.run_at(&["export"], &[getattr(&[86])]).1[0]).open_arguments
    };
    assert_eq!(arguments(&mut old), None);
    let arguments = arguments(&mut stranger).expect("4.2 has open_arguments");
    assert!(arguments.share_access_want.has(20) && arguments.share_access_want.has(21));
}

fn recall_count(effects: &[Effect]) -> usize {
    let is_recall = |record: &[u8]| {
        let call = vouch_oncrpc::Call::decode(record).expect("a callback is a call");
        let mut r = Reader::new(call.args);
        let head = CallbackHead::decode(&mut r).unwrap();
        (0..head.count)
            .any(|_| matches!(cb::Args::decode(head.minor, &mut r), Ok(cb::Args::Recall(_))))
    };
    effects
        .iter()
        .filter(|effect| matches!(effect, Effect::Callback { record, .. } if is_recall(record)))
        .count()
}

// An OPEN that truncates writes, whatever access it requests (RFC 8881 §10.4.4 and 18.16.3).
#[test]
fn truncating_open_recalls_delegations_of_others() {
    let write = |stateid| write(stateid, 0, b"data");
    for (access, want) in [
        (ShareAccess::READ, ShareAccess::WANT_READ_DELEG),
        (ShareAccess::BOTH, ShareAccess::WANT_WRITE_DELEG),
    ] {
        let fixture = Fixture::new();
        let [mut holder, mut other] = fixture.clients(["holder", "other"]);
        let mut creator = Client::new(&fixture, "creator", 0);
        let stateid = creator.create("f");
        assert_eq!(creator.status(&["export", "f"], &[write(stateid), close(stateid)]), Status::OK);
        fixture.now_ms.store(60_000, std::sync::atomic::Ordering::Relaxed);
        for client in [&mut holder, &mut other] {
            assert_eq!(client.run(&[]).0, Status::OK);
        }
        bind_backchannel(&holder);
        let opening = |access, how| open(access, how, op::OpenClaim::Null(Name(b"f")));
        let (_, list) =
            holder.run_at(&["export"], &[opening(access | want, op::OpenHow::NoCreate)]);
        let [Results::Open(Ok(opened))] = &list[..] else { panic!("{list:?}") };
        let delegation = match &opened.delegation {
            Delegation::Read(read) => read.stateid,
            Delegation::Write(write) => write.stateid,
            other => panic!("{other:?}"),
        };
        let empty = size(0);
        let truncate = || {
            opening(ShareAccess::READ, op::OpenHow::Create(op::CreateHow::Unchecked(empty.fattr())))
        };
        let size = |client: &mut Client<'_>| {
            attributes(&client.run_at(&["export", "f"], &[getattr(&[4])]).1[0]).size
        };
        let ops = [other.next_sequence(false), Args::Putrootfh, lookup("export"), truncate()];
        let (reply, effects) = other.call(&ops);
        assert_eq!((results(reply).0, recall_count(&effects)), (Status::DELAY, 1));
        assert_eq!(size(&mut holder), Some(4), "no truncation before the delegation is returned");
        let back = Args::Delegreturn(op::DelegreturnArgs { stateid: delegation });
        assert_eq!(holder.status(&["export", "f"], &[back]), Status::OK);
        assert_eq!(other.status(&["export"], &[truncate()]), Status::OK);
        assert_eq!(size(&mut holder), Some(0));
    }
}

#[test]
fn truncating_open_keeps_own_delegation() {
    let fixture = Fixture::new();
    let mut holder = Client::new(&fixture, "holder", 0);
    bind_backchannel(&holder);
    let empty = size(0);
    for _ in 0..2 {
        let (_, _, delegation) =
            open_with_want(&mut holder, ShareAccess::WANT_WRITE_DELEG, Some(&empty));
        assert!(!matches!(delegation, Delegation::Read(_)), "{delegation:?}");
    }
}

// Another file may get the name between the lookup of a change and the change (RFC 8881 §10.4.4).
#[test]
fn changes_of_names_recall_delegations_granted_meanwhile() {
    let renaming: &[Args<'_>] = &[Args::Savefh, rename("a", "f")];
    for (call, change) in [(Call::Rename, renaming), (Call::Remove, &[remove("f")])] {
        let fixture = Fixture::new();
        let [mut holder, mut other] = fixture.clients(["holder", "other"]);
        for name in ["a", "f", "g"] {
            let stateid = other.create(name);
            assert_eq!(other.status(&["export", name], &[close(stateid)]), Status::OK);
        }
        fixture.now_ms.store(60_000, std::sync::atomic::Ordering::Relaxed);
        for client in [&mut holder, &mut other] {
            assert_eq!(client.run(&[]).0, Status::OK);
        }
        bind_backchannel(&holder);
        let mut stateid = None;
        let status = with_call_blocked(&fixture, &mut other, call, change, || {
            let moving = [Args::Savefh, rename("g", "f")];
            assert_eq!(holder.status(&["export"], &moving), Status::OK);
            let opened = open_with_want(&mut holder, ShareAccess::WANT_WRITE_DELEG, None);
            let Delegation::Write(delegation) = opened.2 else { panic!("{opened:?}") };
            stateid = Some(delegation.stateid);
        });
        assert_eq!(status, Status::DELAY, "{call:?}");
        let back = Args::Delegreturn(op::DelegreturnArgs { stateid: stateid.unwrap() });
        assert_eq!(holder.status(&["export", "f"], &[back]), Status::OK);
        assert_eq!(other.status(&["export"], change), Status::OK);
    }
}
