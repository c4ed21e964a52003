use proptest::prelude::*;

use super::*;

const RECORDED: &[u8] = include_bytes!("recorded.log");

fn events(log: &[u8]) -> Vec<Event> {
    let mut assembler = Assembler::default();
    let mut events = Vec::new();
    for line in log.split(|byte| *byte == b'\n').filter_map(Line::parse) {
        assembler.push(&line, |event| events.push(event));
    }
    assembler.finish(|event| events.push(event));
    events
}

#[test]
fn recorded_log_gives_one_record_per_event() {
    let events = events(RECORDED);
    assert_eq!(events.len(), 14);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let seen: Vec<_> = events
        .iter()
        .filter(|event| event.kind == 1300)
        .map(|event| {
            (
                event.stamp.serial,
                event.uid.unwrap(),
                event.result,
                text(&event.path),
                text(&event.path2),
            )
        })
        .collect();
    let of = |serial: u32, uid: u32, result: u32, path: &str, path2: &str| {
        (serial, uid, result, path.to_owned(), path2.to_owned())
    };
    assert_eq!(
        seen,
        [
            of(4, 65534, 0, "/srv/seen/a plan", ""),
            of(5, 65534, 0, "/srv/seen/a plan", ""),
            of(6, 65534, 0, "/srv/seen/a plan", "/srv/seen/final"),
            of(7, 65534, 0, "/srv/seen/final", "/srv/seen/link"),
            of(8, 65534, 0, "/srv/seen/link", ""),
            of(9, 65534, 0, "/srv/seen/d", ""),
            of(10, 0, 0, "/srv/seen/root", ""),
            of(11, 0, 0, "/srv/seen/root", ""),
            of(12, 65534, 13, "/srv/seen/root", ""),
        ]
    );
    let refused = events.iter().find(|event| event.stamp.serial == 12).unwrap();
    assert_eq!(
        (text(&refused.key), refused.stamp.time_ns),
        ("seen".into(), 1_795_306_870_991_000_000)
    );
    assert!(
        text(&refused.detail).contains("syscall=openat")
            && text(&refused.detail).contains("exe=/usr/bin/cat"),
        "{refused:?}"
    );
    assert_eq!(refused.login, None);
    let made = events.iter().find(|event| event.stamp.serial == 4).unwrap();
    assert_eq!(text(&made.file), "fe:00:10136707");
    assert_eq!(events.iter().filter(|event| event.kind == kind::CONFIG_CHANGE).count(), 3);
}

#[test]
fn lines_of_different_events_may_interleave() {
    let lines: Vec<&[u8]> = RECORDED.split(|byte| *byte == b'\n').collect();
    let plain = events(RECORDED);
    let mut mixed = lines.clone();
    for at in (1..mixed.len()).step_by(2) {
        let stamp = |line: &[u8]| Line::parse(line).map(|line| line.stamp);
        if stamp(mixed[at - 1]) != stamp(mixed[at])
            && Line::parse(mixed[at - 1]).is_some_and(|line| line.kind != kind::PROCTITLE)
        {
            mixed.swap(at - 1, at);
        }
    }
    let mut found = events(&mixed.join(&b'\n'));
    found.sort_by_key(|event| event.stamp);
    let mut wanted = plain;
    wanted.sort_by_key(|event| event.stamp);
    assert_eq!(found, wanted);
}

#[test]
fn login_user_survives_sudo_and_refused_login_fails() {
    let log = b"node=web1 type=USER_AUTH msg=audit(1700000000.001:9): pid=1 uid=0 auid=1000 ses=2 msg='op=PAM:authentication acct=\"bob\" exe=\"/usr/bin/su\" \
        hostname=h addr=10.0.0.9 terminal=pts/0 res=failed'\x1dUID=\"root\" AUID=\"alice\"";
    let event = events(log).remove(0);
    assert_eq!(
        (event.kind, event.result, event.login, &event.login_name[..], event.uid),
        (1100, 1, Some(1000), &b"alice"[..], Some(0))
    );
    assert!(
        event.detail.ends_with(b"acct=bob exe=/usr/bin/su"),
        "{:?}",
        String::from_utf8_lossy(&event.detail)
    );
}

#[test]
fn unknown_record_type_keeps_its_name() {
    let names = "ADD_GROUP GRP_MGMT ANOM_ABEND ANOM_PROMISCUOUS CRYPTO_KEY_USER USER_TTY DAEMON_ABORT BPF NETFILTER_CFG KERN_MODULE";
    for (serial, name) in names.split(' ').enumerate() {
        let log = format!("type={name} msg=audit(1700000000.001:{serial}): pid=7 uid=0");
        let events = events(log.as_bytes());
        assert_eq!(
            events.iter().map(|event| super::record_type_name(event.kind)).collect::<Vec<_>>(),
            [Some(name)]
        );
    }
    let log = b"type=USER_MAC_OF_TOMORROW msg=audit(1700000000.001:9): pid=7 uid=0 auid=5 comm=\"x\"\ntype=UNKNOWN[99999] msg=audit(1700000000.001:10): pid=8";
    let found = events(log);
    assert_eq!(
        (found[0].kind, found[0].uid, &found[0].detail[..]),
        (0, Some(0), &b"type=USER_MAC_OF_TOMORROW pid=7 auid=5 comm=x"[..])
    );
    assert_eq!((found.len(), &found[1].detail[..]), (2, &b"type=UNKNOWN[99999] pid=8"[..]));
    let mut out = String::new();
    crate::text::write(&found[0].to_record(b"", b"web1"), &mut out);
    assert!(out.starts_with("type=TRUSTED_APP ") && out.lines().count() == 1, "{out}");
}

fn paths(call: &str, names: &[(&str, &str)]) -> (String, String) {
    let head = |kind: &str| format!("type={kind} msg=audit(1700000000.001:9): ");
    let mut log = format!(
        "{}{call} success=yes exit=0 uid=5\n{}cwd=\"/srv/x\"\n",
        head("SYSCALL"),
        head("CWD")
    );
    for (name, nametype) in names {
        log += &format!(
            "{}item=0 name=\"{name}\" inode=5 dev=fe:00 nametype={nametype}\n",
            head("PATH")
        );
    }
    let event = events(log.as_bytes()).remove(0);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(event.path), text(event.path2))
}

#[test]
fn name_relative_to_open_directory_ignores_working_directory() {
    let of = |path: &str, path2: &str| (path.to_owned(), path2.to_owned());
    for call in [
        "arch=c000003e syscall=263 a0=4",
        "arch=c00000b7 syscall=35 a0=4",
        "arch=40000003 syscall=301 a0=4",
        "syscall=263 SYSCALL=unlinkat a0=4",
    ] {
        assert_eq!(
            paths(call, &[("/srv/x", "PARENT"), ("plan", "DELETE")]),
            of("/.../plan", ""),
            "{call}"
        );
        assert_eq!(paths(call, &[("/etc/plan", "DELETE")]), of("/etc/plan", ""), "{call}");
    }
    for call in [
        "arch=c000003e syscall=263 a0=ffffff9c",
        "arch=c000003e syscall=263 a0=ffffffffffffff9c",
        "arch=c000003e syscall=87 a0=4",
        "arch=40000003 syscall=10 a0=7ffe0011",
    ] {
        assert_eq!(paths(call, &[("plan", "DELETE")]), of("/srv/x/plan", ""), "{call}");
        assert_eq!(paths(call, &[("../data/plan", "DELETE")]), of("/srv/data/plan", ""), "{call}");
    }
    let rename = |from: &str, to: &str| {
        paths(
            &format!("arch=c000003e syscall=264 a0={from} a2={to}"),
            &[("a", "DELETE"), ("b", "CREATE")],
        )
    };
    assert_eq!(rename("3", "ffffff9c"), of("/.../a", "/srv/x/b"));
    assert_eq!(rename("ffffff9c", "5"), of("/srv/x/a", "/.../b"));
}

#[test]
fn login_record_has_remote_address() {
    let log = |addr: &str| {
        let fields =
            "pid=1 uid=0 auid=1000 ses=2 msg='op=login id=1000 exe=\"/usr/sbin/sshd\" hostname=h";
        format!(
            "type=USER_LOGIN msg=audit(1700000000.001:9): {fields} addr={addr} terminal=ssh res=success'"
        )
    };
    let of = |addr: &str| events(log(addr).as_bytes()).remove(0).to_record(b"", b"web1").address;
    assert_eq!(of("192.0.2.7"), "192.0.2.7".parse().ok());
    assert_eq!(of("2001:db8::7"), "2001:db8::7".parse().ok());
    assert_eq!(of("?"), None);
}

#[test]
fn end_marker_after_complete_event_is_ignored() {
    let end = b"type=EOE msg=audit(1795306870.991:12): \n";
    assert_eq!(events(&[RECORDED, &end[..]].concat()), events(RECORDED));
    assert!(events(end).is_empty());
}

#[test]
fn number_of_incomplete_events_is_bounded() {
    let mut assembler = Assembler::default();
    let mut count = 0;
    for serial in 0..1000 {
        let line = Line {
            kind: kind::SYSCALL,
            kind_name: b"",
            stamp: Stamp { time_ns: 5, serial },
            fields: b"uid=1",
        };
        assembler.push(&line, |_| count += 1);
    }
    assert_eq!((count, assembler.pending.len()), (1000 - PENDING_MAX, PENDING_MAX));
}

proptest! {
    #[test]
    fn parser_accepts_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        events(&[b"type=PATH msg=audit(1.000:2): ", &bytes[..]].concat());
        events(&[b"type=SYSCALL msg=audit(1.000:2): key=", &bytes[..]].concat());
        events(&bytes);
    }
}
