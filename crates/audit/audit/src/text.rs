//! The text format of the kernel's audit log, for `ausearch` and `aureport`. Operations become
//! SYSCALL, SOCKADDR, CWD and PATH lines; refusals USER_AUTH; changes of rules and keys
//! CONFIG_CHANGE; everything else TRUSTED_APP.

mod host_call;

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::host::detail;
use crate::operations::{self, errno, number, system_call};
use crate::record::{Act, Class, Flavour, Record, Refusal, access};

/// One event of one or more lines.
pub fn write(record: &Record<'_>, out: &mut String) {
    match record.class {
        Class::Operation => operation(record, out),
        Class::Refusal => refusal(record, out),
        Class::Host if host_call::has_call(record) => host_call::write(record, out),
        Class::Administrative | Class::Gap | Class::Host => administrative(record, out),
    }
}

fn head(record: &Record<'_>, kind: &str, out: &mut String) {
    let (seconds, millis) = (record.time_ns / 1_000_000_000, record.time_ns / 1_000_000 % 1000);
    let _ = write!(out, "type={kind} msg=audit({seconds}.{millis:03}:{}): ", record.seq);
}

fn operation(record: &Record<'_>, out: &mut String) {
    let exit = -errno(record.status());
    let success = if record.status() == 0 { "yes" } else { "no" };
    let paths = u8::from(!record.path.is_empty()) + u8::from(!record.path2.is_empty());
    head(record, "SYSCALL", out);
    let (equivalent_call, [a0, a2]) = equivalent_call(record);
    let _ = write!(
        out,
        "arch=c000003e syscall={equivalent_call} success={success} exit={exit} a0={a0} a1=0 a2={a2} a3=0 items={paths} ppid=0 pid={} ",
        record.pid.unwrap_or(0)
    );
    let (auid, uid, gid) = (id(record.auid()), id(record.uid), id(record.gid));
    let _ = write!(
        out,
        "auid={auid} uid={uid} gid={gid} euid={uid} suid={uid} fsuid={uid} egid={gid} sgid={gid} fsgid={gid} "
    );
    out.push_str("tty=(none) ses=4294967295 ");
    out.push_str(match record.flavour {
        Flavour::Local => "comm=\"?\" exe=\"?\" ",
        _ => "comm=\"nfsd\" exe=\"/usr/bin/vouch\" ",
    });
    match record.key {
        b"" => out.push_str("key=(null)"),
        key => field(out, "key", key),
    }
    let _ = write!(out, " op={}", operations::name(record.operation).to_ascii_lowercase());
    vouch_fields(record, out);
    out.push('\n');
    if let Some(address) = record.address {
        head(record, "SOCKADDR", out);
        sockaddr(address, record.port.unwrap_or(0), out);
        out.push('\n');
    }
    head(record, "CWD", out);
    out.push_str("cwd=\"/\"\n");
    let nametypes = match record.operation {
        number::RENAME => ["DELETE", "CREATE"],
        number::REMOVE => ["DELETE", "NORMAL"],
        number::CREATE => ["CREATE", "NORMAL"],
        number::LINK => ["NORMAL", "CREATE"],
        number::OPEN if may_have_created(record) => ["CREATE", "NORMAL"],
        _ => ["NORMAL"; 2],
    };
    let present =
        [record.path, record.path2].into_iter().zip(nametypes).filter(|(path, _)| !path.is_empty());
    for (item, (path, nametype)) in present.enumerate() {
        head(record, "PATH", out);
        let _ = write!(out, "item={item} ");
        field(out, "name", path);
        let _ = writeln!(
            out,
            " nametype={nametype} cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0"
        );
    }
}

pub(crate) fn may_have_created(record: &Record<'_>) -> bool {
    record.granted.or(record.requested).is_some_and(|bits| bits & access::CREATE != 0)
}

fn equivalent_call(record: &Record<'_>) -> (u32, [String; 2]) {
    let requested = record.requested.unwrap_or(0);
    let requests_any = |bits: u32| requested & bits != 0;
    let at = |third: u32| ["ffffff9c".to_owned(), format!("{third:x}")];
    let none = || ["0".to_owned(), "0".to_owned()];
    match record.operation {
        // Flags of openat(2): O_RDONLY, O_WRONLY, O_RDWR; O_CREAT, O_TRUNC.
        number::OPEN => {
            let access =
                match (requests_any(access::READ), requests_any(access::MODIFY | access::EXTEND)) {
                    (true, true) => 2,
                    (false, true) => 1,
                    _ => 0,
                };
            let create = if requests_any(access::CREATE) { 0x40 } else { 0 };
            (257, at(access | create | if requests_any(access::TRUNCATE) { 0x200 } else { 0 }))
        }
        number::SETATTR if requests_any(access::TRUNCATE) => (76, none()),
        number::SETATTR if requests_any(access::MODE) => (268, at(record.mode.unwrap_or(0))),
        number::SETATTR if requests_any(access::OWNER) => (260, at(0)),
        number::SETATTR if requests_any(access::ACL) => (188, none()),
        number::SETATTR if requests_any(access::TIMES) => (280, at(0)),
        // symlinkat takes the directory as second argument; mknodat takes the file type in the
        // mode.
        number::CREATE => match requested >> access::TYPE_SHIFT {
            5 => (266, none()),
            3 => (259, at(0o060_000)),
            4 => (259, at(0o020_000)),
            6 => (259, at(0o140_000)),
            7 => (259, at(0o010_000)),
            _ => (258, at(0)),
        },
        number => (system_call(number), none()),
    }
}

fn vouch_fields(record: &Record<'_>, out: &mut String) {
    let _ = write!(out, " flavour={} minor=\"{}\"", record.flavour.name(), record.minor);
    for (name, text) in [
        ("principal", record.principal),
        ("export", record.export),
        ("client", record.client),
        ("why", record.detail),
    ] {
        if !text.is_empty() {
            out.push(' ');
            field(out, name, text);
        }
    }
    own_fields(record, out);
}

/// Numbers are in quotes or begin with 0x: laurel takes bare values of unknown fields with an even
/// count of digits for hexadecimal text.
fn own_fields(record: &Record<'_>, out: &mut String) {
    if let Some(enctype) = record.enctype {
        let _ = write!(out, " enctype=\"{enctype}\"");
    }
    if let Some(xprtsec) = record.xprtsec() {
        let _ = write!(out, " xprtsec={xprtsec}");
    }
    if !record.fingerprint.is_empty() {
        quoted_hex(out, "fingerprint", record.fingerprint);
    }
    if !record.certificate.is_empty() {
        out.push(' ');
        message_field(out, "certificate", record.certificate);
    }
    if !record.file.is_empty() {
        // ausearch would read `file` as a path.
        quoted_hex(out, "fileid", record.file);
    }
    if let Some(mode) = record.mode {
        let _ = write!(out, " setmode=\"{mode:04o}\"");
    }
    for (name, bits) in [("asked", record.requested), ("granted", record.granted)] {
        if let Some(bits) = bits {
            let _ = write!(out, " {name}={bits:#x}");
        }
    }
    let numbers = [
        ("offset", record.offset),
        ("read", record.read),
        ("written", record.written),
        ("open_ns", record.open_ns),
        ("lost", record.gap),
        ("connection", record.connection),
        ("xid", record.xid.map(u64::from)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            let _ = write!(out, " {name}=\"{number}\"");
        }
    }
    if record.status() != 0 {
        let _ = write!(out, " status=\"{}\"", record.status());
    }
}

fn quoted_hex(out: &mut String, name: &str, bytes: &[u8]) {
    let _ = write!(out, " {name}=\"");
    hex(out, bytes);
    out.push('"');
}

fn refusal(record: &Record<'_>, out: &mut String) {
    head(record, "USER_AUTH", out);
    let uid = id(record.uid);
    let (pid, auid) = (record.pid.unwrap_or(0), id(record.auid()));
    let _ = write!(out, "pid={pid} uid={uid} auid={auid} ses=4294967295 msg='op=");
    out.push_str(Refusal::from_number(record.operation).map_or("refused", Refusal::name));
    out.push(' ');
    message_field(out, "acct", if record.principal.is_empty() { b"?" } else { record.principal });
    out.push_str(" exe=\"/usr/bin/vouch\" ");
    host_and_address(record, out);
    // Before all fields that a user can choose, as in kernel messages.
    out.push_str(" terminal=nfs res=failed");
    message_texts(record, out);
    out.push_str("'\n");
}

fn administrative(record: &Record<'_>, out: &mut String) {
    let detail = match record.class {
        Class::Host => detail::parse(record.detail),
        _ => Vec::new(),
    };
    let of_detail = |wanted: &str| {
        detail.iter().find(|(name, _)| *name == wanted.as_bytes()).map(|(_, value)| &value[..])
    };
    let act = Act::from_number(record.operation).filter(|_| record.class == Class::Administrative);
    let uid = id(record.uid);
    let failed = record.class == Class::Gap || record.result != 0;
    if let Some(act @ (Act::Rules | Act::TurnedDown | Act::Key)) = act {
        // `aureport --config` lists this type.
        head(record, "CONFIG_CHANGE", out);
        let auid = id(record.auid());
        let _ = write!(
            out,
            "auid={auid} ses=4294967295 op={} key=(null) list=4 res={}",
            act.name(),
            u8::from(!failed)
        );
        let _ = write!(out, " uid={uid} pid={} ", record.pid.unwrap_or(0));
        host_and_address(record, out);
        message_texts(record, out);
        out.push('\n');
        return;
    }
    let event = match record.class {
        Class::Host => crate::host::record_type_name(record.operation),
        _ => None,
    };
    // Messages of programs have this form under their own types; other lines of the kernel do not.
    head(
        record,
        event.filter(|_| HOST_MESSAGES.contains(&record.operation)).unwrap_or("TRUSTED_APP"),
        out,
    );
    let (pid, auid) = (record.pid.unwrap_or(0), id(record.auid()));
    let session = of_detail("ses").and_then(number).unwrap_or(u32::MAX);
    let _ = write!(out, "pid={pid} uid={uid} auid={auid} ses={session} msg='op=");
    match record.class {
        Class::Gap => out.push_str("gap"),
        Class::Host => match event {
            Some(name) => out.push_str(name),
            None => drop(write!(out, "host-{}", record.operation)),
        },
        _ => match act {
            Some(act) => out.push_str(act.name()),
            None => drop(write!(out, "act-{}", record.operation)),
        },
    }
    out.push(' ');
    if let Some(account) = of_detail("acct") {
        message_field(out, "acct", account);
        out.push(' ');
    }
    message_field(
        out,
        "exe",
        if record.class == Class::Host {
            of_detail("exe").unwrap_or(b"?")
        } else {
            b"/usr/bin/vouch"
        },
    );
    out.push(' ');
    host_and_address(record, out);
    let _ = write!(out, " terminal=? res={}", if failed { "failed" } else { "success" });
    message_texts(record, out);
    out.push_str("'\n");
}

/// `ausearch -hn` matches only `hostname` if present, and SYSCALL events carry the address.
fn host_and_address(record: &Record<'_>, out: &mut String) {
    match (record.address, plain_client(record)) {
        (Some(address), name) => {
            let address = address.to_canonical();
            let _ = write!(out, "hostname={address} addr={address}");
            if let Some(name) = name {
                let _ = write!(out, " client={name}");
            }
        }
        (None, name) => {
            let _ = write!(out, "hostname={} addr=?", name.unwrap_or("?"));
        }
    }
}

fn message_texts(record: &Record<'_>, out: &mut String) {
    let _ = write!(out, " flavour={} minor=\"{}\"", record.flavour.name(), record.minor);
    // `acct` has the principal of a refusal.
    let principal = if record.class == Class::Refusal { b"" } else { record.principal };
    let client = if plain_client(record).is_none() { record.client } else { b"" };
    for (name, text) in [
        ("principal", principal),
        ("client", client),
        ("path", record.path),
        ("to", record.path2),
        ("rule", record.key),
        ("export", record.export),
        ("why", record.detail),
    ] {
        if !text.is_empty() {
            out.push(' ');
            message_field(out, name, text);
        }
    }
    for (name, number) in [("gid", record.gid), ("port", record.port.map(u32::from))] {
        if let Some(number) = number {
            let _ = write!(out, " {name}=\"{number}\"");
        }
    }
    own_fields(record, out);
}

/// A name that can stand unquoted.
fn plain_client<'a>(record: &Record<'a>) -> Option<&'a str> {
    let is_plain = |name: &&str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte))
    };
    std::str::from_utf8(record.client).ok().filter(is_plain)
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Types of messages of user space (linux/audit.h).
const HOST_MESSAGES: std::ops::Range<u16> = 1100..1200;
fn message_field(out: &mut String, name: &str, text: &[u8]) {
    let _ = write!(out, "{name}=");
    if text.contains(&b'\'') { hex(out, text) } else { value(out, text) }
}

fn id(number: Option<u32>) -> u32 {
    number.unwrap_or(u32::MAX)
}

fn field(out: &mut String, name: &str, text: &[u8]) {
    let _ = write!(out, "{name}=");
    value(out, text);
}

/// As audit_log_untrustedstring of the kernel: in quotes, or in hexadecimal.
fn value(out: &mut String, text: &[u8]) {
    match std::str::from_utf8(text) {
        Ok(plain) if plain.bytes().all(|byte| (0x21..0x7f).contains(&byte) && byte != b'"') => {
            let _ = write!(out, "\"{plain}\"");
        }
        _ => hex(out, text),
    }
}

fn hex(out: &mut String, bytes: &[u8]) {
    bytes.iter().for_each(|byte| {
        let _ = write!(out, "{byte:02X}");
    });
}

fn sockaddr(address: IpAddr, port: u16, out: &mut String) {
    let mut bytes = Vec::with_capacity(28);
    match address.to_canonical() {
        IpAddr::V4(address) => {
            bytes.extend_from_slice(&2u16.to_le_bytes());
            bytes.extend_from_slice(&port.to_be_bytes());
            bytes.extend_from_slice(&address.octets());
            bytes.extend_from_slice(&[0; 8]);
        }
        IpAddr::V6(address) => {
            bytes.extend_from_slice(&10u16.to_le_bytes());
            bytes.extend_from_slice(&port.to_be_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&address.octets());
            bytes.extend_from_slice(&[0; 4]);
        }
    }
    out.push_str("saddr=");
    hex(out, &bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record<'static> {
        Record {
            seq: 42,
            time_ns: 1_700_000_000_123_456_789,
            class: Class::Operation,
            operation: number::OPEN,
            flavour: Flavour::Krb5p,
            principal: b"alice@EXAMPLE.ORG",
            uid: Some(1000),
            gid: Some(100),
            address: Some("192.0.2.7".parse().unwrap()),
            port: Some(700),
            export: b"/srv",
            path: b"/srv/a b",
            key: b"k",
            result: 13,
            ..Record::default()
        }
    }

    #[test]
    fn writes_operation_as_system_call_with_path() {
        let mut out = String::new();
        write(&record(), &mut out);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.contains("msg=audit(1700000000.123:42): ")));
        assert!(lines[0].starts_with("type=SYSCALL "));
        assert!(lines[0].contains(" syscall=257 success=no exit=-13 "));
        assert!(
            lines[0]
                .ends_with(" key=\"k\" op=open flavour=krb5p minor=\"0\" principal=\"alice@EXAMPLE.ORG\" export=\"/srv\" status=\"13\""),
            "{}",
            lines[0]
        );
        assert_eq!(lines[1].split_once("saddr=").unwrap().1, "020002BCC00002070000000000000000");
        assert!(lines[3].contains(" name=2F7372762F612062 "));
        let mut out = String::new();
        write(
            &Record {
                operation: number::ACCESS,
                result: 0,
                requested: Some(0x1f),
                granted: Some(0),
                ..record()
            },
            &mut out,
        );
        assert!(out.contains(" syscall=269 success=no exit=-13 "), "{out}");
    }

    #[test]
    fn local_user_has_process_and_login_uid() {
        let mut out = String::new();
        write(
            &Record {
                flavour: Flavour::Local,
                pid: Some(77),
                login: Some(501),
                address: None,
                ..record()
            },
            &mut out,
        );
        assert!(
            out.contains(" pid=77 auid=501 uid=1000 gid=100 ")
                && out.contains(" comm=\"?\" exe=\"?\" "),
            "{out}"
        );
        assert!(!out.contains("SOCKADDR"), "{out}");
    }

    #[test]
    fn system_call_and_flags_match_requested_access() {
        use access::*;
        let of = |operation, requested| {
            let mut out = String::new();
            write(
                &Record { operation, requested: Some(requested), file: &[0xab], ..record() },
                &mut out,
            );
            assert!(out.contains(" fileid=\"AB\" ") && !out.contains(" file="), "{out}");
            let field =
                |name: &str| out.split_once(name).unwrap().1.split(' ').next().unwrap().to_owned();
            (field(" syscall="), field(" a2="))
        };
        for (operation, requested, equivalent_call, third) in [
            (number::OPEN, READ, "257", "0"),
            (number::OPEN, MODIFY | EXTEND, "257", "1"),
            (number::OPEN, READ | MODIFY | EXTEND | CREATE, "257", "42"),
            (number::OPEN, MODIFY | EXTEND | TRUNCATE, "257", "201"),
            (number::SETATTR, TRUNCATE | TIMES, "76", "0"),
            (number::SETATTR, MODE, "268", "0"),
            (number::SETATTR, OWNER, "260", "0"),
            (number::SETATTR, ACL, "188", "0"),
            (number::SETATTR, TIMES, "280", "0"),
            (number::CREATE, 2 << TYPE_SHIFT, "258", "0"),
            (number::CREATE, 5 << TYPE_SHIFT, "266", "0"),
            (number::CREATE, 7 << TYPE_SHIFT, "259", "1000"),
            (number::CREATE, 0, "258", "0"),
        ] {
            assert_eq!(
                of(operation, requested),
                (equivalent_call.to_owned(), third.to_owned()),
                "{operation} {requested:#x}"
            );
        }
        let mut out = String::new();
        write(
            &Record {
                operation: number::SETATTR,
                requested: Some(MODE),
                mode: Some(0o4755),
                ..record()
            },
            &mut out,
        );
        assert!(out.contains(" syscall=268 ") && out.contains(" a2=9ed "), "{out}");
        assert_eq!(
            describe_changes(MODE | TIMES | TRUNCATE, None, (None, None)),
            "sets size, mode, times"
        );
        assert_eq!(
            describe_changes(MODE | TIMES, Some(0o640), (Some(1), None)),
            "sets mode 0640, times"
        );
        let owner = |uid, gid| describe_changes(MODE | OWNER, Some(0o640), (uid, gid));
        assert_eq!(owner(None, None), "sets mode 0640, owner");
        assert_eq!(
            (owner(Some(0), Some(7)), owner(None, Some(7))),
            (
                "sets mode 0640, owner uid 0 gid 7".to_owned(),
                "sets mode 0640, owner gid 7".to_owned()
            )
        );
        assert_eq!(
            (
                describe_changes(5 << TYPE_SHIFT, None, (None, None)),
                describe_changes(READ | CREATE, None, (None, None))
            ),
            ("makes a symbolic link".to_owned(), String::new())
        );
    }

    #[test]
    fn untrusted_text_cannot_end_message_or_forge_result() {
        let evil = b"x'res=success";
        for class in [Class::Refusal, Class::Administrative, Class::Gap, Class::Host] {
            let mut out = String::new();
            let result = u32::from(matches!(class, Class::Administrative | Class::Host));
            write(
                &Record {
                    class,
                    path: evil,
                    principal: evil,
                    client: evil,
                    detail: evil,
                    export: evil,
                    result,
                    ..record()
                },
                &mut out,
            );
            let (_, message) = out.split_once("msg='").unwrap();
            assert_eq!(message.find('\''), Some(message.len() - 2), "{out}");
            // A forged result must follow the genuine `res=`.
            let mut out = String::new();
            let evil = b"res=success";
            write(
                &Record { class, path: evil, detail: evil, export: evil, result, ..record() },
                &mut out,
            );
            assert!(out.split_once("res=").unwrap().1.starts_with("failed "), "{out}");
        }
    }

    #[test]
    fn untrusted_text_cannot_start_a_line() {
        let evil = b"type=x\ntype=USER_AUTH msg=audit(1.000:1): '\" res=success";
        for class in Class::ALL.iter().copied() {
            let mut out = String::new();
            write(
                &Record {
                    class,
                    path: evil,
                    key: evil,
                    principal: evil,
                    client: evil,
                    detail: evil,
                    export: evil,
                    ..record()
                },
                &mut out,
            );
            for line in out.lines() {
                assert!(
                    line.contains("msg=audit(1700000000.123:42): ")
                        && !line.contains("audit(1.000"),
                    "{line}"
                );
            }
        }
    }
}
