//! No output format drops a field of a record: a change of any field changes the output.

use vouch_audit::operations::number::{OPEN, READ, RENAME};
use vouch_audit::{Class, Flavour, Record, json, syslog, text};
use vouch_audit_pipeline::record_text;

fn full(class: Class) -> Record<'static> {
    // Without `..`, so that a new field does not compile until it is tested here.
    Record {
        seq: 42,
        time_ns: 1_700_000_000_000_000_000,
        class,
        operation: if class == Class::Host { 1300 } else { 1 },
        flavour: Flavour::Krb5,
        minor: 1,
        result: 13,
        principal: b"alice@EXAMPLE.ORG",
        enctype: Some(18),
        uid: Some(1000),
        gid: Some(100),
        address: "192.0.2.7".parse().ok(),
        port: Some(700),
        client: b"c1.example.org",
        export: b"/srv",
        path: b"/srv/a",
        path2: b"/srv/b",
        file: b"fe:00:4711",
        requested: Some(1),
        granted: Some(2),
        offset: Some(10),
        read: Some(11),
        written: Some(12),
        open_ns: Some(14),
        gap: Some(15),
        key: b"watched",
        detail: b"syscall=openat comm=cat exe=/usr/bin/cat",
        connection: Some(16),
        xid: Some(17),
        pid: Some(77),
        login: Some(501),
        mode: Some(0o640),
        transport: Some(1),
        fingerprint: &[0xab; 32],
        certificate: b"CN=c1",
    }
}

type Change = fn(&mut Record<'static>);

const CHANGES: [(&str, Change); 34] = [
    ("seq", |record| record.seq += 1),
    ("time", |record| record.time_ns += 1_000_000_000),
    ("class", |record| {
        record.class = if record.class == Class::Gap { Class::Refusal } else { Class::Gap }
    }),
    ("operation", |record| record.operation = if record.class == Class::Host { 1112 } else { 3 }),
    ("flavour", |record| record.flavour = Flavour::Krb5p),
    ("minor", |record| record.minor = 2),
    ("result", |record| record.result = 2),
    ("success", |record| record.result = 0),
    ("principal", |record| record.principal = b"bob@EXAMPLE.ORG"),
    ("enctype", |record| record.enctype = Some(20)),
    ("uid", |record| record.uid = Some(1001)),
    ("gid", |record| record.gid = Some(101)),
    ("address", |record| record.address = "192.0.2.8".parse().ok()),
    ("port", |record| record.port = Some(701)),
    ("client", |record| record.client = b"c2.example.org"),
    ("export", |record| record.export = b"/data"),
    ("path", |record| record.path = b"/srv/c"),
    ("path2", |record| record.path2 = b"/srv/d"),
    ("file", |record| record.file = b"fe:00:4712"),
    ("requested", |record| record.requested = Some(0x1004)),
    ("granted", |record| record.granted = Some(4)),
    ("offset", |record| record.offset = Some(20)),
    ("read", |record| record.read = Some(21)),
    ("written", |record| record.written = Some(22)),
    ("open_ns", |record| record.open_ns = Some(24)),
    ("gap", |record| record.gap = Some(25)),
    ("key", |record| record.key = b"other"),
    ("detail", |record| record.detail = b"syscall=openat comm=dog exe=/usr/bin/cat"),
    ("connection", |record| record.connection = Some(26)),
    ("xid", |record| record.xid = Some(27)),
    ("pid", |record| record.pid = Some(78)),
    ("login", |record| record.login = Some(502)),
    ("mode", |record| record.mode = Some(0o600)),
    ("certificate", |record| record.certificate = b"CN=c2"),
];

fn check(format: impl Fn(&Record<'_>) -> String) {
    for class in [Class::Operation, Class::Refusal, Class::Administrative, Class::Gap, Class::Host]
    {
        let plain = full(class);
        let transport: [(&str, Change); 2] = [
            ("transport", |record| record.transport = Some(2)),
            ("fingerprint", |record| record.fingerprint = &[0xcd; 32]),
        ];
        for (field, change) in CHANGES.into_iter().chain(transport) {
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
