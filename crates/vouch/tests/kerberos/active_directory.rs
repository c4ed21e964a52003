//! A domain of Active Directory, with Samba as its controller, in namespaces of their own: a machine
//! that adcli(8) joins, and tickets of more than 16 KiB.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Child;

use vouch_gss_mit::{ClientSource, MitInitiator};
use vouch_nfs4_client::{Client, Config, Error, establish};
use vouch_rpcsec_gss::{InitStep, Initiator};

use crate::kill_on_drop::KillOnDrop;
use crate::prelude::*;

/// A root file system with Samba and adcli, by `script/install-needs samba-dc`.
const ROOT: &str = "/opt/vouch-samba";
const DOMAIN_REALM: &str = "AD.VOUCH.TEST";
const TARGET: &str = "nfs@filer.ad.vouch.test";
const PASSWORD: &str = "Passw0rd-vouch";
/// Groups in which alice is by another group.
const NESTING_GROUPS: u32 = 2_500;

const INSIDE: &str = "VOUCH_TEST_DOMAIN";
const PORT: &str = "VOUCH_TEST_DOMAIN_PORT";
const ENTERED: &str = "entered with a token of ";
const REFUSED: &str = "refused: ";

const SET_UP: &str = r#"set -e
ip link set lo up
for directory in var/lib/samba var/cache/samba var/log/samba etc/samba run tmp; do
    mkdir -p "$1/$directory" "$0/root/$directory"
    mount --bind "$0/root/$directory" "$1/$directory"
done
mkdir -p "$1/var/lib/samba/private" "$1/run/samba"
mount --bind "$0" "$1/mnt"
mount --bind "$0/hosts" "$1/etc/hosts"
[ -e "$1/etc/krb5.conf" ] || touch "$1/etc/krb5.conf"
mount --bind "$0/krb5.conf" "$1/etc/krb5.conf"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
cp -a /etc "$0/etc"
printf 'passwd: files\ngroup: files\n' >"$0/etc/nsswitch.conf"
echo 'alice:x:54321:54321::/:/bin/sh' >>"$0/etc/passwd"
mount --bind "$0/etc" /etc
"#;

const ADD_USERS: &str = r#"import sys
from samba.auth import system_session
from samba.param import LoadParm
from samba.samdb import SamDB
parameters = LoadParm()
parameters.load_default()
directory = SamDB(session_info=system_session(), lp=parameters)
base = "CN=Users," + directory.domain_dn()
for name in ("alice", "bob"):
    directory.newuser(name, sys.argv[1])
directory.transaction_start()
directory.add({"dn": "CN=inner," + base, "objectClass": "group", "sAMAccountName": "inner", "member": "CN=alice," + base})
for number in range(int(sys.argv[2])):
    directory.add({"dn": f"CN=outer{number},{base}", "objectClass": "group", "sAMAccountName": f"outer{number}",
                   "groupType": "-2147483644", "member": "CN=inner," + base})
directory.transaction_commit()
"#;

#[test]
fn domain_users_are_served_with_large_tickets() {
    let may = Command::new("unshare").args(["--mount", "--net", "--pid", "--fork", "true"]).status().is_ok_and(|status| status.success());
    if !may || !Path::new(ROOT).join("usr/sbin/samba").exists() {
        println!("skipped: needs root, namespaces and samba-dc of script/install-needs");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]);
    command.arg(std::env::current_exe().expect("this program")).args(["--exact", "active_directory::domain_process", "--nocapture"]);
    let out = command.env(INSIDE, "1").output().expect("unshare(1)");
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
}

/// The child in the namespaces; does nothing without its variable.
#[test]
fn domain_process() {
    if std::env::var(INSIDE).is_err() {
        return;
    }
    let domain = Domain::start();
    domain.join();
    let export = domain.export();
    let alice = domain.kinit("alice", "first");
    let token_len = |outcome: Result<usize, String>| outcome.unwrap_or_else(|error| panic!("{error}: {}", domain.log()));
    let len = token_len(export.enters(&domain, &alice));
    assert!(len > 16 * 1024, "{len}");
    let status = |cache: &str| export.enters(&domain, cache).expect_err("no right");
    assert_eq!(status(&domain.kinit("bob", "bob")), Status::ACCESS.to_string(), "no account");
    assert_eq!(status(&domain.kinit_machine()), Status::ACCESS.to_string(), "a machine is anonymous");
}

struct Domain {
    samba: Option<KillOnDrop>,
    files: tempfile::TempDir,
}

struct Export {
    _process: KillOnDrop,
    address: SocketAddr,
}

impl Domain {
    fn start() -> Domain {
        let mut domain = Domain { samba: None, files: tempfile::tempdir().expect("a temporary directory") };
        let write = |name: &str, text: &str| std::fs::write(domain.path(name), text).expect("a file");
        write("hosts", "127.0.0.1 localhost\n127.0.0.1 dc1.ad.vouch.test dc1\n127.0.0.1 filer.ad.vouch.test filer\n");
        write(
            "krb5.conf",
            "[libdefaults]\n default_realm = AD.VOUCH.TEST\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n \
             dns_canonicalize_hostname = false\n udp_preference_limit = 1\n[realms]\n AD.VOUCH.TEST = {\n  kdc = 127.0.0.1\n }\n\
             [domain_realm]\n .ad.vouch.test = AD.VOUCH.TEST\n",
        );
        write("users.py", ADD_USERS);
        std::fs::create_dir(domain.path("replay")).expect("a directory");
        succeed(Command::new("sh").args(["-c", SET_UP]).arg(domain.path("")).arg(ROOT));
        let mut provision = domain.inside("samba-tool");
        provision.args(["domain", "provision", "--realm", DOMAIN_REALM, "--domain", "ADVOUCH", "--adminpass", PASSWORD]);
        provision.args(["--server-role", "dc", "--dns-backend", "NONE", "--host-name", "dc1", "--host-ip", "127.0.0.1"]);
        succeed(provision.args(["--option", "interfaces=lo", "--option", "bind interfaces only=yes"]));
        succeed(domain.inside("python3").args(["/mnt/users.py", PASSWORD, &NESTING_GROUPS.to_string()]));
        let log = std::fs::File::create(domain.path("samba.log")).expect("a file");
        let mut samba = domain.inside("/usr/sbin/samba");
        samba.args(["-i", "--debug-stdout", "-d", "0"]).stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        domain.samba = Some(KillOnDrop(samba.spawn().expect("chroot(8)")));
        for port in [88, 389] {
            until("the controller does not start", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        }
        domain
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn log(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.path(name)).unwrap_or_default();
        format!("{}{}", read("samba.log"), read("export.log"))
    }

    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.args([ROOT, program]).env("LC_ALL", "C");
        command
    }

    fn adcli(&self, action: &str) -> Command {
        let mut command = self.inside("adcli");
        command.args([action, "--domain", "ad.vouch.test", "--domain-controller", "dc1.ad.vouch.test", "--computer-name", "FILER"]);
        command.args(["--host-fqdn", "filer.ad.vouch.test", "--host-keytab", "/mnt/filer.keytab"]);
        command
    }

    fn join(&self) {
        let mut join = self.adcli("join");
        join.args(["--service-name", "host", "--service-name", "nfs", "--login-user", "Administrator", "--stdin-password"]);
        succeed_with(&mut join, PASSWORD);
    }

    fn vouch(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command.env("KRB5_CONFIG", self.path("krb5.conf")).env("KRB5RCACHEDIR", self.path("replay")).env("HOME", self.files.path());
        command.env("VOUCH_RUNTIME_DIR", self.path("runtime")).stdin(Stdio::null());
        command
    }

    fn kinit(&self, user: &str, cache: &str) -> String {
        let cache = format!("FILE:{}", self.path(cache).display());
        let mut kinit = Command::new("kinit");
        succeed_with(kinit.env("KRB5_CONFIG", self.path("krb5.conf")).args(["-c", &cache, user]), &format!("{PASSWORD}\n"));
        cache
    }

    fn kinit_machine(&self) -> String {
        let cache = format!("FILE:{}", self.path("machine").display());
        let mut kinit = Command::new("kinit");
        kinit.env("KRB5_CONFIG", self.path("krb5.conf")).arg("-k").arg("-t").arg(self.path("filer.keytab"));
        succeed(kinit.args(["-c", &cache, "FILER$"]));
        cache
    }

    fn export(&self) -> Export {
        let own = self.path("data/own");
        std::fs::create_dir_all(own.join("inside")).expect("a directory");
        std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("an own directory");
        std::os::unix::fs::chown(&own, Some(54_321), Some(54_321)).expect("root");
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr()).expect("a free port");
        let mut command = self.vouch();
        command.arg("export").arg("--dir").arg(self.path("data")).arg("--state").arg(self.path("state"));
        command.args(["--options", "rw,insecure,sec=krb5:krb5i:krb5p", "--listen", &address.to_string(), "--keytab"]);
        command.arg(self.path("filer.keytab"));
        let log = std::fs::File::create(self.path("export.log")).expect("a file");
        let process = KillOnDrop(command.stdout(Stdio::null()).stderr(log).spawn().expect("the binary starts"));
        until("the export does not start", || TcpStream::connect(address).is_ok());
        Export { _process: process, address }
    }
}

impl Export {
    fn child(&self, domain: &Domain, cache: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "active_directory::client_process", "--nocapture"]).env_remove(INSIDE);
        command.env("KRB5_CONFIG", domain.path("krb5.conf")).env("KRB5CCNAME", cache);
        command.env(PORT, self.address.port().to_string()).stdin(Stdio::null());
        command
    }

    /// Length of the token, or the status of the refusal.
    fn enters(&self, domain: &Domain, cache: &str) -> Result<usize, String> {
        let out = self.child(domain, cache).output().expect("this program starts");
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        let after = |mark: &str| text.lines().find_map(|line| Some(line.split_once(mark)?.1.to_owned()));
        match (after(ENTERED), after(REFUSED)) {
            (Some(len), None) if out.status.success() => Ok(len.parse().expect("a number")),
            (None, Some(status)) if out.status.success() => Err(status),
            _ => panic!("{text}{}", domain.log()),
        }
    }
}

/// A client's process; does nothing without its variables.
#[test]
fn client_process() {
    let Ok(port) = std::env::var(PORT) else { return };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().expect("a port")));
    let initiator = || MitInitiator::new(TARGET, &ClientSource::default()).unwrap_or_else(|fault| panic!("{fault}"));
    let InitStep::Continue { token } = initiator().step(None).unwrap_or_else(|fault| panic!("{fault}")) else { panic!("a token") };
    let protection = establish(address, initiator(), Service::Privacy).unwrap_or_else(|error| panic!("{error}"));
    let name = std::env::var("KRB5CCNAME").expect("the parent sets it");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let config = Config::new(address, 1, Identity::new(name.into_bytes(), Verifier([7; 8])), protection);
        let client = Client::connect(config).await.unwrap_or_else(|error| panic!("{error}"));
        once(&client, token.len()).await;
    });
}

async fn once(client: &Client, token_len: usize) {
    match client.walk(b"export/own/inside").await {
        Ok(_) => println!("{ENTERED}{token_len}"),
        Err(Error::Refused { status, .. }) => println!("{REFUSED}{status}"),
        Err(error) => panic!("{error}"),
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn succeed(command: &mut Command) {
    succeed_with(command, "");
}

fn succeed_with(command: &mut Command, input: &str) {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child: Child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("the child reads its input");
    let out = child.wait_with_output().expect("the child ends");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {}: {text}", out.status);
}
