//! Context creation against a real KDC: keys, clock skew, expired tickets, names, realms and
//! encryption types. For each refusal the server logs one line with client, principal and cure.

use std::io::{Read as _, Write as _};
use std::path::Path;
use vouch_testkit::{assert_contains, words};

use vouch_gss_mit::{ClientSource, MitInitiator};
use vouch_nfs4_client::establish;
use vouch_rpcsec_gss::{InitStep, Initiator};

use crate::credential_cache::CacheFile;
use crate::prelude::*;
use crate::relay::{Relay, last_record};

const SERVICE: &str = "nfs/localhost";
const ALICE: &str = "alice@VOUCH.TEST";
const ALICE_CALLS: &str = "alice@VOUCH.TEST with a ticket for nfs/localhost@VOUCH.TEST";
const PORT: &str = "VOUCH_TEST_CONTEXT_PORT";
const TARGET: &str = "VOUCH_TEST_CONTEXT_TARGET";
const ACCEPTED: &str = "the context is made";
const REFUSED: &str = "no context: ";

fn realm() -> Kdc {
    let kdc = Kdc::start();
    kdc.add(&["alice", SERVICE]);
    kdc.keytab("service", &[SERVICE]);
    kdc.keytab("alice", &["alice"]);
    kdc
}

fn tickets(kdc: &Kdc, client: &str, name: &str, options: &[&str]) -> String {
    let cache = kdc.kinit(client, "alice", &kdc.path("keytabs/alice"), name, options);
    succeed(kdc.program_as("kvno", client).env("KRB5CCNAME", &cache).arg(SERVICE));
    cache
}

fn try_context(kdc: &Kdc, client: &str, cache: &str, target: &str, port: u16) -> (bool, String) {
    let mut command = this_test("contexts::client_process");
    command.envs(kdc.environment(client)).env("KRB5CCNAME", cache);
    let output_text = succeed(command.env(PORT, port.to_string()).env(TARGET, target));
    assert_ne!(output_text.contains(ACCEPTED), output_text.contains(REFUSED), "{output_text}");
    (output_text.contains(ACCEPTED), output_text)
}

/// The child's side of the tests; does nothing without its variables.
#[test]
fn client_process() {
    let (Ok(port), Ok(target)) = (std::env::var(PORT), std::env::var(TARGET)) else { return };
    let address = SocketAddr::from(([127, 0, 0, 1], port.parse().expect("a port")));
    let outcome = MitInitiator::new(&target, &ClientSource::default())
        .map_err(|fault| fault.to_string())
        .and_then(|initiator| {
            establish(address, initiator, Service::Integrity).map_err(|error| error.to_string())
        });
    match outcome {
        Ok(_) => println!("{ACCEPTED}"),
        Err(error) => println!("{REFUSED}{error}"),
    }
}

fn assert_accepted(kdc: &Kdc, cache: &str, target: &str, export: &Export) {
    let (made, output_text) = try_context(kdc, "krb5", cache, target, export.address.port());
    assert!(made, "{output_text}\n{}", export.log());
}

fn assert_refused(kdc: &Kdc, client: &str, cache: &str, export: &Export, parts: &[&str]) {
    let (made, output_text) =
        try_context(kdc, client, cache, "nfs@localhost", export.address.port());
    assert!(!made && output_text.contains("the server refused"), "{output_text}\n{}", export.log());
    let line = export.wait_for_log(parts);
    assert_contains!(line, "peer=127.0.0.1", "; cure: ", "WARN");
    assert_eq!(
        export.log().lines().filter(|line| line.contains("Kerberos: ")).count(),
        1,
        "{}",
        export.log()
    );
}

fn recorded_enctype(export: &Export, why: Refusal, parts: &[&str]) -> Option<u32> {
    let (principal, enctype) = export.wait_for_record(why, parts);
    assert_eq!(principal, "", "an undecryptable ticket has no principal");
    enctype
}

#[test]
#[ignore = "needs a KDC"]
fn missing_key_is_reported_and_new_keytab_needs_no_restart() {
    let kdc = realm();
    let export = Export::start(&kdc);
    assert_accepted(&kdc, &tickets(&kdc, "krb5", "old", &[]), "nfs@localhost", &export);
    kdc.rekey(SERVICE);
    let cache = tickets(&kdc, "krb5", "new", &[]);
    assert_refused(
        &kdc,
        "krb5",
        &cache,
        &export,
        &["a ticket for nfs/localhost@VOUCH.TEST", "kvno 2", "ktadd"],
    );
    let found = export.check();
    assert_contains!(found, "keytab-stale-key: 127.0.0.1: was refused", "kvno 2");
    kdc.keytab("service", &[SERVICE]);
    assert_accepted(&kdc, &cache, "nfs@localhost", &export);
    // Tickets under the previous key stay valid until they expire.
    assert_accepted(&kdc, &kdc.ccache("old"), "nfs@localhost", &export);
}

#[test]
#[ignore = "needs a KDC"]
fn keytab_without_service_key_is_reported_at_start_and_reload() {
    const NONE: &[&str] = &["lists a Kerberos flavour", "holds no key of nfs/HOST", "; cure: "];
    let kdc = realm();
    kdc.add(&["host/localhost"]);
    kdc.keytab("host", &["host/localhost"]);
    let export =
        Export::start_with(&kdc, ServerOptions { keytab: "host", ..ServerOptions::default() });
    export.wait_for_log(NONE);
    let reload_output = export.reload();
    assert!(NONE.iter().all(|part| reload_output.contains(part)), "{reload_output}");
    kdc.keytab("host", &[SERVICE]);
    let reload_output = export.reload();
    assert!(!reload_output.contains("Kerberos"), "{reload_output}");
    assert_accepted(&kdc, &tickets(&kdc, "krb5", "alice", &[]), "nfs@localhost", &export);
    std::fs::remove_file(kdc.path("keytabs/host")).expect("the file exists");
    let reload_output = export.reload();
    assert_contains!(reload_output, "the keytab is missing, unreadable or empty");
}

#[test]
#[ignore = "needs a KDC"]
fn wrong_key_of_the_same_kvno_is_reported() {
    let kdc = realm();
    let other = realm();
    std::fs::copy(other.path("keytabs/service"), kdc.path("keytabs/other")).expect("a keytab");
    let export =
        Export::start_with(&kdc, ServerOptions { keytab: "other", ..ServerOptions::default() });
    let cache = tickets(&kdc, "krb5", "alice", &[]);
    assert_refused(
        &kdc,
        "krb5",
        &cache,
        &export,
        &["a ticket for nfs/localhost@VOUCH.TEST", "kvno 1", "cannot decrypt", "ktadd"],
    );
    assert!(
        recorded_enctype(&export, Refusal::Authentication, &["cannot decrypt"])
            .is_some_and(|enctype| (17..=20).contains(&enctype))
    );
}

#[test]
#[ignore = "needs a KDC"]
fn clock_skew_is_reported() {
    let kdc = realm();
    kdc.client(&kdc::Client { name: "strict", clock_skew: 60, ..kdc::Client::default() });
    let export =
        Export::start_with(&kdc, ServerOptions { conf: "strict", ..ServerOptions::default() });
    // Less than the 300 s by which a client lets the start time of its own ticket be off.
    for (name, seconds) in [("late", -200), ("early", 3600)] {
        let cache = tickets(&kdc, "krb5", name, &[]);
        CacheFile::open(&cache).shift_clock(seconds / 100);
        assert_accepted(&kdc, &cache, "nfs@localhost", &export);
        CacheFile::open(&cache).shift_clock(seconds);
        let (made, output_text) =
            try_context(&kdc, "krb5", &cache, "nfs@localhost", export.address.port());
        assert!(!made, "{name}: {output_text}\n{}", export.log());
    }
    for (way, seconds) in [("behind", 200..=400), ("ahead of", 3400..=3600)] {
        let line = export.wait_for_log(&[ALICE_CALLS, "skew", way, "NTP", "peer=127.0.0.1"]);
        let off = line
            .split_once("its clock is ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        assert!(off.is_some_and(|off: i32| seconds.contains(&off)), "{line}");
        let (principal, enctype) =
            export.wait_for_record(Refusal::Authentication, &[ALICE_CALLS, "skew", way, "NTP"]);
        assert!(principal == ALICE && enctype.is_some(), "{principal}");
    }
    assert_eq!(
        export.log().lines().filter(|line| line.contains("Kerberos: ")).count(),
        2,
        "{}",
        export.log()
    );
    let found = export.check();
    assert!(found.contains("clock-skew: alice@VOUCH.TEST: was refused"), "{found}");
}

#[test]
#[ignore = "needs a KDC"]
fn expired_ticket_is_reported() {
    let kdc = realm();
    kdc.client(&kdc::Client { name: "strict", clock_skew: 1, ..kdc::Client::default() });
    let export =
        Export::start_with(&kdc, ServerOptions { conf: "strict", ..ServerOptions::default() });
    let cache = tickets(&kdc, "krb5", "short", &["-l", "10s"]);
    CacheFile::open(&cache).extend_tickets();
    within(60, "the ticket does not end", || {
        !try_context(&kdc, "krb5", &cache, "nfs@localhost", export.address.port()).0
    });
    let line = export.wait_for_log(&[ALICE_CALLS, "expired", "kinit again"]);
    let (principal, enctype) =
        export.wait_for_record(Refusal::Expired, &[ALICE_CALLS, "expired", "kinit again"]);
    assert!(principal == ALICE && enctype.is_some(), "{principal}");
    let end = Instant::now() + Duration::from_secs(60);
    while !export.log().contains(" s ago") {
        assert!(Instant::now() < end, "no line says since when: {}", export.log());
        assert!(!try_context(&kdc, "krb5", &cache, "nfs@localhost", export.address.port()).0);
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(line.contains("peer=127.0.0.1") && line.contains("; cure: "), "{line}");
}

#[test]
#[ignore = "needs a KDC"]
fn replay_is_reported_with_principal_and_altered_token_without() {
    let kdc = realm();
    let export = Export::start(&kdc);
    let relay = Relay::start(export.address);
    let cache = tickets(&kdc, "krb5", "alice", &[]);
    let (made, output_text) = try_context(&kdc, "krb5", &cache, "nfs@localhost", relay.port());
    assert!(made, "{output_text}\n{}", export.log());
    let again = last_record(&relay.busiest().0);
    // This byte is in the authenticator's checksum. An eavesdropper can alter and resend a ticket,
    // so it does not prove the principal.
    let mut altered = again.clone();
    let at = altered.len() - 8;
    altered[at] ^= 1;
    let send = |record: &[u8]| {
        let mut socket = TcpStream::connect(export.address).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        socket.write_all(record).expect("the record is sent");
        socket.read_exact(&mut [0; 4]).expect("an answer");
    };
    send(&altered);
    let line = export.wait_for_log(&[
        "Kerberos: a ticket for nfs/localhost@VOUCH.TEST",
        "; cure: ",
        "was altered",
    ]);
    assert!(!line.contains(ALICE) && !line.contains("keytab"), "{line}");
    assert!(
        recorded_enctype(
            &export,
            Refusal::Authentication,
            &["a ticket for nfs/localhost@VOUCH.TEST"]
        )
        .is_some()
    );
    send(&again);
    export.wait_for_log(&[ALICE_CALLS, "replay", "; cure: ", "peer=127.0.0.1"]);
    let (principal, enctype) = export.wait_for_record(Refusal::Replay, &[ALICE_CALLS, "replay"]);
    assert!(principal == ALICE && enctype.is_some(), "{principal}");
}

#[test]
#[ignore = "needs a KDC"]
fn renewed_ticket_outlives_the_first_one() {
    let kdc = realm();
    kdc.client(&kdc::Client { name: "strict", clock_skew: 1, ..kdc::Client::default() });
    let export =
        Export::start_with(&kdc, ServerOptions { conf: "strict", ..ServerOptions::default() });
    let cache = tickets(&kdc, "krb5", "renewed", &["-l", "20s", "-r", "1h"]);
    let first = kdc.ccache("first");
    let path = |cache: &str| cache.trim_start_matches("FILE:").to_owned();
    std::fs::copy(path(&cache), path(&first)).expect("the first ticket can be copied");
    let end = Instant::now() + Duration::from_secs(90);
    while try_context(&kdc, "krb5", &first, "nfs@localhost", export.address.port()).0 {
        assert!(Instant::now() < end, "the first ticket does not end");
        succeed(kdc.program_as("kinit", "krb5").args(["-R", "-c", &cache]));
        assert_accepted(&kdc, &cache, "nfs@localhost", &export);
        std::thread::sleep(Duration::from_secs(2));
    }
    assert_accepted(&kdc, &cache, "nfs@localhost", &export);
}

struct FixedToken(&'static [u8]);

impl Initiator for FixedToken {
    type Error = std::fmt::Error;

    fn step(&mut self, _: Option<&[u8]>) -> Result<InitStep, std::fmt::Error> {
        Ok(InitStep::Continue { token: self.0.to_vec() })
    }
}

#[test]
#[ignore = "needs a KDC"]
fn malformed_token_is_reported_as_no_ticket() {
    let kdc = realm();
    // An empty token, a SPNEGO token with an empty list of mechanisms, a Kerberos frame without
    // content, and noise.
    let spnego = b"\x60\x0c\x06\x06\x2b\x06\x01\x05\x05\x02\xa0\x02\x30\x00";
    let bare = b"\x60\x0d\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00";
    for token in [&b""[..], spnego, bare, b"no token at all"] {
        let export = Export::start(&kdc);
        assert!(establish(export.address, FixedToken(token), Service::Integrity).is_err());
        let line = export.wait_for_log(&["Kerberos: "]);
        assert_contains!(line, "not a Kerberos V5 ticket", "; cure: the client must");
        assert!(!line.contains("keytab") && !line.contains("Success"), "{line}");
        // Malformed tokens of one client do not affect others.
        assert_accepted(&kdc, &tickets(&kdc, "krb5", "alice", &[]), "nfs@localhost", &export);
    }
}

#[test]
#[ignore = "needs a KDC"]
fn server_accepts_exactly_the_nfs_names_of_its_keytab() {
    let kdc = realm();
    let other = Kdc::start_realm("OTHER.TEST", &[]);
    other.add(&["alice", SERVICE]);
    other.keytab("alice", &["alice"]);
    // Images of cluster nodes have keys for other names and other realms.
    kdc.add(&["nfs/node-image.vouch.test", "nfs/elsewhere.vouch.test", "host/localhost"]);
    kdc.keytab("service", &["nfs/node-image.vouch.test", "host/localhost"]);
    let path = kdc.path("keytabs/service");
    other.kadmin(&format!("ktadd -norandkey -k {} {SERVICE}\n", path.display()));
    let export = Export::start(&kdc);
    let cache = tickets(&kdc, "krb5", "alice", &[]);
    for target in ["nfs@localhost", "nfs/node-image.vouch.test@VOUCH.TEST"] {
        assert_accepted(&kdc, &cache, target, &export);
    }
    let theirs = tickets(&other, "krb5", "alice", &[]);
    assert_accepted(&other, &theirs, "nfs/localhost@OTHER.TEST", &export);
    assert!(!export.log().contains("Kerberos: "), "{}", export.log());
    for (target, why) in [
        ("nfs/elsewhere.vouch.test@VOUCH.TEST", "nfs/elsewhere"),
        ("host/localhost@VOUCH.TEST", "which is not nfs/HOST"),
    ] {
        assert!(!try_context(&kdc, "krb5", &cache, target, export.address.port()).0, "{target}");
        export.wait_for_log(&[why, "; cure: "]);
    }
}

#[test]
#[ignore = "needs a KDC"]
fn users_of_a_trusted_realm_are_accepted() {
    let kdc = realm();
    let other = Kdc::start_realm("OTHER.TEST", &[]);
    other.add(&["alice"]);
    other.keytab("alice", &["alice"]);
    for side in [&kdc, &other] {
        side.kadmin(
            "addprinc -pw between -e aes256-cts-hmac-sha1-96:normal krbtgt/VOUCH.TEST@OTHER.TEST\n",
        );
    }
    let realms = format!(" {REALM} = {{\n  kdc = 127.0.0.1:{}\n }}", kdc.port());
    let capaths = "[capaths]\n OTHER.TEST = {\n  VOUCH.TEST = .\n }\n";
    other.client(&kdc::Client {
        name: "trusting",
        realms: &format!("{realms}\n{capaths}"),
        ..kdc::Client::default()
    });
    let export = Export::start(&kdc);
    let cache = other.kinit("trusting", "alice", &other.path("keytabs/alice"), "alice", &[]);
    let (made, output_text) =
        try_context(&other, "trusting", &cache, "nfs/localhost@VOUCH.TEST", export.address.port());
    assert!(made, "{output_text}\n{}", export.log());
}

#[test]
#[ignore = "needs a KDC"]
fn ticket_is_accepted_from_any_address() {
    let kdc = realm();
    let export = Export::start(&kdc);
    let relay = Relay::start(export.address);
    let more = " noaddresses = false\n extra_addresses = 127.0.0.1,192.0.2.7\n";
    kdc.client(&kdc::Client { name: "addressed", more, ..kdc::Client::default() });
    for client in ["krb5", "addressed"] {
        let cache = tickets(&kdc, client, client, &[]);
        let (made, output_text) = try_context(&kdc, client, &cache, "nfs@localhost", relay.port());
        assert!(made, "{output_text}\n{}", export.log());
    }
}

#[test]
#[ignore = "needs a KDC"]
fn key_older_than_aes_is_refused_with_a_cure() {
    let kdc = realm();
    for (old, number) in [("arcfour-hmac", 23), ("des3-cbc-sha1", 16)] {
        let output_text = kdc.kadmin(&format!("cpw -randkey -e {old}:normal {SERVICE}\n"));
        // MIT 1.22 and later may lack des3.
        if number != 23 && !output_text.contains("randomized") {
            continue;
        }
        // ktadd appends, so a new keytab contains only this key.
        let keytab = if number == 23 { "service" } else { "older" };
        kdc.keytab(keytab, &[SERVICE]);
        let enctypes = format!("aes256-cts-hmac-sha1-96 {old}");
        let more = " allow_weak_crypto = true\n allow_rc4 = true\n allow_des3 = true\n";
        kdc.client(&kdc::Client { name: old, enctypes: &enctypes, more, ..kdc::Client::default() });
        let export = Export::start_with(&kdc, ServerOptions { keytab, ..ServerOptions::default() });
        let cache = tickets(&kdc, old, old, &[]);
        assert_refused(
            &kdc,
            old,
            &cache,
            &export,
            &[&format!("a ticket for nfs/localhost@VOUCH.TEST ({old}"), "kadmin: "],
        );
        // Recorded although the Kerberos library may not have decrypted the ticket.
        let (_, enctype) = export.wait_for_record(Refusal::Authentication, &[old]);
        assert_eq!(enctype, Some(number));
    }
}

#[test]
#[ignore = "needs a KDC"]
fn unusable_keytab_ends_the_start_with_its_code() {
    let kdc = realm();
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("text"), "no keytab").expect("a file");
    std::fs::create_dir(directory.path().join("data")).expect("a directory");
    for keytab in ["missing", "text"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command
            .envs(kdc.environment("krb5"))
            .arg("export")
            .arg("--dir")
            .arg(directory.path().join("data"));
        command
            .args(["--options", "rw,insecure,sec=krb5p", "--listen", "127.0.0.1:0"])
            .arg("--state")
            .arg(directory.path().join("state"));
        let out = command
            .arg("--keytab")
            .arg(directory.path().join(keytab))
            .stdin(Stdio::null())
            .output()
            .expect("the binary starts");
        let output_text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{keytab}: {output_text}");
        assert!(
            output_text.contains(keytab) && output_text.contains("; cure: "),
            "{keytab}: {output_text}"
        );
    }
}

#[test]
#[ignore = "needs a KDC"]
fn check_names_a_keytab_without_the_key() {
    let kdc = Kdc::start();
    kdc.add(&["host/server.vouch.test", "nfs/server.vouch.test"]);
    let check = |keytab: &Path| {
        let mut command = kdc.program_as(env!("CARGO_BIN_EXE_vouch"), "krb5");
        let home = keytab.parent().unwrap();
        command
            .env("HOME", home)
            .env("VOUCH_RUNTIME_DIR", home)
            .args(words("check --json --no-cache --state"));
        command.arg(home.join("no-state")).arg("--keytab").arg(keytab);
        text_of(&command.output().expect("the binary starts"))
    };
    let text = check(&kdc.keytab("without", &["host/server.vouch.test"]));
    assert!(text.contains("\"keytab-without-key\"") && text.contains("ktadd"), "{text}");
    let text = check(&kdc.keytab("with", &["nfs/server.vouch.test"]));
    assert_contains!(text, "has a key of the service nfs"; "keytab-without-key");
}
