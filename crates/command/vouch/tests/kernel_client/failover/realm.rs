//! Kerberos for a pair and its guests: the heads have the same key, and each guest has a user.

use crate::guest::{self, Guest, Network};
use crate::kerberos::{ENCTYPES, require_gssd};
use crate::prelude::*;
use vouch_testkit::kdc::{Client, Kdc, REALM};

use super::pair::SetUp;

/// Of the address that moves.
const SERVICE_NAME: &str = "failover.vouch.test";

/// By guest.
const USERS: [(&str, u32); 2] = [("daemon", 1), ("games", 5)];

pub(super) struct Realm {
    kdc: Kdc,
    krb5_conf: PathBuf,
    server_keytab: PathBuf,
}

impl Realm {
    /// The KDC has the first network's address of this machine.
    pub(super) fn start(networks: [&Network; 2]) -> Realm {
        require_gssd();
        let address = networks[0].address.parse().expect("an address");
        let kdc = Kdc::start_on(&[address]);
        let service = format!("nfs/{SERVICE_NAME}");
        let machines = networks.map(|network| format!("host/{}", network.guest_name()));
        let machines = machines.each_ref().map(String::as_str);
        kdc.add(&[&machines[..], &[&service]].concat());
        kdc.keytab("machine.keytab", &machines);
        for (user, _) in USERS {
            kdc.add(&[user]);
            kdc.keytab(&format!("{user}.keytab"), &[user]);
        }
        let server_keytab = kdc.keytab("server.keytab", &[&service]);
        kdc.client(&Client { name: "server", ..Client::default() });
        fs::create_dir(kdc.path("guest")).expect("a directory");
        let krb5_conf = kdc.client(&Client {
            name: "guest/krb5",
            kdc: address,
            enctypes: ENCTYPES,
            ..Client::default()
        });
        Realm { kdc, krb5_conf, server_keytab }
    }

    pub(super) fn add_to_heads(&self, set_up: &mut SetUp) {
        set_up.options.extend(["--keytab".into(), self.server_keytab.clone().into()]);
        set_up.environment.extend(self.kdc.environment("server"));
        set_up.flavours = "sys:krb5p";
    }

    /// `number`: of the guest, from 0.
    pub(super) fn add_to_guest(&self, guest: Guest, number: usize) -> Guest {
        let (user, uid) = USERS[number];
        let keytabs =
            ["machine", user].map(|name| self.kdc.path("keytabs").join(format!("{name}.keytab")));
        let guest = keytabs.iter().fold(guest, |guest, keytab| guest.file(keytab));
        let guest = guest.file(&self.krb5_conf).file(&guest::work("gss.bash"));
        guest
            .set("SERVICE_NAME", SERVICE_NAME)
            .set("PRINCIPAL", user)
            .set("USER_ID", &uid.to_string())
    }
}

/// The caller of a guest's operations, as the audit trail has it.
pub(super) fn caller(flavour: &str, number: usize) -> String {
    match flavour {
        "sys" => "sys ".to_owned(),
        _ => format!("{flavour} {}@{REALM}", USERS[number].0),
    }
}
