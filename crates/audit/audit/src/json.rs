//! Records as lines of JSON in the Elastic Common Schema (ECS 8). `vouch` has the fields that ECS
//! lacks.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use vouch_nfs4::op::Effect;

use crate::host::detail;
use crate::operations::{self, number};
use crate::record::{Act, Class, Record, Refusal};

/// Appends one line of Elastic Common Schema. `boot`: of the server that wrote the record.
pub fn write(record: &Record<'_>, boot: Option<[u8; 16]>, out: &mut String) {
    let _ = writeln!(out, "{}", value(record, boot));
}

/// As the kernel formats it (random(4), boot_id).
pub fn boot_text(boot: Option<[u8; 16]>) -> Option<String> {
    let digits = hex(&boot.filter(|boot| *boot != [0; 16])?);
    Some([&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-"))
}

/// As [`write()`] writes it.
pub fn value(record: &Record<'_>, boot: Option<[u8; 16]>) -> Value {
    let status = record.status();
    let mut all = Map::new();
    all.insert("@timestamp".into(), time(record.time_ns).into());
    all.insert("ecs".into(), json!({ "version": "8.11.0" }));
    all.insert("event".into(), event(record));
    insert(&mut all, "user", user(record));
    insert(&mut all, "process", process(record));
    let (host, source) = host_and_source(record, boot);
    insert(&mut all, "host", host);
    if record.transport.is_some()
        || !record.fingerprint.is_empty()
        || !record.certificate.is_empty()
    {
        all.insert("tls".into(), tls(record).into());
    }
    insert(&mut all, "source", source);
    let mut file = Map::new();
    put(&mut file, "path", record.path);
    record.mode.map(|mode| file.insert("mode".into(), format!("{mode:04o}").into()));
    insert(&mut all, "file", file);
    if !record.key.is_empty() {
        let keys: Vec<String> = record.key.split(|byte| *byte == 1).map(text).collect();
        all.insert("tags".into(), keys.into());
    }
    if status != 0 {
        let mut error = Map::new();
        error.insert("code".into(), status.to_string().into());
        record.errno_name().map(|name| error.insert("type".into(), name.into()));
        all.insert("error".into(), error.into());
    }
    all.insert("vouch".into(), own_fields(record).into());
    all.into()
}

fn event(record: &Record<'_>) -> Value {
    let failed = record.status() != 0 || matches!(record.class, Class::Refusal | Class::Gap);
    let (category, kind) = categories(record);
    json!({
        "kind": "event",
        "module": "vouch",
        "category": [category],
        "type": [kind],
        "action": action(record),
        "outcome": if failed { "failure" } else { "success" },
        "sequence": record.seq,
    })
}

fn process(record: &Record<'_>) -> Map<String, Value> {
    let mut process = Map::new();
    if record.class != Class::Host {
        record.pid.map(|pid| process.insert("thread".into(), json!({ "id": pid })));
        return process;
    }
    record.pid.map(|pid| process.insert("pid".into(), pid.into()));
    for (name, value) in detail::parse(record.detail) {
        let number = || String::from_utf8_lossy(&value).parse::<u32>().ok();
        match name {
            b"comm" => put(&mut process, "name", &value),
            b"exe" => put(&mut process, "executable", &value),
            b"ppid" => {
                drop(number().map(|pid| process.insert("parent".into(), json!({ "pid": pid }))))
            }
            b"pid" if record.pid.is_none() => {
                drop(number().map(|pid| process.insert("pid".into(), pid.into())))
            }
            _ => {}
        }
    }
    process
}

/// Fields of the kernel's lines without a name in ECS.
fn kernel_fields(record: &Record<'_>) -> Map<String, Value> {
    let mut fields = Map::new();
    for (name, value) in detail::parse(record.detail) {
        if !matches!(name, b"comm" | b"exe" | b"pid" | b"ppid" | b"auid") {
            put(&mut fields, &text(name), &value);
        }
    }
    fields
}

fn user(record: &Record<'_>) -> Map<String, Value> {
    let mut user = Map::new();
    put(&mut user, "name", record.principal);
    record.uid.map(|uid| user.insert("id".into(), uid.to_string().into()));
    record.gid.map(|gid| user.insert("group".into(), json!({ "id": gid.to_string() })));
    user
}

fn host_and_source(
    record: &Record<'_>,
    boot: Option<[u8; 16]>,
) -> (Map<String, Value>, Map<String, Value>) {
    let (mut host, mut source) = (Map::new(), Map::new());
    boot_text(boot).map(|boot| host.insert("boot".into(), json!({ "id": boot })));
    record
        .address
        .map(|address| source.insert("ip".into(), address.to_canonical().to_string().into()));
    record.port.map(|port| source.insert("port".into(), port.into()));
    match record.class {
        // The address in a host event belongs to another machine.
        Class::Host => put(&mut host, "name", record.client),
        _ => put(&mut source, "domain", record.client),
    }
    (host, source)
}

fn tls(record: &Record<'_>) -> Map<String, Value> {
    let mut client = Map::new();
    put(&mut client, "subject", record.certificate);
    if !record.fingerprint.is_empty() {
        client.insert("hash".into(), json!({ "sha256": hex(record.fingerprint) }));
    }
    let mut tls = Map::new();
    tls.insert("established".into(), true.into());
    insert(&mut tls, "client", client);
    tls
}

fn own_fields(record: &Record<'_>) -> Map<String, Value> {
    let status = record.status();
    let mut own = Map::new();
    own.insert("flavour".into(), record.flavour.name().into());
    put(&mut own, "export", record.export);
    put(&mut own, "new_path", record.path2);
    put(&mut own, "detail", record.detail);
    if record.class == Class::Host {
        insert(&mut own, "kernel", kernel_fields(record));
    }
    record.xprtsec().map(|xprtsec| own.insert("xprtsec".into(), xprtsec.into()));
    if !record.file.is_empty() {
        own.insert("file_id".into(), hex(record.file).into());
    }
    let numbers = [
        (
            "minor_version",
            (record.class == Class::Operation || record.minor != 0).then_some(record.minor.into()),
        ),
        ("enctype", record.enctype.map(u64::from)),
        ("asked", record.requested.map(u64::from)),
        ("granted", record.granted.map(u64::from)),
        ("offset", record.offset),
        ("bytes_read", record.read),
        ("bytes_written", record.written),
        ("open_ns", record.open_ns),
        ("lost", record.gap),
        ("connection", record.connection),
        ("xid", record.xid.map(u64::from)),
        ("login_uid", record.login.map(u64::from)),
        ("errno", (status != 0).then(|| record.errno().unsigned_abs().into())),
    ];
    for (name, number) in numbers {
        number.map(|number| own.insert(name.into(), number.into()));
    }
    own
}

fn insert(all: &mut Map<String, Value>, name: &str, part: Map<String, Value>) {
    if !part.is_empty() {
        all.insert(name.into(), part.into());
    }
}

/// Text that is not UTF-8 is converted lossily, and `NAME_hex` has the exact bytes.
fn put(part: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    part.insert(name.into(), text(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
        part.insert(format!("{name}_hex"), hex(bytes).into());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn time(ns: u64) -> String {
    let time = i128::from(ns);
    jiff::Timestamp::from_nanosecond(time)
        .map_or_else(|_| ns.to_string(), |time| format!("{time:.9}"))
}

/// The action's name in JSON: `read`, `expired`, `start`, `host-1300`.
pub fn action(record: &Record<'_>) -> String {
    match record.class {
        Class::Operation => operations::name(record.operation).to_ascii_lowercase(),
        Class::Refusal => Refusal::from_number(record.operation)
            .map_or_else(|| "refused".into(), |refusal| refusal.name().into()),
        Class::Administrative => Act::from_number(record.operation)
            .map_or_else(|| format!("act-{}", record.operation), |act| act.name().into()),
        Class::Gap => "gap".into(),
        Class::Host => format!("host-{}", record.operation),
    }
}

fn categories(record: &Record<'_>) -> (&'static str, &'static str) {
    match record.class {
        Class::Refusal => ("authentication", "denied"),
        Class::Administrative | Class::Gap => ("configuration", "info"),
        Class::Host => match crate::host::record_type_name(record.operation) {
            Some("SYSCALL" | "URINGOP") if !record.path.is_empty() => ("file", "access"),
            _ => ("host", "info"),
        },
        Class::Operation => match record.operation {
            number::CREATE | number::LINK => ("file", "creation"),
            number::REMOVE => ("file", "deletion"),
            number::OPEN if crate::text::may_have_created(record) => ("file", "creation"),
            other => match operations::effect(other) {
                Some(Effect::Write | Effect::Attributes) => ("file", "change"),
                _ => ("file", "access"),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_record_as_ecs_event() {
        let record = Record {
            seq: 9,
            time_ns: 1_700_000_000_123_456_789,
            class: Class::Operation,
            operation: number::REMOVE,
            principal: b"alice@X",
            uid: Some(5),
            address: "192.0.2.7".parse().ok(),
            path: b"/srv/a\xff",
            key: b"one\x01two",
            result: 13,
            mode: Some(0o640),
            ..Record::default()
        };
        let mut out = String::new();
        let boot = std::array::from_fn(|at| at as u8);
        write(&record, Some(boot), &mut out);
        assert_eq!(out.lines().count(), 1);
        let read: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(read["@timestamp"], "2023-11-14T22:13:20.123456789Z");
        assert_eq!(
            (&read["event"]["action"], &read["event"]["outcome"], &read["event"]["type"][0]),
            (&json!("remove"), &json!("failure"), &json!("deletion"))
        );
        assert_eq!(
            (&read["user"]["name"], &read["user"]["id"], &read["source"]["ip"]),
            (&json!("alice@X"), &json!("5"), &json!("192.0.2.7"))
        );
        assert_eq!(
            (&read["host"]["boot"]["id"], &read["vouch"]["minor_version"]),
            (&json!("00010203-0405-0607-0809-0a0b0c0d0e0f"), &json!(0))
        );
        assert_eq!(boot_text(Some([0; 16])), None);
        // An ACCESS that grants nothing counts as refused.
        let access = |granted| Record {
            operation: number::ACCESS,
            result: 0,
            requested: Some(0x1f),
            granted: Some(granted),
            ..record.clone()
        };
        let denied = value(&access(0), None);
        assert_eq!(
            (&denied["event"]["outcome"], &denied["vouch"]["errno"]),
            (&json!("failure"), &json!(13))
        );
        assert_eq!(value(&access(3), None)["event"]["outcome"], "success");
        let login = Record {
            class: Class::Host,
            operation: 1112,
            client: b"web1",
            address: "192.0.2.7".parse().ok(),
            ..Record::default()
        };
        let login = value(&login, Some(boot));
        assert_eq!(
            (&login["host"]["name"], &login["source"]),
            (&json!("web1"), &json!({ "ip": "192.0.2.7" }))
        );
        assert_eq!(login["host"]["boot"], read["host"]["boot"]);
        assert_eq!(read["file"]["mode"], "0640");
        assert_eq!(
            (&read["file"]["path_hex"], &read["tags"]),
            (&json!("2f7372762f61ff"), &json!(["one", "two"]))
        );
    }
}
