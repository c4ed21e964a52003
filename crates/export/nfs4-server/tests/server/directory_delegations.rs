//! GET_DIR_DELEGATION (RFC 8881 §10.9 and 18.39).

use vouch_nfs4::{Bitmap, Time};

use crate::delegations::bind_backchannel;
use crate::prelude::*;

fn get() -> Args<'static> {
    let delay = Time { seconds: 0, nanoseconds: 0 };
    Args::GetDirDelegation(op::GetDirDelegationArgs {
        signal: false,
        notifications: Bitmap::of(&[0, 1, 2, 3, 4, 5]),
        child_delay: delay,
        dir_delay: delay,
        child_attrs: Bitmap::of(&[3]),
        dir_attrs: Bitmap::of(&[3]),
    })
}

fn delegation(client: &mut Client<'_>, path: &[&str]) -> Option<Stateid> {
    let handle = client.filehandle(path, &[]);
    delegation_of(client, handle)
}

fn delegation_of(client: &mut Client<'_>, directory: Filehandle) -> Option<Stateid> {
    // As Linux: the attributes follow in the same COMPOUND, granted or not.
    let list = expect_ok(client.run(&[putfh(directory), get(), getattr(&[3])]));
    match &list[1] {
        Results::GetDirDelegation(Ok(op::GetDirDelegationReply::Granted(ok))) => {
            assert!(ok.notifications.is_empty() && ok.child_attrs.is_empty());
            Some(ok.stateid)
        }
        Results::GetDirDelegation(Ok(op::GetDirDelegationReply::Unavailable(_))) => None,
        other => panic!("{other:?}"),
    }
}

fn give_back(stateid: Stateid) -> Args<'static> {
    Args::Delegreturn(op::DelegreturnArgs { stateid })
}

fn callbacks(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Callback { .. })).count()
}

/// Of one attempt: the status and the recalls that it causes.
fn attempt(client: &mut Client<'_>, fixture: &Fixture, ops: &[Args<'_>]) -> (Status, usize) {
    let mut all = vec![client.next_sequence(false), Args::Putrootfh, lookup("export")];
    all.extend_from_slice(ops);
    let (connection, principal) = (&client.connection, &client.principal);
    let (reply, effects) = fixture.call(connection, principal, compound(2, &all));
    (results(reply).0, callbacks(&effects))
}

#[test]
fn each_change_of_a_directory_by_others_recalls_its_delegation() {
    let symlink = |attrs| {
        let (kind, name) = (op::CreateType::Symlink(b"x"), Name(b"symlink"));
        Args::Create(op::CreateArgs { kind, name, attrs })
    };
    let attrs = mode(0o755);
    let link = Args::Link(op::LinkArgs { name: Name(b"link") });
    let set_xattr = Args::Setxattr(op::SetxattrArgs {
        option: op::SetxattrOption::Either,
        name: Name(b"x"),
        value: Bytes(b"1"),
    });
    let remove_xattr = Args::Removexattr(op::RemovexattrArgs { name: Name(b"x") });
    let within = |ops: &[Args<'static>]| [&[lookup("d")], ops].concat();
    let changes: Vec<Vec<Args<'_>>> = vec![
        [within(&[]), vec![mkdir("new", &attrs)]].concat(),
        [within(&[]), vec![symlink(attrs.fattr())]].concat(),
        [within(&[]), vec![open_by_name("opened", Some(&attrs))]].concat(),
        vec![lookup("f"), Args::Savefh, Args::Putrootfh, lookup("export"), lookup("d"), link],
        within(&[remove("new")]),
        within(&[Args::Savefh, rename("link", "renamed")]),
        [
            within(&[Args::Savefh, Args::Putrootfh]),
            vec![lookup("export"), rename("renamed", "out")],
        ]
        .concat(),
        vec![Args::Savefh, lookup("d"), rename("out", "in")],
        vec![Args::Savefh, rename("d", "moved")],
        vec![Args::Savefh, rename("moved", "d")],
        [within(&[]), vec![setattr(&attrs)]].concat(),
        within(&[set_xattr]),
        within(&[remove_xattr]),
    ];
    let fixture = Fixture::new();
    let [mut holder, mut other] = fixture.clients(["holder", "other"]);
    bind_backchannel(&holder);
    holder.create("f");
    assert_eq!(holder.status(&["export"], &[mkdir("d", &attrs)]), Status::OK);
    let handle = holder.filehandle(&["export", "d"], &[]);
    for change in &changes {
        let Some(stateid) = delegation_of(&mut holder, handle) else {
            panic!("no delegation before {change:?}")
        };
        assert_eq!(delegation_of(&mut holder, handle), None, "one for each client");
        assert_eq!(attempt(&mut other, &fixture, change), (Status::DELAY, 1), "{change:?}");
        assert_eq!(attempt(&mut other, &fixture, change), (Status::DELAY, 0), "{change:?}");
        assert_eq!(delegation_of(&mut other, handle), None, "recalled");
        let (status, _) = holder.run(&[putfh(handle), give_back(stateid)]);
        assert_eq!(status, Status::OK);
        assert_eq!(attempt(&mut other, &fixture, change), (Status::OK, 0), "{change:?}");
        // Long after the recall, a grant is safe again.
        fixture.now_ms.fetch_add(40_000, Ordering::Relaxed);
        for client in [&mut holder, &mut other] {
            assert_eq!(client.run(&[]).0, Status::OK);
        }
    }
}

#[test]
fn own_changes_and_refused_ones_recall_no_directory_delegation() {
    let fixture = Fixture::new();
    let (mut holder, mut stranger) =
        (Client::new(&fixture, "holder", 0), Client::new(&fixture, "stranger", 1000));
    bind_backchannel(&holder);
    let attrs = mode(0o755);
    assert_eq!(holder.status(&["export"], &[mkdir("d", &attrs)]), Status::OK);
    let stateid = delegation(&mut holder, &["export", "d"]).expect("nobody else changes it");
    for change in [mkdir("new", &attrs), setattr(&attrs), open_by_name("f", Some(&attrs))] {
        let tried = attempt(&mut holder, &fixture, &[lookup("d"), change]);
        assert_eq!(tried, (Status::OK, 0));
    }
    for change in [mkdir("x", &attrs), remove("new"), open_by_name("y", Some(&attrs))] {
        let tried = attempt(&mut stranger, &fixture, &[lookup("d"), change]);
        assert_eq!(tried, (Status::ACCESS, 0));
    }
    // The handle of a removed directory is stale, so the delegation ends with the directory.
    for change in [vec![lookup("d"), remove("new")], vec![lookup("d"), remove("f")]] {
        assert_eq!(attempt(&mut holder, &fixture, &change), (Status::OK, 0));
    }
    assert_eq!(fixture.server.totals(fixture.now()).0.directory_delegations, 1);
    assert_eq!(attempt(&mut holder, &fixture, &[remove("d")]), (Status::OK, 0));
    assert_eq!(fixture.server.totals(fixture.now()).0.directory_delegations, 0);
    assert_eq!(holder.status(&["export"], &[give_back(stateid)]), Status::BAD_STATEID);
}

#[test]
fn directory_delegations_need_a_directory_and_a_back_channel() {
    let fixture = Fixture::new();
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(delegation(&mut client, &["export"]), None, "no back channel");
    bind_backchannel(&client);
    client.create("f");
    assert_eq!(client.status(&["export", "f"], &[get()]), Status::NOTDIR);
    assert_eq!(delegation(&mut client, &[]), None, "the pseudo file system");
    let stateid = delegation(&mut client, &["export"]).expect("it is a directory");
    assert_eq!(client.status(&["export"], &[read(stateid, 0, 10)]), Status::BAD_STATEID);
    let states = fixture.server.held_states(None, 10);
    let kind = vouch_nfs4_server::HeldKind::DirectoryDelegation { is_recalled: false };
    assert!(states.iter().any(|held| held.kind == kind), "{states:?}");
    assert_eq!(client.status(&["export"], &[give_back(stateid)]), Status::OK);

    let files = Arc::new(MemoryFs::new());
    let export = Export { delegations: false, ..export(7, &["export"], &files, sys_access()) };
    let fixture = Fixture::with_exports(files, vec![export]);
    let mut client = Client::new(&fixture, "one", 0);
    bind_backchannel(&client);
    assert_eq!(delegation(&mut client, &["export"]), None, "no_delegations");
}
