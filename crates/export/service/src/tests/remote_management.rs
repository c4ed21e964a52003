use tonic::Code;
use vouch_rpc_tls::credentials::{ClientFiles, ServerFiles};
use vouch_testkit::certificates::{Authority, Holder};

use super::*;
use crate::limits::{MANAGEMENT_CONNECTIONS_PER_ADDRESS_MAX, MANAGEMENT_REQUEST_LEN_MAX};
use crate::management::grpc::client::{all_parts, unary};
use crate::management::grpc::export_v1::{
    AddExportRequest, ListExportsRequest, SetDrainingRequest,
};
use crate::management::{ManagementConfig, Order, OrderError, RemoteServer};

struct Site {
    directory: tempfile::TempDir,
    authority: Authority,
    address: SocketAddr,
}

/// Serial number and last year of a certificate.
struct Term(u64, i32);

impl Site {
    /// With certificates of the server and of `reader`, `editor`, `chief` and `nobody`.
    fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new(directory.path(), "ca");
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let site = Site { directory, authority, address: free.local_addr().unwrap() };
        for (serial, name) in ["server", "reader", "editor", "chief", "nobody"].iter().enumerate() {
            site.issue(name, Term(serial as u64 + 1, 2080));
        }
        site.write(
            "roles",
            "dns:reader read\nsubject:CN=editor exports\nuri:spiffe://x/chief all\n",
        );
        site.revoke(&[]);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn issue(&self, name: &str, term: Term) {
        issue(&self.authority, name, term);
    }

    fn revoke(&self, serials: &[u64]) {
        self.authority.revoke("crl.pem", serials);
    }

    fn start(&self) -> Running {
        let management = ManagementConfig {
            listen: vec![self.address],
            files: ServerFiles {
                certificate: self.path("server.pem"),
                key: self.path("server.key"),
                client_authorities: Some(self.path("ca.pem")),
                revoked: vec![self.path("crl.pem")],
            },
            roles: self.path("roles"),
        };
        Running::start(|config| config.management = Some(management))
    }

    fn connect_as(&self, name: &str) -> RemoteServer {
        let files = ClientFiles {
            authorities: self.path("ca.pem"),
            certificate: Some((
                self.path(&format!("{name}.pem")),
                self.path(&format!("{name}.key")),
            )),
        };
        RemoteServer::new(&self.address.to_string(), &files).unwrap()
    }
}

fn issue(authority: &Authority, name: &str, Term(serial, last_year): Term) {
    let uri = format!("spiffe://x/{name}").try_into().unwrap();
    let mut holder = Holder { serial, years: 2020..last_year, ..Holder::on_loopback() };
    holder.others.push(rcgen::SanType::URI(uri));
    authority.issue(name, holder);
}

fn reload(server: &Running) {
    status_client::reload(&state_directory::control_path(&server.state, None)).unwrap();
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A method of the service, with its order.
type Method = (&'static str, fn(&RemoteServer) -> Result<(), OrderError>);

fn send(server: &RemoteServer, order: Order) -> Result<(), OrderError> {
    server.send(&order).map(drop)
}

fn add(server: &RemoteServer, path: &str) -> Result<(), OrderError> {
    let clients = vec!["192.0.2.1(rw,insecure)".to_owned()];
    send(server, Order::AddExport { path: path.into(), clients, keep: false })
}

/// By the role that each needs.
const METHODS: [(&str, &[Method]); 3] = [
    (
        "read",
        &[
            ("GetStatus", |server| server.status().map(drop)),
            ("ListExports", |server| send(server, Order::ListExports)),
            ("CheckExports", |server| server.check(None).map(drop)),
            ("ListClients", |server| server.status().map(drop)),
            ("ListStates", |server| send(server, Order::ListState { client: None })),
        ],
    ),
    (
        "exports",
        &[
            ("AddExport", |server| add(server, "/new")),
            ("SetExport", |server| {
                let clients = vec!["192.0.2.2(ro)".to_owned()];
                send(server, Order::SetExport { path: "/new".into(), clients, keep: false })
            }),
            ("RemoveExport", |server| {
                send(server, Order::RemoveExport { path: "/new".into(), keep: false })
            }),
            ("ReloadExports", |server| send(server, Order::Reload)),
        ],
    ),
    (
        "all",
        &[
            ("EvictClient", |server| {
                send(server, Order::EvictClient { client: "192.0.2.1".into() })
            }),
            ("Unlock", |server| send(server, Order::Unlock { path: "/data".into() })),
            ("SetDraining", |server| send(server, Order::Drain { on: false })),
        ],
    ),
];

#[test]
fn each_role_permits_its_methods_and_those_below() {
    let site = Site::new();
    let _server = site.start();
    let proto = include_str!("../../proto/vouch_export_v1.proto");
    let declared = proto.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
    let declared: Vec<&str> = declared.filter_map(|line| line.split('(').next()).collect();
    let tested: Vec<&str> =
        METHODS.iter().flat_map(|(_, methods)| methods.iter().map(|(name, _)| *name)).collect();
    assert_eq!(declared, tested);
    for (rank, holder) in ["nobody", "reader", "editor", "chief"].iter().enumerate() {
        let server = site.connect_as(holder);
        for (needed, (role, methods)) in METHODS.iter().enumerate() {
            for (method, call) in *methods {
                match call(&server) {
                    // No client is there to evict, and no directory to check: permission counts.
                    Ok(()) | Err(OrderError::NotFound(_) | OrderError::Refused(_)) => {
                        assert!(rank > needed, "{holder} may call {method}");
                    }
                    Err(OrderError::Denied(why)) => {
                        assert!(rank <= needed, "{holder} may not call {method}: {why}");
                        let reason = match rank {
                            0 => "nobody has no role".to_owned(),
                            _ => format!("{method} needs {role}"),
                        };
                        assert!(why.contains(&reason), "{why}");
                    }
                    Err(error) => panic!("{holder} {method}: {error}"),
                }
            }
        }
    }
}

#[test]
fn only_valid_certificates_of_the_authority_get_through_the_handshake() {
    let site = Site::new();
    site.issue("expired", Term(20, 2021));
    site.issue("revoked", Term(21, 2080));
    site.revoke(&[21]);
    let foreign = Authority::new(site.directory.path(), "foreign-ca");
    issue(&foreign, "foreign", Term(22, 2080));
    site.write("roles", "* all\n");
    let _server = site.start();
    assert!(send(&site.connect_as("nobody"), Order::ListExports).is_ok());
    // The alert may be lost when the server closes the connection.
    for name in ["expired", "revoked", "foreign"] {
        let error = send(&site.connect_as(name), Order::ListExports).unwrap_err();
        assert!(matches!(error, OrderError::Io(_)), "{name}: {error}");
    }
    let files = ClientFiles { authorities: site.path("ca.pem"), certificate: None };
    let bare = RemoteServer::new(&site.address.to_string(), &files).unwrap();
    let error = send(&bare, Order::ListExports).unwrap_err();
    assert!(matches!(error, OrderError::Io(_)), "{error}");
}

#[test]
fn reload_takes_role_and_certificate_from_open_connections() {
    let site = Site::new();
    let server = site.start();
    let (editor, chief) = (site.connect_as("editor"), site.connect_as("chief"));
    block_on(async {
        let (mut editor, _) = editor.connect().await.unwrap();
        let (mut chief, _) = chief.connect().await.unwrap();
        let request = |path: &str| AddExportRequest {
            path: path.into(),
            clients: vec!["*(ro)".into()],
            keep: false,
        };
        unary(&mut editor, request("/a")).await.unwrap();
        site.write("roles", "dns:editor read\ndns:chief all\n");
        reload(&server);
        let error = unary(&mut editor, request("/b")).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied, "{error}");
        all_parts(&mut editor, ListExportsRequest {}).await.unwrap();
        // Serial number of the chief.
        site.revoke(&[4]);
        reload(&server);
        let error = unary(&mut chief, SetDrainingRequest { draining: true }).await.unwrap_err();
        assert_eq!(error.code(), Code::Unauthenticated, "{error}");
        all_parts(&mut editor, ListExportsRequest {}).await.unwrap();
        // A faulty file keeps all that was in force.
        site.write("roles", "dns:editor everything\n");
        let control = state_directory::control_path(&server.state, None);
        let error = status_client::reload(&control).unwrap_err().to_string();
        assert!(error.contains("line 1: everything is no role"), "{error}");
        all_parts(&mut editor, ListExportsRequest {}).await.unwrap();
    });
    assert!(!server.status().draining);
}

#[test]
fn connections_and_messages_are_bounded() {
    let site = Site::new();
    let _server = site.start();
    let chief = site.connect_as("chief");
    block_on(async {
        let (mut chief, _) = chief.connect().await.unwrap();
        let clients = vec!["x".repeat(MANAGEMENT_REQUEST_LEN_MAX)];
        let request = AddExportRequest { path: "/x".into(), clients, keep: false };
        let error = unary(&mut chief, request).await.unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange, "{error}");
        all_parts(&mut chief, ListExportsRequest {}).await.unwrap();
        // Without a handshake too, one address gets its share.
        let idle = || std::net::TcpStream::connect(site.address).unwrap();
        let idle: Vec<_> = (1..MANAGEMENT_CONNECTIONS_PER_ADDRESS_MAX).map(|_| idle()).collect();
        assert!(site.connect_as("chief").connect().await.is_err());
        all_parts(&mut chief, ListExportsRequest {}).await.unwrap();
        drop(idle);
    });
    let is_free = || send(&site.connect_as("chief"), Order::ListExports).is_ok();
    assert!(vouch_testkit::eventually(Duration::from_secs(60), is_free));
}
