//! A cluster on this machine: a realm, a broker, and nodes with an agent each.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vouch_testkit::{in_namespace, require, succeed, text_of, within, words};

use vouch_audit::keys::Ratchet;
use vouch_audit::trail::{KEY_FILE, SystemDisk, create_key};

use vouch_testkit::kdc;
use vouch_testkit::kubernetes::Cluster;
use vouch_testkit::ldap::LdapRealm;

pub(crate) struct Site {
    pub(crate) realm: LdapRealm,
    /// Whether agents of the shared principal are accepted.
    pub(crate) shared: bool,
    /// Network namespaces of machines that have one.
    pub(crate) namespaces: BTreeMap<&'static str, String>,
    directory: tempfile::TempDir,
    address: SocketAddr,
    /// Connections of agents at once. One address may have a quarter.
    pub(crate) connections_max: u32,
    life: Duration,
    /// Whose pods get tickets.
    pub(crate) cluster: Option<Cluster>,
    broker: Option<Child>,
    agents: BTreeMap<String, Child>,
}

impl Site {
    pub(crate) fn start(life: Duration) -> Site {
        let mut site = Self::start_on(Ipv4Addr::LOCALHOST.into(), life);
        site.start_agent("n1");
        site.start_agent("n2");
        site
    }

    /// The KDC and the broker are at this address. No agent runs yet.
    pub(crate) fn start_on(address: IpAddr, life: Duration) -> Site {
        require("root, to write caches of several users", rustix::process::geteuid().is_root());
        let realm = LdapRealm::start(if address.is_loopback() {
            &[]
        } else {
            std::slice::from_ref(&address)
        });
        let kdc = &realm.kdc;
        kdc.client(&kdc::Client {
            name: "strict",
            kdc: address,
            clock_skew: 1,
            ..kdc::Client::default()
        });
        kdc.add(&["daemon", "nfs/localhost", "nfs/other", "host/n1", "host/n2", "host/image"]);
        kdc.add_with(&["games"], "-allow_forwardable");
        kdc.add_with(&["man"], "-allow_tix");
        let broker = broker_principal(address);
        kdc.add_with(&[&broker], "+ok_to_auth_as_delegate");
        realm.allow_delegation(&broker, &["nfs/localhost"]);
        kdc.keytab("service", &["nfs/localhost"]);
        kdc.keytab("broker", &[&broker]);
        for node in ["n1", "n2", "image"] {
            kdc.keytab(node, &[&format!("host/{node}")]);
        }
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("trail")).expect("a directory");
        create_key(
            &SystemDisk,
            &directory.path().join("trail").join(KEY_FILE),
            &Ratchet::new([1; 16], &[2; 32]),
        )
        .expect("a key");
        let address =
            TcpListener::bind((address, 0)).expect("a free port").local_addr().expect("bound");
        // As the default, [::]: an IPv6 socket that takes IPv4 clients.
        let address = match address {
            SocketAddr::V4(v4) => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
            SocketAddr::V6(_) => address,
        };
        let (namespaces, agents) = (BTreeMap::new(), BTreeMap::new());
        let mut site = Site {
            realm,
            shared: false,
            namespaces,
            directory,
            address,
            connections_max: 512,
            life,
            cluster: None,
            broker: None,
            agents,
        };
        for node in ["n1", "n2"] {
            std::fs::create_dir(site.path(node)).expect("a directory");
        }
        site.start_broker();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn vouch(&self) -> Command {
        let mut command = self.program();
        command.arg("jobs");
        command
    }

    fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command
            .envs(self.realm.kdc.environment("strict"))
            .env("VOUCH_RUNTIME_DIR", self.path("runtime"))
            .stdin(Stdio::null());
        command
    }

    /// The output of `vouch status` with these options.
    pub(crate) fn status(&self, args: &[&str]) -> String {
        succeed(self.program().arg("status").args(args))
    }

    pub(crate) fn check(&self) -> String {
        let mut command = self.program();
        command
            .env("HOME", self.directory.path())
            .args(["check", "--no-cache", "--state"])
            .arg(self.path("no-state"));
        text_of(&command.output().expect("the binary starts"))
    }

    /// Status socket of the broker, or of the agent of a machine.
    pub(crate) fn status_socket(&self, machine: Option<&str>) -> PathBuf {
        let (kind, child) = match machine {
            None => ("jobs-broker", self.broker.as_ref()),
            Some(machine) => ("jobs-agent", self.agents.get(machine)),
        };
        self.path(&format!("runtime/{kind}-{}.sock", child.expect("it runs").id()))
    }

    /// The answer to `GET /healthz`, with its status line.
    pub(crate) fn health(&self, machine: Option<&str>) -> String {
        let mut socket =
            UnixStream::connect(self.status_socket(machine)).expect("the status socket");
        socket
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: vouch\r\nConnection: close\r\n\r\n")
            .expect("a request");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        answer
    }

    pub(crate) fn start_broker(&mut self) {
        self.start_broker_for(&["nfs/localhost"]);
    }

    pub(crate) fn start_broker_for(&mut self, services: &[&str]) {
        self.kill_broker();
        let mut command = self.vouch();
        command.args(words(&format!(
            "broker --principal {} --uid-min 1 --audit-sync none --listen {}",
            broker_principal(self.address.ip().to_canonical()),
            self.address
        )));
        command.args(words(&format!("--ticket-life {}s", self.life.as_secs())));
        command.args(services.iter().flat_map(|service| ["--service", service]));
        if self.shared {
            command.args(["--shared-node-principal", "host/image"]);
        }
        if let Some(cluster) = &self.cluster {
            command.args(["--pod-issuer", Cluster::ISSUER, "--pod-keys"]).arg(cluster.keys());
            command.arg("--pod-users").arg(cluster.users());
        }
        command
            .arg("--keytab")
            .arg(self.realm.kdc.path("keytabs/broker"))
            .arg("--state")
            .arg(self.path("broker"));
        command.arg("--socket").arg(self.socket()).arg("--audit").arg(self.path("trail"));
        command
            .arg("--spool")
            .arg(self.path("spool"))
            .args(["--connections-max", &self.connections_max.to_string()]);
        self.broker = Some(
            command
                .stdout(Stdio::null())
                .stderr(self.log("broker.log"))
                .spawn()
                .expect("the binary starts"),
        );
        within(60, "the broker listens", || {
            std::os::unix::net::UnixStream::connect(self.socket()).is_ok()
        });
    }

    /// A connection to the broker that says nothing.
    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("the broker listens")
    }

    pub(crate) fn kill_broker(&mut self) {
        self.broker.take().into_iter().for_each(kill);
    }

    pub(crate) fn start_agent(&mut self, node: &str) {
        self.start_agent_as(node, &format!("host/{node}"));
    }

    pub(crate) fn start_agent_as(&mut self, node: &str, principal: &str) {
        self.start_agent_named(node, node, principal);
    }

    /// `machine`: where it runs; `node`: what it calls itself.
    pub(crate) fn start_agent_named(&mut self, machine: &str, node: &str, principal: &str) {
        self.kill_agent(machine);
        std::fs::create_dir_all(self.path(machine)).expect("a directory");
        let keytab = principal.rsplit('/').next().expect("a name");
        let mut command = self.vouch();
        command.args(["agent", "--poll", "1s", "--node", node, "--principal", principal]);
        command.args([
            "--broker",
            &format!("{}:{}", host(self.address.ip().to_canonical()), self.address.port()),
        ]);
        command.arg("--keytab").arg(self.realm.kdc.path("keytabs").join(keytab));
        command
            .args(["--cache", &format!("FILE:{}/krb5cc_%{{uid}}", self.path(machine).display())]);
        command
            .arg("--state")
            .arg(self.path(&format!("{machine}.state")))
            .arg("--socket")
            .arg(self.agent_socket(machine));
        if let Some(namespace) = self.namespaces.get(machine) {
            command = in_namespace(namespace, &command);
        }
        let child = command
            .stdout(Stdio::null())
            .stderr(self.log("agents.log"))
            .spawn()
            .expect("the binary starts");
        self.agents.insert(machine.to_owned(), child);
        let socket = self.agent_socket(machine);
        within(60, "the agent listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    /// The agent's state, as text.
    pub(crate) fn state(&self, machine: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{machine}.state/agent.json")))
            .expect("the agent's state")
    }

    /// The machine's next agent reports that it has removed the tickets of this job.
    pub(crate) fn forge_left(&mut self, machine: &str, job: &str) {
        self.kill_agent(machine);
        let (before, after) = (r#""left":[]"#, format!(r#""left":[["{job}","false report"]]"#));
        let state = self.state(machine);
        assert!(state.contains(before), "{state}");
        std::fs::write(
            self.path(&format!("{machine}.state/agent.json")),
            state.replace(before, &after),
        )
        .expect("a file");
    }

    pub(crate) fn kill_agent(&mut self, machine: &str) {
        self.agents.remove(machine).into_iter().for_each(kill);
    }

    pub(crate) fn begin(
        &self,
        job: &str,
        user: &str,
        nodes: &str,
        lasts: &str,
    ) -> Result<(), String> {
        let mut command = self.vouch();
        command
            .args(words(&format!(
                "begin --job {job} --user {user} --nodes {nodes} --for {lasts} --socket"
            )))
            .arg(self.socket());
        outcome(command)
    }

    /// Lets users reach their caches, and read krb5.conf.
    pub(crate) fn open_for_users(&self) {
        use std::os::unix::fs::PermissionsExt as _;
        for directory in [self.directory.path().to_owned(), self.realm.kdc.path(".")] {
            std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))
                .expect("a directory");
        }
    }

    /// As an ordinary user of the broker's host.
    pub(crate) fn begin_as_user(&self, job: &str) -> Result<(), String> {
        // The user must reach the program and the socket.
        self.open_for_users();
        let program = self.path("vouch");
        std::fs::copy(env!("CARGO_BIN_EXE_vouch"), &program).expect("a copy");
        let mut command = Command::new(&program);
        command
            .args(words(&format!(
                "jobs begin --job {job} --user daemon --nodes n1 --for 1m --socket"
            )))
            .arg(self.socket());
        command.uid(65_534).gid(65_534).current_dir("/").stdin(Stdio::null());
        let answer = outcome(command);
        std::fs::remove_file(program).expect("the copy");
        answer
    }

    pub(crate) fn end(&self, job: &str) -> Result<(), String> {
        let mut command = self.vouch();
        command
            .args(["end", "--job", job, "--socket"])
            .arg(self.socket())
            .arg("--spool")
            .arg(self.path("spool"));
        outcome(command)
    }

    pub(crate) fn list(&self) -> String {
        let mut command = self.vouch();
        let out = command
            .args(["list", "--json", "--socket"])
            .arg(self.socket())
            .output()
            .expect("the binary starts");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    pub(crate) fn prolog(&self, node: &str, job: &str) -> Result<(), String> {
        let mut command = self.vouch();
        command.args(["prolog", "--strict", "--job", job, "--socket"]).arg(self.agent_socket(node));
        outcome(command)
    }

    pub(crate) fn prolog_as(&self, node: &str, job: &str, uid: &str) -> Result<(), String> {
        let mut command = self.vouch();
        command
            .args(["prolog", "--strict", "--job", job, "--uid", uid, "--socket"])
            .arg(self.agent_socket(node));
        outcome(command)
    }

    pub(crate) fn epilog(&self, node: &str, job: &str) -> Result<(), String> {
        let mut command = self.vouch();
        command.args(["epilog", "--strict", "--job", job, "--socket"]).arg(self.agent_socket(node));
        outcome(command)
    }

    pub(crate) fn cache_path(&self, node: &str, user: &str) -> PathBuf {
        let user =
            nix::unistd::User::from_name(user).expect("the name service").expect("a system user");
        self.path(node).join(format!("krb5cc_{}", user.uid))
    }

    pub(crate) fn cache(&self, node: &str, user: &str) -> String {
        format!("FILE:{}", self.cache_path(node, user).display())
    }

    pub(crate) fn klist(&self, node: &str, user: &str) -> String {
        let out = self
            .realm
            .kdc
            .program_as("klist", "strict")
            .arg(self.cache(node, user))
            .output()
            .expect("klist(1)");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Waits until the trail on the disk is complete, by a stop of the broker.
    pub(crate) fn audit(&mut self, filter: &[&str], more: &[&Path]) -> String {
        if let Some(broker) = &mut self.broker {
            let pid = rustix::process::Pid::from_child(broker);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our child");
            broker.wait().expect("our child");
            self.start_broker();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        succeed(command.args(["audit", "search"]).args(filter).arg(self.path("trail")).args(more))
    }

    /// Files in the nodes' directories of caches.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let files = ["n1", "n2"]
            .into_iter()
            .flat_map(|node| std::fs::read_dir(self.path(node)).expect("a directory").flatten());
        files.map(|file| file.path().display().to_string()).collect()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("broker.sock")
    }

    pub(crate) fn agent_socket(&self, machine: &str) -> PathBuf {
        self.path(&format!("{machine}.sock"))
    }

    fn log(&self, name: &str) -> std::fs::File {
        std::fs::OpenOptions::new().create(true).append(true).open(self.path(name)).expect("a file")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill_broker();
        std::mem::take(&mut self.agents).into_values().for_each(kill);
        if std::thread::panicking() {
            for name in ["broker.log", "agents.log"] {
                eprintln!(
                    "{name}:\n{}",
                    std::fs::read_to_string(self.path(name)).unwrap_or_default()
                );
            }
        }
    }
}

/// The host part of the broker's principal, which agents connect to.
fn host(address: IpAddr) -> String {
    if address.is_loopback() { "localhost".into() } else { address.to_string() }
}

fn broker_principal(address: IpAddr) -> String {
    format!("vouch-jobs/{}", host(address))
}

/// SIGKILL: no time to clean up.
fn kill(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn outcome(mut command: Command) -> Result<(), String> {
    let out = command.output().expect("the binary starts");
    match out.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}
