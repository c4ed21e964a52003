//! A real MIT KDC for tests, with its realm in a temporary directory, on a random port. It is
//! killed when dropped.
//!
//! It needs the packages krb5-kdc, krb5-admin-server and krb5-user. It does not touch the system's
//! Kerberos files: programs of the realm get [`Kdc::environment`].

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{free_port, output_with, require};

pub const REALM: &str = "VOUCH.TEST";

pub const ENCTYPES: [&str; 4] = [
    "aes128-cts-hmac-sha1-96",
    "aes256-cts-hmac-sha1-96",
    "aes128-cts-hmac-sha256-128",
    "aes256-cts-hmac-sha384-192",
];

pub struct Kdc {
    dir: TempDir,
    realm: &'static str,
    port: u16,
    child: Child,
    directory: Option<Directory>,
}

/// An LDAP directory for the database of the realm, whose administrator may write everything.
#[derive(Clone)]
pub struct Directory {
    pub url: String,
    pub base: &'static str,
    pub administrator: &'static str,
    pub password: &'static str,
}

#[derive(Clone, Copy)]
pub struct Client<'a> {
    pub name: &'a str,
    pub kdc: IpAddr,
    pub enctypes: &'a str,
    pub clock_skew: u32,
    pub more: &'a str,
    pub realm: &'a str,
    pub realms: &'a str,
}

impl Default for Client<'_> {
    fn default() -> Self {
        Client {
            name: "krb5",
            kdc: Ipv4Addr::LOCALHOST.into(),
            enctypes: "",
            clock_skew: 300,
            more: "",
            realm: "",
            realms: "",
        }
    }
}

impl Kdc {
    pub fn start() -> Kdc {
        Self::start_on(&[])
    }

    pub fn start_on(addresses: &[IpAddr]) -> Kdc {
        Self::start_realm(REALM, addresses)
    }

    pub fn start_realm(realm: &'static str, addresses: &[IpAddr]) -> Kdc {
        Self::start_with(realm, addresses, None)
    }

    /// The same, with the realm's database in a directory: the LDAP back end.
    pub fn start_with(
        realm: &'static str,
        addresses: &[IpAddr],
        directory: Option<Directory>,
    ) -> Kdc {
        for (program, package) in
            [("krb5kdc", "krb5-kdc"), ("kadmin.local", "krb5-admin-server"), ("kinit", "krb5-user")]
        {
            require(&format!("the package {package}"), find(program).is_some());
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let blank = Command::new("true").spawn().expect("true(1)");
        let mut kdc = Kdc { dir, realm, port: 0, child: blank, directory };
        for name in ["replay", "caches", "keytabs"] {
            std::fs::create_dir(kdc.path(name)).expect("a directory");
        }
        kdc.write_profile(addresses);
        kdc.create_database();
        for _ in 0..20 {
            kdc.port = free_port();
            kdc.write_profile(addresses);
            let log = std::fs::File::create(kdc.path("kdc.out")).expect("a file");
            let mut command = kdc.program("krb5kdc");
            command.arg("-n").stdout(log.try_clone().expect("a file")).stderr(log);
            let _ = kdc.child.wait();
            kdc.child = command.spawn().expect("krb5kdc is there");
            if kdc.listens() {
                return kdc;
            }
        }
        panic!(
            "the KDC does not start: {}",
            std::fs::read_to_string(kdc.path("kdc.out")).unwrap_or_default()
        );
    }

    /// Kills the KDC and starts it again on the same port.
    pub fn restart(&mut self, pause: Duration) {
        self.stop();
        std::thread::sleep(pause);
        self.start_again();
    }

    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn start_again(&mut self) {
        self.start_again_with(Vec::new());
    }

    /// Starts the KDC again, with additional environment variables.
    pub fn start_again_with(&mut self, environment: Vec<(&'static str, OsString)>) {
        let mut command = self.program("krb5kdc");
        self.child = command
            .arg("-n")
            .envs(environment)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("krb5kdc is there");
        assert!(self.listens(), "the KDC does not start again");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn client(&self, client: &Client<'_>) -> PathBuf {
        let Client { name, kdc, enctypes, clock_skew, more, realm, realms } = client;
        let enctypes =
            if enctypes.is_empty() { ENCTYPES.join(" ") } else { (*enctypes).to_owned() };
        let (port, own) = (self.port, self.realm);
        let domain = own.to_ascii_lowercase();
        let kdc = match kdc {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        let text = format!(
            "[libdefaults]\n default_realm = {own}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n \
             udp_preference_limit = 1\n clockskew = {clock_skew}\n permitted_enctypes = {enctypes}\n default_tkt_enctypes = {enctypes}\n \
             default_tgs_enctypes = {enctypes}\n{more}\n\
             [realms]\n {own} = {{\n  kdc = {kdc}:{port}\n{realm}\n }}\n{realms}\n\
             [domain_realm]\n .{domain} = {own}\n {domain} = {own}\n localhost = {own}\n"
        );
        let path = self.path(&format!("{name}.conf"));
        std::fs::write(&path, text).expect("a file");
        path
    }

    pub fn environment(&self, client: &str) -> Vec<(&'static str, OsString)> {
        vec![
            ("KRB5_CONFIG", self.path(&format!("{client}.conf")).into()),
            ("KRB5_KDC_PROFILE", self.path("kdc.profile").into()),
            ("KRB5RCACHEDIR", self.path("replay").into()),
            ("KRB5CCNAME", self.ccache("default").into()),
            ("KRB5_KTNAME", self.path("keytabs/none").into()),
            ("KRB5_CLIENT_KTNAME", self.path("keytabs/none").into()),
        ]
    }

    pub fn add(&self, principals: &[&str]) {
        self.add_with(principals, "");
    }

    /// Options of kadmin(1)'s `addprinc`: `-maxlife 5s`, `-e aes256-cts-hmac-sha384-192:normal`.
    pub fn add_with(&self, principals: &[&str], options: &str) {
        let lines: String = principals
            .iter()
            .map(|principal| format!("addprinc -randkey {options} {principal}\n"))
            .collect();
        let output_text = self.kadmin(&lines);
        assert_eq!(output_text.matches("created.").count(), principals.len(), "{output_text}");
    }

    pub fn rekey(&self, principal: &str) {
        let output_text = self.kadmin(&format!("cpw -randkey {principal}\n"));
        assert!(output_text.contains("randomized"), "{output_text}");
    }

    pub fn keytab(&self, name: &str, principals: &[&str]) -> PathBuf {
        let path = self.path("keytabs").join(name);
        self.kadmin(&format!("ktadd -norandkey -k {} {}\n", path.display(), principals.join(" ")));
        assert!(path.exists(), "{} was not written", path.display());
        path
    }

    pub fn kadmin(&self, lines: &str) -> String {
        let out = self.run("kadmin.local", &["-r", self.realm], lines);
        crate::text_of(&out)
    }

    pub fn ccache(&self, name: &str) -> String {
        format!("FILE:{}", self.path("caches").join(name).display())
    }

    pub fn kinit(
        &self,
        client: &str,
        principal: &str,
        keytab: &Path,
        cache: &str,
        options: &[&str],
    ) -> String {
        let cache = self.ccache(cache);
        let keytab = keytab.to_str().expect("a path in text");
        let mut command = self.program_as("kinit", client);
        crate::succeed(command.args(options).args(["-k", "-t", keytab, "-c", &cache, principal]));
        cache
    }

    pub fn program_as(&self, program: &str, client: &str) -> Command {
        let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
        command.envs(self.environment(client)).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    fn program(&self, program: &str) -> Command {
        self.program_as(program, "kdc")
    }

    fn create_database(&self) {
        let Some(directory) = &self.directory else {
            return self.ok(
                "kdb5_util",
                &["create", "-s", "-r", self.realm, "-P", "master password"],
                "",
            );
        };
        let passwords = format!("{0}\n{0}\n", directory.password);
        let file = self.path("ldap.passwords").display().to_string();
        self.ok(
            "kdb5_ldap_util",
            &["stashsrvpw", "-f", &file, directory.administrator],
            &passwords,
        );
        let (url, base) = (&directory.url, directory.base);
        let access = ["-D", directory.administrator, "-w", directory.password, "-H", url];
        let args = [
            &access[..],
            &["create", "-subtrees", base, "-r", self.realm, "-s", "-P", "master password"],
        ]
        .concat();
        self.ok("kdb5_ldap_util", &args, "");
    }

    fn database_settings(&self) -> (String, String) {
        let Some(Directory { url, base, administrator, .. }) = &self.directory else {
            return (
                format!("  database_name = {}\n", self.path("principal").display()),
                String::new(),
            );
        };
        let passwords = self.path("ldap.passwords");
        let module = format!(
            "[dbmodules]\n ldap = {{\n  db_library = kldap\n  ldap_kerberos_container_dn = cn=kerberos,{base}\n  ldap_kdc_dn = {administrator}\n  \
             ldap_kadmind_dn = {administrator}\n  ldap_service_password_file = {}\n  ldap_servers = {url}\n }}\n",
            passwords.display()
        );
        ("  database_module = ldap\n".into(), module)
    }

    /// Writes the configurations of the KDC and of ordinary clients. The KDC allows no clock skew,
    /// so it accepts no expired ticket.
    fn write_profile(&self, addresses: &[IpAddr]) {
        self.client(&Client::default());
        // The KDC also knows encryption types that servers refuse as too old.
        let enctypes = format!("{} arcfour-hmac des3-cbc-sha1", ENCTYPES.join(" "));
        let more = " allow_weak_crypto = true\n allow_rc4 = true\n allow_des3 = true\n";
        self.client(&Client {
            name: "kdc",
            clock_skew: 1,
            enctypes: &enctypes,
            more,
            ..Client::default()
        });
        let listen: Vec<String> = std::iter::once(&IpAddr::from(Ipv4Addr::LOCALHOST))
            .chain(addresses)
            .map(|address| match address {
                IpAddr::V4(v4) => format!("{v4}:{}", self.port),
                IpAddr::V6(v6) => format!("[{v6}]:{}", self.port),
            })
            .collect();
        let path = |name: &str| self.path(name).display().to_string();
        let keys: Vec<String> =
            ENCTYPES.iter().rev().map(|enctype| format!("{enctype}:normal")).collect();
        let (database, module) = self.database_settings();
        let text = format!(
            "[kdcdefaults]\n kdc_listen = \"\"\n kdc_tcp_listen = {}\n\
             [realms]\n {} = {{\n{database}  key_stash_file = {}\n  acl_file = {}\n  max_life = 24h\n  max_renewable_life = 7d\n  \
             supported_enctypes = {}\n }}\n\
             {module}[logging]\n kdc = FILE:{}\n default = FILE:{}\n",
            listen.join(" "),
            self.realm,
            path("stash"),
            path("acl"),
            keys.join(" "),
            path("kdc.log"),
            path("kdc.log"),
        );
        std::fs::write(self.path("kdc.profile"), text).expect("a file");
    }

    /// False if the KDC has ended.
    fn listens(&mut self) -> bool {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            if self.child.try_wait().expect("a child of ours").is_some() {
                return false;
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
                return self.child.try_wait().expect("a child of ours").is_none();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        false
    }

    fn run(&self, program: &str, args: &[&str], input: &str) -> Output {
        output_with(self.program(program).args(args), input)
    }

    fn ok(&self, program: &str, args: &[&str], input: &str) {
        let out = self.run(program, args, input);
        assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

impl Drop for Kdc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&paths)
        .chain(more)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}
