//! RFC 9289; `xprtsec=` of exports(5).

use vouch_nfs4::CreateSeq;
use vouch_nfs4_server::{ClientCertificate, TlsPeer, Transport};

use crate::ops::create_session;
use crate::prelude::*;

pub(crate) fn demanding(
    id: u32,
    name: &str,
    files: &Arc<MemoryFs>,
    transport_min: Transport,
) -> Export {
    let access = ClientAccess {
        flavours: vec![FlavourAccess { transport_min, ..flavour_access(Flavour::Sys) }],
        qos: None,
    };
    export(id, &[name], files, access)
}

fn certified(user: Option<&str>) -> TlsPeer {
    named("node7", user)
}

fn named(name: &str, user: Option<&str>) -> TlsPeer {
    let certificate =
        ClientCertificate { fingerprint: [7; 32], name: name.into(), user: user.map(Into::into) };
    TlsPeer { certificate: Some(certificate), cipher_suite: String::new() }
}

#[test]
fn export_refuses_weaker_transport_at_each_operation() {
    let files = Arc::new(MemoryFs::new());
    let exports = vec![
        export(1, &["any"], &files, sys_access()),
        demanding(2, "tls", &files, Transport::Tls),
        demanding(3, "mtls", &files, Transport::MutualTls),
    ];
    let fixture = Fixture::with_exports(files.clone(), exports);
    let mut client = Client::new(&fixture, "one", 0);
    let handle = {
        client.connection.set_tls(certified(None));
        client.filehandle(&["mtls"], &[])
    };
    assert_eq!(client.status(&["mtls"], &[getattr(&[1])]), Status::OK);
    for (tls, reached) in [(None, 1), (Some(TlsPeer::default()), 2), (Some(certified(None)), 3)] {
        client.connection = fixture.connect();
        tls.into_iter().for_each(|tls| client.connection.set_tls(tls));
        for (number, name) in [(1, "any"), (2, "tls"), (3, "mtls")] {
            let expected = if number <= reached { Status::OK } else { Status::WRONGSEC };
            assert_eq!(
                client.status(&[name], &[open_by_name("f", None)]) == Status::WRONGSEC,
                expected == Status::WRONGSEC,
                "{name}"
            );
            assert_eq!(client.status(&[], &[lookup(name)]), expected, "{name}");
        }
        let expected = if reached == 3 { Status::OK } else { Status::WRONGSEC };
        assert_eq!(
            client.run(&[putfh(handle), getattr(&[1])]).0,
            expected,
            "a known filehandle opens no way around"
        );
    }
}

#[test]
fn transport_too_weak_for_all_exports_is_known_early() {
    let files = Arc::new(MemoryFs::new());
    let both =
        |min| vec![demanding(1, "a", &files, min), demanding(2, "b", &files, Transport::MutualTls)];
    let verdicts = |min| {
        let fixture = Fixture::with_exports(files.clone(), both(min));
        [None, Some(TlsPeer::default()), Some(certified(None))].map(|tls| {
            let connection = fixture.connect();
            tls.into_iter().for_each(|tls| connection.set_tls(tls));
            fixture.server.is_transport_too_weak(&connection, fixture.now())
        })
    };
    assert_eq!(verdicts(Transport::Clear), [false, false, false]);
    assert_eq!(verdicts(Transport::Tls), [true, false, false]);
    assert_eq!(verdicts(Transport::MutualTls), [true, true, false]);
}

#[test]
fn state_ends_when_export_demands_more() {
    let files = Arc::new(MemoryFs::new());
    let fixture =
        Fixture::with_exports(files.clone(), vec![export(1, &["e"], &files, sys_access())]);
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(client.status(&["e"], &[open_by_name("f", Some(&mode(0o666)))]), Status::OK);
    let exports =
        Exports::new(vec![demanding(1, "e", &files, Transport::Tls)]).expect("one export");
    assert_eq!(fixture.server.replace_exports(exports).ended, 1);
}

#[test]
fn state_of_certified_machine_ends_only_by_its_certificate() {
    let files = Arc::new(MemoryFs::new());
    let exports = vec![
        export(1, &["any"], &files, sys_access()),
        demanding(2, "mtls", &files, Transport::MutualTls),
    ];
    let fixture = Fixture::with_exports(files.clone(), exports);
    let connect = |tls: Option<TlsPeer>| {
        let connection = fixture.connect();
        tls.into_iter().for_each(|tls| connection.set_tls(tls));
        connection
    };
    let mut victim = Client::over(&fixture, connect(Some(certified(None))), "one");
    assert_eq!(victim.status(&["mtls"], &[open_by_name("f", Some(&mode(0o600)))]), Status::OK);
    let send = |connection: &Arc<Connection>, args| {
        let (reply, _) =
            fixture.call_with_flavour(Flavour::Sys, connection, &user(0), compound(2, &[args]));
        results(reply)
    };
    let restart = |connection: &Arc<Connection>| {
        let (status, list) = send(connection, exchange_id("one", 2, StateProtect::None));
        match &list[..] {
            [Results::ExchangeId(Ok(ok))] => {
                send(connection, create_session(ok.client, CreateSeq(ok.seq.0))).0
            }
            _ => status,
        }
    };
    for other in [
        None,
        Some(TlsPeer::default()),
        Some(named("node8", None)),
        Some(certified(Some("x509:alice"))),
    ] {
        let other = connect(other);
        assert_eq!(restart(&other), Status::CLID_INUSE);
        let bind = op::BindConnArgs {
            session: victim.session,
            dir: op::ChannelDirClient::Fore,
            rdma: false,
        };
        let (status, _) = send(&other, Args::BindConnToSession(bind));
        assert_eq!(status, Status::WRONG_CRED);
    }
    assert_eq!(victim.status(&["mtls", "f"], &[getattr(&[1])]), Status::OK);
    // A renewed certificate has another fingerprint.
    assert_eq!(restart(&connect(Some(certified(None)))), Status::OK);
}
