//! Parser for auditctl's syntax. Rejects unsupported lines, and lines with another meaning in
//! auditctl.

use std::net::IpAddr;

use super::Rule;
use super::condition::{
    Compare, Condition, PERM_ATTRIBUTES, PERM_EXECUTE, PERM_READ, PERM_WRITE, UNSET,
};
use crate::Flavour;
use crate::operations::{
    errno_of_name, file_operations, is_without_files, parse_operations, possible_results,
    serves_other_calls,
};
use crate::record::access;

/// Looks up names of users and groups in rules.
pub trait Resolve {
    /// `None`: no such user.
    fn user(&self, name: &str) -> Option<u32>;
    /// `None`: no such group.
    fn group(&self, name: &str) -> Option<u32>;
}

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct RuleError {
    /// From 1.
    pub line: usize,
    /// For people.
    pub reason: String,
}

/// The rules, and warnings.
pub(super) fn parse(
    text: &[u8],
    resolve: &dyn Resolve,
) -> Result<(Vec<Rule>, Vec<RuleError>), Vec<RuleError>> {
    let (mut rules, mut warnings, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let rule_error = |reason| RuleError { line: index + 1, reason };
        let words = match words(line) {
            Ok(words) => words,
            Err(reason) => {
                errors.push(rule_error(reason));
                continue;
            }
        };
        if let Some(why) = is_for_kernel(&words) {
            warnings.push(rule_error(why));
            continue;
        }
        match rule(&words, resolve, &mut |reason| warnings.push(rule_error(reason))) {
            Ok(rule) => rules.extend(rule),
            Err(reason) => errors.push(rule_error(reason)),
        }
    }
    if errors.is_empty() { Ok((rules, warnings)) } else { Err(errors) }
}

/// Why the line has no effect here. Rule sets for the kernel are full of such lines.
fn is_for_kernel(words: &[Vec<u8>]) -> Option<String> {
    let first = std::str::from_utf8(words.first()?).ok()?;
    if matches!(
        first,
        "-b" | "-f" | "-r" | "-e" | "-c" | "-i" | "--backlog_wait_time" | "--loginuid-immutable"
    ) {
        return Some(format!(
            "{first} configures the kernel and has no effect here; see --audit-policy"
        ));
    }
    let values = |option: &'static [u8]| {
        words
            .windows(2)
            .filter(move |pair| pair[0] == option)
            .map(|pair| String::from_utf8_lossy(&pair[1]))
    };
    if values(b"-a").any(|list| matches!(&*list, "never,filesystem" | "filesystem,never")) {
        return Some("kernel file systems are not recorded here anyway".into());
    }
    let calls: Vec<String> = values(b"-S")
        .flat_map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let all_without = !calls.is_empty() && calls.iter().all(|call| is_without_files(call));
    all_without
        .then(|| format!("{} has no equivalent here, so the rule selects nothing", calls.join(",")))
}

pub(super) fn field(word: &[u8], resolve: &dyn Resolve) -> Result<Condition, String> {
    let mut draft = Draft::default();
    draft.field(word, resolve)?;
    let condition = draft.perm.map(Condition::Perm).or_else(|| draft.conditions.pop());
    condition.ok_or_else(|| "selects nothing in a search".into())
}

fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Vec<u8>>, None);
    for byte in line {
        match quote {
            Some(end) if byte == end => quote = None,
            Some(_) => word.get_or_insert_default().push(*byte),
            None if matches!(byte, b'"' | b'\'') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            None if byte.is_ascii_whitespace() => words.extend(word.take()),
            None if *byte == b'#' && word.is_none() => break,
            None => word.get_or_insert_default().push(*byte),
        }
    }
    words.extend(word);
    if quote.is_some() { Err("missing closing quote".into()) } else { Ok(words) }
}

fn text(word: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(word).map_err(|_| format!("{} is not UTF-8", word.escape_ascii()))
}

#[derive(Default)]
struct Draft {
    always: Option<bool>,
    watch: bool,
    operations: Option<u128>,
    names: Vec<String>,
    excludes_default_arch: bool,
    conditions: Vec<Condition>,
    perm: Option<u8>,
    keys: Vec<Vec<u8>>,
    /// Argument and bits of `a2&0100`.
    bits: Vec<(String, u32)>,
}

fn rule(
    words: &[Vec<u8>],
    resolve: &dyn Resolve,
    warn: &mut dyn FnMut(String),
) -> Result<Option<Rule>, String> {
    let mut words = words.iter();
    let mut draft = Draft::default();
    let mut clears = false;
    while let Some(word) = words.next() {
        let word = text(word)?;
        let mut value = |argument: &str| {
            words.next().map(Vec::as_slice).ok_or_else(|| format!("{word} requires {argument}"))
        };
        match word {
            "-a" => draft.action(text(value("a list and an action")?)?)?,
            "-A" => return Err("-A is not supported: use -a and put the line first".into()),
            "-w" => {
                draft.conditions.push(Condition::Dir(path(value("a path")?)?));
                draft.watch = true;
                set_once(&mut draft.always, true, "-w cannot be combined with -a or another -w")?;
            }
            "-p" => draft.perm(text(value("a combination of r, w, x and a")?)?)?,
            "-k" => draft.keys.push(value("a key")?.to_owned()),
            "-S" => {
                let names = text(value("operations")?)?;
                draft.operations(names);
                draft.names.extend(names.split(',').map(str::to_owned));
            }
            "-F" => draft.field(value("a field")?, resolve)?,
            "-D" => clears = true,
            "-C" => return Err(
                "-C is not supported: it compares kernel fields that NFS operations do not have"
                    .into(),
            ),
            "-W" | "-d" => {
                return Err(format!("{word} is not supported: a reload replaces all rules"));
            }
            other => return Err(format!("unknown option {other}")),
        }
    }
    draft.check_names(warn)?;
    draft.resolve_bits(warn)?;
    draft.finish(clears)
}

impl Draft {
    fn action(&mut self, text: &str) -> Result<(), String> {
        let (a, b) = text
            .split_once(',')
            .ok_or("-a requires a list and an action, for example always,exit")?;
        let (list, action) = if matches!(a, "always" | "never") { (b, a) } else { (a, b) };
        if list != "exit" {
            return Err(format!(
                "unknown list {list}: only exit is supported, because rules are evaluated once the result is known"
            ));
        }
        let always = match action {
            "always" => true,
            "never" => false,
            other => return Err(format!("unknown action {other}: use always or never")),
        };
        set_once(&mut self.always, always, "-a cannot be combined with -w or another -a")
    }

    fn perm(&mut self, text: &str) -> Result<(), String> {
        let mut bits = 0;
        for c in text.chars() {
            bits |= match c {
                'r' => PERM_READ,
                'w' => PERM_WRITE,
                'x' => PERM_EXECUTE,
                'a' => PERM_ATTRIBUTES,
                other => return Err(format!("unknown permission {other}: use r, w, x or a")),
            };
        }
        if bits == 0 {
            return Err("the permission list is empty".into());
        }
        set_once(&mut self.perm, bits, "permissions are given twice")
    }

    fn operations(&mut self, text: &str) {
        *self.operations.get_or_insert(0) |=
            text.split(',').filter_map(parse_operations).fold(0, |all, set| all | set);
    }

    /// Rule sets grow with each kernel: an unknown call beside known ones is a warning.
    fn check_names(&self, warn: &mut dyn FnMut(String)) -> Result<(), String> {
        let unknown: Vec<&str> = self
            .names
            .iter()
            .map(String::as_str)
            .filter(|name| parse_operations(name).is_none())
            .collect();
        let is_number = |name: &&str| name.parse::<u64>().is_ok();
        let text = || match unknown.iter().all(is_number) {
            true => format!(
                "{}: numbers of system calls differ between architectures, so give names",
                unknown.join(",")
            ),
            false => format!(
                "{} is neither an NFS operation nor a system call that maps to one",
                unknown.join(",")
            ),
        };
        match unknown.len() {
            0 => Ok(()),
            count if count == self.names.len() => Err(text()),
            _ => {
                warn(text());
                Ok(())
            }
        }
    }

    /// `a2&0100` of openat: flags of the open. `a1&0111` of chmod: bits of the mode.
    fn bits(&mut self, field: &str, word: &[u8]) -> Result<(), String> {
        let digits = word
            .get(field.len()..)
            .and_then(|rest| rest.strip_prefix(b"&"))
            .filter(|digits| !digits.starts_with(b"="));
        let bits = digits.and_then(|digits| number(text(digits).ok()?));
        let bits = bits.ok_or_else(|| {
            format!("{field} is supported for flags of open and modes of chmod only, for example a2&0100")
        })?;
        self.bits.push((field.to_owned(), bits));
        Ok(())
    }

    fn resolve_bits(&mut self, warn: &mut dyn FnMut(String)) -> Result<(), String> {
        for (field, bits) in std::mem::take(&mut self.bits) {
            let condition = if self.are_all(&field, mode_argument) {
                mode_bits(&field, bits)?
            } else {
                self.check_flags(&field, warn)?;
                open_flags(&field, bits)?
            };
            self.conditions.push(condition);
        }
        Ok(())
    }

    /// Unknown calls have their warning already.
    fn known(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).filter(|name| parse_operations(name).is_some())
    }

    /// The flags of openat2 are in memory, where the kernel's filter does not see them.
    fn are_all(&self, field: &str, argument: fn(&str) -> Option<&'static str>) -> bool {
        let mut named = self.known().filter(|name| *name != "openat2").peekable();
        named.peek().is_some() && named.all(|name| argument(name) == Some(field))
    }

    fn check_flags(&self, field: &str, warn: &mut dyn FnMut(String)) -> Result<(), String> {
        if !self.are_all(field, flags_argument) {
            return Err(format!(
                "{field} is supported as the flags of open (a1), openat and open_by_handle_at (a2), or the mode of chmod, fchmod (a1), fchmodat and fchmodat2 (a2) only"
            ));
        }
        if self.known().any(|name| name == "openat2") {
            warn(
                "openat2 has its flags in a structure, which the kernel's filter does not read: here the flags of every open are compared"
                    .into(),
            );
        }
        Ok(())
    }

    fn field(&mut self, word: &[u8], resolve: &dyn Resolve) -> Result<(), String> {
        if let Some(argument) = ["a0", "a1", "a2", "a3"]
            .into_iter()
            .find(|argument| word.starts_with(argument.as_bytes()))
        {
            return self.bits(argument, word);
        }
        let (field, compare, bytes) = split(word)?;
        let equality = || match compare {
            Compare::Equal => Ok(true),
            Compare::Unequal => Ok(false),
            _ => Err(format!("{field} supports only = and !=")),
        };
        let only_equal = || {
            if compare == Compare::Equal { Ok(()) } else { Err(format!("{field} supports only =")) }
        };
        let of_bytes = matches!(field, "path" | "dir" | "key" | "principal" | "export");
        let value = if of_bytes { "" } else { text(bytes)? };
        let condition = match field {
            "path" => only_equal().and_then(|()| Ok(Condition::Path(path(bytes)?)))?,
            "dir" => only_equal().and_then(|()| Ok(Condition::Dir(path(bytes)?)))?,
            "perm" => return only_equal().and_then(|()| self.perm(value)),
            "key" => {
                only_equal()?;
                self.keys.push(bytes.to_owned());
                return Ok(());
            }
            // For remote callers, the login user is the acting user.
            "auid" | "loginuid" => {
                Condition::Login(compare, id(value, &|name| resolve.user(name))?)
            }
            // An operation has a single user.
            "uid" | "euid" | "fsuid" => {
                Condition::Uid(compare, id(value, &|name| resolve.user(name))?)
            }
            "gid" | "egid" | "fsgid" => {
                Condition::Gid(compare, id(value, &|name| resolve.group(name))?)
            }
            "success" => {
                let success = match value {
                    "1" | "yes" => true,
                    "0" | "no" => false,
                    other => return Err(format!("success must be 0 or 1, not {other}")),
                };
                Condition::Success(success == equality()?)
            }
            "exit" => exit(compare, value)?,
            // NFS operations do not depend on the architecture.
            "arch" => {
                let is_default = !matches!(
                    value,
                    "b32" | "i386" | "i486" | "i586" | "i686" | "arm" | "ppc" | "s390"
                );
                self.excludes_default_arch |= is_default != equality()?;
                return Ok(());
            }
            "principal" => Condition::Principal(equality()?, bytes.into()),
            "client" => client(equality()?, value)?,
            "export" => Condition::Export(
                equality()?,
                if bytes.starts_with(b"tree:") { bytes.into() } else { path(bytes)? },
            ),
            "flavour" | "flavor" | "sec" => {
                let flavour = Flavour::ALL.iter().find(|flavour| flavour.name() == value);
                Condition::Flavour(
                    equality()?,
                    *flavour.ok_or_else(|| {
                        format!(
                            "unknown flavour {value}: use none, sys, krb5, krb5i, krb5p or local"
                        )
                    })?,
                )
            }
            other => return Err(format!("unknown field {other}")),
        };
        self.conditions.push(condition);
        Ok(())
    }

    fn finish(mut self, clears: bool) -> Result<Option<Rule>, String> {
        let Some(always) = self.always else {
            let empty = self.conditions.is_empty()
                && self.keys.is_empty()
                && self.perm.is_none()
                && self.operations.is_none();
            return if empty { Ok(None) } else { Err("a rule requires -a or -w".into()) };
        };
        if clears {
            return Err("-D must be the only option on its line".into());
        }
        if self.watch && self.operations.is_some() {
            return Err("-S requires -a and cannot be combined with -w".into());
        }
        if !always && self.excludes_default_arch {
            return Err(
                "a never rule with this arch would exclude everything, because NFS operations do not depend on the architecture".into()
            );
        }
        // A `never` rule must not exclude more calls than it names.
        if !always
            && let Some(wide) = self.names.iter().find(|name| serves_other_calls(name, &self.names))
        {
            return Err(format!(
                "a never rule with {wide} would also exclude other system calls that map to the same NFS operation: name the operation, or all of these calls"
            ));
        }
        if let Some(bits) = self
            .perm
            .or(self.watch.then_some(PERM_READ | PERM_WRITE | PERM_EXECUTE | PERM_ATTRIBUTES))
        {
            self.conditions.push(Condition::Perm(bits));
        }
        let key = self.keys.join(&1).into_boxed_slice();
        if key.len() > KEY_LEN_MAX {
            return Err(format!(
                "a key has at most {KEY_LEN_MAX} bytes, and so have all keys of a rule joined by one byte"
            ));
        }
        let names_operations = self.operations.is_some_and(|set| set != file_operations());
        Ok(Some(Rule {
            always,
            operations: self.operations.unwrap_or_else(file_operations),
            names_operations,
            conditions: self.conditions,
            key,
        }))
    }
}

/// AUDIT_MAX_KEY_LEN of the kernel.
const KEY_LEN_MAX: usize = 256;

fn set_once<T>(place: &mut Option<T>, value: T, twice: &str) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice.into()),
    }
}

fn split(word: &[u8]) -> Result<(&str, Compare, &[u8]), String> {
    let shown = || word.escape_ascii();
    let at = word
        .iter()
        .position(|byte| b"=!<>&".contains(byte))
        .ok_or_else(|| format!("{} has no operator: use =, !=, <, <=, > or >=", shown()))?;
    let (field, rest) = (text(&word[..at])?, &word[at..]);
    let known: [(&[u8], Compare); 6] = [
        (b"!=", Compare::Unequal),
        (b"<=", Compare::LessOrEqual),
        (b">=", Compare::GreaterOrEqual),
        (b"=", Compare::Equal),
        (b"<", Compare::Less),
        (b">", Compare::Greater),
    ];
    let found = known
        .iter()
        .find_map(|(text, compare)| rest.strip_prefix(*text).map(|value| (*compare, value)));
    let (compare, value) =
        found.ok_or_else(|| format!("{}: unknown operator: use =, !=, <, <=, > or >=", shown()))?;
    if value.is_empty() {
        Err(format!("{field} has no value"))
    } else {
        Ok((field, compare, value))
    }
}

fn flags_argument(call: &str) -> Option<&'static str> {
    match call {
        "open" => Some("a1"),
        "openat" | "open_by_handle_at" => Some("a2"),
        _ => None,
    }
}

fn mode_argument(call: &str) -> Option<&'static str> {
    match call {
        "chmod" | "fchmod" => Some("a1"),
        "fchmodat" | "fchmodat2" => Some("a2"),
        _ => None,
    }
}

fn open_flags(field: &str, flags: u32) -> Result<Condition, String> {
    let mut requested = 0;
    for (flag, bits) in [
        (0o3, access::MODIFY | access::EXTEND),
        (0o100, access::CREATE),
        (0o1000, access::TRUNCATE),
    ] {
        requested |= if flags & flag == 0 { 0 } else { bits };
    }
    if requested == 0 || flags & !0o1103 != 0 {
        return Err(format!(
            "{field} selects flags that operations do not have: use O_WRONLY, O_RDWR, O_CREAT and O_TRUNC (01103)"
        ));
    }
    Ok(Condition::Requested(requested))
}

fn mode_bits(field: &str, bits: u32) -> Result<Condition, String> {
    match bits {
        1..=0o7777 => Ok(Condition::Mode(bits)),
        _ => Err(format!("{field} selects bits that modes do not have: use 07777 at most")),
    }
}

/// As strtoul(3) with base 0.
fn number(text: &str) -> Option<u32> {
    match (text.strip_prefix("0x"), text.strip_prefix('0').filter(|octal| !octal.is_empty())) {
        (Some(hexadecimal), _) => u32::from_str_radix(hexadecimal, 16).ok(),
        (None, Some(octal)) => u32::from_str_radix(octal, 8).ok(),
        (None, None) => text.parse().ok(),
    }
}

fn path(word: &[u8]) -> Result<Box<[u8]>, String> {
    let trimmed = &word[..word.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1)];
    if !word.starts_with(b"/")
        || trimmed
            .split(|byte| *byte == b'/')
            .skip(1)
            .any(|part| matches!(part, b"" | b"." | b".."))
    {
        return Err(format!(
            "{} is not a normalized absolute path: use one / between names, no . and no ..",
            word.escape_ascii()
        ));
    }
    Ok(if trimmed.is_empty() { b"/" } else { trimmed }.into())
}

fn id(text: &str, by_name: &dyn Fn(&str) -> Option<u32>) -> Result<u32, String> {
    match text {
        "unset" | "-1" => Ok(UNSET),
        _ => text
            .parse()
            .ok()
            .or_else(|| by_name(text))
            .ok_or_else(|| format!("unknown user or group {text}")),
    }
}

fn exit(compare: Compare, text: &str) -> Result<Condition, String> {
    let (sign, name) = text.strip_prefix('-').map_or((1, text), |name| (-1, name));
    let number = match errno_of_name(name) {
        Some(number) => number.into(),
        None => {
            name.parse::<i64>().map_err(|_| format!("{text} is not a result of an operation"))?
        }
    };
    let exit = sign * number;
    // A rule that never matches would look like evidence of silence.
    if !possible_results().any(|result| compare.holds(result, exit)) {
        return Err(format!(
            "no operation has a result with exit {} {text}: results are 0 or negative, for example -EACCES",
            compare.sign()
        ));
    }
    Ok(Condition::Exit(compare, exit))
}

fn client(equal: bool, text: &str) -> Result<Condition, String> {
    let (address, bits) =
        text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let Ok(address) = address.parse::<IpAddr>() else {
        return match bits {
            // A host name never ends in a number (RFC 3696 §2) and contains no colon.
            None if text.contains(':')
                || (text.contains('.')
                    && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')) =>
            {
                Err(format!("{text} is not a valid address"))
            }
            // This pattern could only match addresses.
            None if text.contains('.')
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'*'))
                && text != "*.*" =>
            {
                Err(format!(
                    "{text} matches addresses, but * is for names only: use a network, for example 10.1.0.0/16"
                ))
            }
            None => Ok(Condition::Client(equal, text.to_ascii_lowercase().into_bytes().into())),
            Some(_) => {
                Err(format!("{text} is neither a host name nor a network, for example 10.1.0.0/16"))
            }
        };
    };
    let all = if address.is_ipv4() { 32 } else { 128 };
    // Records have IPv4 clients of an IPv6 socket as IPv4.
    let address = if bits.is_none() { address.to_canonical() } else { address };
    let bits = match bits {
        None if address.is_ipv4() => 32,
        None => all,
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= all).ok_or_else(|| {
            format!("{text}: the prefix length must be 0 to {all}, for example 10.1.0.0/16")
        })?,
    };
    Ok(Condition::Network(equal, address, bits))
}
