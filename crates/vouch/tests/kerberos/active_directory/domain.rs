//! The domain: Samba as its controller, a machine that has joined, and exports of that machine.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Child;

use super::{ENTERED, INSIDE, PORT, REFUSED, WHERE, member};
use crate::kill_on_drop::KillOnDrop;
use crate::prelude::*;

/// A root file system with Samba and adcli, by `script/install-needs samba-dc`.
pub(super) const ROOT: &str = "/opt/vouch-samba";
pub(super) const CONTROLLER_PORTS: [u16; 2] = [88, 389];
pub(super) const DOMAIN_REALM: &str = "AD.VOUCH.TEST";
pub(super) const PASSWORD: &str = "Passw0rd-vouch";
/// Groups in which alice is by another group.
const NESTING_GROUPS: u32 = 2_500;

const SET_UP: &str = r#"set -e
ip link set lo up
ip addr add 127.0.0.2/32 dev lo
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
mount --bind "$0/root/run" /run
"#;

const DIRECTORIES: [&str; 6] = ["var/lib/samba/private", "var/cache/samba", "var/log/samba", "etc/samba", "run/samba", "tmp"];

const INSIDE_OWN: &str = r#"set -e
own=$0
for directory in var/lib/samba var/cache/samba var/log/samba etc/samba run tmp; do
    mount --bind "$own/$directory" "$1/$directory"
done
exec chroot "$@"
"#;

const ADD_USERS: &str = r#"import sys
from samba.auth import system_session
from samba.param import LoadParm
from samba.samdb import SamDB
parameters = LoadParm()
parameters.load_default()
directory = SamDB(session_info=system_session(), lp=parameters)
base = "CN=Users," + directory.domain_dn()
for name in ("alice", "bob", "carol"):
    directory.newuser(name, sys.argv[1])
directory.transaction_start()
directory.add({"dn": "CN=inner," + base, "objectClass": "group", "sAMAccountName": "inner", "member": "CN=alice," + base})
for number in range(int(sys.argv[2])):
    directory.add({"dn": f"CN=outer{number},{base}", "objectClass": "group", "sAMAccountName": f"outer{number}",
                   "groupType": "-2147483644", "member": "CN=inner," + base})
member = "carol"
for name in ("crew", "team", "staff"):
    directory.add({"dn": f"CN={name},{base}", "objectClass": "group", "sAMAccountName": name, "member": f"CN={member},{base}"})
    member = name
directory.transaction_commit()
"#;

pub(super) struct Domain {
    samba: Option<KillOnDrop>,
    files: tempfile::TempDir,
}

pub(super) struct Export {
    _process: KillOnDrop,
    pub(super) address: SocketAddr,
}

impl Domain {
    pub(super) fn start() -> Domain {
        let mut domain = Domain { samba: None, files: tempfile::tempdir().expect("a temporary directory") };
        let write = |name: &str, text: &str| std::fs::write(domain.path(name), text).expect("a file");
        write(
            "hosts",
            "127.0.0.1 localhost\n127.0.0.1 dc1.ad.vouch.test dc1\n127.0.0.2 dc2.ad.vouch.test dc2\n127.0.0.1 filer.ad.vouch.test filer\n",
        );
        write(
            "krb5.conf",
            "[libdefaults]\n default_realm = AD.VOUCH.TEST\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n \
             dns_canonicalize_hostname = false\n udp_preference_limit = 1\n[realms]\n AD.VOUCH.TEST = {\n  kdc = 127.0.0.1\n  \
             kpasswd_server = 127.0.0.1\n }\n[domain_realm]\n .ad.vouch.test = AD.VOUCH.TEST\n",
        );
        write("winbind.conf", "passwd: files winbind\ngroup: files winbind\n");
        // As docs/directories.md has it.
        let names = "[realms]\n AD.VOUCH.TEST = {\n  auth_to_local = RULE:[1:ADVOUCH\\$1]\n }\n";
        write("names.conf", names);
        write("users.py", ADD_USERS);
        std::fs::create_dir(domain.path("replay")).expect("a directory");
        succeed(Command::new("sh").args(["-c", SET_UP]).arg(domain.path("")).arg(ROOT));
        let mut provision = domain.inside("samba-tool");
        provision.args(["domain", "provision", "--realm", DOMAIN_REALM, "--domain", "ADVOUCH", "--adminpass", PASSWORD]);
        provision.args(["--server-role", "dc", "--dns-backend", "NONE", "--host-name", "dc1", "--host-ip", "127.0.0.1"]);
        succeed(provision.args(["--option", "interfaces=127.0.0.1/32", "--option", "bind interfaces only=yes"]));
        succeed(domain.inside("python3").args(["/mnt/users.py", PASSWORD, &NESTING_GROUPS.to_string()]));
        domain.copy_name_service();
        domain.start_controller();
        domain
    }

    pub(super) fn start_controller(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.path("samba.log")).expect("a file");
        let mut samba = self.inside("/usr/sbin/samba");
        samba.args(["-i", "--debug-stdout", "-d", "0"]).stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        self.samba = Some(KillOnDrop(samba.spawn().expect("chroot(8)")));
        for port in CONTROLLER_PORTS {
            until("the controller does not start", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        }
    }

    pub(super) fn stop_controller(&mut self) {
        if let Some(samba) = self.samba.take() {
            rustix::process::kill_process(rustix::process::Pid::from_child(&samba), rustix::process::Signal::TERM).expect("our child");
        }
        for port in CONTROLLER_PORTS {
            until("the controller does not stop", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        }
    }

    /// The module of winbind with its libraries, without the others of Samba's root.
    fn copy_name_service(&self) {
        let libraries = Path::new(ROOT).join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        std::fs::create_dir(self.path("modules")).expect("a directory");
        for name in ["libnss_winbind.so.2", "libbsd.so.0", "libmd.so.0"] {
            std::fs::copy(libraries.join(name), self.path("modules").join(name)).expect("a library of Samba's root");
        }
    }

    /// Number of a group of the domain, by winbind.
    pub(super) fn group_id(&self, group: &str) -> u32 {
        let mut command = self.with_winbind("getent");
        let out = command.args(["-s", "winbind", "group", group]).output().expect("getent(1)");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let number = text.split(':').nth(2).and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("winbind does not know {group}: {text}{}", self.log()))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(super) fn log(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.path(name)).unwrap_or_default();
        format!("{}{}", read("samba.log"), read("export.log"))
    }

    pub(super) fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.args([ROOT, program]).env("LC_ALL", "C");
        command
    }

    /// Directories for another daemon of Samba's root.
    pub(super) fn make_root(&self, name: &str) {
        for directory in DIRECTORIES {
            std::fs::create_dir_all(self.path(name).join(directory)).expect("a directory");
        }
    }

    /// A program of Samba's root with the directories of this name.
    pub(super) fn inside_own(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", INSIDE_OWN]);
        command.arg(self.path(name)).args([ROOT, program]).env("LC_ALL", "C");
        command
    }

    fn adcli(&self, action: &str) -> Command {
        let mut command = self.inside("adcli");
        command.args([action, "--domain", "ad.vouch.test", "--domain-controller", "dc1.ad.vouch.test", "--computer-name", "FILER"]);
        command.args(["--host-fqdn", "filer.ad.vouch.test", "--host-keytab", "/mnt/filer.keytab"]);
        command
    }

    pub(super) fn join(&self) {
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

    pub(super) fn kinit(&self, user: &str, cache: &str) -> String {
        self.kinit_by(&self.path("krb5.conf"), user, cache).unwrap_or_else(|error| panic!("kinit {user}: {error}{}", self.log()))
    }

    pub(super) fn kinit_by(&self, profile: &Path, user: &str, cache: &str) -> Result<String, String> {
        let cache = format!("FILE:{}", self.path(cache).display());
        let mut kinit = Command::new("kinit");
        output_with(kinit.env("KRB5_CONFIG", profile).args(["-c", &cache, user]), &format!("{PASSWORD}\n")).map(|_| cache)
    }

    pub(super) fn kinit_machine(&self) -> String {
        let cache = format!("FILE:{}", self.path("machine").display());
        let mut kinit = Command::new("kinit");
        kinit.env("KRB5_CONFIG", self.path("krb5.conf")).arg("-k").arg("-t").arg(self.path("filer.keytab"));
        succeed(kinit.args(["-c", &cache, "FILER$"]));
        cache
    }

    /// A directory of the export that only this user and this group enter.
    pub(super) fn make_directory(&self, name: &str, (uid, gid): (u32, u32)) {
        let path = self.path("data").join(name);
        std::fs::create_dir_all(path.join("inside")).expect("a directory");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o750)).expect("an own directory");
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).expect("root");
    }

    pub(super) fn export(&self, name: &str) -> Export {
        self.export_by(name, self.vouch(), &self.path("filer.keytab"))
    }

    /// An export whose users and groups are those of winbind: `ADVOUCH\name`.
    pub(super) fn export_by_winbind(&self) -> Export {
        let profiles = ["names.conf", "krb5.conf"].map(|profile| self.path(profile).display().to_string());
        self.export_by_winbind_with("winbind", &profiles.join(":"), &self.path("filer.keytab"))
    }

    pub(super) fn export_by_winbind_with(&self, name: &str, profiles: &str, keytab: &Path) -> Export {
        let vouch = self.vouch();
        let mut command = self.with_winbind(&vouch.get_program().to_string_lossy());
        command.envs(vouch.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("KRB5_CONFIG", profiles);
        self.export_by(name, command, keytab)
    }

    /// A command whose name service is winbind of the member.
    fn with_winbind(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg("mount --bind \"$0\" /etc/nsswitch.conf && mount --bind \"$1\" /run && shift && exec \"$@\"");
        command.arg(self.path("winbind.conf")).arg(self.path(member::NAME).join("run")).arg(program);
        command.env("LD_LIBRARY_PATH", self.path("modules"));
        command
    }

    fn export_by(&self, name: &str, mut command: Command, keytab: &Path) -> Export {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr()).expect("a free port");
        command.arg("export").arg("--dir").arg(self.path("data")).arg("--state").arg(self.path(&format!("state-{name}")));
        command.args(["--options", "rw,insecure,sec=krb5:krb5i:krb5p", "--listen", &address.to_string(), "--keytab"]);
        command.arg(keytab);
        let log = std::fs::File::options().create(true).append(true).open(self.path("export.log")).expect("a file");
        let process = KillOnDrop(command.stdout(Stdio::null()).stderr(log).spawn().expect("the binary starts"));
        until("the export does not start", || TcpStream::connect(address).is_ok());
        Export { _process: process, address }
    }
}

impl Export {
    pub(super) fn child(&self, domain: &Domain, cache: &str) -> Command {
        self.child_of("active_directory::client_process", domain, cache)
    }

    /// A test of this program that runs as a client.
    pub(super) fn child_of(&self, test: &str, domain: &Domain, cache: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", test, "--nocapture"]).env_remove(INSIDE).env(WHERE, "own");
        command.env("KRB5_CONFIG", domain.path("krb5.conf")).env("KRB5CCNAME", cache);
        command.env(PORT, self.address.port().to_string()).stdin(Stdio::null());
        command
    }

    pub(super) fn enters(&self, domain: &Domain, cache: &str) -> Result<usize, String> {
        self.enters_at("own", domain, cache)
    }

    pub(super) fn enters_at(&self, directory: &str, domain: &Domain, cache: &str) -> Result<usize, String> {
        self.outcome(domain, self.child(domain, cache).env(WHERE, directory))
    }

    /// Length of the token, or the status of the refusal. A call that is delayed is repeated.
    pub(super) fn outcome(&self, domain: &Domain, child: &mut Command) -> Result<usize, String> {
        let out = child.output().expect("this program starts");
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        let after = |mark: &str| text.lines().find_map(|line| Some(line.split_once(mark)?.1.to_owned()));
        match (after(ENTERED), after(REFUSED)) {
            (Some(len), None) if out.status.success() => Ok(len.parse().expect("a number")),
            (None, Some(status)) if out.status.success() => Err(status),
            _ => panic!("{text}{}", domain.log()),
        }
    }
}

pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(super) fn succeed(command: &mut Command) {
    succeed_with(command, "");
}

pub(super) fn succeed_with(command: &mut Command, input: &str) {
    output_with(command, input).unwrap_or_else(|error| panic!("{command:?}: {error}"));
}

/// The output, or the status and output of a failure.
fn output_with(command: &mut Command, input: &str) -> Result<String, String> {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child: Child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("the child reads its input");
    let out = child.wait_with_output().expect("the child ends");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if out.status.success() { Ok(text) } else { Err(format!("{}: {text}", out.status)) }
}
