//! `vouch export check`: one fault of a list, a certificate or a keytab at a time.

use std::os::unix::fs::PermissionsExt as _;
use vouch_testkit::certificates::{Authority, Holder};

use crate::prelude::*;

const RC4: u16 = 23;
const AES256: u16 = 18;

/// A keytab (MIT, version 2) with one key of nfs/filer.example.org.
fn keytab(site: &TestSite, name: &str, encryption: u16, key_len: usize) {
    let counted = |text: &str| [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat();
    let mut entry = 2_u16.to_be_bytes().to_vec();
    ["EXAMPLE.ORG", "nfs", "filer.example.org"].iter().for_each(|text| entry.extend(counted(text)));
    // Name type, time and key number.
    entry.extend([0, 0, 0, 1, 0, 0, 0, 0, 1]);
    entry.extend(encryption.to_be_bytes());
    entry.extend((key_len as u16).to_be_bytes());
    entry.resize(entry.len() + key_len, 7);
    let file = [&[5, 2], &(entry.len() as u32).to_be_bytes()[..], &entry].concat();
    site.write(name, file);
    fs::set_permissions(site.path(name), fs::Permissions::from_mode(0o600)).expect("an own file");
}

#[test]
fn dry_run_names_each_fault_and_shows_effective_options() {
    let site = TestSite::with_directories(&["data"]);
    let data = site.path("data").display().to_string();
    site.write(
        "good",
        format!("{data} 192.0.2.0/24(rw,sec=sys:krb5p,no_root_squash) *(ro,xprtsec=tls:mtls)\n"),
    );
    site.write("kerberos", format!("{data} *(sec=krb5p)\n"));
    site.write(
        "wrong-line",
        format!("{data} 192.0.2.0/24(rw)\n{data} 192.0.2.7(rw,no_such_option)\n"),
    );
    site.write("missing", format!("{data} *(ro)\n{data}/gone *(ro)\n"));
    let authority = Authority::new(&site.path(""), "ca");
    authority.issue("valid", Holder::on_loopback());
    authority.issue("expired", Holder { years: 2020..2021, ..Holder::on_loopback() });
    keytab(&site, "aes.keytab", AES256, 32);
    keytab(&site, "rc4.keytab", RC4, 16);

    let check = |args: &[&str]| {
        let output = site.run([&["export", "check"], args].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let tls = ["--tls-cert", "valid.pem", "--tls-key", "valid.key"];
    let (code, text) =
        check(&[&["--exports", "good", "--keytab", "aes.keytab"], &tls[..]].concat());
    assert_eq!(code, Some(0), "{text}");
    // The options are those that `exportfs -v` of nfs-utils 3.1.1 prints where nfsd runs.
    for line in [
        format!(
            "{data} 192.0.2.0/24(sync,wdelay,hide,no_subtree_check,sec=sys:krb5p,rw,secure,no_root_squash,no_all_squash)\n"
        ),
        format!(
            "{data} *(sync,wdelay,hide,no_subtree_check,sec=sys,ro,secure,root_squash,no_all_squash,xprtsec=tls:mtls)\n"
        ),
    ] {
        assert!(text.contains(&line), "{line} is missing in {text}");
    }
    assert!(text.ends_with("no problem found\n"), "{text}");
    let (_, text) = check(&[&["--exports", "good", "--client", "198.51.100.1"], &tls[..]].concat());
    assert!(text.contains(" *(") && !text.contains("192.0.2.0/24("), "{text}");

    for (fault, says, args) in [
        (
            "export-list",
            "wrong-line: line 2: option no_such_option",
            &["--exports", "wrong-line"][..],
        ),
        (
            "not-exported",
            "/gone is not exported: No such file or directory",
            &["--exports", "missing"],
        ),
        ("export-list", "xprtsec=tls", &["--exports", "good"]),
        (
            "keytab-without-key",
            "arcfour-hmac",
            &["--exports", "kerberos", "--keytab", "rc4.keytab"],
        ),
        ("keytab-missing", "does not exist", &["--exports", "kerberos", "--keytab", "no-keytab"]),
        (
            "certificate",
            "has expired",
            &["--exports", "good", "--tls-cert", "expired.pem", "--tls-key", "expired.key"],
        ),
        (
            "certificate",
            "key",
            &["--exports", "good", "--tls-cert", "valid.pem", "--tls-key", "expired.key"],
        ),
    ] {
        let (code, text) = check(args);
        assert_eq!(code, Some(1), "{fault}: {text}");
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("PROBLEM  {fault}: ")))
            .unwrap_or_default();
        assert!(line.contains(says) && !text.contains("os error"), "{fault}: {text}");
    }
}

#[test]
fn server_warns_of_files_that_others_can_read_or_change() {
    let site = TestSite::with_directories(&["data"]);
    keytab(&site, "exposed.keytab", AES256, 32);
    site.run_ok(["audit", "keygen", "trail"]);
    fs::rename(site.path("trail/key"), site.path("exposed.audit-key")).expect("an own file");
    site.write("exposed.exports", format!("{} *(rw)\n", site.path("data").display()));
    site.write("exposed.principals", "");
    for name in ["exposed.keytab", "exposed.audit-key", "exposed.exports", "exposed.principals"] {
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(0o666))
            .expect("an own file");
    }
    let listen = format!("127.0.0.1:{}", free_port());
    let files = words(
        "--keytab exposed.keytab --audit trail --audit-key exposed.audit-key --principal-map exposed.principals",
    );
    let server = format!(
        "export --exports exposed.exports --listen {listen} --state exporting --log-file log"
    );
    let server = words(&server);
    let mut command = site.command([&server[..], &files].concat());
    let _server = KillOnDrop(
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts"),
    );
    let log = || fs::read_to_string(site.path("log")).unwrap_or_default();
    let is_complete = || log().contains("exposed.keytab") && log().contains("exposed.exports");
    assert!(eventually(Duration::from_secs(20), is_complete), "{}", log());
    for (name, says) in [
        ("exposed.keytab", "holds secrets"),
        ("exposed.audit-key", "holds secrets"),
        ("exposed.exports", "is writable by other users"),
        ("exposed.principals", "is writable by other users"),
    ] {
        assert!(
            log().lines().any(|line| line.contains(name) && line.contains(says)),
            "{name}: {}",
            log()
        );
    }
}
