//! A realm of its own for a run, and clients of each flavour in it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use vouch_gss_mit::{ClientSource, MitInitiator};
use vouch_nfs4_client::{Plain, Protection, establish};
use vouch_rpcsec_gss::Service;

use super::{Client, superuser};
use crate::OrStop as _;

#[path = "../../../crates/vouch/tests/kerberos/kdc.rs"]
mod kdc;

/// The servers' principal, as a service at a host.
pub const HOST_BASED: &str = "nfs@localhost";
const PRINCIPAL: &str = "nfs/localhost";
/// Domain of the owners' names.
pub const DOMAIN: &str = "vouch.test";
/// Who calls: the account of this name is the superuser's.
const CALLER: &str = "root";

/// How calls are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Security {
    /// AUTH_SYS.
    Sys,
    /// RPCSEC_GSS with this service.
    Kerberos(Service),
}

impl std::str::FromStr for Security {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "sys" => Self::Sys,
            "krb5" => Self::Kerberos(Service::None),
            "krb5i" => Self::Kerberos(Service::Integrity),
            "krb5p" => Self::Kerberos(Service::Privacy),
            other => return Err(format!("{other}: not one of sys, krb5, krb5i, krb5p")),
        })
    }
}

impl std::fmt::Display for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sys => "sys",
            Self::Kerberos(Service::None) => "krb5",
            Self::Kerberos(Service::Integrity) => "krb5i",
            Self::Kerberos(Service::Privacy) => "krb5p",
        })
    }
}

/// The realm, as those see it that run in it.
pub struct Realm {
    directory: PathBuf,
}

/// Names the realm's directory to the process that runs in it.
const VARIABLE: &str = "VOUCH_BENCH_REALM";

impl Realm {
    /// The realm that this process was started in.
    pub fn inherited() -> Option<Self> {
        std::env::var_os(VARIABLE).map(|directory| Self { directory: directory.into() })
    }

    /// Makes a realm, runs this program again in it, with the same arguments, and ends the realm.
    /// The program's exit code.
    pub fn run_below(enctype: &str) -> i32 {
        let kdc = kdc::Kdc::start().ok_or("it does not start").or_stop("the KDC");
        kdc.client(&kdc::Client { name: "bench", enctypes: enctype, ..kdc::Client::default() });
        kdc.add(&[CALLER, PRINCIPAL]);
        let realm = Self { directory: kdc.path("") };
        std::fs::write(
            realm.idmap(),
            format!("[General]\nDomain = {DOMAIN}\nLocal-Realms = {}\n[Translation]\nMethod = nsswitch\n", kdc::REALM),
        )
        .or_stop("idmapd.conf");
        kdc.keytab("service", &[PRINCIPAL]);
        let keytab = kdc.keytab("caller", &[CALLER]);
        let cache = kdc.kinit("bench", CALLER, &keytab, "caller", &[]);
        let mut command = Command::new(std::env::current_exe().or_stop("this program"));
        command.args(std::env::args_os().skip(1)).envs(kdc.environment("bench")).env("KRB5CCNAME", cache).env(VARIABLE, &realm.directory);
        command.status().or_stop("this program").code().unwrap_or(1)
    }

    /// The servers' keys.
    pub fn service_keytab(&self) -> PathBuf {
        self.directory.join("keytabs/service")
    }

    /// idmapd.conf that takes the realm for this machine's.
    pub fn idmap(&self) -> PathBuf {
        self.directory.join("idmapd.conf")
    }

    /// What the servers need to belong to it: as this process has it, but with every encryption
    /// type, as tickets for them are under the strongest.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let of_realm = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KRB5") && name != "KRB5_CONFIG");
        of_realm.chain([("KRB5_CONFIG".into(), self.directory.join("krb5.conf").into())]).collect()
    }
}

/// A client of this flavour.
pub fn connect(port: u16, name: &str, connections: usize, slots: usize, sec: Security) -> Client {
    let protection: Box<dyn Protection> = match sec {
        Security::Sys => Box::new(Plain::sys(&superuser())),
        Security::Kerberos(service) => {
            let initiator = MitInitiator::new(HOST_BASED, &ClientSource::default()).or_stop("a ticket");
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            Box::new(establish(address, initiator, service).or_stop("a context"))
        }
    };
    Client::connect_by(port, name, connections, slots, protection)
}
