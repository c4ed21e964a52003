//! Wiping of tickets: a child gets tickets from a real KDC; this process learns the keys and scans
//! the child's memory.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use vouch_rpcsec_gss::{Accept, Acceptor as _, InitStep, Initiator as _};

use crate::ffi::{Gss, Opened};
use crate::ticket::tests::token_for;
use crate::ticket::{Request, subkey};
use crate::{ClientSource, MitAcceptor, MitInitiator, check_keytab};
use vouch_testkit::kdc::Kdc;
use vouch_testkit::{succeed, this_test};

const CHILD: &str = "VOUCH_TEST_GETS_TICKETS";
const SERVICE: &str = "nfs/localhost";

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
#[ignore = "needs a KDC"]
fn no_ticket_key_outlives_keytab_initiator() {
    if let Some(keytab) = std::env::var_os(CHILD) {
        return get_tickets(keytab.into());
    }
    let kdc = Kdc::start();
    kdc.add(&["alice", SERVICE]);
    let (user, service) = (kdc.keytab("alice", &["alice"]), kdc.keytab("service", &[SERVICE]));
    let service = CString::new(service.as_os_str().as_bytes()).expect("no zero byte");
    let mut command = this_test("tests::no_ticket_key_outlives_keytab_initiator");
    command
        .envs(kdc.environment("krb5"))
        .env(CHILD, &user)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("a child");
    let mut orders = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut wait_for = |word: &str| {
        let rest =
            lines.find_map(|line| line.expect("a line").strip_prefix(word).map(str::to_owned));
        rest.unwrap_or_else(|| panic!("the child died before {word}"))
    };
    let gss = Gss::get().expect("the library");
    let mut keys = keytab_keys(&std::fs::read(&user).expect("the keytab"));
    assert_eq!(keys.len(), 4, "one key of each enctype");
    for round in 0..3 {
        orders.write_all(b"g").expect("a child that reads");
        let token = hex(&wait_for("token "));
        let opened = Opened::of(gss, Some(&service), &Request::of_token(&token).expect("a ticket"));
        let Opened::All(opened) = opened else { panic!("the ticket is for this service") };
        assert_eq!(opened.client, b"alice@VOUCH.TEST");
        let subkey = subkey(&opened.authenticator).expect("a client sends one").to_vec();
        for (name, key) in [("session key", opened.session.to_vec()), ("subkey", subkey)] {
            assert!(
                scan(child.id(), &key) > 0,
                "the scan does not find {name} while the key is in use"
            );
            keys.push((format!("{name} {round}"), key));
        }
        orders.write_all(b"d").expect("a child that reads");
        wait_for("dropped");
        let left: Vec<_> = keys
            .iter()
            .map(|(name, key)| (name, scan(child.id(), key)))
            .filter(|(_, count)| *count > 0)
            .collect();
        assert!(left.is_empty(), "left in memory: {left:?}");
    }
    drop(orders);
    assert!(child.wait().expect("our child").success());
}

fn get_tickets(keytab: PathBuf) {
    let mut orders = File::open("/dev/stdin").expect("a pipe");
    let mut order = [0];
    while orders.read(&mut order).expect("a pipe") == 1 {
        let source = ClientSource {
            principal: Some("alice".into()),
            keytab: Some(keytab.clone()),
            ccache: None,
        };
        let mut initiator = MitInitiator::new("nfs@localhost", &source).expect("a ticket");
        let InitStep::Continue { token } = initiator.step(None).expect("a ticket for the service")
        else {
            panic!("the service has its say")
        };
        println!("\ntoken {}", token.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        orders.read_exact(&mut order).expect("a pipe");
        drop(initiator);
        println!("\ndropped");
    }
}

/// After enctypes and lengths (MIT's documentation, "Keytab file format").
fn keytab_keys(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let of = |head: [u8; 4]| {
        let at = bytes.windows(4).position(|window| window == head)? + 4;
        Some((
            format!("long-term key of enctype {}", head[1]),
            bytes[at..at + usize::from(head[3])].to_vec(),
        ))
    };
    [[0, 17, 0, 16], [0, 18, 0, 32], [0, 19, 0, 16], [0, 20, 0, 32]]
        .into_iter()
        .filter_map(of)
        .collect()
}

fn hex(text: &str) -> Vec<u8> {
    let pairs =
        text.trim().as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect()
}

fn scan(pid: u32, key: &[u8]) -> usize {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("a child's memory");
    let mut count = 0;
    for line in
        std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a child's maps").lines()
    {
        let (range, rest) = line.split_once(' ').expect("a map");
        let (start, end) = range.split_once('-').expect("a range");
        let [start, end] =
            [start, end].map(|digits| u64::from_str_radix(digits, 16).expect("an address"));
        let mut contents = vec![0; (end - start) as usize];
        if !rest.starts_with("rw") || memory.read_exact_at(&mut contents, start).is_err() {
            continue;
        }
        let mut rest = &contents[..];
        while let Some(at) = rest.iter().position(|byte| *byte == key[0]) {
            count += usize::from(rest[at..].starts_with(key));
            rest = &rest[at + 1..];
        }
    }
    count
}

#[test]
#[ignore = "needs MIT Kerberos"]
fn default_keytab_follows_configuration() {
    const TOLD: &str = "VOUCH_TEST_TELLS_KEYTAB";
    if std::env::var_os(TOLD).is_some() {
        let name = crate::default_keytab().expect("the library reports the value");
        return println!("keytab <{}>", String::from_utf8_lossy(&name));
    }
    crate::available().expect("needs MIT Kerberos: the package libgssapi-krb5-2");
    let directory = tempfile::tempdir().expect("a directory");
    let configuration = directory.path().join("krb5.conf");
    std::fs::write(&configuration, "[libdefaults]\ndefault_keytab_name = FILE:/srv/some.keytab\n")
        .expect("a file");
    let tell = |named: Option<&str>| {
        let mut child = this_test("tests::default_keytab_follows_configuration");
        child
            .env(TOLD, "1")
            .env("KRB5_CONFIG", &configuration)
            .env_remove("KRB5_KTNAME")
            .envs(named.map(|name| ("KRB5_KTNAME", name)));
        succeed(&mut child)
    };
    assert!(tell(None).contains("keytab <FILE:/srv/some.keytab>"));
    assert!(tell(Some("WRFILE:/srv/other.keytab")).contains("keytab <WRFILE:/srv/other.keytab>"));
}

fn keytab(path: &std::path::Path, principals: &[[&str; 2]]) {
    keytab_of(path, &principals.iter().map(|&principal| (principal, 18)).collect::<Vec<_>>());
}

/// Keys with the type of each.
fn keytab_of(path: &std::path::Path, keys: &[([&str; 2], u8)]) {
    let counted = |text: &str| [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat();
    let mut bytes = vec![5, 2];
    for (parts, enctype) in keys {
        let len: u8 = if *enctype == 18 { 32 } else { 16 };
        let mut entry = vec![0, 2];
        ["EXAMPLE.ORG", parts[0], parts[1]].iter().for_each(|text| entry.extend(counted(text)));
        entry.extend([0, 0, 0, 1, 0, 0, 0, 0, 1, 0, *enctype, 0, len]);
        entry.extend(vec![7; usize::from(len)]);
        bytes.extend((entry.len() as u32).to_be_bytes());
        bytes.extend(entry);
    }
    std::fs::write(path, bytes).expect("a file");
}

fn refused(acceptor: &MitAcceptor, service: &[&[u8]]) -> String {
    let Accept::Failed { reason, .. } = acceptor.accept(None, &token_for(service, 18, 300)) else {
        panic!("anybody can make up this text")
    };
    reason
}

#[test]
#[ignore = "needs MIT Kerberos"]
fn forged_ticket_cannot_forge_log_lines() {
    crate::available().expect("needs MIT Kerberos: the package libgssapi-krb5-2");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keytab");
    keytab(&path, &[["nfs", "localhost"]]);
    let acceptor = MitAcceptor::new(Some(&path), "nfs").expect("the file holds a key");
    let reason = refused(&acceptor, &[b"nfs", b"x\r2026-11-23 FAKE LINE\x1b[2J\n"]);
    assert!(reason.matches("x?2026-11-23 FAKE LINE?[2J").count() >= 2, "{reason:?}");
    assert!(!reason.contains(char::is_control), "{reason:?}");
}

#[test]
#[ignore = "needs MIT Kerberos"]
fn missing_keytab_differs_from_missing_key() {
    crate::available().expect("needs MIT Kerberos: the package libgssapi-krb5-2");
    const NOT_THERE: &str =
        "; cure: the keytab is missing, unreadable or empty: look at its path and rights";
    const LACKS: &str = "; cure: the keytab lacks this key";
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keytab");
    let failure = |path| {
        MitAcceptor::new(Some(path), "nfs").map(drop).expect_err("there is no key").to_string()
    };
    assert!(failure(&path).contains(NOT_THERE), "{}", failure(&path));
    keytab(&path, &[]);
    assert!(failure(&path).contains(NOT_THERE), "{}", failure(&path));
    keytab(&path, &[["nfs", "localhost"]]);
    let acceptor = MitAcceptor::new(Some(&path), "nfs").expect("the file holds a key");
    let reason = || refused(&acceptor, &[b"nfs", b"elsewhere"]);
    assert!(reason().contains(LACKS), "{}", reason());
    std::fs::remove_file(&path).expect("the entry exists");
    assert!(reason().contains(NOT_THERE), "{}", reason());
    keytab(&path, &[]);
    assert!(reason().contains(NOT_THERE), "{}", reason());
    keytab(&path, &[["host", "localhost"]]);
    assert!(reason().contains(LACKS), "{}", reason());
}

#[test]
#[ignore = "needs MIT Kerberos"]
fn host_principal_has_short_or_full_name_of_the_host() {
    crate::available().expect("needs MIT Kerberos: the package libgssapi-krb5-2");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keytab");
    let of = |host| crate::host_principal(&path, host).map_err(|error| error.to_string());
    assert!(of("n1").expect_err("no file").contains("missing, unreadable or empty"));
    keytab(
        &path,
        &[
            ["nfs", "n1.example.org"],
            ["host", "n10.example.org"],
            ["host", "n1.example.org"],
            ["host", "n2"],
        ],
    );
    for (host, principal) in [
        ("n1", "host/n1.example.org@EXAMPLE.ORG"),
        ("n1.example.org", "host/n1.example.org@EXAMPLE.ORG"),
        ("n2.site", "host/n2@EXAMPLE.ORG"),
    ] {
        assert_eq!(of(host).as_deref(), Ok(principal));
    }
    assert!(of("n3").expect_err("no key").contains("holds no key of host/n3; cure: "));
}

#[test]
#[ignore = "needs MIT Kerberos"]
fn keytab_without_service_key_is_reported() {
    crate::available().expect("needs MIT Kerberos: the package libgssapi-krb5-2");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keytab");
    let load_error = || check_keytab(Some(&path), "nfs").map_err(|error| error.to_string());
    let missing = load_error().expect_err("the file is missing");
    assert!(
        missing.contains(path.to_str().expect("text"))
            && missing.contains("missing, unreadable or empty"),
        "{missing}"
    );
    for (principals, is_good) in [
        (&[][..], false),
        (&[["host", "localhost"], ["nfsd", "localhost"]], false),
        (&[["host", "localhost"], ["nfs", "localhost"]], true),
    ] {
        keytab(&path, principals);
        match load_error() {
            Ok(()) => assert!(is_good, "{principals:?}"),
            Err(why) => assert!(
                !is_good && why.contains("holds no key of nfs/HOST; cure: "),
                "{principals:?}: {why}"
            ),
        }
    }
    const RC4: u8 = 23;
    keytab_of(&path, &[(["nfs", "localhost"], RC4), (["host", "localhost"], 18)]);
    let why = load_error().expect_err("each ticket would be refused");
    assert!(why.contains("of refused types only: arcfour-hmac; cure: write AES keys"), "{why}");
    keytab_of(&path, &[(["nfs", "localhost"], RC4), (["nfs", "localhost"], 18)]);
    assert_eq!(load_error(), Ok(()));
    std::fs::write(&path, "no keytab").expect("a file");
    assert!(load_error().is_err());
}
