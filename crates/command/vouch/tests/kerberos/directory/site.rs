//! slapd(8) with 10,000 users, nslcd(8) as the name service, and an export that uses it. The export
//! and nslcd run in mount namespaces of their own, with a copy of /etc whose nsswitch.conf names the
//! directory: no other program sees it.

use std::path::{Path, PathBuf};
use vouch_testkit::words;

use vouch_audit::keys::Ratchet;
use vouch_audit::record::Class;
use vouch_audit::trail::{KEY_FILE, SystemDisk, create_key, records};
use vouch_nfs4_client::{Client, Config, Error, Plain};
use vouch_oncrpc::AuthSys;

use crate::prelude::*;
use vouch_testkit::kdc::Directory;
use vouch_testkit::kill_on_drop::KillOnDrop;
use vouch_testkit::ldap::{ADMINISTRATOR, BASE, PASSWORD, change, wait_for};

pub(super) const USERS: u32 = 10_000;
pub(super) const CROWDS: u32 = 10;
pub(super) const CROWD_LEN: u32 = USERS / CROWDS;
/// Groups of the user 0 alone.
pub(super) const GROUPS: u32 = 1_000;

/// A name as winbind and others show users of a domain.
pub(super) const DOMAIN_USER: &str = "VOUCH\\alice";
const DOMAIN_UID: u32 = 90_000;

const UID_START: u32 = 100_000;
const PRIMARY_GID: u32 = 200_000;
const CROWD_START: u32 = 300_000;
const GROUP_START: u32 = 400_000;

pub(super) const fn uid(user: u32) -> u32 {
    UID_START + user
}

pub(super) const fn crowd_gid(crowd: u32) -> u32 {
    CROWD_START + crowd
}

pub(super) const fn group_gid(group: u32) -> u32 {
    GROUP_START + group
}

pub(super) struct Site {
    slapd: Option<KillOnDrop>,
    pub(super) name_service: Option<KillOnDrop>,
    directory: Directory,
    /// The directory's other URL, for clients without Unix sockets.
    pub(super) url: String,
    files: tempfile::TempDir,
    /// Directory of the name service's module.
    pub(super) module: PathBuf,
    /// Directories of `files`, and where the export sees them.
    pub(super) mounts: Vec<(&'static str, &'static str)>,
}

pub(super) struct Export {
    _process: KillOnDrop,
    pub(super) address: SocketAddr,
    files: tempfile::TempDir,
}

impl Site {
    /// `timelimit` is the patience of nslcd with the directory, in seconds.
    pub(super) fn start(timelimit: u32) -> Site {
        let found = programs();
        let mut site = Site::without_name_service("ldap", found.module);
        let conf = format!(
            "uri {}\nbase {BASE}\nthreads 4\ntimelimit {timelimit}\nbind_timelimit {timelimit}\nreconnect_sleeptime 1\nreconnect_retrytime 1\n",
            site.directory.url
        );
        std::fs::write(site.path("etc/nslcd.conf"), conf).expect("a file");
        let mut nslcd = site.inside(&found.nslcd);
        nslcd.arg("-n").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        site.name_service = Some(KillOnDrop(nslcd.spawn().expect("nslcd(8)")));
        wait_for(&site.path("run/nslcd/socket"));
        site
    }

    /// slapd with its users, and a copy of /etc whose nsswitch.conf names this module.
    pub(super) fn without_name_service(name: &str, module: PathBuf) -> Site {
        let files = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| files.path().join(name);
        for name in ["database", "run", "run/nslcd"] {
            std::fs::create_dir(path(name)).expect("a directory");
        }
        let socket = path("slapd.socket");
        let url = format!("ldapi://{}", socket.display().to_string().replace('/', "%2F"));
        let made = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()])
            .expect("a certificate");
        std::fs::write(path("ca.pem"), made.cert.pem()).expect("a file");
        std::fs::write(path("key.pem"), made.signing_key.serialize_pem()).expect("a file");
        std::fs::write(path("slapd.conf"), slapd_conf(files.path())).expect("a file");
        std::fs::write(path("entries.ldif"), entries_of_the_directory()).expect("a file");
        let mut load = Command::new("/usr/sbin/slapadd");
        load.args(["-q", "-f"]).arg(path("slapd.conf")).arg("-l").arg(path("entries.ldif"));
        succeed(&mut load);
        let copied = Command::new("cp")
            .args(["-a", "/etc", "."])
            .current_dir(files.path())
            .status()
            .expect("cp(1)");
        assert!(copied.success(), "a copy of /etc");
        let switch = format!("passwd: files {name} systemd\ngroup: files {name} systemd\n");
        std::fs::write(path("etc/nsswitch.conf"), switch).expect("a file");
        let directory =
            Directory { url, base: BASE, administrator: ADMINISTRATOR, password: PASSWORD };
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|socket| socket.local_addr())
            .expect("a free port")
            .port();
        let url = format!("ldap://127.0.0.1:{port}");
        let mounts = vec![("etc", "/etc"), ("run", "/run")];
        let mut site =
            Site { slapd: None, name_service: None, directory, url, files, module, mounts };
        site.start_slapd();
        site
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(super) fn start_slapd(&mut self) {
        let path = |name: &str| self.files.path().join(name);
        let mut command = Command::new("/usr/sbin/slapd");
        command
            .args(["-d", "0", "-h", &format!("{} {}", self.directory.url, self.url), "-f"])
            .arg(path("slapd.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.slapd = Some(KillOnDrop(command.spawn().expect("slapd(8)")));
        wait_for(&path("slapd.socket"));
    }

    pub(super) fn kill_slapd(&mut self) {
        self.slapd = None;
    }

    /// STOP or CONT. A stopped slapd serves nobody when this returns: the kernel stops a process some
    /// time after the signal is sent.
    pub(super) fn signal_slapd(&self, signal: &str) {
        let pid = self.slapd.as_ref().expect("slapd runs").id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill(1)");
        assert!(sent.success(), "{signal}");
        within(60, "slapd does not stop", || signal != "STOP" || is_stopped(&pid));
    }

    pub(super) fn remove_from_crowd(&self, user: u32, crowd: u32) {
        let text = format!(
            "dn: cn=crowd{crowd},ou=groups,{BASE}\nchangetype: modify\ndelete: memberUid\nmemberUid: user{user}\n"
        );
        change(&self.directory, "ldapmodify", &text);
    }

    /// A command that sees the directory as this host's name service.
    pub(super) fn inside(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec"]);
        command.args(["while [ \"$1\" != -- ]; do mount --bind \"$1\" \"$2\"; shift 2; done; shift; exec \"$@\"", "sh"]);
        for (from, to) in &self.mounts {
            command.arg(self.path(from)).arg(to);
        }
        command.arg("--").arg(program).env("LD_LIBRARY_PATH", &self.module);
        command
    }

    /// The output and exit code of `vouch check` with the directory.
    pub(super) fn check(&self, args: &[&str]) -> String {
        let mut command = self.inside(Path::new(env!("CARGO_BIN_EXE_vouch")));
        command
            .arg("check")
            .args(args)
            .env("HOME", self.files.path())
            .env("VOUCH_RUNTIME_DIR", self.files.path().join("vouch"));
        text_of(&command.output().expect("the binary starts"))
    }

    pub(super) fn reload(&self, export: &Export) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command
            .args(["export", "reload", "--state"])
            .arg(export.state())
            .env("VOUCH_RUNTIME_DIR", self.files.path().join("vouch"));
        succeed(&mut command);
    }

    pub(super) fn export(&self, options: &[&str]) -> Export {
        self.export_in(None, options)
    }

    /// With a realm, its tickets are accepted.
    pub(super) fn export_in(&self, realm: Option<&Kdc>, options: &[&str]) -> Export {
        let files = tempfile::tempdir().expect("a directory");
        let path = |name: &str| files.path().join(name);
        std::fs::create_dir(path("trail")).expect("a directory");
        make_data(&path("data"));
        create_key(&SystemDisk, &path("trail").join(KEY_FILE), &Ratchet::new([1; 16], &[2; 32]))
            .expect("a key");
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|socket| socket.local_addr())
            .expect("a free port");
        let mut command = self.inside(Path::new(env!("CARGO_BIN_EXE_vouch")));
        command
            .arg("export")
            .arg("--dir")
            .arg(path("data"))
            .arg("--state")
            .arg(path("state"))
            .arg("--audit")
            .arg(path("trail"));
        let sec = if realm.is_some() { "sys:krb5:krb5i:krb5p" } else { "sys" };
        command.args(words(&format!("--options rw,insecure,no_root_squash,sec={sec} --groups server --owner-names --domain vouch.test")));
        command
            .args(["--audit-sync", "none", "--lease", "90", "--listen", &address.to_string()])
            .args(options);
        command.env("VOUCH_RUNTIME_DIR", self.files.path().join("vouch"));
        if let Some(kdc) = realm {
            command.envs(kdc.environment("krb5")).arg("--keytab").arg(kdc.path("keytabs/service"));
        }
        let log = std::fs::File::create(path("log")).expect("a file");
        let process = KillOnDrop(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .expect("the binary starts"),
        );
        let export = Export { _process: process, address, files };
        export.until("the export does not start", || TcpStream::connect(address).is_ok());
        export
    }
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let is_stopped =
        |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
    threads
        .flatten()
        .all(|thread| std::fs::read_to_string(thread.path().join("stat")).is_ok_and(is_stopped))
}

struct Programs {
    nslcd: PathBuf,
    module: PathBuf,
}

fn programs() -> Programs {
    require_directory();
    let roots = ["/", "/opt/vouch-nslcd"].map(Path::new);
    let library = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    let found = roots.into_iter().find(|root| {
        root.join(&library).join("libnss_ldap.so.2").exists()
            && root.join("usr/sbin/nslcd").exists()
    });
    require("the packages nslcd and libnss-ldapd", found.is_some());
    let root = found.expect("it is there");
    Programs { nslcd: root.join("usr/sbin/nslcd"), module: root.join(library) }
}

/// slapd(8) must be installed, and this process may make mount namespaces.
pub(super) fn require_directory() {
    let has = |path: &str| Path::new(path).exists();
    let has_slapd =
        has("/usr/sbin/slapd") && has("/usr/bin/ldapmodify") && has("/etc/ldap/schema/nis.schema");
    let may = Command::new("unshare")
        .args(["--mount", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    require("root, mount namespaces and the packages slapd and ldap-utils", has_slapd && may);
}

fn slapd_conf(files: &Path) -> String {
    let here = files.display();
    let mut text = String::new();
    for schema in ["core", "cosine", "nis"] {
        text.push_str(&format!("include /etc/ldap/schema/{schema}.schema\n"));
    }
    // A user's groups are more than the 500 entries that slapd sends by default.
    text.push_str(&format!(
        "TLSCertificateFile {here}/ca.pem\nTLSCertificateKeyFile {here}/key.pem\n\
         modulepath /usr/lib/ldap\nmoduleload back_mdb\nsizelimit unlimited\ndatabase mdb\nmaxsize 1073741824\nsuffix {BASE}\nrootdn {ADMINISTRATOR}\n\
         rootpw {PASSWORD}\ndirectory {here}/database\nindex objectClass,uid,uidNumber,gidNumber,cn,memberUid eq\n"
    ));
    text
}

fn entries_of_the_directory() -> String {
    let mut text = format!(
        "dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: vouch\ndc: vouch\n\n"
    );
    for unit in ["people", "groups"] {
        text.push_str(&format!(
            "dn: ou={unit},{BASE}\nobjectClass: organizationalUnit\nou: {unit}\n\n"
        ));
    }
    for user in 0..USERS {
        text.push_str(&format!(
            "dn: uid=user{user},ou=people,{BASE}\nobjectClass: account\nobjectClass: posixAccount\nuid: user{user}\ncn: user{user}\n\
             uidNumber: {}\ngidNumber: {PRIMARY_GID}\nhomeDirectory: /home/user{user}\n\n",
            uid(user)
        ));
    }
    text.push_str(&format!(
        "dn: cn=alice,ou=people,{BASE}\nobjectClass: account\nobjectClass: posixAccount\nuid: {DOMAIN_USER}\ncn: alice\n\
         uidNumber: {DOMAIN_UID}\ngidNumber: {PRIMARY_GID}\nhomeDirectory: /home/alice\n\n"
    ));
    let mut group = |name: &str, gid: u32, members: std::ops::Range<u32>| {
        text.push_str(&format!("dn: cn={name},ou=groups,{BASE}\nobjectClass: posixGroup\ncn: {name}\ngidNumber: {gid}\n"));
        members.for_each(|user| text.push_str(&format!("memberUid: user{user}\n")));
        if name == "crowd9" {
            text.push_str(&format!("memberUid: {DOMAIN_USER}\n"));
        }
        text.push('\n');
    };
    group("everyone", PRIMARY_GID, 0..0);
    (0..CROWDS).for_each(|crowd| {
        group(
            &format!("crowd{crowd}"),
            crowd_gid(crowd),
            crowd * CROWD_LEN..(crowd + 1) * CROWD_LEN,
        )
    });
    (0..GROUPS).for_each(|number| group(&format!("group{number}"), group_gid(number), 0..1));
    text
}

/// A directory for each group, which only its members enter, and a file of each user.
fn make_data(data: &Path) {
    let chown = |path: &Path, uid: u32, gid: u32| {
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("root")
    };
    let closed = |name: String, gid: u32| {
        let path = data.join(name);
        std::fs::create_dir_all(path.join("inside")).expect("a directory");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o750))
            .expect("an own directory");
        chown(&path, 0, gid);
    };
    (0..CROWDS).for_each(|crowd| closed(format!("crowd{crowd}"), crowd_gid(crowd)));
    (0..GROUPS).for_each(|number| closed(format!("group{number}"), group_gid(number)));
    std::fs::create_dir(data.join("files")).expect("a directory");
    std::fs::write(data.join("files/alice"), "").expect("a file");
    chown(&data.join("files/alice"), DOMAIN_UID, crowd_gid(9));
    for user in 0..USERS {
        let path = data.join(format!("files/{user}"));
        std::fs::write(&path, "").expect("a file");
        chown(&path, uid(user), crowd_gid(user / CROWD_LEN));
    }
}

impl Export {
    pub(super) async fn client(&self, uid: u32) -> Client {
        let caller = AuthSys { uid, gid: 65_534, ..AuthSys::default() };
        let identity = Identity::new(format!("user {uid}").into_bytes(), Verifier([7; 8]));
        Client::connect(Config::new(self.address, 1, identity, Plain::sys(&caller)))
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn state(&self) -> PathBuf {
        self.files.path().join("state")
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.files.path().join("log")).unwrap_or_default()
    }

    pub(super) fn until(&self, what: &str, is_so: impl FnMut() -> bool) {
        assert!(eventually(Duration::from_secs(120), is_so), "{what}: {}", self.log());
    }

    /// Details of the recorded refusals.
    pub(super) fn refusals(&self) -> Vec<String> {
        let mut refusals = Vec::new();
        let read = records(&self.files.path().join("trail"), 1, |record| {
            if record.class == Class::Refusal {
                refusals.push(String::from_utf8_lossy(record.detail).into_owned());
            }
        });
        read.expect("the trail");
        refusals
    }
}

/// Looks up a file in a group's directory. A refusal is returned as its status.
pub(super) async fn enters(client: &Client, directory: &str) -> Result<(), Status> {
    match client.walk(format!("export/{directory}/inside").as_bytes()).await {
        Ok(_) => Ok(()),
        Err(Error::Refused { status, .. }) => Err(status),
        Err(error) => panic!("{directory}: {error}"),
    }
}
