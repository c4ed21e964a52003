//! Walks through all answers and events that end a mount or a client's state.

use std::path::Path;
use std::sync::OnceLock;

use parking_lot::Mutex;
use vouch_nfs4::op::*;
use vouch_nfs4::{
    Attributes, Filehandle, SessionId, SlotId, SlotSeq, StateSeq, Stateid, Status, Verifier, cb,
};
use vouch_nfs4_client::{Client, Config, Error, Identity, Plain};
use vouch_nfs4_server::{ClientEnd, Effect};
use vouch_oncrpc::{AuthStat, AuthSys, Flavor};
use vouch_rpc_tls::credentials::ServerFiles;
use vouch_rpcsec_gss::{Initiated, Initiation, Service};
use vouch_testkit::certificates::self_signed;

use super::blocking::{body, compound, compound_of_minor, until};
use super::gss::tests::{Claimer, TrustingAcceptor, call as protected};
use super::*;
use crate::identity::{LocalName, NameService, NameServiceDown, UserRecord};
use crate::monitoring::client_faults::ClientFault;

struct LogBuffer(Mutex<Vec<u8>>);

impl std::io::Write for &LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A directory that does not answer.
struct Down;

impl NameService for Down {
    fn user(&self, _: u32) -> Result<Option<UserRecord>, NameServiceDown> {
        Err(NameServiceDown)
    }
    fn user_by_name(&self, _: &str) -> Result<Option<UserRecord>, NameServiceDown> {
        Err(NameServiceDown)
    }
    fn group(&self, _: u32) -> Result<Option<String>, NameServiceDown> {
        Err(NameServiceDown)
    }
    fn group_by_name(&self, _: &str) -> Result<Option<u32>, NameServiceDown> {
        Err(NameServiceDown)
    }
    fn groups(&self, _: &str, _: u32) -> Result<Vec<u32>, NameServiceDown> {
        Err(NameServiceDown)
    }
    fn local_name(&self, _: &str) -> LocalName {
        LocalName::NoRules
    }
}

fn tls(directory: &Path) -> TlsConfig {
    self_signed(directory, "server.example.org");
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    let files = ServerFiles { certificate, key, client_authorities: None, revoked: Vec::new() };
    TlsConfig { files, certificate_map: None, by_kernel: false }
}

/// A server on which the fault can happen.
fn start(fault: ClientFault) -> Running {
    let files = MemoryFs::new();
    let mut seams = SystemHooks { acceptor: Some(Arc::new(TrustingAcceptor)), ..hooks(&files) };
    match fault {
        ClientFault::NameServiceSilent => seams.names = Arc::new(Down),
        ClientFault::QuotaExceeded => files.set_fault(|call, _| {
            (call == vouch_vfs::memory::Call::Create).then_some(vouch_vfs::Error::Quota)
        }),
        _ => {}
    }
    let change = |config: &mut ExportConfig| {
        let waits =
            matches!(fault, ClientFault::DelegationOverdue | ClientFault::DelegationRevoked);
        config.lease = Duration::from_secs(if waits { 4 } else { 1 });
        match fault {
            ClientFault::ConnectionsFull => config.limits.connections_per_address_max = 1,
            ClientFault::ProxyHeader => config.balancers = vec!["127.0.0.1".parse().unwrap()],
            ClientFault::NameServiceSilent => config.groups = GroupSource::Server,
            ClientFault::TransportTooWeak => config.tls = Some(tls(config.state.parent().unwrap())),
            _ => {}
        }
    };
    Running::start_in(change, seams)
}

/// Of all tests of this process.
fn log() -> &'static LogBuffer {
    static LOG: OnceLock<LogBuffer> = OnceLock::new();
    LOG.get_or_init(|| {
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log).finish();
        tracing::subscriber::set_global_default(subscriber).expect("no other test sets it");
        LogBuffer(Mutex::default())
    })
}

async fn client(server: &Running, name: &str, boot: u8, uid: u32) -> Result<Client, Error> {
    let user = AuthSys { stamp: 0, machine_name: b"test".to_vec(), uid, gid: 0, gids: Vec::new() };
    let mut config =
        Config::new(server.address, 1, Identity::new(name, Verifier([boot; 8])), Plain::sys(&user));
    // Answers a recall, and returns nothing.
    config.callbacks = Box::new(|args: &cb::Args<'_>| match args {
        cb::Args::Recall(_) => cb::Results::Recall(Ok(())),
        other => cb::Results::failure(other.op(), Status::NOTSUPP),
    });
    Client::connect(config).await
}

fn list(server: &Running, line: &str) {
    std::fs::write(server.state.parent().unwrap().join("exports"), format!("{line}\n")).unwrap();
    status_client::reload(&state_directory::control_path(&server.state, None)).unwrap();
}

const OTHER: Stateid = Stateid { seq: StateSeq(1), other: [9; 12] };

/// Makes the server send the answer, or have the event, to a client of this name.
async fn provoke(fault: ClientFault, server: &Running, name: &str) {
    let mode = Attributes { mode: Some(0o666), ..Attributes::default() };
    let address = [127, 0, 0, 1].into();
    let owner: Arc<[u8]> = name.as_bytes().into();
    let apply = |effect| server.driver.upgrade().unwrap().apply(vec![effect]);
    let ended = |why| apply(Effect::ClientEnded { name: owner.clone(), address, why });
    let refused = |result: Result<Client, Error>, status| {
        assert_eq!(result.err().and_then(|error| error.status()), Some(status))
    };
    let mut socket = server.connect();
    match fault {
        ClientFault::NameInUse => {
            let _first = client(server, name, 1, 0).await.unwrap();
            refused(client(server, name, 1, 5).await, Status::CLID_INUSE);
        }
        ClientFault::NameShared => {
            let _first = client(server, name, 1, 0).await.unwrap();
            client(server, name, 2, 0).await.unwrap();
        }
        ClientFault::StaleClient => {
            exchange(
                &mut socket,
                &compound(1, &[Args::Renew(RenewArgs { client: vouch_nfs4::ClientId(7) })]),
            );
        }
        ClientFault::StaleSession => {
            let (session, slot) = (SessionId([7; 16]), SlotId(0));
            let args = SequenceArgs {
                session,
                seq: SlotSeq(1),
                slot,
                highest_slot: slot,
                cache_this: false,
            };
            exchange(&mut socket, &compound_of_minor(1, 0, 1, &[Args::Sequence(args)]));
        }
        ClientFault::HandleGone => {
            let handle = Filehandle::new(&[1; 24]).unwrap();
            exchange(&mut socket, &compound(1, &[Args::Putfh(PutfhArgs { handle })]));
        }
        ClientFault::ResourcesFull => {
            exchange(&mut socket, &compound(1, &vec![Args::Putrootfh; 200]));
        }
        ClientFault::CredentialRefused => {
            let cred = OpaqueAuth { flavor: Flavor::SYS, body: &[1, 2, 3] };
            let call = Call { cred, ..Call::new(1, (100_003, 4), 1, &[]) };
            exchange(&mut socket, &record(|w| call.encode(w)));
        }
        ClientFault::ConnectionsFull => {
            assert_eq!(server.connect().read(&mut [0; 16]).unwrap_or(0), 0)
        }
        ClientFault::StateGone | ClientFault::ReclaimRefused | ClientFault::AccessLost => {
            let client = client(server, name, 1, 0).await.unwrap();
            let data = client.walk(b"/data").await.unwrap().handle;
            let mut file = client.open(&data, b"f", ShareAccess::BOTH, Some(&mode)).await.unwrap();
            match fault {
                ClientFault::StateGone => {
                    let args = Args::Read(ReadArgs { stateid: OTHER, offset: 0, count: 1 });
                    client.compound().putfh(&file.handle).op(&args).send().await.unwrap();
                }
                ClientFault::ReclaimRefused => {
                    assert!(client.reclaim_open(&mut file).await.is_err())
                }
                _ => list(server, "/data 192.0.2.1(rw,insecure)"),
            }
        }
        ClientFault::DelegationOverdue | ClientFault::DelegationRevoked => {
            let holder = client(server, name, 1, 0).await.unwrap();
            let other = client(server, "other", 1, 0).await.unwrap();
            let data = holder.walk(b"/data").await.unwrap().handle;
            let access = ShareAccess::BOTH | ShareAccess::WANT_WRITE_DELEG;
            let file = holder.open(&data, b"f", access, Some(&mode)).await.unwrap();
            assert!(file.delegation.is_some(), "{file:?}");
            let began = std::time::Instant::now();
            // The other client waits until the delegation is revoked, and opens the file then.
            loop {
                match other.open(&data, b"f", ShareAccess::BOTH, None).await {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error.status(), Some(Status::DELAY)),
                }
                assert!(began.elapsed() < Duration::from_secs(60));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let args = Args::TestStateid(TestStateidArgs {
                stateids: vouch_nfs4::List(vec![file.delegation.unwrap()]),
            });
            let reply = holder.compound().op(&args).send().await.unwrap();
            let Results::TestStateid(Ok(tested)) = reply.results().next_ok().unwrap() else {
                panic!("another result")
            };
            assert_eq!(tested.statuses.0, [Status::DELEG_REVOKED]);
        }
        ClientFault::AddressRefused => {
            list(server, "/data 192.0.2.1(rw,insecure)");
            refused(client(server, name, 1, 0).await, Status::ACCESS);
        }
        ClientFault::PortRefused | ClientFault::FlavourRefused | ClientFault::RootSquashed => {
            list(
                server,
                match fault {
                    ClientFault::PortRefused => "/data *(rw)",
                    ClientFault::FlavourRefused => "/data *(rw,insecure,sec=krb5)",
                    _ => "/data *(rw,insecure)",
                },
            );
            let client = client(server, name, 1, 0).await.unwrap();
            match client.walk(b"/data").await {
                Ok(data) => assert!(
                    client.open(&data.handle, b"f", ShareAccess::BOTH, Some(&mode)).await.is_err()
                ),
                Err(error) => assert!(error.status().is_some(), "{error}"),
            }
        }
        // They take a restart, a day, or tens of thousands of clients: tests of the engine have them.
        ClientFault::AddressChanged => {
            let from = vouch_nfs4_server::Network::of([192, 0, 2, 1].into());
            apply(Effect::AddressMismatch { name: owner.clone(), address, from });
        }
        ClientFault::LeaseEnded => ended(ClientEnd::Expired { silent_ms: 1 }),
        ClientFault::StateRemoved => ended(ClientEnd::ByAdministrator),
        ClientFault::ClientEvicted => ended(ClientEnd::Evicted),
        ClientFault::ClientsFull => ended(ClientEnd::TableFull),
        ClientFault::ProxyHeader => {
            socket.write_all(&compound(1, &[Args::Putrootfh])).unwrap();
            assert_eq!(socket.read(&mut [0; 16]).unwrap_or(0), 0);
        }
        ClientFault::TransportTooWeak => {
            list(server, "/data *(rw,insecure,xprtsec=tls)");
            let refused = client(server, name, 1, 0).await.err();
            assert!(matches!(refused, Some(Error::Denied(AuthStat::TOO_WEAK))), "{refused:?}");
        }
        ClientFault::CallerRefused => {
            list(server, "/data *(rw,insecure,sec=krb5)");
            let initiation = Initiation::begin(Claimer, Service::None).unwrap();
            let call = record(|w| initiation.call(1, 100_003, 4, w));
            let Initiated::Done(mut context) =
                initiation.reply(1, &exchange(&mut socket, &call)).unwrap()
            else {
                panic!("one exchange")
            };
            let args = body(
                0,
                &[Args::Putrootfh, Args::Lookup(LookupArgs { name: vouch_nfs4::Name(b"data") })],
            );
            exchange(&mut socket, &protected(&mut context, 2, &args, usize::MAX));
        }
        ClientFault::NameServiceSilent => {
            let client = client(server, name, 1, 7).await.unwrap();
            let lookup = Args::Lookup(LookupArgs { name: vouch_nfs4::Name(b"data") });
            let reply = client.compound().op(&Args::Putrootfh).op(&lookup).send().await;
            assert!(reply.is_ok());
        }
        ClientFault::QuotaExceeded => {
            let client = client(server, name, 1, 0).await.unwrap();
            let data = client.walk(b"/data").await.unwrap().handle;
            let made = client.open(&data, b"f", ShareAccess::BOTH, Some(&mode)).await;
            assert_eq!(made.err().and_then(|error| error.status()), Some(Status::DQUOT));
        }
    }
}

#[test]
fn every_answer_that_ends_a_mount_or_state_is_logged_and_counted() {
    log();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for &fault in ClientFault::ALL {
        let server = start(fault);
        let name = format!("walk-{}", fault.name());
        runtime.block_on(provoke(fault, &server, &name));
        let driver = server.driver.upgrade().unwrap();
        until(fault.name(), || driver.client_faults.count(fault) > 0);
        drop(driver);
        let is_named = !matches!(
            fault,
            ClientFault::StaleClient
                | ClientFault::StaleSession
                | ClientFault::HandleGone
                | ClientFault::ResourcesFull
                | ClientFault::CredentialRefused
                | ClientFault::ConnectionsFull
                | ClientFault::ProxyHeader
                | ClientFault::TransportTooWeak
                | ClientFault::CallerRefused
        );
        let name = if is_named { &*name } else { "unknown" };
        let text = String::from_utf8(log().0.lock().clone()).unwrap();
        let has_line = |line: &str| {
            line.contains(&format!("fault=\"{}\" client={name} address=127.0.0.1", fault.name()))
        };
        assert!(text.lines().any(has_line), "{}: {text}", fault.name());
    }
}

#[test]
fn check_shows_name_conflicts_of_clients() {
    let server = Running::start(|_| ());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(provoke(ClientFault::NameInUse, &server, "clone"));
    let shown = server.status().refusals;
    let of_clone: Vec<_> = shown
        .iter()
        .filter(|shown| shown.fault == "client-name-conflict" && shown.caller == "clone")
        .collect();
    assert!(matches!(of_clone[..], [one] if one.reason.contains("holder=127.0.0.1")), "{shown:?}");
}
