//! What the holder of a write delegation says about a file, to others and when it gives it back
//! (RFC 8881, section 10.4.3; RFC 9754).

use vouch_nfs4::op::{self, Args, Delegation, OpenResultFlags, Results, ShareAccess};
use vouch_nfs4::{
    Attributes, Bytes, CallbackHead, ChangeId, ClientId, Fattr, Name, OwnerSeq, ReplyWriter, StateOwner, Stateid, Status, Time, cb,
};
use vouch_nfs4_server::{Effect, Flavour};
use vouch_oncrpc::{Accepted, Call, Reply};
use vouch_xdr::{Reader, Writer};

use crate::world::{Client, Packed, World, attributes, compound, getattr, lookup, mode, results};

/// Opens, with a wish, a file that it may make; the stateid, the flags and the delegation.
pub(crate) fn open(client: &mut Client<'_>, want: ShareAccess, attrs: Option<&Packed>) -> (Stateid, OpenResultFlags, Delegation<'static>) {
    let args = op::OpenArgs {
        seq: OwnerSeq(0),
        access: ShareAccess::BOTH | want,
        deny: op::ShareDeny(0),
        owner: StateOwner { client: ClientId(0), owner: Bytes(b"owner") },
        how: attrs.map_or(op::OpenHow::NoCreate, |attrs| op::OpenHow::Create(op::CreateHow::Unchecked(attrs.fattr()))),
        claim: op::OpenClaim::Null(Name(b"f")),
    };
    let (_, list) = client.at(&["export"], &[Args::Open(args)]);
    let [Results::Open(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    (ok.stateid, ok.flags, ok.delegation)
}

pub(crate) fn bind(client: &Client<'_>) {
    let args = op::BindConnArgs { session: client.session, dir: op::ChannelDirClient::BackOrBoth, rdma: false };
    assert_eq!(client.bare(&[Args::BindConnToSession(args)]).0, Status::OK);
}

/// The reply to a CB_COMPOUND of CB_SEQUENCE and CB_GETATTR.
fn told(record: &[u8], attrs: Fattr<'_>) -> Vec<u8> {
    let call = Call::decode(record).expect("a callback is a call");
    let mut r = Reader::new(call.args);
    let head = CallbackHead::decode(&mut r).unwrap();
    let Ok(cb::Args::Sequence(sequence)) = cb::Args::decode(head.minor, &mut r) else { panic!("CB_SEQUENCE comes first") };
    let Ok(cb::Args::Getattr(_)) = cb::Args::decode(head.minor, &mut r) else { panic!("CB_GETATTR comes next") };
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

// RFC 8881, section 10.4.3: what the holder says is what others see; RFC 9754, section 5: times
// with it.
#[test]
fn the_holder_is_asked_and_its_answer_is_the_reply() {
    let world = World::new();
    let (mut holder, mut other) = (Client::new(&world, "holder", 0), Client::new(&world, "other", 0));
    bind(&holder);
    let (stateid, flags, delegation) = open(
        &mut holder,
        ShareAccess::WANT_WRITE_DELEG | ShareAccess::WANT_DELEG_TIMESTAMPS | ShareAccess::WANT_OPEN_XOR_DELEGATION,
        Some(&mode(0o644)),
    );
    assert!(stateid == Stateid::ANONYMOUS && flags.contains(OpenResultFlags::NO_OPEN_STATEID));
    let Delegation::WriteAttrs(delegation) = delegation else { panic!("{delegation:?}") };

    // Later, so that what the holder says of the times is no word about the future.
    world.now_ms.store(5_000, std::sync::atomic::Ordering::Relaxed);
    let before = attributes(&holder.at(&["export", "f"], &[getattr(&[3, 4])]).1[0]);
    let change = ChangeId(before.change.unwrap().0 + 1);
    let says = Attributes {
        change: Some(change),
        size: Some(77),
        time_deleg_access: Some(LATER),
        time_deleg_modify: Some(LATER),
        ..Attributes::default()
    };
    let says = Packed::new(&[3, 4, 84, 85], &says);
    let mut call = vec![other.sequence(false), Args::Putrootfh, lookup("export"), lookup("f"), getattr(&[3, 4, 47, 53])];
    let answering = |effects: &[Effect]| {
        for effect in effects {
            let Effect::Callback { id, record, .. } = effect else { continue };
            world.server.callback_reply(*id, Ok(&told(record, says.fattr())), world.now());
        }
    };
    let (reply, _) = world.call_and(Flavour::Sys, &other.connection, &other.principal, compound(2, &call), answering);
    let (status, list) = results(reply);
    assert_eq!(status, Status::OK, "{list:?}");
    let seen = attributes(list.last().unwrap());
    assert_eq!((seen.change, seen.size), (Some(change), Some(77)));
    assert_eq!((seen.time_access, seen.time_modify), (Some(LATER), Some(LATER)));

    // One that is silent is waited for, but not for ever.
    world.now_ms.store(9_000, std::sync::atomic::Ordering::Relaxed);
    call[0] = other.sequence(false);
    let (reply, effects) = world.call(&other.connection, &other.principal, compound(2, &call));
    assert_eq!(results(reply).0, Status::DELAY);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Callback { .. })));

    // Given back with the times that were kept.
    let kept = Attributes { time_deleg_access: Some(LATER), time_deleg_modify: Some(LATER), ..Attributes::default() };
    let kept = Packed::new(&TIMES, &kept);
    let set = |stateid| Args::Setattr(op::SetattrArgs { stateid, attrs: kept.fattr() });
    assert_eq!(holder.status(&["export", "f"], &[set(Stateid::ANONYMOUS)]), Status::BAD_STATEID);
    let back = Args::Delegreturn(op::DelegreturnArgs { stateid: delegation.stateid });
    let (status, list) = holder.at(&["export", "f"], &[set(delegation.stateid), back, getattr(&[47, 53])]);
    assert_eq!(status, Status::OK, "{list:?}");
    let seen = attributes(&list[2]);
    assert_eq!((seen.time_access, seen.time_modify), (Some(LATER), Some(LATER)));
}

/// The answers of one who holds files: each says this of its file.
fn answering<'a>(world: &'a World, says: &'a Packed) -> impl Fn(&[Effect]) + use<'a> {
    move |effects| {
        for effect in effects {
            let Effect::Callback { id, record, .. } = effect else { continue };
            world.server.callback_reply(*id, Ok(&told(record, says.fattr())), world.now());
        }
    }
}

// RFC 8881, section 10.4.3: whatever tells size or change of a file under a write delegation asks
// the holder.
#[test]
fn the_holder_is_asked_for_listings_and_comparisons_too() {
    let world = World::new();
    let (mut holder, mut other) = (Client::new(&world, "holder", 0), Client::new(&world, "other", 0));
    bind(&holder);
    holder.create("before");
    let (_, _, delegation) = open(&mut holder, ShareAccess::WANT_WRITE_DELEG, Some(&mode(0o644)));
    assert!(matches!(delegation, Delegation::Write(_)), "{delegation:?}");
    let says = Attributes { change: Some(ChangeId(1 << 60)), size: Some(77), ..Attributes::default() };
    let says = Packed::new(&[3, 4], &says);
    let readdir = |wanted: &[u32]| {
        let (cookie, verifier) = (vouch_nfs4::Cookie(0), vouch_nfs4::Verifier([0; 8]));
        let wanted = vouch_nfs4::Bitmap::of(wanted);
        Args::Readdir(op::ReaddirArgs { cookie, verifier, dir_count: 4096, max_count: 4096, wanted })
    };
    let ask = |client: &mut Client<'_>, path: &[&str], op: Args<'static>, answer: &dyn Fn(&[Effect])| {
        let mut call = vec![client.sequence(false), Args::Putrootfh];
        call.extend(path.iter().map(|part| Args::Lookup(op::LookupArgs { name: Name(part.as_bytes().to_vec().leak()) })));
        call.push(op);
        let (reply, effects) = world.call_and(Flavour::Sys, &client.connection, &client.principal, compound(2, &call), answer);
        let (status, mut list) = results(reply);
        (status, list.pop().expect("a reply has results"), effects.len())
    };
    let sizes = |result: &Results<'static>| {
        let Results::Readdir(Ok(ok)) = result else { panic!("{result:?}") };
        let entries = ok.entries.iter().map(|entry| (entry.name.0.to_vec(), entry.attrs.attributes().expect("they can be read")));
        entries.map(|(name, attrs)| (String::from_utf8(name).unwrap(), attrs.size, attrs.rdattr_error)).collect::<Vec<_>>()
    };
    // Itself it is not asked, nor where nothing is wanted that it may know better.
    for (client, wanted) in [(&mut holder, &[3, 4][..]), (&mut other, &[1, 33])] {
        let (status, _, callbacks) =
            ask(client, &["export"], readdir(wanted), &|effects| assert!(effects.is_empty(), "nobody has to be asked"));
        assert_eq!((status, callbacks), (Status::OK, 0));
    }
    let (status, listed, callbacks) = ask(&mut other, &["export"], readdir(&[3, 4, 11]), &answering(&world, &says));
    assert_eq!((status, callbacks), (Status::OK, 1), "{listed:?}");
    let seen = sizes(&listed);
    assert!(
        seen.contains(&("f".into(), Some(77), Some(Status::OK))) && seen.contains(&("before".into(), Some(0), Some(Status::OK))),
        "{seen:?}"
    );

    world.now_ms.store(5_000, std::sync::atomic::Ordering::Relaxed);
    let compared = Packed::new(&[4], &Attributes { size: Some(77), ..Attributes::default() });
    let compared: &'static Packed = Box::leak(Box::new(compared));
    let (status, ..) =
        ask(&mut other, &["export", "f"], Args::Nverify(op::VerifyArgs { attrs: compared.fattr() }), &answering(&world, &says));
    assert_eq!(status, Status::SAME);

    // One that is silent spoils its own entry only, and is asked for the file back.
    world.now_ms.store(9_000, std::sync::atomic::Ordering::Relaxed);
    let (status, listed, _) = ask(&mut other, &["export"], readdir(&[3, 4, 11]), &|_| ());
    let seen = sizes(&listed);
    assert_eq!(status, Status::OK);
    assert!(
        seen.contains(&("f".into(), None, Some(Status::DELAY))) && seen.contains(&("before".into(), Some(0), Some(Status::OK))),
        "{seen:?}"
    );
}

// RFC 9754, section 5: times are no earlier than those that the file has, and no later than now.
#[test]
fn times_that_were_kept_only_move_forward_and_not_beyond_now() {
    let world = World::new();
    let mut holder = Client::new(&world, "holder", 0);
    bind(&holder);
    let (_, _, delegation) = open(&mut holder, ShareAccess::WANT_WRITE_DELEG | ShareAccess::WANT_DELEG_TIMESTAMPS, Some(&mode(0o644)));
    let Delegation::WriteAttrs(delegation) = delegation else { panic!("{delegation:?}") };
    let first =
        Attributes { time_modify_set: Some(vouch_nfs4::SetTime::Client(Time { seconds: 1_000, nanoseconds: 0 })), ..Attributes::default() };
    let first = Packed::new(&[54], &first);
    fn set(stateid: Stateid, attrs: &Packed) -> Args<'_> {
        Args::Setattr(op::SetattrArgs { stateid, attrs: attrs.fattr() })
    }
    assert_eq!(holder.status(&["export", "f"], &[set(delegation.stateid, &first)]), Status::OK);
    for (told, seen) in [(999, 1_000), (i64::MAX, 1_700_000_001)] {
        let kept = Attributes { time_deleg_modify: Some(Time { seconds: told, nanoseconds: 0 }), ..Attributes::default() };
        let kept = Packed::new(&[85], &kept);
        let (status, list) = holder.at(&["export", "f"], &[set(delegation.stateid, &kept), getattr(&[53])]);
        assert_eq!(status, Status::OK, "{list:?}");
        assert_eq!(attributes(&list[1]).time_modify.unwrap().seconds, seen);
    }
}

// RFC 9754, section 5: not to one who could not set them in the end; section 3: older versions know
// nothing of it.
#[test]
fn times_are_given_to_the_owner_only_and_in_4_2_only() {
    let world = World::new();
    let wish = ShareAccess::WANT_WRITE_DELEG | ShareAccess::WANT_DELEG_TIMESTAMPS;
    let close = |client: &mut Client<'_>, stateid| {
        let args = op::CloseArgs { seq: OwnerSeq(0), stateid };
        assert_eq!(client.status(&["export", "f"], &[Args::Close(args)]), Status::OK);
    };
    let mut root = Client::new(&world, "root", 0);
    let (stateid, ..) = open(&mut root, ShareAccess::WANT_NO_DELEG, Some(&mode(0o666)));
    close(&mut root, stateid);
    let mut stranger = Client::new(&world, "stranger", 4321);
    bind(&stranger);
    let (stateid, _, delegation) = open(&mut stranger, wish, None);
    let Delegation::Write(delegation) = delegation else { panic!("{delegation:?}") };
    let back = Args::Delegreturn(op::DelegreturnArgs { stateid: delegation.stateid });
    assert_eq!(stranger.status(&["export", "f"], &[back]), Status::OK);
    close(&mut stranger, stateid);
    let mut old = Client::new(&world, "old", 0);
    old.minor = 1;
    bind(&old);
    let (_, flags, delegation) = open(&mut old, wish | ShareAccess::WANT_OPEN_XOR_DELEGATION, None);
    assert!(!flags.contains(OpenResultFlags::NO_OPEN_STATEID));
    assert!(!matches!(delegation, Delegation::WriteAttrs(_) | Delegation::ReadAttrs(_)), "{delegation:?}");
    let arguments = |client: &mut Client<'_>| attributes(&client.at(&["export"], &[getattr(&[86])]).1[0]).open_arguments;
    assert_eq!(arguments(&mut old), None);
    let arguments = arguments(&mut stranger).expect("4.2 has open_arguments");
    assert!(arguments.share_access_want.has(20) && arguments.share_access_want.has(21));
}

/// The callbacks that recall something.
fn recalls(effects: &[Effect]) -> usize {
    let is_recall = |record: &[u8]| {
        let call = Call::decode(record).expect("a callback is a call");
        let mut r = Reader::new(call.args);
        let head = CallbackHead::decode(&mut r).unwrap();
        (0..head.count).any(|_| matches!(cb::Args::decode(head.minor, &mut r), Ok(cb::Args::Recall(_))))
    };
    effects.iter().filter(|effect| matches!(effect, Effect::Callback { record, .. } if is_recall(record))).count()
}

// RFC 8881, sections 10.4.4 and 18.16.3: an OPEN that cuts the file changes it, whatever it asks to
// be open for.
#[test]
fn an_open_that_cuts_the_file_recalls_what_others_hold() {
    let write = |stateid| Args::Write(op::WriteArgs { stateid, offset: 0, stable: op::StableHow::Unstable, data: Bytes(b"data") });
    for (access, want) in [(ShareAccess::READ, ShareAccess::WANT_READ_DELEG), (ShareAccess::BOTH, ShareAccess::WANT_WRITE_DELEG)] {
        let world = World::new();
        let (mut holder, mut other) = (Client::new(&world, "holder", 0), Client::new(&world, "other", 0));
        let mut maker = Client::new(&world, "maker", 0);
        let made = maker.create("f");
        let close = Args::Close(op::CloseArgs { seq: OwnerSeq(0), stateid: made });
        assert_eq!(maker.status(&["export", "f"], &[write(made), close]), Status::OK);
        world.now_ms.store(60_000, std::sync::atomic::Ordering::Relaxed);
        for client in [&mut holder, &mut other] {
            assert_eq!(client.run(&[]).0, Status::OK);
        }
        bind(&holder);
        let opening = |access, how| {
            let owner = StateOwner { client: ClientId(0), owner: Bytes(b"owner") };
            let claim = op::OpenClaim::Null(Name(b"f"));
            Args::Open(op::OpenArgs { seq: OwnerSeq(0), access, deny: op::ShareDeny(0), owner, how, claim })
        };
        let (_, list) = holder.at(&["export"], &[opening(access | want, op::OpenHow::NoCreate)]);
        let [Results::Open(Ok(opened))] = &list[..] else { panic!("{list:?}") };
        let delegation = match &opened.delegation {
            Delegation::Read(read) => read.stateid,
            Delegation::Write(write) => write.stateid,
            other => panic!("{other:?}"),
        };
        // The share that it asks for is in nobody's way.
        let nothing = Packed::new(&[4], &Attributes { size: Some(0), ..Attributes::default() });
        let cut = || opening(ShareAccess::READ, op::OpenHow::Create(op::CreateHow::Unchecked(nothing.fattr())));
        let size = |client: &mut Client<'_>| attributes(&client.at(&["export", "f"], &[getattr(&[4])]).1[0]).size;
        let ops = [other.sequence(false), Args::Putrootfh, lookup("export"), cut()];
        let (reply, effects) = world.call(&other.connection, &other.principal, compound(2, &ops));
        assert_eq!((results(reply).0, recalls(&effects)), (Status::DELAY, 1));
        assert_eq!(size(&mut holder), Some(4), "nothing is cut while it is held");
        let back = Args::Delegreturn(op::DelegreturnArgs { stateid: delegation });
        assert_eq!(holder.status(&["export", "f"], &[back]), Status::OK);
        assert_eq!(other.status(&["export"], &[cut()]), Status::OK);
        assert_eq!(size(&mut holder), Some(0));
    }
}

// A client that holds the delegation itself is in its own way with nothing.
#[test]
fn an_open_that_cuts_ones_own_file_recalls_nothing() {
    let world = World::new();
    let mut holder = Client::new(&world, "holder", 0);
    bind(&holder);
    let nothing = Packed::new(&[4], &Attributes { size: Some(0), ..Attributes::default() });
    for _ in 0..2 {
        let (_, _, delegation) = open(&mut holder, ShareAccess::WANT_WRITE_DELEG, Some(&nothing));
        assert!(!matches!(delegation, Delegation::Read(_)), "{delegation:?}");
    }
}
