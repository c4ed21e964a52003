//! Principals whose users and groups are in the directory. The Kerberos library reads only the
//! environment of its process, so each principal's client is a child process.

use super::site::{DOMAIN_USER, Site, enters};
use super::{HANGS, owners, runtime};
use crate::own_client::ENCTYPE;
use crate::prelude::*;
use vouch_testkit::assert_contains;

const PORT: &str = "VOUCH_TEST_DIRECTORY_PORT";
const DIRECTORIES: &str = "VOUCH_TEST_DIRECTORIES";
const SERVICE: &str = "nfs/localhost";
const ENTERED: &str = "entered: ";

/// The directories of these that the principal enters.
fn entered(kdc: &Kdc, principal: &str, export: &super::Export, directories: &str) -> Vec<String> {
    let cache = kdc.kinit("krb5", principal, &kdc.path("keytabs").join(principal), principal, &[]);
    let mut command = this_test("directory::kerberos_users::client_process");
    command
        .envs(kdc.environment("krb5"))
        .env("KRB5CCNAME", cache)
        .env(ENCTYPE, "")
        .env(PORT, export.address.port().to_string())
        .env(DIRECTORIES, directories);
    let out = command.output().expect("this program starts");
    let output_text = text_of(&out);
    assert!(out.status.success(), "{output_text}\nthe server: {}", export.log());
    output_text.lines().filter_map(|line| Some(line.split_once(ENTERED)?.1.to_owned())).collect()
}

/// The child's side; does nothing without its variables.
#[test]
fn client_process() {
    let (Ok(port), Ok(directories)) = (std::env::var(PORT), std::env::var(DIRECTORIES)) else {
        return;
    };
    let cache = std::env::var("KRB5CCNAME").expect("the parent sets it");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().expect("a port")));
    runtime().block_on(async {
        let client = crate::own_client::client_of(&cache, address, 1, Service::Privacy).await;
        for directory in directories.split(',') {
            match enters(&client, directory).await {
                Ok(()) => println!("{ENTERED}{directory}"),
                Err(status) => assert_eq!(status, Status::ACCESS, "{directory}"),
            }
        }
        if directories.contains("crowd9") {
            assert_eq!(
                owners(&client, "alice").await,
                (format!("{DOMAIN_USER}@vouch.test"), "crowd9@vouch.test".into())
            );
        }
    });
}

#[test]
#[ignore = "needs root, a KDC, nslcd and slapd"]
fn principals_have_the_groups_of_their_directory_users() {
    let site = Site::start(HANGS);
    let kdc = Kdc::start();
    let principals = ["user0", "user1500", "alice", "stranger"];
    kdc.add(&[&principals[..], &[SERVICE]].concat());
    kdc.keytab("service", &[SERVICE]);
    principals.iter().for_each(|principal| drop(kdc.keytab(principal, &[principal])));
    // `alice` is a user of the domain VOUCH.
    let rules = "  auth_to_local = RULE:[1:VOUCH\\$1](VOUCH\\\\alice)\n  auth_to_local = DEFAULT\n";
    kdc.client(&kdc::Client { realm: rules, ..kdc::Client::default() });
    let export = site.export_in(Some(&kdc), &[]);
    assert_eq!(
        entered(&kdc, "user0", &export, "crowd0,crowd1,group0,group500,group999"),
        ["crowd0", "group0", "group500", "group999"]
    );
    assert_eq!(entered(&kdc, "user1500", &export, "crowd0,crowd1,group0"), ["crowd1"]);
    assert_eq!(entered(&kdc, "alice", &export, "crowd0,crowd9"), ["crowd9"]);
    assert_eq!(entered(&kdc, "stranger", &export, "crowd0"), [""; 0]);
    let found = site.check(&[&export.state().display().to_string()]);
    assert_contains!(
        found,
        "user-without-account: stranger@VOUCH.TEST: was refused",
        "there is no user stranger"
    );
}
