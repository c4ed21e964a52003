//! Tests the text format with auditd's `ausearch` and `aureport`.

use std::path::{Path, PathBuf};
use std::process::Command;

use vouch_audit::operations::number;
use vouch_audit::record::{Act, Refusal, access};
use vouch_audit::rules::{Resolve, Rules};
use vouch_audit::{Class, Flavour, Record, text};

fn records() -> Vec<Record<'static>> {
    let base = Record {
        time_ns: 1_700_000_000_250_000_000,
        class: Class::Operation,
        flavour: Flavour::Krb5p,
        principal: b"alice@EXAMPLE.ORG",
        uid: Some(4242),
        gid: Some(100),
        address: Some("192.0.2.7".parse().unwrap()),
        port: Some(700),
        client: b"c1.example.org",
        export: b"/srv",
        ..Record::default()
    };
    vec![
        Record {
            seq: 1,
            operation: number::OPEN,
            path: b"/srv/plain",
            requested: Some(access::READ),
            key: b"secret",
            ..base.clone()
        },
        Record {
            seq: 2,
            operation: number::OPEN,
            path: b"/srv/with space",
            result: 13,
            uid: Some(4343),
            ..base.clone()
        },
        Record {
            seq: 3,
            operation: number::RENAME,
            path: b"/srv/old",
            path2: b"/srv/new",
            ..base.clone()
        },
        Record {
            seq: 4,
            class: Class::Refusal,
            operation: Refusal::Expired as u16,
            principal: b"bob@EXAMPLE.ORG",
            uid: None,
            ..base.clone()
        },
        Record {
            seq: 5,
            class: Class::Administrative,
            operation: Act::Reload as u16,
            detail: b"3 exports",
            ..base.clone()
        },
        Record {
            seq: 6,
            class: Class::Administrative,
            operation: Act::TurnedDown as u16,
            uid: Some(0),
            detail: b"less is recorded than before",
            ..base.clone()
        },
        Record {
            seq: 7,
            class: Class::Administrative,
            operation: Act::Rules as u16,
            uid: Some(0),
            detail: b"3 rules",
            ..base.clone()
        },
        Record {
            seq: 8,
            class: Class::Host,
            operation: 1300,
            flavour: Flavour::Local,
            principal: b"",
            address: None,
            client: b"web1",
            export: b"",
            path: b"/etc/old name",
            path2: b"/etc/new",
            file: b"fe:00:4711",
            key: b"etc",
            detail:
                b"syscall=renameat2 number=316 arch=c000003e ses=3 comm=\"my mv\" exe=/usr/bin/mv",
            pid: Some(77),
            ..base.clone()
        },
        Record {
            seq: 9,
            class: Class::Host,
            operation: 1112,
            flavour: Flavour::Local,
            principal: b"",
            export: b"",
            client: b"web1",
            detail: b"op=login acct=bob exe=/usr/sbin/sshd",
            ..base
        },
    ]
}

/// Lines of auditd's own rule files that have no meaning here.
const WITHOUT_MEANING: [&str; 2] = ["10-no-audit.rules", "32-power-abuse.rules"];

struct Users;

impl Resolve for Users {
    fn user(&self, _: &str) -> Option<u32> {
        Some(1)
    }

    fn group(&self, _: &str) -> Option<u32> {
        Some(1)
    }
}

#[test]
#[ignore = "needs root and auditd"]
fn rule_files_of_auditd_load() {
    let mut count = 0;
    for directory in
        ["usr/share/doc/auditd/examples/audit-rules", "usr/share/doc/auditd/examples/rules"]
    {
        let directory = root().join(directory);
        for file in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.ends_with(".rules") {
                let rules = Rules::parse(std::fs::read(file.path()).unwrap(), &Users);
                assert_eq!(rules.is_err(), WITHOUT_MEANING.contains(&&*name), "{name}: {rules:?}");
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count} rule files, as the package has them");
}

/// Where auditd is installed: `script/install-needs` unpacks that of the suite VOUCH_PEERS_SUITE.
fn root() -> PathBuf {
    std::env::var("VOUCH_PEERS_SUITE")
        .map_or_else(|_| "/".into(), |suite| format!("/opt/vouch-auditd-{suite}").into())
}

/// `log` is below [`root`].
fn run(log: &Path, program: &str, args: &[&str]) -> String {
    let root = root();
    let log = Path::new("/").join(log.strip_prefix(&root).expect("a path below the root"));
    let mut command = Command::new("chroot");
    command
        .arg(&root)
        .arg(program)
        .args(args)
        .arg("-if")
        .arg(log)
        .env("TZ", "UTC")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let output = command.output().expect("the package auditd is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "needs root and auditd"]
fn ausearch_and_aureport_find_the_written_records() {
    let directory = tempfile::tempdir_in(root().join("tmp")).unwrap();
    let log = directory.path().join("audit.log");
    let mut out = String::new();
    records().iter().for_each(|record| text::write(record, &mut out));
    std::fs::write(&log, &out).unwrap();
    let search = |args: &[&str]| run(&log, "ausearch", args);
    let by_file = search(&["-i", "-f", "/srv/plain"]);
    assert!(
        by_file.contains("/srv/plain") && by_file.contains(":1)") && !by_file.contains(":2)"),
        "{by_file}"
    );
    assert!(by_file.contains("principal"), "{by_file}");
    let events = |args: &[&str]| -> Vec<u32> {
        let found = search(args);
        (1..=9).filter(|seq| found.contains(&format!(":{seq})"))).collect()
    };
    assert_eq!(events(&["-f", "with space"]), [2]);
    assert_eq!(events(&["-f", "/srv/new"]), [3]);
    assert_eq!(events(&["-ua", "4343"]), [2]);
    assert_eq!(events(&["-k", "secret"]), [1]);
    assert_eq!(events(&["-sv", "no"]), [2, 4]);
    assert_eq!(events(&["-hn", "192.0.2.7"]), [1, 2, 3, 4, 5, 9]);
    assert_eq!(events(&["-m", "USER_AUTH"]), [4]);
    // An event of a host's kernel.
    for query in [
        &["-k", "etc"][..],
        &["-f", "/etc/new"],
        &["-f", "/etc/old name"],
        &["-x", "/usr/bin/mv"],
        &["-c", "my mv"],
        &["-sc", "renameat2"],
        &["-p", "77"],
        &["--session", "3"],
    ] {
        assert_eq!(events(query), [8], "{query:?}");
    }
    assert_eq!(events(&["-m", "USER_LOGIN"]), [9]);
    let report = |args: &[&str]| run(&log, "aureport", args);
    let files = report(&["--file"]);
    assert!(files.contains("/srv/plain") && files.contains("with space"), "{files}");
    let users = report(&["--user"]);
    assert!(users.contains("4242") && users.contains("4343"), "{users}");
    let failed = report(&["--failed", "--file"]);
    assert!(failed.contains("with space") && !failed.contains("/srv/plain"), "{failed}");
    assert_eq!(events(&["-m", "CONFIG_CHANGE"]), [6, 7]);
    let config = report(&["--config"]);
    assert_eq!(config.matches("CONFIG_CHANGE").count(), 2, "{config}");
}
