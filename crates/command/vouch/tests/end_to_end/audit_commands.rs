use std::io::BufRead as _;

use vouch_audit::keys::Ratchet;
use vouch_audit::operations::number::{OPEN, RENAME};
use vouch_audit::trail::{
    KEY_FILE, Log, LogError, Options, Rotation, SystemDisk, create_key, read_key,
};

use crate::prelude::*;

pub(crate) const SECOND: u64 = 1_000_000_000;

pub(crate) fn open(directory: &Path) -> Log {
    let rotation = Rotation { len_max: 3000, ..Rotation::default() };
    loop {
        let options = Options { rotation, boot: [0x1a; 16], ..Options::default() };
        match Log::open(Arc::new(SystemDisk), directory, options, SECOND) {
            Err(LogError::Busy { .. }) => std::thread::sleep(std::time::Duration::from_millis(20)),
            opened => return opened.expect("the trail opens").0,
        }
    }
}

pub(crate) fn put(
    log: &mut Log,
    principal: &str,
    operation: u16,
    path: &str,
    path2: &str,
    result: u32,
) {
    let time_ns = (1_000_000 + log.next_seq()) * SECOND;
    log.append_record(&Record {
        time_ns,
        operation,
        result,
        principal: principal.as_bytes(),
        uid: Some(1000),
        address: Some(std::net::IpAddr::from([10, 0, 0, 7])),
        export: b"/srv",
        path: path.as_bytes(),
        path2: path2.as_bytes(),
        read: (operation == READ).then_some(4096),
        ..Record::default()
    });
    log.maintain(time_ns).expect("the write succeeds");
}

pub(crate) fn trail(site: &TestSite) -> String {
    let directory = site.path("trail");
    std::fs::create_dir(&directory).expect("a directory");
    let key = Ratchet::new([3; 16], &[4; 32]);
    create_key(&SystemDisk, &directory.join(KEY_FILE), &key).expect("a key");
    let mut log = open(&directory);
    for number in 0..100 {
        put(&mut log, "alice@EXAMPLE.ORG", READ, &format!("/srv/{number}"), "", 0);
        put(&mut log, "bob@EXAMPLE.ORG", OPEN, "/srv/<secret>", "", 13);
    }
    put(&mut log, "carol@EXAMPLE.ORG", RENAME, "/srv/7", "/srv/seven", 0);
    put(&mut log, "carol@EXAMPLE.ORG", READ, "/srv/seven", "", 0);
    log.close(2_000_000 * SECOND).expect("the trail closes");
    key.public().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn with_trail() -> TestSite {
    let site = TestSite::new();
    trail(&site);
    site
}

fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn search_selects_records_by_each_criterion() {
    let site = with_trail();
    let search = |more: &[&str]| {
        json_lines(&site.run_ok([&["audit", "search", "trail", "--json"], more].concat()))
    };
    for scan in [&[][..], &["--scan"]] {
        let search = |more: &[&str]| search(&[more, scan].concat());
        assert_eq!(search(&[]).len(), 202);
        let alice = search(&["--principal", "alice@EXAMPLE.ORG"]);
        assert_eq!(
            (alice.len(), &alice[3]["file"]["path"], &alice[3]["user"]["name"]),
            (100, &"/srv/3".into(), &"alice@EXAMPLE.ORG".into())
        );
        assert_eq!(search(&["--result", "failure"]).len(), 100);
        assert_eq!(search(&["--result", "13", "--client", "10.0.0.7", "-S", "openat"]).len(), 100);
        assert_eq!(search(&["--client", "10.0.0.8"]).len(), 0);
        assert_eq!(search(&["--below", "/srv/<secret>", "--limit", "5"]).len(), 5);
        assert_eq!(
            search(&["--from", "1970-01-12T13:46:41Z", "--until", "1970-01-12T13:46:43Z"]).len(),
            2
        );
        let newest = search(&["--newest", "-n", "1"]);
        assert_eq!(
            (newest[0]["event"]["sequence"].as_u64(), &newest[0]["file"]["path"]),
            (Some(202), &"/srv/seven".into())
        );
        let named: Vec<_> = search(&["--path", "/srv/seven", "--renames"])
            .iter()
            .map(|one| one["event"]["sequence"].as_u64().unwrap())
            .collect();
        assert_eq!(named, [15, 201, 202]);
    }
    assert_eq!(site.run_ok(["audit", "search", "trail", "--uid", "1000", "--count"]), "202\n");
    let text = site.run_ok(["audit", "search", "trail", "--path", "/srv/7"]);
    assert_contains!(
        text,
        "alice@EXAMPLE.ORG 10.0.0.7 READ ok path=\"/srv/7\" export=\"/srv\" uid=1000 read=4096 minor=0 boot=1a1a1a1a-1a1a-"
    );
    assert_eq!(
        search(&["-n", "1"])[0]["host"]["boot"]["id"],
        "1a1a1a1a-1a1a-1a1a-1a1a-1a1a1a1a1a1a"
    );
    assert_eq!((search(&["--auid", "1000"]).len(), search(&["--auid", "1001"]).len()), (202, 0));
    site.run_err(2, ["audit", "search", "trail", "--renames"]);
    site.run_err(3, ["audit", "search", "trail", "-S", "execve"]);
    site.run_err(4, ["audit", "search", "nowhere"]);
    std::fs::create_dir(site.path("empty")).expect("a directory");
    for command in ["search", "report", "follow"] {
        site.run_err(4, ["audit", command, "empty"]);
    }
    site.run_err(4, words("audit send --once --to syslog+udp://127.0.0.1:9 --position sent empty"));
    site.run_err(2, ["audit", "search", "trail", "--path", "srv/7"]);
    assert_eq!(search(&["--path", "//srv/7/"]).len(), search(&["--path", "/srv/7"]).len());
    assert_eq!(search(&["--client", "10.0.0.0/8", "--result", "EACCES"]).len(), 100);
}

#[test]
fn report_counts_records_and_escapes_names_in_html() {
    let site = with_trail();
    let report: serde_json::Value =
        serde_json::from_str(&site.run_ok(["audit", "report", "trail", "--json"])).unwrap();
    assert_eq!(
        (report["records"].as_u64(), report["failures"].as_u64(), report["bytes_read"].as_u64()),
        (Some(202), Some(100), Some(101 * 4096))
    );
    let users = &report["tables"][0];
    assert_eq!(
        (&users["by"], users["distinct"].as_u64(), users["rows"][0]["records"].as_u64()),
        (&"user".into(), Some(3), Some(100))
    );
    let bars: u64 = report["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bar| bar["records"].as_u64().unwrap())
        .sum();
    assert_eq!(bars, 202);
    let bars: Vec<u64> = report["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bar| bar["records"].as_u64().unwrap())
        .collect();
    assert!(
        bars.len() > 40 && bars[..bars.len() - 1].iter().all(|records| *records == bars[0]),
        "{bars:?}"
    );
    let text = site.run_ok(["audit", "report", "trail", "--top", "2"]);
    assert_contains!(text, "202 records, 100 failures", "by user (2 of 3)");
    let empty = site.run(["audit", "report", "trail", "--export", "/nosuch"]);
    let note = String::from_utf8_lossy(&empty.stderr);
    assert!(
        empty.status.success()
            && note.starts_with("no record matches (")
            && note.contains("--export takes"),
        "{note}"
    );
    let page = site.run_ok(["audit", "report", "trail", "--html"]);
    assert_contains!(page, "<svg", "prefers-color-scheme:dark", "/srv/&lt;secret&gt;");
    assert!(!page.contains("<secret>") && !page.contains("http"), "{page}");
}

#[test]
fn records_with_control_characters_cannot_hide_verification_faults() {
    let site = TestSite::new();
    let public = trail(&site);
    let mut log = open(&site.path("trail"));
    let detail = b"\x1b[2J\x1b[3J\x1b[Hsound: 202 records in 1 segments, all sealed\n\x1b[8m";
    let recovered = vouch_audit::record::Act::Recovered as u16;
    log.append_record(&Record {
        class: vouch_audit::record::Class::Administrative,
        operation: recovered,
        detail,
        ..Record::default()
    });
    log.close(3_000_000 * SECOND).expect("the trail closes");
    let verify = ["audit", "verify", "--public", &public, "trail"];
    assert!(site.run_ok(verify).lines().last().unwrap().starts_with("sound: 203 records"));
    let first = vouch_audit::trail::segments(&site.path("trail")).unwrap().remove(0).path;
    let mut bytes = std::fs::read(&first).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&first, bytes).unwrap();
    let output = site.run(verify);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.last().unwrap().contains(" fault"), "{text}");
    assert!(lines[lines.len() - 2].contains(": segment "), "{text}");
    assert!(
        lines.iter().any(|line| line.starts_with("note: ") && line.contains("\"\\u{1b}[2J")),
        "{text}"
    );
}

#[test]
fn gap_records_count_as_failures() {
    let site = with_trail();
    let mut log = open(&site.path("trail"));
    log.append_record(&Record {
        class: vouch_audit::record::Class::Gap,
        time_ns: 2_000_000 * SECOND,
        gap: Some(9),
        ..Record::default()
    });
    log.close(3_000_000 * SECOND).expect("the trail closes");
    let failed =
        json_lines(&site.run_ok("audit search trail --result failure --newest -n 1 --json"));
    assert_eq!(
        (&failed[0]["event"]["action"], &failed[0]["event"]["outcome"]),
        (&"gap".into(), &"failure".into())
    );
    assert_eq!(site.run_ok("audit search trail --result success --class gap --count"), "0\n");
    assert_contains!(
        site.run_ok(["audit", "search", "trail", "--class", "gap"]),
        " gap failed lost=9"
    );
    assert_contains!(
        site.run_ok(["audit", "report", "trail"]),
        "203 records, 101 failures, 9 lost"
    );
}

#[test]
fn proof_of_a_record_is_checked_without_the_trail() {
    let site = TestSite::new();
    let public = trail(&site);
    site.run_ok(["audit", "prove", "trail", "77", "--out", "77.proof"]);
    site.run_err(3, ["audit", "prove", "trail", "77", "--out", "77.proof"]);
    std::fs::rename(site.path("trail"), site.path("gone")).unwrap();
    let shown = site.run_ok(["audit", "check-proof", "--public", &public, "77.proof"]);
    assert!(shown.starts_with("77 ") && shown.contains("/srv/38"), "{shown}");
    site.run_err(5, ["audit", "check-proof", "--public", &"00".repeat(32), "77.proof"]);
    let mut bytes = std::fs::read(site.path("77.proof")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(site.path("77.proof"), bytes).unwrap();
    site.run_err(5, ["audit", "check-proof", "--public", &public, "77.proof"]);
    site.run_err(4, ["audit", "prove", "gone", "777", "--out", "777.proof"]);
}

#[test]
fn follow_continues_over_segment_ends() {
    let site = with_trail();
    assert!(read_key(&site.path("trail").join(KEY_FILE)).is_ok());
    let mut child = site
        .command(["audit", "follow", "trail", "--all", "--json", "--principal", "dave@EXAMPLE.ORG"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut log = open(&site.path("trail"));
    for number in 0..100 {
        put(&mut log, "dave@EXAMPLE.ORG", READ, &format!("/srv/new-{number}"), "", 0);
        log.write().expect("the write succeeds");
    }
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let seen: Vec<String> = lines.take(100).map(|line| line.expect("a line")).collect();
    let _ = child.kill();
    let _ = child.wait();
    let paths: Vec<_> = json_lines(&seen.join("\n"))
        .iter()
        .map(|one| one["file"]["path"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(paths, (0..100).map(|number| format!("/srv/new-{number}")).collect::<Vec<_>>());
}

#[test]
fn search_finds_imported_kernel_audit_events() {
    let site = with_trail();
    site.write("audit.log", include_bytes!("../../../../audit/audit/src/host/recorded.log"));
    site.run_ok(["audit", "keygen", "host"]);
    site.run_ok(["audit", "host", "--once", "--log", "audit.log", "host"]);
    site.run_ok(["audit", "host", "--once", "--log", "audit.log", "host"]);
    assert_eq!(site.run_ok(["audit", "search", "host", "--class", "host", "--count"]), "14\n");
    let refused =
        json_lines(&site.run_ok("audit search trail host --result 13 --newest -n 1 --json"));
    assert_eq!(refused[0]["file"]["path"], "/srv/seen/root");
    assert_eq!(
        site.run_ok(["audit", "search", "trail", "host", "--path", "/srv/seen/a plan", "--count"]),
        "3\n"
    );
    let verified = site.run_ok(["audit", "verify", "host"]);
    assert!(verified.contains("sound: 18 records"), "{verified}");
    let acts = json_lines(&site.run_ok("audit search host --class administrative --json"));
    let acts: Vec<_> =
        acts.iter().map(|act| act["event"]["action"].as_str().unwrap().to_owned()).collect();
    assert_eq!(acts, ["start", "stop", "start", "stop"]);
}

#[test]
fn kernel_audit_import_survives_log_rotation_and_clock_change() {
    let site = TestSite::new();
    let recorded = include_str!("../../../../audit/audit/src/host/recorded.log");
    let at = |first_digits: &str| recorded.replace("audit(17", &format!("audit({first_digits}"));
    let take = || site.run_ok(["audit", "host", "--once", "--log", "audit.log", "host"]);
    let count = |class| site.run_ok(["audit", "search", "host", "--class", class, "--count"]);
    site.run_ok(["audit", "keygen", "host"]);
    site.write("audit.log", recorded.as_bytes());
    take();
    site.write("audit.log.2", recorded.as_bytes());
    site.write("audit.log.1", at("16").as_bytes());
    site.write("audit.log", at("15").as_bytes());
    take();
    take();
    assert_eq!((count("host"), count("gap")), ("42\n".into(), "0\n".into()));
    std::fs::remove_file(site.path("audit.log.1")).expect("a file");
    std::fs::remove_file(site.path("audit.log.2")).expect("a file");
    site.write("audit.log", [at("14"), at("18")].concat().as_bytes());
    take();
    assert_eq!((count("host"), count("gap")), ("56\n".into(), "1\n".into()));
}
