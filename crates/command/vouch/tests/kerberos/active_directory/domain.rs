//! The domain: Samba as its controller, a machine that has joined, and exports of that machine.

use std::path::{Path, PathBuf};
use vouch_testkit::words;

use super::controller::{Controller, Naming};
use super::{ENTERED, INSIDE, PORT, REFUSED, TARGET_NAME, WHERE, documented, member};
use crate::prelude::*;
use vouch_testkit::kill_on_drop::KillOnDrop;

/// A root file system with Samba and adcli, by `script/install-needs samba-dc`.
pub(super) static ROOT: LazyLock<String> = LazyLock::new(|| peers_root("samba"));
pub(super) const PASSWORD: &str = "Passw0rd-vouch";

const NAMING: Naming = Naming { realm: "AD.VOUCH.TEST", domain: "AD", host: "dc1" };
const HOSTS: &str = "127.0.0.1 localhost
127.0.0.1 dc1.ad.vouch.test dc1
127.0.0.2 dc2.ad.vouch.test dc2
127.0.0.3 dc.partner.vouch.test
127.0.0.1 filer.ad.vouch.test filer
127.0.0.1 member.ad.vouch.test member
";
/// An lmhosts file: winbind finds the other domain by it.
const NETBIOS_HOSTS: &str = "127.0.0.3 PARTNER#1c\n127.0.0.3 DC\n";
/// A client of both domains.
const PROFILE: &str = "[libdefaults]
 default_realm = AD.VOUCH.TEST
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 dns_canonicalize_hostname = false
 udp_preference_limit = 1
[realms]
 AD.VOUCH.TEST = {
  kdc = 127.0.0.1
  kpasswd_server = 127.0.0.1
 }
 PARTNER.VOUCH.TEST = {
  kdc = 127.0.0.3
 }
[domain_realm]
 .ad.vouch.test = AD.VOUCH.TEST
 .partner.vouch.test = PARTNER.VOUCH.TEST
";

const SET_UP: &str = r#"set -e
ip link set lo up
for address in 127.0.0.2 127.0.0.3; do ip addr add $address/32 dev lo; done
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

const DIRECTORIES: [&str; 6] =
    ["var/lib/samba/private", "var/cache/samba", "var/log/samba", "etc/samba", "run/samba", "tmp"];

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
    pub(super) controller: Controller,
    files: tempfile::TempDir,
}

pub(super) struct Export {
    _process: KillOnDrop,
    pub(super) address: SocketAddr,
    pub(super) state: PathBuf,
    target: &'static str,
}

#[derive(Default)]
pub(super) struct Options<'a> {
    pub(super) by_winbind: bool,
    pub(super) by_sssd: bool,
    /// Arguments of `vouch export`.
    pub(super) more: &'a [&'a str],
}

impl Domain {
    /// alice is in this number of groups by another group.
    pub(super) fn start(nesting_groups: u32) -> Domain {
        let files = tempfile::tempdir().expect("a temporary directory");
        let controller = Controller::new(files.path(), "root", Ipv4Addr::LOCALHOST);
        let mut domain = Domain { controller, files };
        let write =
            |name: &str, text: &str| std::fs::write(domain.path(name), text).expect("a file");
        write("hosts", HOSTS);
        write("krb5.conf", PROFILE);
        write("winbind.conf", "passwd: files winbind\ngroup: files winbind\n");
        write("names.conf", &documented::file("auth_to_local"));
        write("users.py", ADD_USERS);
        std::fs::create_dir(domain.path("replay")).expect("a directory");
        succeed(Command::new("sh").args(["-c", SET_UP]).arg(domain.path("")).arg(&*ROOT));
        domain.controller.provision(NAMING);
        succeed(domain.inside("python3").args([
            "/mnt/users.py",
            PASSWORD,
            &nesting_groups.to_string(),
        ]));
        domain.copy_name_service();
        domain.controller.start();
        domain
    }

    /// The module of winbind with its libraries, without the others of Samba's root.
    fn copy_name_service(&self) {
        let libraries =
            Path::new(&*ROOT).join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        std::fs::create_dir(self.path("modules")).expect("a directory");
        for name in ["libnss_winbind.so.2", "libbsd.so.0", "libmd.so.0"] {
            // Newer modules need no libbsd.
            if libraries.join(name).exists() {
                std::fs::copy(libraries.join(name), self.path("modules").join(name))
                    .expect("a library of Samba's root");
            }
        }
    }

    /// Number of a group, by winbind.
    pub(super) fn group_id(&self, group: &str) -> u32 {
        self.number("group", group)
    }

    /// Number of a user, by winbind.
    pub(super) fn user_id(&self, user: &str) -> u32 {
        self.number("passwd", user)
    }

    fn number(&self, table: &str, name: &str) -> u32 {
        let mut command = self.with_winbind("getent");
        let out = command.args(["-s", "winbind", table, name]).output().expect("getent(1)");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let number = text.split(':').nth(2).and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("winbind does not know {name}: {text}{}", self.log()))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(super) fn log(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.path(name)).unwrap_or_default();
        format!("{}{}{}", self.controller.log(), read("export.log"), read("sssd.log"))
    }

    pub(super) fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.args([ROOT.as_str(), program]).env("LC_ALL", "C");
        command
    }

    /// A program of Samba's root with the directories of this name.
    pub(super) fn inside_own(&self, name: &str, program: &str) -> Command {
        inside_own(self.files.path(), name, program)
    }

    /// A command of docs/directories.md, with more arguments, on the machine that joins.
    pub(super) fn documented(&self, start: &str, more: &str) -> Command {
        let mut command = self.inside("sh");
        command.args(["-c", &format!("{} {more}", documented::command(start))]);
        command
    }

    pub(super) fn join(&self) {
        let keytab = "--host-keytab=/mnt/filer.keytab";
        succeed_with(
            &mut self.documented(
                "adcli join",
                &format!("--domain-controller=dc1.ad.vouch.test {keytab} --stdin-password"),
            ),
            PASSWORD,
        );
    }

    pub(super) fn vouch(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command.envs(self.environment());
        command
    }

    fn environment(&self) -> [(&'static str, PathBuf); 4] {
        [
            ("KRB5_CONFIG", self.path("krb5.conf")),
            ("KRB5RCACHEDIR", self.path("replay")),
            ("HOME", self.path("")),
            ("VOUCH_RUNTIME_DIR", self.path("runtime")),
        ]
    }

    /// The output of a command of docs/directories.md for vouch.
    pub(super) fn output_of_documented(&self, start: &str) -> String {
        let binaries =
            Path::new(env!("CARGO_BIN_EXE_vouch")).parent().expect("a directory").display();
        let line = documented::command(start)
            .replace("/etc/krb5.keytab", &self.path("filer.keytab").display().to_string());
        let mut command = Command::new("sh");
        command.args(["-c", &format!("PATH={binaries}:$PATH; {line}")]).envs(self.environment());
        text_of(&command.output().expect("sh(1)"))
    }

    /// The output of `vouch check`.
    pub(super) fn check(&self, args: &[&str]) -> String {
        text_of(&self.vouch().arg("check").args(args).output().expect("the binary starts"))
    }

    pub(super) fn kinit(&self, user: &str, cache: &str) -> String {
        self.kinit_by(&self.path("krb5.conf"), user, cache)
            .unwrap_or_else(|error| panic!("kinit {user}: {error}{}", self.log()))
    }

    pub(super) fn kinit_by(
        &self,
        profile: &Path,
        user: &str,
        cache: &str,
    ) -> Result<String, String> {
        let cache = format!("FILE:{}", self.path(cache).display());
        let mut kinit = Command::new("kinit");
        output_with(
            kinit.env("KRB5_CONFIG", profile).args(["-c", &cache, user]),
            &format!("{PASSWORD}\n"),
        )
        .map(|_| cache)
    }

    pub(super) fn kinit_machine(&self) -> String {
        let cache = format!("FILE:{}", self.path("machine").display());
        let mut kinit = Command::new("kinit");
        kinit
            .env("KRB5_CONFIG", self.path("krb5.conf"))
            .arg("-k")
            .arg("-t")
            .arg(self.path("filer.keytab"));
        succeed(kinit.args(["-c", &cache, "FILER$"]));
        cache
    }

    /// A directory of the export that only this user and this group enter.
    pub(super) fn make_directory(&self, name: &str, (uid, gid): (u32, u32)) {
        let path = self.path("data").join(name);
        std::fs::create_dir_all(path.join("inside")).expect("a directory");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o750))
            .expect("an own directory");
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).expect("root");
    }

    pub(super) fn export(&self, name: &str) -> Export {
        self.export_with(name, &Options::default())
    }

    /// An export of the member, whose users and groups are those of winbind: `AD\name`.
    pub(super) fn export_by_winbind(&self, name: &str) -> Export {
        self.export_with(name, &Options { by_winbind: true, ..Options::default() })
    }

    pub(super) fn export_with(&self, name: &str, options: &Options<'_>) -> Export {
        let mut command = self.vouch();
        let (mut keytab, mut target) = ("filer.keytab", super::TARGET);
        if options.by_winbind {
            (keytab, target) = (member::KEYTAB, member::TARGET);
            let profiles =
                ["names.conf", "krb5.conf"].map(|profile| self.path(profile).display().to_string());
            command = self.with_winbind(env!("CARGO_BIN_EXE_vouch"));
            command.envs(self.environment()).env("KRB5_CONFIG", profiles.join(":"));
        }
        if options.by_sssd {
            command = self.with_sssd(env!("CARGO_BIN_EXE_vouch"));
            command.envs(self.environment());
        }
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|socket| socket.local_addr())
            .expect("a free port");
        let state = self.path(&format!("state-{name}"));
        command.arg("export").arg("--dir").arg(self.path("data")).arg("--state").arg(&state);
        command.args(words(&format!(
            "--options rw,insecure,sec=krb5:krb5i:krb5p --listen {address} --keytab"
        )));
        command.arg(self.path(keytab)).args(options.more);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("export.log"))
            .expect("a file");
        let process = KillOnDrop(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .expect("the binary starts"),
        );
        within(120, "the export does not start", || TcpStream::connect(address).is_ok());
        Export { _process: process, address, state, target }
    }

    /// A command whose name service is winbind of the member.
    fn with_winbind(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg("mount --bind \"$0\" /etc/nsswitch.conf && mount --bind \"$1\" /run && shift && exec \"$@\"");
        command.arg(self.path("winbind.conf")).arg(self.path(member::NAME).join("run"));
        if peers_suite().is_some() {
            // The module of a newer suite needs the C library of its root.
            let libraries =
                Path::new(&*ROOT).join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
            let loader = std::fs::read_dir(Path::new(&*ROOT).join("usr/lib64"))
                .expect("a directory")
                .flatten()
                .next();
            command.arg(loader.expect("the loader").path()).arg("--library-path").arg(libraries);
            command.arg(resolve(program));
        } else {
            command.arg(program).env("LD_LIBRARY_PATH", self.path("modules"));
        }
        command
    }
}

impl Export {
    pub(super) fn child(&self, domain: &Domain, cache: &str) -> Command {
        self.child_of("active_directory::client_process", domain, cache)
    }

    /// A test of this program that runs as a client.
    pub(super) fn child_of(&self, test: &str, domain: &Domain, cache: &str) -> Command {
        let mut command = this_test(test);
        command.env_remove(INSIDE).env(WHERE, "own");
        command.env("KRB5_CONFIG", domain.path("krb5.conf")).env("KRB5CCNAME", cache);
        command.env(TARGET_NAME, self.target).env(PORT, self.address.port().to_string());
        command
    }

    pub(super) fn enters(&self, domain: &Domain, cache: &str) -> Result<usize, String> {
        self.enters_at("own", domain, cache)
    }

    pub(super) fn enters_at(
        &self,
        directory: &str,
        domain: &Domain,
        cache: &str,
    ) -> Result<usize, String> {
        self.outcome(domain, self.child(domain, cache).env(WHERE, directory))
    }

    /// Length of the token, or the status of the refusal. A call that is delayed is repeated.
    pub(super) fn outcome(&self, domain: &Domain, child: &mut Command) -> Result<usize, String> {
        let out = child.output().expect("this program starts");
        let text = text_of(&out);
        let after =
            |mark: &str| text.lines().find_map(|line| Some(line.split_once(mark)?.1.to_owned()));
        match (after(ENTERED), after(REFUSED)) {
            (Some(len), None) if out.status.success() => Ok(len.parse().expect("a number")),
            (None, Some(status)) if out.status.success() => Err(status),
            _ => panic!("{text}{}", domain.log()),
        }
    }
}

/// The loader looks into no PATH.
fn resolve(program: &str) -> PathBuf {
    if program.contains('/') { program.into() } else { Path::new("/usr/bin").join(program) }
}

/// Directories for another daemon of Samba's root.
pub(super) fn make_root(files: &Path, name: &str) {
    for directory in DIRECTORIES {
        std::fs::create_dir_all(files.join(name).join(directory)).expect("a directory");
    }
    std::fs::write(files.join(name).join("etc/samba/lmhosts"), NETBIOS_HOSTS).expect("a file");
}

/// A program of Samba's root with the directories of this name.
pub(super) fn inside_own(files: &Path, name: &str, program: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", INSIDE_OWN]);
    command.arg(files.join(name)).args([ROOT.as_str(), program]).env("LC_ALL", "C");
    command
}

pub(super) fn succeed_with(command: &mut Command, input: &str) {
    output_with(command, input).unwrap_or_else(|error| panic!("{command:?}: {error}"));
}

/// The output, or the status and output of a failure.
pub(super) fn output_with(command: &mut Command, input: &str) -> Result<String, String> {
    let out = vouch_testkit::output_with(command, input);
    let text = text_of(&out);
    if out.status.success() { Ok(text) } else { Err(format!("{}: {text}", out.status)) }
}
