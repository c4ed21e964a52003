//! Syslog messages (RFC 5424) with ECS JSON, and their framing (RFC 5425 §4.3; RFC 6587 §3.4.1).

use std::fmt::Write as _;

use crate::record::{Class, shorten_path, utf8_prefix};
use crate::{Record, json, operations};

/// "log audit" (RFC 5424 §6.2.1).
const FACILITY: u32 = 13;
const WARNING: u32 = 4;
const INFORMATIONAL: u32 = 6;
/// RFC 5424 §6.
const HOST_LEN_MAX: usize = 255;

/// `host`: the name of this machine.
pub fn message(record: &Record<'_>, boot: Option<[u8; 16]>, host: &str) -> String {
    with_value(record, &json::value(record, boot), host)
}

/// At most [`MESSAGE_LEN_MAX`] bytes. Truncates long fields, keeps both ends of paths, and sets
/// `vouch.truncated`.
pub fn short_message(record: &Record<'_>, boot: Option<[u8; 16]>, host: &str) -> String {
    let mut len_max = SHORT_LEN_MAX;
    loop {
        let short = with_short_fields(record, boot, host, len_max);
        if short.len() <= MESSAGE_LEN_MAX || len_max <= SHORT_LEN_MIN {
            return short;
        }
        len_max /= 2;
    }
}

fn with_short_fields(
    record: &Record<'_>,
    boot: Option<[u8; 16]>,
    host: &str,
    len_max: usize,
) -> String {
    let (path, path2) = (shorten_path(record.path, len_max), shorten_path(record.path2, len_max));
    let cut = |text| utf8_prefix(text, len_max);
    let short = Record {
        principal: cut(record.principal),
        client: cut(record.client),
        export: cut(record.export),
        path: &path,
        path2: &path2,
        file: cut(record.file),
        key: cut(record.key),
        detail: cut(record.detail),
        certificate: cut(record.certificate),
        ..record.clone()
    };
    let mut value = json::value(&short, boot);
    value["vouch"]["truncated"] = true.into();
    with_value(record, &value, host)
}

const SHORT_LEN_MAX: usize = 512;
const SHORT_LEN_MIN: usize = 32;
/// rsyslog splits longer messages unless configured otherwise.
pub const MESSAGE_LEN_MAX: usize = 8096;

fn with_value(record: &Record<'_>, value: &serde_json::Value, host: &str) -> String {
    let is_bad = record.status() != 0 || matches!(record.class, Class::Refusal | Class::Gap);
    let priority = FACILITY * 8 + if is_bad { WARNING } else { INFORMATIONAL };
    // At most microseconds (RFC 5424 §6.2.3).
    let time = jiff::Timestamp::from_nanosecond(i128::from(record.time_ns))
        .map_or_else(|_| "-".into(), |time| format!("{time:.6}"));
    let name = match record.class {
        Class::Operation => operations::name(record.operation),
        class => class.name(),
    };
    // RFC 5424 §6.
    let mut host: String = host.chars().filter(char::is_ascii_graphic).take(HOST_LEN_MAX).collect();
    if host.is_empty() {
        host.push('-');
    }
    let mut out = String::with_capacity(512);
    let _ = write!(out, "<{priority}>1 {time} {host} vouch - {name} - ");
    push_ascii(&value.to_string(), &mut out);
    out
}

/// Text in UTF-8 would need a byte order mark (RFC 5424 §6.4), which parsers of JSON do not take.
fn push_ascii(json: &str, out: &mut String) {
    for c in json.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
}

/// Octet counting: length in bytes, a space, the message.
pub fn frame(message: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(message.len().to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(message.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_has_rfc_5424_header() {
        let record = Record {
            seq: 7,
            time_ns: 1_500_000_000_123_456_789,
            operation: 18,
            result: 13,
            path: "/srv/\u{e9}\u{1f512}\"".as_bytes(),
            ..Record::default()
        };
        let message = message(&record, None, "nfs 1.example.org");
        let (head, text) = message.split_at(message.find('{').unwrap());
        assert_eq!(head, "<108>1 2017-07-14T02:40:00.123456Z nfs1.example.org vouch - OPEN - ");
        assert!(message.is_ascii(), "{message}");
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(
            (value["event"]["sequence"].as_u64(), &value["file"]["path"]),
            (Some(7), &"/srv/\u{e9}\u{1f512}\"".into())
        );
        assert!(
            super::message(&Record::default(), None, "")
                .starts_with("<110>1 1970-01-01T00:00:00.000000Z - vouch - ")
        );
    }

    #[test]
    fn short_message_has_bounded_length_and_is_marked_truncated() {
        let path = [&b"/srv/\xff"[..], &[1; 4080], b"/dir/name"].concat();
        let long = vec![0xff; 4096];
        for record in [
            Record { seq: 7, path: &path, path2: &path, ..Record::default() },
            Record {
                principal: &long,
                client: &long,
                export: &long,
                path: &long,
                path2: &long,
                file: &long,
                key: &long,
                detail: &long,
                certificate: &long,
                transport: Some(2),
                ..Record::default()
            },
        ] {
            assert!(message(&record, None, "h").len() > 65_507);
            let short = short_message(&record, None, "h");
            assert!(short.len() <= MESSAGE_LEN_MAX, "{}", short.len());
            let value: serde_json::Value =
                serde_json::from_str(&short[short.find('{').unwrap()..]).unwrap();
            assert_eq!(
                (value["event"]["sequence"].as_u64(), &value["vouch"]["truncated"]),
                (Some(record.seq), &true.into())
            );
        }
        assert_eq!(shorten_path(&path, SHORT_LEN_MAX), &b"/srv/.../dir/name"[..]);
        assert_eq!(shorten_path(b"/srv/short", SHORT_LEN_MAX), &b"/srv/short"[..]);
        assert!(
            std::str::from_utf8(utf8_prefix("\u{e9}x".repeat(400).as_bytes(), SHORT_LEN_MAX))
                .is_ok()
        );
    }

    #[test]
    fn frames_count_bytes() {
        let mut out = Vec::new();
        frame("<110>1 ü", &mut out);
        assert_eq!(out, "9 <110>1 ü".as_bytes());
    }
}
