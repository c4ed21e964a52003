//! A Kerberos realm for one run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use vouch_testkit::kdc;

use crate::OrExit as _;

/// Principal of the servers, as a host-based service name.
pub const HOST_BASED: &str = "nfs@localhost";
const SERVICE: &str = "nfs/localhost";
/// NFSv4 domain of owner names.
pub const DOMAIN: &str = "vouch.test";
/// The client's principal, which both servers map to the superuser.
const CLIENT: &str = "root";
/// Names the realm's directory to the process inside the realm.
const VARIABLE: &str = "VOUCH_BENCH_REALM";

/// A running realm, as seen by a process of the realm.
#[derive(Debug)]
pub struct Realm {
    directory: PathBuf,
}

impl Realm {
    /// Outside a realm, starts a KDC, runs this program again in the realm, and exits with its
    /// status: libkrb5 reads only the environment.
    pub fn enter(enctype: &str) -> Self {
        match std::env::var_os(VARIABLE) {
            Some(directory) => Self { directory: directory.into() },
            None => std::process::exit(run_inside(enctype)),
        }
    }

    pub fn service_keytab(&self) -> PathBuf {
        self.directory.join("keytabs/service")
    }

    /// The realm is local in it.
    pub fn idmap(&self) -> PathBuf {
        self.directory.join("idmapd.conf")
    }

    /// The servers' krb5.conf permits every encryption type, because tickets are encrypted with the
    /// strongest.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let inherited = std::env::vars_os().filter(|(name, _)| {
            name.to_string_lossy().starts_with("KRB5") && name != "KRB5_CONFIG"
        });
        inherited.chain([("KRB5_CONFIG".into(), self.directory.join("krb5.conf").into())]).collect()
    }
}

fn run_inside(enctype: &str) -> i32 {
    let kdc = kdc::Kdc::start();
    kdc.client(&kdc::Client { name: "bench", enctypes: enctype, ..kdc::Client::default() });
    kdc.add(&[CLIENT, SERVICE]);
    let realm = Realm { directory: kdc.path("") };
    let idmap = format!(
        "[General]\nDomain = {DOMAIN}\nLocal-Realms = {}\n[Translation]\nMethod = nsswitch\n",
        kdc::REALM
    );
    std::fs::write(realm.idmap(), idmap).or_exit("write idmapd.conf");
    kdc.keytab("service", &[SERVICE]);
    let keytab = kdc.keytab("client", &[CLIENT]);
    let cache = kdc.kinit("bench", CLIENT, &keytab, "client", &[]);
    let mut command = Command::new(std::env::current_exe().or_exit("find this program"));
    command
        .args(std::env::args_os().skip(1))
        .envs(kdc.environment("bench"))
        .env("KRB5CCNAME", cache)
        .env(VARIABLE, &realm.directory);
    command.status().or_exit("run this program inside the realm").code().unwrap_or(1)
}
