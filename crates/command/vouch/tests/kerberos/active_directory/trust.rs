//! A second domain, which the first one trusts: its users at a server of the first one.

use super::controller::{Controller, Naming};
use super::domain::{Domain, Export, Options, PASSWORD};
use super::{ALICE, documented, is_inside, member, run_in_namespaces};
use crate::prelude::*;
use vouch_testkit::assert_contains;

const NAMING: Naming = Naming { realm: "PARTNER.VOUCH.TEST", domain: "PARTNER", host: "dc" };
const ADDRESS: &str = "127.0.0.3";

#[test]
#[ignore = "needs root and samba-dc"]
fn users_of_a_trusted_domain_are_served_by_their_own_names() {
    run_in_namespaces("active_directory::trust::trust_process");
}

/// The child in the namespaces; does nothing without its variable.
#[test]
fn trust_process() {
    if !is_inside() {
        return;
    }
    let domain = Domain::start(0);
    domain.join();
    domain.make_directory("own", ALICE);
    let _partner = start_partner(&domain);
    let [dave, namesake] = ["dave", "alice"]
        .map(|user| domain.kinit(&format!("{user}@{}", NAMING.realm), &format!("partner-{user}")));
    users_without_a_rule_are_refused(&domain, &dave, &namesake);
    users_of_the_principal_map_are_served(&domain, &dave, &namesake);
    users_of_winbind_are_served(&domain, &dave, &namesake);
    users_of_a_realm_without_trust_are_refused(&domain);
}

/// The controller of the other domain, which is trusted as docs/directories.md has it.
fn start_partner(domain: &Domain) -> Controller {
    let mut partner =
        Controller::new(&domain.path(""), "partner", ADDRESS.parse().expect("an address"));
    partner.provision(NAMING);
    for user in ["dave", "alice"] {
        succeed(partner.command("samba-tool").args(["user", "create", user, PASSWORD]));
    }
    partner.start();
    // Without a name server, the address is given, and the other side cannot be asked to look for this one.
    succeed(&mut domain.documented(
        "samba-tool domain trust create",
        &format!("--password={PASSWORD} --ipaddress={ADDRESS} --skip-validation"),
    ));
    partner
}

fn enters(export: &Export, domain: &Domain, directory: &str, cache: &str) -> Result<(), String> {
    export.enters_at(directory, domain, cache).map(drop)
}

fn refused() -> Result<(), String> {
    Err(Status::ACCESS.to_string())
}

fn users_without_a_rule_are_refused(domain: &Domain, dave: &str, namesake: &str) {
    let export = domain.export("plain");
    assert_eq!(enters(&export, domain, "own", &domain.kinit("alice", "alice")), Ok(()));
    for (user, cache) in [("dave", dave), ("alice", namesake)] {
        assert_eq!(enters(&export, domain, "own", cache), refused(), "{user}");
        let found = domain.check(&[&export.state.display().to_string()]);
        let principal = format!("user-without-account: {user}@{}: was refused", NAMING.realm);
        assert_contains!(found, &principal, "no rule maps it to a local name");
    }
}

fn users_of_the_principal_map_are_served(domain: &Domain, dave: &str, namesake: &str) {
    let map = domain.path("principals");
    std::fs::write(&map, format!("dave@{} alice\n", NAMING.realm)).expect("a file");
    let export = domain.export_with(
        "map",
        &Options { more: &["--principal-map", &map.display().to_string()], ..Options::default() },
    );
    assert_eq!(enters(&export, domain, "own", dave), Ok(()));
    assert_eq!(
        enters(&export, domain, "own", namesake),
        refused(),
        "the map has no line for this user"
    );
}

/// Users of the same name in both domains are two users.
fn users_of_winbind_are_served(domain: &Domain, dave: &str, namesake: &str) {
    std::fs::write(domain.path("names.conf"), documented::file("PARTNER\\$1")).expect("a file");
    let _winbind = member::start(domain);
    let users = ["PARTNER\\dave", "PARTNER\\alice", "AD\\alice"];
    let directories = ["dave", "namesake", "alice"];
    for (user, directory) in users.into_iter().zip(directories) {
        domain.make_directory(directory, (domain.user_id(user), 0));
    }
    let export = domain.export_by_winbind("trust");
    let alice = domain.kinit("alice", "alice");
    for (own, cache) in directories.into_iter().zip([dave, namesake, &alice]) {
        for directory in directories {
            let expected = if directory == own { Ok(()) } else { refused() };
            assert_eq!(
                enters(&export, domain, directory, cache),
                expected,
                "{own} in the directory {directory}: {}",
                domain.log()
            );
        }
    }
}

fn users_of_a_realm_without_trust_are_refused(domain: &Domain) {
    let kdc = Kdc::start();
    kdc.add(&["erin"]);
    let export = domain.export("strangers");
    let cache = kdc.kinit("krb5", "erin", &kdc.keytab("erin", &["erin"]), "erin", &[]);
    // The profile has the server in this realm.
    let connect = || {
        let out = export
            .child(domain, &cache)
            .env("KRB5_CONFIG", kdc.path("krb5.conf"))
            .output()
            .expect("this program starts");
        assert!(!out.status.success(), "a stranger has a context");
        text_of(&out)
    };
    let text = connect();
    assert!(text.contains("not found in Kerberos database"), "{text}");
    // A ticket of a KDC that the server does not know.
    kdc.add(&["nfs/filer.ad.vouch.test"]);
    connect();
    let log = domain.log();
    assert_contains!(log, &format!("nfs/filer.ad.vouch.test@{REALM}"), "the keytab lacks this key");
}
