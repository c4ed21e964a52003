use jiff::Timestamp;
use vouch_audit::record::{Act, Class, Refusal, access};
use vouch_audit::{Flavour, Record, operations};
use vouch_daemon::printable::{printable, quoted};

pub fn time(ns: u64) -> String {
    let instant = Timestamp::from_nanosecond(i128::from(ns));
    instant.map_or_else(|_| format!("@{ns}"), |instant| format!("{instant:.6}"))
}

pub fn operation(record: &Record<'_>) -> String {
    let name = match record.class {
        Class::Operation => Some(operations::name(record.operation)),
        Class::Refusal => Refusal::from_number(record.operation).map(Refusal::name),
        Class::Administrative => Act::from_number(record.operation).map(Act::name),
        Class::Gap => Some("gap"),
        Class::Host => vouch_audit::host::record_type_name(record.operation),
    };
    name.map_or_else(|| record.operation.to_string(), str::to_owned)
}

pub fn who(record: &Record<'_>) -> String {
    match (record.principal, record.uid) {
        ([], Some(uid)) => uid.to_string(),
        ([], None) => "-".to_owned(),
        (principal, _) => word(principal),
    }
}

/// Quoted unless it is plain.
fn word(name: &[u8]) -> String {
    let plain = printable(name);
    let is_plain = plain.as_bytes() == name
        && !plain.contains(|c: char| c.is_whitespace() || "\"\\=".contains(c));
    if is_plain { plain } else { quoted(name) }
}

pub fn client(record: &Record<'_>) -> String {
    match (record.client, record.address) {
        ([], Some(address)) => address.to_string(),
        ([], None) => "-".to_owned(),
        (client, _) => word(client),
    }
}

pub fn line(record: &Record<'_>, boot: Option<[u8; 16]>) -> String {
    let is_ok = record.status() == 0 && !matches!(record.class, Class::Refusal | Class::Gap);
    let result = match record.errno_name() {
        _ if is_ok => "ok".to_owned(),
        Some(name) => format!("failed({name})"),
        None => "failed".to_owned(),
    };
    let mut line = format!(
        "{} {} {} {} {} {result}",
        record.seq,
        time(record.time_ns),
        who(record),
        client(record),
        operation(record)
    );
    let mut more = |name: &str, value: String| line.push_str(&format!(" {name}={value}"));
    if !record.path.is_empty() {
        more("path", quoted(record.path));
    }
    if !record.path2.is_empty() {
        more("to", quoted(record.path2));
    }
    if let Some(requested) = record.requested {
        more("access", access::words(requested));
    }
    if let Some(granted) = record.granted.filter(|granted| Some(*granted) != record.requested) {
        more("granted", access::words(granted));
    }
    if let Some(mode) = record.mode {
        more("mode", format!("{mode:04o}"));
    }
    if !record.export.is_empty() {
        more("export", quoted(record.export));
    }
    if record.flavour != Flavour::None {
        more("flavour", record.flavour.name().to_owned());
    }
    for (name, id) in [
        ("uid", record.uid.filter(|_| !record.principal.is_empty())),
        ("gid", record.gid),
        ("auid", record.login),
    ] {
        if let Some(id) = id {
            // Of a user who never logged in.
            more(name, if id == u32::MAX { "unset".to_owned() } else { id.to_string() });
        }
    }
    if let Some(address) = record.address.filter(|_| !record.client.is_empty()) {
        more("address", address.to_canonical().to_string());
    }
    if !record.file.is_empty() {
        more("file", data_encoding::HEXLOWER.encode(record.file));
    }
    let numbers = [
        ("port", record.port.map(u64::from)),
        ("pid", record.pid.map(u64::from)),
        ("offset", record.offset),
        ("read", record.read),
        ("written", record.written),
        ("lost", record.gap),
        ("open_ns", record.open_ns),
        ("enctype", record.enctype.map(u64::from)),
        ("connection", record.connection),
        ("xid", record.xid.map(u64::from)),
        (
            "status",
            (!is_ok
                && record.status() != 0
                && i64::from(record.status()) != i64::from(record.errno()))
            .then(|| record.status().into()),
        ),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            more(name, number.to_string());
        }
    }
    if let Some(xprtsec) = record.xprtsec() {
        more("xprtsec", xprtsec.to_owned());
    }
    if !record.certificate.is_empty() {
        more("certificate", quoted(record.certificate));
    }
    if !record.fingerprint.is_empty() {
        more("fingerprint", data_encoding::HEXLOWER.encode(record.fingerprint));
    }
    for (name, text) in [("key", record.key), ("detail", record.detail)] {
        if !text.is_empty() {
            more(name, quoted(text));
        }
    }
    if record.minor != 0 || (record.class == Class::Operation && record.flavour != Flavour::Local) {
        more("minor", record.minor.to_string());
    }
    if let Some(boot) = vouch_audit::json::boot_text(boot) {
        more("boot", boot);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_forges_a_field() {
        let evil = "x\" key=\"forged\\\u{202e}\u{2067}".as_bytes();
        let record = Record {
            class: Class::Operation,
            operation: 18,
            path: evil,
            path2: evil,
            principal: evil,
            client: evil,
            detail: evil,
            ..Record::default()
        };
        let line = line(&record, Some([0x1a; 16]));
        let boot = "1a1a1a1a-1a1a-1a1a-1a1a-1a1a1a1a1a1a";
        let escaped = "\"x\\\" key=\\\"forged\\\\\\xe2\\x80\\xae\\xe2\\x81\\xa7\"";
        assert!(
            line.ends_with(&format!(" {escaped} {escaped} OPEN ok path={escaped} to={escaped} detail={escaped} minor=0 boot={boot}")),
            "{line}"
        );
        assert!(!line.contains(['\u{202e}', '\u{2067}']));
        let mut outside = String::new();
        let (mut is_inside, mut is_marked) = (false, false);
        for c in line.chars() {
            match c {
                _ if is_marked => is_marked = false,
                '\\' if is_inside => is_marked = true,
                '"' => is_inside = !is_inside,
                _ if !is_inside => outside.push(c),
                _ => {}
            }
        }
        assert!(!is_inside && !outside.contains("forged"), "{outside}");
        let plain = Record { principal: b"alice@EXAMPLE.ORG", client: b"c1.example.org", ..record };
        assert_eq!(
            (who(&plain), client(&plain)),
            ("alice@EXAMPLE.ORG".to_owned(), "c1.example.org".to_owned())
        );
    }
}
