//! A record as a line for people and as JSON for programs.

use jiff::Timestamp;
use vouch_audit::Record;
use vouch_audit::operations;
use vouch_audit::record::{Act, Class, Refusal};

use super::hex;
use crate::output::printable;

/// When, to the microsecond, in UTC.
pub(super) fn time(ns: u64) -> String {
    let instant = Timestamp::from_nanosecond(i128::from(ns));
    instant.map_or_else(|_| format!("@{ns}"), |instant| format!("{instant:.6}"))
}

/// What was done.
pub(super) fn operation(record: &Record<'_>) -> String {
    let name = match record.class {
        Class::Operation => Some(operations::name(record.operation)),
        Class::Refusal => Refusal::of(record.operation).map(Refusal::name),
        Class::Administrative => Act::of(record.operation).map(Act::name),
        Class::Gap => Some("gap"),
        Class::Host => None,
    };
    name.map_or_else(|| record.operation.to_string(), str::to_owned)
}

/// Who: the principal, or the user's number.
pub(super) fn who(record: &Record<'_>) -> String {
    match (record.principal, record.uid) {
        ([], Some(uid)) => uid.to_string(),
        ([], None) => "-".to_owned(),
        (principal, _) => printable(principal),
    }
}

/// From where.
pub(super) fn client(record: &Record<'_>) -> String {
    match (record.client, record.address) {
        ([], Some(address)) => address.to_string(),
        ([], None) => "-".to_owned(),
        (client, _) => printable(client),
    }
}

/// A line.
pub(super) fn line(record: &Record<'_>) -> String {
    let result = if record.result == 0 && record.class != Class::Refusal { "ok".to_owned() } else { format!("failed({})", record.result) };
    let mut line = format!("{} {} {} {} {} {result}", record.seq, time(record.time_ns), who(record), client(record), operation(record));
    let mut more = |name: &str, value: String| line.push_str(&format!(" {name}={value}"));
    if !record.path.is_empty() {
        more("path", format!("\"{}\"", printable(record.path)));
    }
    if !record.path2.is_empty() {
        more("to", format!("\"{}\"", printable(record.path2)));
    }
    if !record.file.is_empty() {
        more("file", hex(record.file));
    }
    for (name, number) in [("read", record.read), ("written", record.written), ("lost", record.gap)] {
        if let Some(number) = number {
            more(name, number.to_string());
        }
    }
    for (name, text) in [("key", record.key), ("detail", record.detail)] {
        if !text.is_empty() {
            more(name, format!("\"{}\"", printable(text)));
        }
    }
    line
}

/// How records are printed.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct Form {
    /// Print each record as a JSON object in the fields of the Elastic Common Schema, a line each.
    #[arg(long)]
    json: bool,
    /// Print records in the text of the kernel's audit log, for ausearch and aureport.
    #[arg(long, conflicts_with = "json")]
    kernel_text: bool,
}

impl Form {
    /// A record with its newline.
    pub(super) fn of(self, record: &Record<'_>) -> String {
        let mut text = String::new();
        if self.json {
            vouch_audit::json::write(record, &mut text);
        } else if self.kernel_text {
            vouch_audit::text::write(record, &mut text);
        } else {
            text = line(record);
            text.push('\n');
        }
        text
    }
}
