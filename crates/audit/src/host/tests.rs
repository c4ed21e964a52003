//! A log that auditd wrote while files were made, read, renamed, linked and refused, of which only the directory's name was changed; and lines that nobody wrote.

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
fn each_event_of_a_recorded_log_is_one_record() {
    let events = events(RECORDED);
    assert_eq!(events.len(), 14);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let seen: Vec<_> = events
        .iter()
        .filter(|event| event.kind == 1300)
        .map(|event| (event.stamp.serial, event.uid.unwrap(), event.result, text(&event.path), text(&event.path2)))
        .collect();
    let of = |serial: u32, uid: u32, result: u32, path: &str, path2: &str| (serial, uid, result, path.to_owned(), path2.to_owned());
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
    assert_eq!((text(&refused.key), refused.stamp.time_ns), ("seen".into(), 1_795_306_870_991_000_000));
    assert!(text(&refused.detail).contains("syscall=openat") && text(&refused.detail).contains("exe=/usr/bin/cat"), "{refused:?}");
    assert_eq!(refused.login, None);
    let made = events.iter().find(|event| event.stamp.serial == 4).unwrap();
    assert_eq!(text(&made.file), "fe:00:10136707");
    assert_eq!(events.iter().filter(|event| event.kind == kind::CONFIG_CHANGE).count(), 3);
}

#[test]
fn lines_of_different_events_may_be_mixed() {
    let lines: Vec<&[u8]> = RECORDED.split(|byte| *byte == b'\n').collect();
    let plain = events(RECORDED);
    // Neighbours change places where they are of different events.
    let mut mixed = lines.clone();
    for at in (1..mixed.len()).step_by(2) {
        let stamp = |line: &[u8]| Line::parse(line).map(|line| line.stamp);
        if stamp(mixed[at - 1]) != stamp(mixed[at]) && Line::parse(mixed[at - 1]).is_some_and(|line| line.kind != kind::PROCTITLE) {
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
fn a_login_is_known_over_sudo_and_a_refused_one_is_a_failure() {
    let log = b"node=web1 type=USER_AUTH msg=audit(1700000000.001:9): pid=1 uid=0 auid=1000 ses=2 msg='op=PAM:authentication acct=\"bob\" exe=\"/usr/bin/su\" \
        hostname=h addr=10.0.0.9 terminal=pts/0 res=failed'\x1dUID=\"root\" AUID=\"alice\"";
    let event = events(log).remove(0);
    assert_eq!((event.kind, event.result, event.login, &event.login_name[..], event.uid), (1100, 1, Some(1000), &b"alice"[..], Some(0)));
    assert!(event.detail.ends_with(b"acct=bob exe=/usr/bin/su"), "{:?}", String::from_utf8_lossy(&event.detail));
}

#[test]
fn an_end_that_comes_after_the_last_line_is_no_event() {
    let end = b"type=EOE msg=audit(1795306870.991:12): \n";
    assert_eq!(events(&[RECORDED, &end[..]].concat()), events(RECORDED));
    assert!(events(end).is_empty());
}

#[test]
fn what_waits_is_bounded() {
    let mut assembler = Assembler::default();
    let mut count = 0;
    for serial in 0..1000 {
        let line = Line { kind: kind::SYSCALL, stamp: Stamp { time_ns: 5, serial }, fields: b"uid=1" };
        assembler.push(&line, |_| count += 1);
    }
    assert_eq!((count, assembler.pending.len()), (1000 - PENDING_MAX, PENDING_MAX));
}

proptest! {
    #[test]
    fn any_bytes_are_lines_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        events(&[b"type=PATH msg=audit(1.000:2): ", &bytes[..]].concat());
        events(&[b"type=SYSCALL msg=audit(1.000:2): key=", &bytes[..]].concat());
        events(&bytes);
    }
}
