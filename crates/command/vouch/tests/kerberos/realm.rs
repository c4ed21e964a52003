use crate::prelude::*;
use vouch_testkit::assert_contains;
use vouch_testkit::kdc::{Client, ENCTYPES};
use vouch_testkit::words;

fn output(mut command: Command) -> (bool, String) {
    let out = command.output().expect("the file exists");
    (
        out.status.success(),
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)),
    )
}

fn service_ticket(kdc: &Kdc, client: &str, cache: &str) -> (bool, String) {
    let mut kvno = kdc.program_as("kvno", client);
    kvno.env("KRB5CCNAME", cache).arg("nfs/localhost");
    let (good, output_text) = output(kvno);
    let mut klist = kdc.program_as("klist", client);
    klist.env("KRB5CCNAME", cache).arg("-e");
    (good, output_text + &output(klist).1)
}

#[test]
#[ignore = "needs a KDC"]
fn each_encryption_type_is_a_session_key() {
    let kdc = Kdc::start();
    kdc.add(&["alice", "nfs/localhost"]);
    let keytab = kdc.keytab("alice", &["alice"]);
    for enctype in ENCTYPES {
        kdc.client(&Client { name: enctype, enctypes: enctype, ..Client::default() });
        let cache = kdc.kinit(enctype, "alice", &keytab, enctype, &[]);
        let (good, output_text) = service_ticket(&kdc, enctype, &cache);
        let service = output_text.split("nfs/localhost@VOUCH.TEST\n").nth(1).unwrap_or_default();
        assert!(
            good && service.contains(&format!("Etype (skey, tkt): {enctype},")),
            "{output_text}"
        );
    }
}

#[test]
#[ignore = "needs a KDC"]
fn short_ticket_expires() {
    let kdc = Kdc::start();
    kdc.add(&["alice", "nfs/localhost"]);
    let keytab = kdc.keytab("alice", &["alice"]);
    kdc.client(&Client { name: "strict", clock_skew: 1, ..Client::default() });
    let cache = kdc.kinit("strict", "alice", &keytab, "short", &["-l", "3s"]);
    assert!(service_ticket(&kdc, "strict", &cache).0);
    within(60, "the ticket does not expire", || !service_ticket(&kdc, "strict", &cache).0);
}

#[test]
#[ignore = "needs a KDC"]
fn new_keys_put_a_keytab_out_of_date() {
    let kdc = Kdc::start();
    kdc.add(&["alice"]);
    let old = kdc.keytab("old", &["alice"]);
    kdc.rekey("alice");
    let mut kinit = kdc.program_as("kinit", "krb5");
    kinit.args(["-k", "-t", old.to_str().unwrap(), "-c", &kdc.ccache("old"), "alice"]);
    assert!(!output(kinit).0);
    let new = kdc.keytab("new", &["alice"]);
    kdc.kinit("krb5", "alice", &new, "new", &[]);
}

#[test]
#[ignore = "needs a KDC"]
fn check_names_a_keytab_without_the_key() {
    let kdc = Kdc::start();
    kdc.add(&["host/server.vouch.test", "nfs/server.vouch.test"]);
    let check = |keytab: &std::path::Path| {
        let mut command = kdc.program_as(env!("CARGO_BIN_EXE_vouch"), "krb5");
        let home = keytab.parent().unwrap();
        command
            .env("HOME", home)
            .env("VOUCH_RUNTIME_DIR", home)
            .args(words("check --json --no-cache --state"));
        command.arg(home.join("no-state")).arg("--keytab").arg(keytab);
        let (_, text) = output(command);
        text
    };
    let text = check(&kdc.keytab("without", &["host/server.vouch.test"]));
    assert!(text.contains("\"keytab-without-key\"") && text.contains("ktadd"), "{text}");
    let text = check(&kdc.keytab("with", &["nfs/server.vouch.test"]));
    assert_contains!(text, "has a key of the service nfs"; "keytab-without-key");
}
