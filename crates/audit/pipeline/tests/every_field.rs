//! No output format drops a field of a record: a change of any field changes the output.

use vouch_audit::operations::number::{OPEN, READ, RENAME};
use vouch_audit::{Class, Flavour, Record, json, syslog, text};
use vouch_audit_pipeline::record_text;

/// Each field with two values. A new field does not compile until it is tested here.
macro_rules! fields {
    ($($field:ident: $value:expr => $other:expr,)*) => {
        fn full(class: Class) -> Record<'static> {
            Record {
                class,
                operation: if class == Class::Host { 1300 } else { 1 },
                $($field: $value,)*
            }
        }

        const CHANGES: &[(&str, Change)] = &[
            ("class", |record| {
                record.class = if record.class == Class::Gap { Class::Refusal } else { Class::Gap }
            }),
            ("operation", |record| {
                record.operation = if record.class == Class::Host { 1112 } else { 3 }
            }),
            ("success", |record| record.result = 0),
            $((stringify!($field), |record| record.$field = $other),)*
        ];
    };
}

type Change = fn(&mut Record<'static>);

fields! {
    seq: 42 => 43,
    time_ns: 1_700_000_000_000_000_000 => 1_700_000_001_000_000_000,
    flavour: Flavour::Krb5 => Flavour::Krb5p,
    minor: 1 => 2,
    result: 13 => 2,
    principal: b"alice@EXAMPLE.ORG" => b"bob@EXAMPLE.ORG",
    enctype: Some(18) => Some(20),
    uid: Some(1000) => Some(1001),
    gid: Some(100) => Some(101),
    address: "192.0.2.7".parse().ok() => "192.0.2.8".parse().ok(),
    port: Some(700) => Some(701),
    client: b"c1.example.org" => b"c2.example.org",
    export: b"/srv" => b"/data",
    path: b"/srv/a" => b"/srv/c",
    path2: b"/srv/b" => b"/srv/d",
    file: b"fe:00:4711" => b"fe:00:4712",
    requested: Some(1) => Some(0x1004),
    granted: Some(2) => Some(4),
    offset: Some(10) => Some(20),
    read: Some(11) => Some(21),
    written: Some(12) => Some(22),
    open_ns: Some(14) => Some(24),
    gap: Some(15) => Some(25),
    key: b"watched" => b"other",
    detail: b"syscall=openat comm=cat exe=/usr/bin/cat" => b"syscall=openat comm=dog exe=/usr/bin/cat",
    connection: Some(16) => Some(26),
    xid: Some(17) => Some(27),
    pid: Some(77) => Some(78),
    login: Some(501) => Some(502),
    mode: Some(0o640) => Some(0o600),
    transport: Some(1) => Some(2),
    fingerprint: &[0xab; 32] => &[0xcd; 32],
    certificate: b"CN=c1" => b"CN=c2",
}

fn check(format: impl Fn(&Record<'_>) -> String) {
    for class in [Class::Operation, Class::Refusal, Class::Administrative, Class::Gap, Class::Host]
    {
        let plain = full(class);
        for (field, change) in CHANGES.iter().copied() {
            let mut changed = plain.clone();
            change(&mut changed);
            // The result of these says only whether they failed.
            if field == "result"
                && matches!(class, Class::Refusal | Class::Gap)
                && format(&changed) == format(&plain)
            {
                continue;
            }
            if matches!(class, Class::Refusal | Class::Gap) && field == "success"
                || class == Class::Gap && field == "operation"
            {
                continue;
            }
            assert_ne!(format(&changed), format(&plain), "{field} of {class:?}");
        }
    }
}

#[test]
fn plain_text_shows_every_field() {
    check(|record| record_text::line(record, None));
    let open = Record {
        operation: OPEN,
        requested: Some(0x100d),
        granted: None,
        result: 0,
        ..full(Class::Operation)
    };
    let line = record_text::line(&open, None);
    for part in [
        " OPEN ok ",
        " access=read,write,append,create ",
        " flavour=krb5 ",
        " address=192.0.2.7 ",
        " export=\"/srv\" ",
    ] {
        assert!(line.contains(part), "{line}");
    }
    let read = record_text::line(&Record { requested: Some(1), ..open.clone() }, None);
    assert!(read.contains(" access=read ") && !read.contains("create"), "{read}");
    let failed =
        |result| record_text::line(&Record { operation: READ, result, ..open.clone() }, None);
    assert!(failed(2).contains(" READ failed(ENOENT) "), "{}", failed(2));
    assert!(
        failed(10_001).contains(" failed(ESTALE) ") && failed(10_001).contains(" status=10001 "),
        "{}",
        failed(10_001)
    );
}

#[test]
fn json_has_every_field() {
    check(|record| json::value(record, None).to_string());
    let host = Record {
        detail: b"syscall=openat ses=3 comm=\"a cat\" exe=/usr/bin/cat",
        ..full(Class::Host)
    };
    let value = json::value(&host, None);
    let process = &value["process"];
    assert_eq!(
        (&process["name"], &process["executable"], &process["pid"]),
        (&"a cat".into(), &"/usr/bin/cat".into(), &77.into())
    );
    assert_eq!(
        (&value["vouch"]["kernel"]["ses"], &value["error"]["type"]),
        (&"3".into(), &"EACCES".into())
    );
}

#[test]
fn kernel_text_has_every_field() {
    let format = |record: &Record<'_>| {
        let mut out = String::new();
        text::write(record, &mut out);
        out
    };
    check(format);
    // laurel takes bare values of unknown fields with an even count of digits for hexadecimal text.
    for class in [Class::Operation, Class::Refusal, Class::Administrative, Class::Gap, Class::Host]
    {
        let out = format(&Record {
            operation: if class == Class::Operation { RENAME } else { 1300 },
            ..full(class)
        });
        let own = out.split(" flavour=").nth(1).unwrap_or_else(|| panic!("{out}"));
        for field in
            own.lines().next().unwrap_or_default().split(' ').filter(|field| field.contains('='))
        {
            let value = field.split_once('=').map_or("", |(_, value)| value.trim_end_matches('\''));
            let is_hex = value.len() % 2 == 0
                && !value.is_empty()
                && value.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(!is_hex || field.starts_with("why="), "{field} in {out}");
        }
    }
}

#[test]
fn syslog_has_every_field() {
    check(|record| {
        let message = syslog::message(record, None, "nfs1");
        assert!(message.is_ascii());
        message
    });
}
