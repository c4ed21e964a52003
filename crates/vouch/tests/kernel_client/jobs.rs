//! `vouch jobs` on a node: its agent and rpc.gssd in a guest; broker, KDC and server outside.

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::guest::{self, Guest, Network};
use crate::kdc::{Client, Kdc};
use crate::kerberos::{ENCTYPES, has_gssd};
use crate::kill_on_drop::KillOnDrop;
use crate::ldap::LdapRealm;
use crate::server::{Server, ServerOptions};

const BROKER: &str = "vouch-jobs/server.vouch.test";
const SERVICE: &str = "nfs/server.vouch.test";
const TICKET_LIFE: &str = "20s";

struct Broker {
    directory: tempfile::TempDir,
    environment: Vec<(&'static str, std::ffi::OsString)>,
    port: u16,
    _child: KillOnDrop,
}

impl Broker {
    fn start(kdc: &Kdc, network: &Network) -> Broker {
        let directory = tempfile::tempdir().expect("a directory");
        let port = TcpListener::bind((network.address.as_str(), 0)).expect("a free port").local_addr().expect("bound").port();
        let environment = kdc.environment("server");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command.args(["jobs", "broker", "--principal", BROKER, "--service", SERVICE, "--uid-min", "1", "--scheduler", "root"]);
        command.args(["--ticket-life", TICKET_LIFE, "--listen", &format!("{}:{port}", network.address)]);
        command.arg("--keytab").arg(kdc.keytab("broker.keytab", &[BROKER])).arg("--state").arg(directory.path().join("state"));
        command.arg("--socket").arg(directory.path().join("socket")).envs(environment.clone());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the binary starts");
        let broker = Broker { directory, environment, port, _child: KillOnDrop(child) };
        let end = Instant::now() + Duration::from_secs(60);
        while std::os::unix::net::UnixStream::connect(broker.socket()).is_err() {
            assert!(Instant::now() < end, "the broker does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        broker
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn begin(&self, job: &str, user: &str, node: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command.args(["jobs", "begin", "--job", job, "--user", user, "--nodes", node, "--for", "10m", "--socket"]).arg(self.socket());
        assert!(command.envs(self.environment.clone()).status().expect("the binary starts").success(), "the job is registered");
    }
}

#[test]
fn job_works_through_rpc_gssd_longer_than_its_tickets_live() {
    let Some(network) = Network::new() else { return };
    if !has_gssd() {
        return;
    }
    let address = network.address.parse().expect("an address");
    let Some(realm) = LdapRealm::start(&[address]) else { return };
    let (kdc, machine) = (&realm.kdc, format!("host/{}", network.guest_name()));
    kdc.add(&["daemon", SERVICE, &machine]);
    kdc.add_with(&[BROKER], "+ok_to_auth_as_delegate");
    realm.allow_delegation(BROKER, &[SERVICE]);
    let machine_keytab = kdc.keytab("machine.keytab", &[&machine]);
    let server_keytab = kdc.keytab("server.keytab", &[SERVICE]);
    kdc.client(&Client { name: "server", clock_skew: 1, ..Client::default() });
    std::fs::create_dir(kdc.path("guest")).expect("a directory");
    let krb5_conf = kdc.client(&Client { name: "guest/krb5", kdc: address, enctypes: ENCTYPES, clock_skew: 1, ..Client::default() });
    let server = Server::start_with(
        &network,
        ServerOptions {
            options: "rw,sec=krb5p".into(),
            more: vec!["--keytab".into(), server_keytab.into()],
            environment: kdc.environment("server"),
            port: None,
        },
    );
    std::fs::set_permissions(server.path(""), std::fs::Permissions::from_mode(0o777)).expect("the export is ours");
    let broker = Broker::start(kdc, &network);
    broker.begin("7", "daemon", &network.guest_name());
    let out = Guest::new(&network, &server)
        .limit(600)
        .file(&krb5_conf)
        .file(&guest::work("gss.bash"))
        .file(&machine_keytab)
        .set("VOUCH", env!("CARGO_BIN_EXE_vouch"))
        .set("BROKER", &format!("server.vouch.test:{}", broker.port))
        .run("jobs.sh");
    for what in ["no ticket-granting ticket", "worked for 60 s", "others are refused", "access ended with the job", "nothing is left"] {
        assert!(out.contains(&format!("ok: {what}")), "{what}: {out}");
    }
    assert_eq!(std::fs::metadata(server.path("output")).expect("the job's file").uid(), 1, "the job's user owns the file");
}
