//! `vouch jobs` on a node: its agent and rpc.gssd in a guest; broker, KDC and server outside.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use vouch_testkit::{within, words};

use crate::guest::{self, Guest, Network};
use crate::kerberos::{ENCTYPES, require_gssd};
use crate::memory::GuestMemory;
use crate::server::{Server, ServerOptions};
use vouch_testkit::kdc::{Client, Kdc, REALM};
use vouch_testkit::kill_on_drop::KillOnDrop;
use vouch_testkit::ldap::LdapRealm;

pub(crate) const BROKER: &str = "vouch-jobs/server.vouch.test";
pub(crate) const SERVICE: &str = "nfs/server.vouch.test";
/// Users with a job, and with a ticket of their own that is renewed without one.
pub(crate) const JOB_USER: &str = "daemon";
const LONE_USER: &str = "games";

/// Seconds that tickets live, that they can be renewed, and that the jobs run. VOUCH_JOB_MINUTES
/// makes it a campaign with tickets of a minute.
fn times() -> [u64; 3] {
    match std::env::var("VOUCH_JOB_MINUTES") {
        Ok(minutes) => [60, 300, 60 * minutes.parse::<u64>().expect("a number of minutes")],
        Err(_) => [20, 30, 60],
    }
}

pub(crate) struct Broker {
    directory: tempfile::TempDir,
    environment: Vec<(&'static str, OsString)>,
    pub(crate) port: u16,
    _child: KillOnDrop,
}

impl Broker {
    /// `more` is added to the environment of its programs.
    pub(crate) fn start(
        kdc: &Kdc,
        network: &Network,
        ticket_s: u64,
        more: &[(&'static str, OsString)],
    ) -> Broker {
        let directory = tempfile::tempdir().expect("a directory");
        let port = TcpListener::bind((network.address.as_str(), 0))
            .expect("a free port")
            .local_addr()
            .expect("bound")
            .port();
        let environment = [&kdc.environment("server"), more].concat();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command.args(words(&format!(
            "jobs broker --principal {BROKER} --service {SERVICE} --uid-min 1 --scheduler root"
        )));
        command.args([
            "--ticket-life",
            &format!("{ticket_s}s"),
            "--listen",
            &format!("{}:{port}", network.address),
        ]);
        command
            .arg("--keytab")
            .arg(kdc.keytab("broker.keytab", &[BROKER]))
            .arg("--state")
            .arg(directory.path().join("state"));
        command.arg("--socket").arg(directory.path().join("socket")).envs(environment.clone());
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the binary starts");
        let broker = Broker { directory, environment, port, _child: KillOnDrop(child) };
        within(60, "the broker does not start", || {
            std::os::unix::net::UnixStream::connect(broker.socket()).is_ok()
        });
        broker
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn begin(&self, job: &str, user: &str, node: &str, seconds: u64) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command
            .args(words(&format!(
                "jobs begin --job {job} --user {user} --nodes {node} --for {seconds}s --socket"
            )))
            .arg(self.socket());
        assert!(
            command.envs(self.environment.clone()).status().expect("the binary starts").success(),
            "the job is registered"
        );
    }
}

#[test]
#[ignore = "needs root and guests"]
fn job_works_through_rpc_gssd_longer_than_its_tickets_live() {
    let network = Network::new();
    require_gssd();
    let address = network.address.parse().expect("an address");
    let realm = LdapRealm::start(&[address]);
    let (kdc, machine) = (&realm.kdc, format!("host/{}", network.guest_name()));
    kdc.add(&[JOB_USER, LONE_USER, SERVICE, &machine]);
    // The LDAP back end makes it without a renewable life.
    kdc.kadmin(&format!("modprinc -maxrenewlife 7d krbtgt/{REALM}\n"));
    kdc.add_with(&[BROKER], "+ok_to_auth_as_delegate");
    realm.allow_delegation(BROKER, &[SERVICE]);
    let [ticket_s, renewable_s, work_s] = times();
    let machine_keytab = kdc.keytab("machine.keytab", &[&machine]);
    let user_keytab = kdc.keytab(&format!("{LONE_USER}.keytab"), &[LONE_USER]);
    let server_keytab = kdc.keytab("server.keytab", &[SERVICE]);
    kdc.client(&Client { name: "server", clock_skew: 1, ..Client::default() });
    std::fs::create_dir(kdc.path("guest")).expect("a directory");
    let krb5_conf = kdc.client(&Client {
        name: "guest/krb5",
        kdc: address,
        enctypes: ENCTYPES,
        clock_skew: 1,
        ..Client::default()
    });
    let server = Server::start_with(
        &network,
        ServerOptions {
            options: "rw,sec=krb5p".into(),
            more: vec!["--keytab".into(), server_keytab.into()],
            environment: kdc.environment("server"),
            ..ServerOptions::default()
        },
    );
    std::fs::set_permissions(server.path(""), std::fs::Permissions::from_mode(0o777))
        .expect("the export is ours");
    let broker = Broker::start(kdc, &network, ticket_s, &[]);
    broker.begin("7", JOB_USER, &network.guest_name(), work_s + 600);
    let guest = Guest::new(&network, &server)
        .argument("init_on_free=1")
        .limit(u32::try_from(work_s).expect("a small number") + 600)
        .file(&krb5_conf)
        .file(&guest::work("gss.bash"))
        .file(&machine_keytab)
        .file(&user_keytab)
        .set("VOUCH", env!("CARGO_BIN_EXE_vouch"))
        .set("BROKER", &format!("server.vouch.test:{}", broker.port))
        .set("TICKET_SECONDS", &ticket_s.to_string())
        .set("RENEWABLE_SECONDS", &renewable_s.to_string())
        .set("WORK_SECONDS", &work_s.to_string())
        .start("jobs.sh");
    let memory = GuestMemory::of(&network);
    memory.wait_for("ok: no ticket-granting ticket");
    let mut keys = session_keys(&memory);
    assert!(!keys.is_empty(), "the search of the memory finds no session key while the job runs");
    memory.create("searched");
    memory.wait_for("ok: worked to the end");
    keys.extend(session_keys(&memory));
    assert!(
        keys.iter().any(|key| *key != keys[0]),
        "the search finds no session key of renewed tickets"
    );
    memory.create("searched-late");
    memory.wait_for("ok: nothing is left on disks");
    let left: Vec<usize> = keys.iter().map(|key| memory.count(key)).collect();
    memory.create("searched-again");
    assert!(
        left.iter().all(|count| *count == 0),
        "session keys of ended tickets are left in the node's memory: {left:?}"
    );
    let out = guest.ok();
    println!("{out}");
    for what in [
        "the job without tickets of the broker failed",
        "worked to the end",
        "others are refused",
        "access ended with the job",
    ] {
        assert!(out.contains(&format!("ok: {what}")), "{what}: {out}");
    }
    assert_eq!(
        std::fs::metadata(server.path("output-1")).expect("the job's file").uid(),
        1,
        "the job's user owns the file"
    );
}

/// Session keys of the job user's tickets for the service: in a credential cache of version 4 the
/// client's name, the service's and the key follow each other.
fn session_keys(memory: &GuestMemory) -> Vec<Vec<u8>> {
    // The type and the length of a key of AES-128, AES-256.
    const KEYS: [([u8; 6], usize); 2] = [([0, 17, 0, 0, 0, 16], 16), ([0, 18, 0, 0, 0, 32], 32)];
    const NAME_TYPE_LEN: usize = 4;
    let part = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    let (kind, host) = SERVICE.split_once('/').expect("two parts");
    let service = [&2u32.to_be_bytes()[..], &part(REALM), &part(kind), &part(host)].concat();
    let found = memory.after(&part(JOB_USER), NAME_TYPE_LEN + service.len() + 6 + 32);
    let mut keys: Vec<_> = found
        .iter()
        .filter_map(|bytes| {
            let behind = bytes[NAME_TYPE_LEN..].strip_prefix(&service[..])?;
            KEYS.iter().find_map(|(start, len)| Some(behind.strip_prefix(start)?[..*len].to_vec()))
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}
