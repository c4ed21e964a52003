//! The kernel's audit log: lines of auditd's file, or netlink messages. Does no I/O.

pub(crate) mod detail;
mod paths;
mod record_types;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::IpAddr;

use crate::Record;
use crate::record::{Class, Flavour, PATH_LEN_MAX, TEXT_LEN_MAX};
pub(crate) use paths::call_number;
use paths::{DescriptorUse, resolve};
use record_types::number_of;
pub use record_types::record_type_name;

mod kind {
    #[cfg(test)]
    pub(super) const CONFIG_CHANGE: u16 = 1305;
    pub(super) const SYSCALL: u16 = 1300;
    pub(super) const PATH: u16 = 1302;
    pub(super) const CWD: u16 = 1307;
    pub(super) const EOE: u16 = 1320;
    pub(super) const PROCTITLE: u16 = 1327;
    pub(super) const URINGOP: u16 = 1336;
}

/// Shared by all lines of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Nanoseconds since 1970. The kernel gives milliseconds.
    pub time_ns: u64,
    /// Since boot.
    pub serial: u32,
}

/// One line of the kernel's audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Record type, or 0 if its name is unknown.
    pub kind: u16,
    /// Set if the type's number is unknown, else empty.
    pub kind_name: &'a [u8],
    /// Equal in all lines of one event.
    pub stamp: Stamp,
    /// Unparsed.
    pub fields: &'a [u8],
}

impl<'a> Line<'a> {
    /// Parses a line of auditd's file: `[node=NAME] type=NAME
    /// msg=audit(SECONDS.MILLISECONDS:SERIAL): fields`.
    pub fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let line = match line.strip_prefix(b"node=") {
            Some(rest) => &rest[rest.iter().position(|byte| *byte == b' ')? + 1..],
            None => line,
        };
        let rest = line.strip_prefix(b"type=")?;
        let (name, rest) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
        let line = Line::parse_message(number_of(name), rest.strip_prefix(b" msg=")?)?;
        Some(Line { kind_name: if line.kind == 0 { name } else { b"" }, ..line })
    }

    /// Parses a netlink message: `audit(SECONDS.MILLISECONDS:SERIAL): fields`.
    pub fn parse_message(kind: u16, message: &'a [u8]) -> Option<Line<'a>> {
        let rest = message.strip_prefix(b"audit(")?;
        let (stamp, rest) = rest.split_at(rest.iter().take(64).position(|byte| *byte == b')')?);
        let (time, serial) = std::str::from_utf8(stamp).ok()?.split_once(':')?;
        let (seconds, millis) = time.split_once('.')?;
        if millis.len() != 3 {
            return None;
        }
        let nanos = u64::from(millis.parse::<u16>().ok()?) * 1_000_000;
        let time_ns =
            seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)?;
        let fields = rest.strip_prefix(b"):")?.trim_ascii();
        Some(Line {
            kind,
            kind_name: b"",
            stamp: Stamp { time_ns, serial: serial.parse().ok()? },
            fields,
        })
    }

    fn field(&self, name: &str) -> Option<&'a [u8]> {
        fields(self.fields)
            .find(|(found, _)| *found == name.as_bytes())
            .map(|(_, value)| value.bytes())
    }

    fn number(&self, name: &str) -> Option<i64> {
        std::str::from_utf8(self.field(name)?).ok()?.parse().ok()
    }

    /// Users can influence this field, so the kernel writes it in quotes or in hexadecimal.
    fn text(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let value = fields(self.fields).find(|(found, _)| *found == name.as_bytes())?.1;
        match value {
            Value::Quoted(text) => Some(Cow::Borrowed(text)),
            Value::Bare(b"(null)" | b"(none)" | b"?") => None,
            Value::Bare(digits) => match unhex(digits) {
                Some(bytes) => Some(Cow::Owned(bytes)),
                None => Some(Cow::Borrowed(digits)),
            },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    Quoted(&'a [u8]),
    Bare(&'a [u8]),
}

impl<'a> Value<'a> {
    fn bytes(self) -> &'a [u8] {
        match self {
            Value::Quoted(bytes) | Value::Bare(bytes) => bytes,
        }
    }
}

/// Also parses the content of `msg='…'`, which programs write.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (&[u8], Value<'_>)> {
    std::iter::from_fn(move || {
        loop {
            let start = rest.iter().position(|byte| !matches!(byte, b' ' | 0x1d | b'\'' | b','))?;
            rest = &rest[start..];
            let end = rest
                .iter()
                .position(|byte| matches!(byte, b' ' | 0x1d | b'='))
                .unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            let Some(after) = after.strip_prefix(b"=") else {
                rest = after;
                continue;
            };
            if let Some(inner) = after.strip_prefix(b"'") {
                rest = inner;
                continue;
            }
            let (value, after) = match after.strip_prefix(b"\"") {
                Some(quoted) => {
                    let end = quoted.iter().position(|byte| *byte == b'"').unwrap_or(quoted.len());
                    (Value::Quoted(&quoted[..end]), quoted.get(end + 1..).unwrap_or_default())
                }
                None => {
                    let end = after
                        .iter()
                        .position(|byte| matches!(byte, b' ' | 0x1d | b'\''))
                        .unwrap_or(after.len());
                    (Value::Bare(&after[..end]), &after[end..])
                }
            };
            rest = after;
            return Some((name, value));
        }
    })
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// Assembled from all lines with the same stamp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Of its lines.
    pub stamp: Stamp,
    /// Type of the first line with a known type, or 0.
    pub kind: u16,
    /// 0 for success, else the errno, or 1 if the errno is unknown.
    pub result: u32,
    /// The user of the process.
    pub uid: Option<u32>,
    /// The group of the process.
    pub gid: Option<u32>,
    /// The process.
    pub pid: Option<u32>,
    /// The login user (auid), which sudo does not change.
    pub login: Option<u32>,
    /// Empty unless auditd wrote the name.
    pub login_name: Vec<u8>,
    /// Remote address, if a local program reported one.
    pub address: Option<IpAddr>,
    /// Path of the object. A leading `/.../` stands for a directory that the log does not name.
    pub path: Vec<u8>,
    /// The new path of a rename or link.
    pub path2: Vec<u8>,
    /// Device and inode as in the log: `fe:00:4711`.
    pub file: Vec<u8>,
    /// Key of the audit rule.
    pub key: Vec<u8>,
    /// All other fields, as text.
    pub detail: Vec<u8>,
    cwd: Vec<u8>,
    descriptors: DescriptorUse,
    is_complete: bool,
}

const UNSET: u32 = u32::MAX;

impl Event {
    fn add(&mut self, line: &Line<'_>) {
        if self.kind == 0 {
            self.kind = line.kind;
        }
        if !line.kind_name.is_empty() {
            self.push_detail("type", line.kind_name);
        }
        match line.kind {
            kind::SYSCALL => self.descriptors = DescriptorUse::of(line),
            kind::URINGOP => self.descriptors = DescriptorUse([true; 2]),
            _ => {}
        }
        match line.kind {
            kind::CWD => self.cwd = truncated(line.text("cwd"), PATH_LEN_MAX),
            kind::PATH => self.add_path(line),
            kind::EOE | kind::PROCTITLE => self.is_complete = true,
            kind => {
                let id = |name| {
                    line.number(name)
                        .and_then(|id| u32::try_from(id).ok())
                        .filter(|id| *id != UNSET)
                };
                self.uid = self.uid.or(id("uid"));
                self.gid = self.gid.or(id("gid"));
                self.pid = self.pid.or(id("pid"));
                if self.login.is_none() {
                    self.login = id("auid");
                    self.login_name =
                        truncated(line.text("AUID").filter(|_| self.login.is_some()), TEXT_LEN_MAX);
                }
                self.address = self
                    .address
                    .or_else(|| std::str::from_utf8(line.field("addr")?).ok()?.parse().ok());
                if self.key.is_empty() {
                    self.key = truncated(line.text("key"), TEXT_LEN_MAX);
                }
                let exit = line.number("exit").unwrap_or(0);
                match (line.field("success"), line.field("res")) {
                    (Some(b"no"), _) => {
                        self.result =
                            u32::try_from(-exit).ok().filter(|errno| *errno != 0).unwrap_or(1)
                    }
                    (None, Some(b"failed" | b"0")) => self.result = 1,
                    _ => {}
                }
                // These events have a single line.
                self.is_complete |=
                    (1100..1300).contains(&kind) || (2000..3000).contains(&kind) || kind == 1006;
                self.describe(line);
            }
        }
    }

    fn describe(&mut self, line: &Line<'_>) {
        match (line.field("SYSCALL"), line.field("syscall")) {
            (Some(name), number) => {
                self.push_detail("syscall", name);
                number.into_iter().for_each(|number| self.push_detail("number", number));
            }
            (None, Some(call)) => self.push_detail("syscall", call),
            _ => {}
        }
        for name in [
            "arch", "op", "ppid", "pid", "auid", "ses", "tty", "sig", "table", "dev", "prom",
            "prog-id",
        ] {
            if let Some(value) = line.field(name).filter(|value| *value != b"4294967295") {
                self.push_detail(name, value);
            }
        }
        for name in ["acct", "grp", "name", "comm", "exe"] {
            if let Some(value) = line.text(name) {
                self.push_detail(name, &value);
            }
        }
    }

    fn push_detail(&mut self, name: &str, value: &[u8]) {
        detail::push(&mut self.detail, name, value, TEXT_LEN_MAX);
    }

    fn add_path(&mut self, line: &Line<'_>) {
        let nametype = line.field("nametype").unwrap_or_default();
        let Some(name) = line.text("name").filter(|_| nametype != b"PARENT") else { return };
        let is_second = !self.path.is_empty();
        let is_elsewhere = self.descriptors.0[usize::from(is_second)];
        let mut path = resolve(if is_elsewhere { b"" } else { &self.cwd }, &name);
        path.truncate(PATH_LEN_MAX);
        if !is_second {
            self.path = path;
            if let (Some(device), Some(inode)) = (line.field("dev"), line.field("inode")) {
                self.file = [device, b":", inode].concat();
                self.file.truncate(TEXT_LEN_MAX);
            }
        } else if self.path2.is_empty() && nametype == b"CREATE" {
            self.path2 = path;
        }
    }

    /// `principal` is the login user's name, `client` this machine's name.
    pub fn to_record<'a>(&'a self, principal: &'a [u8], client: &'a [u8]) -> Record<'a> {
        Record {
            time_ns: self.stamp.time_ns,
            class: Class::Host,
            operation: self.kind,
            flavour: Flavour::Local,
            result: self.result,
            principal,
            uid: self.uid,
            gid: self.gid,
            pid: self.pid,
            login: self.login,
            address: self.address,
            client,
            path: &self.path,
            path2: &self.path2,
            file: &self.file,
            key: &self.key,
            detail: &self.detail,
            xid: Some(self.stamp.serial),
            ..Record::default()
        }
    }
}

fn truncated(text: Option<Cow<'_, [u8]>>, len_max: usize) -> Vec<u8> {
    let mut text = text.map(Cow::into_owned).unwrap_or_default();
    text.truncate(len_max);
    text
}

/// Joins the lines of events, which may interleave.
#[derive(Debug, Default)]
pub struct Assembler {
    pending: VecDeque<Event>,
}

/// Most incomplete events. Above it, the oldest is emitted.
const PENDING_MAX: usize = 64;
/// An event this much older than the newest line is complete.
const AGE_NS_MAX: u64 = 2_000_000_000;

impl Assembler {
    /// Calls `each` for every event that the line completes.
    pub fn push(&mut self, line: &Line<'_>, mut each: impl FnMut(Event)) {
        let at = self.pending.iter().position(|event| event.stamp == line.stamp);
        if at.is_none() && line.kind == kind::EOE {
            return;
        }
        let at = at.unwrap_or_else(|| {
            self.pending.push_back(Event { stamp: line.stamp, ..Event::default() });
            self.pending.len() - 1
        });
        self.pending[at].add(line);
        let now = line.stamp.time_ns;
        while let Some(first) = self.pending.front() {
            if first.is_complete
                || self.pending.len() > PENDING_MAX
                || now.saturating_sub(first.stamp.time_ns) > AGE_NS_MAX
            {
                self.pending.pop_front().into_iter().for_each(&mut each);
            } else {
                break;
            }
        }
    }

    /// Emits the incomplete events. For the end of a log.
    pub fn finish(&mut self, each: impl FnMut(Event)) {
        self.pending.drain(..).for_each(each);
    }
}

#[cfg(test)]
mod tests;
