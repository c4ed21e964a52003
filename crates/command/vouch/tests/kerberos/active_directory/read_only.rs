//! A read-only controller, which holds the passwords of some accounts, while the writable one is away.

use std::path::PathBuf;
use vouch_testkit::words;

use super::controller::Controller;
use super::domain::{Domain, PASSWORD, output_with};
use super::{ALICE, documented, is_inside, run_in_namespaces};
use crate::prelude::*;

const ADDRESS: &str = "127.0.0.2";
const NEW_PASSWORD: &str = "Renewed-vouch";

#[test]
#[ignore = "needs root and samba-dc"]
fn read_only_controller_serves_while_the_writable_one_is_away() {
    run_in_namespaces("active_directory::read_only::read_only_process");
}

/// The child in the namespaces; does nothing without its variable.
#[test]
fn read_only_process() {
    if !is_inside() {
        return;
    }
    let mut domain = Domain::start(0);
    domain.join();
    domain.make_directory("own", ALICE);
    let controller = start_read_only(&domain);
    let export = domain.export("files");
    domain.controller.stop();
    let profile = write_profile(&domain);
    let enters = |domain: &Domain, cache: &str| {
        let alice =
            domain.kinit_by(&profile, "alice", cache).unwrap_or_else(|error| panic!("{error}"));
        let mut child = export.child(domain, &alice);
        let entered = export.outcome(domain, child.env("KRB5_CONFIG", &profile)).map(drop);
        assert_eq!(entered, Ok(()), "{}", domain.log());
    };
    enters(&domain, "by-read-only");
    // This password is on the writable controller only.
    let refused = domain.kinit_by(&profile, "bob", "bob").expect_err("no password");
    assert!(refused.contains("A service is not available"), "{refused}");
    adcli_changes_nothing(&domain);
    let next = domain.key_number() + 1;
    domain.add_keys(NEW_PASSWORD, next);
    let set_password = format!(
        "{} --newpassword={NEW_PASSWORD}",
        documented::command("samba-tool user setpassword")
    );
    output_with(controller.command("sh").args(["-c", &set_password]), "")
        .expect_err("a read-only controller has changed a password");
    enters(&domain, "after-refusal");
    domain.controller.start();
    domain.set_password(NEW_PASSWORD);
    let bob = domain.kinit("bob", "bob");
    assert_eq!(export.enters(&domain, &bob), Err(Status::ACCESS.to_string()), "no account");
    export
        .enters(&domain, &domain.kinit("alice", "new-key"))
        .unwrap_or_else(|status| panic!("{status}: {}", domain.log()));
}

/// The documented commands, after a join of the controller.
fn start_read_only(domain: &Domain) -> Controller {
    let mut controller =
        Controller::new(&domain.path(""), "read-only", ADDRESS.parse().expect("an address"));
    let administrator = ["-UAdministrator", "--password", PASSWORD, "--server=dc1.ad.vouch.test"];
    let mut join = controller.command("samba-tool");
    join.args([
        "domain",
        "join",
        "ad.vouch.test",
        "RODC",
        "--dns-backend=NONE",
        "--option",
        "netbios name=DC2",
    ]);
    succeed(join.args(administrator).args(controller.address_options()));
    succeed(&mut domain.documented("samba-tool group addmembers", ""));
    let preload = documented::command("samba-tool rodc preload");
    succeed(controller.command("sh").args(["-c", &format!("{preload} --password={PASSWORD}")]));
    // Without a name server the controller cannot register the name of its LDAP service.
    succeed(domain.inside("samba-tool").args(["spn", "add", "ldap/dc2.ad.vouch.test", "DC2$"]));
    succeed(domain.inside("samba-tool").args([
        "group",
        "addmembers",
        "Allowed RODC Password Replication Group",
        "DC2$",
    ]));
    succeed(controller.command("samba-tool").args(["rodc", "preload", "DC2$"]).args(administrator));
    controller.start();
    controller
}

/// A client's profile with this controller only.
fn write_profile(domain: &Domain) -> PathBuf {
    let path = domain.path("read-only.conf");
    let text =
        std::fs::read_to_string(domain.path("krb5.conf")).expect("the profile of the domain");
    std::fs::write(&path, text.replace("127.0.0.1", ADDRESS)).expect("a file");
    path
}

fn adcli_changes_nothing(domain: &Domain) {
    let keytab = || std::fs::read(domain.path("filer.keytab")).expect("the keytab");
    let before = keytab();
    let mut update = domain.inside("adcli");
    update.args(words(
        "update --domain=ad.vouch.test --domain-controller=dc2.ad.vouch.test --computer-name=FILER",
    ));
    update.args(words("--host-fqdn=filer.ad.vouch.test --host-keytab=/mnt/filer.keytab --computer-password-lifetime=0"));
    let error =
        output_with(&mut update, "").expect_err("a read-only controller has changed a password");
    assert!(error.contains("Couldn't get change password ticket"), "{error}");
    assert!(keytab() == before, "the keytab has changed: {error}");
}
