use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use vouch_audit::operations;
use vouch_audit::record::access::parse_words;
use vouch_audit::record::{Class, truncate_path};
use vouch_audit::rules::Field;
use vouch_audit::trail::{
    Alternatives, FileHistory, FileSeed, Outcome as Done, Query, SearchMode, file_history,
};
use vouch_daemon::audit_trail::System;

use crate::exit::{At as _, Failure, Outcome};
use crate::when;

/// Select records; all given conditions must hold.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Filter {
    /// From this date (`2027-11-21`) or time (`2027-11-21T10:00:00.5Z`, as in records), or this
    /// long ago (`2h`).
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    from: Option<u64>,
    /// Before this date or time, or this long ago.
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    until: Option<u64>,
    /// Kerberos principal; `*` stands for any text.
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<OsString>,
    /// User whose rights were used, by number or name.
    #[arg(long, value_name = "USER")]
    uid: Option<String>,
    /// Login user, like `auid` in rules: of a mount, the user who logged in; of a client, the user
    /// whose rights were used.
    #[arg(long, alias = "login", value_name = "USER")]
    auid: Option<String>,
    /// Path on the server, either side of a rename or link. Names may be given as they are, or as
    /// records show them (a byte as `\xff`).
    #[arg(long, value_name = "PATH")]
    path: Option<OsString>,
    /// This directory and everything below it.
    #[arg(long, value_name = "DIR")]
    below: Option<OsString>,
    /// File identity in hexadecimal, as in records.
    #[arg(long, value_name = "HEX")]
    file: Option<String>,
    /// Directory of the export on the server, as in records, not the path that clients mount; of a
    /// published tree, `tree:NAME`.
    #[arg(long, value_name = "PATH")]
    export: Option<OsString>,
    /// Address, network (`10.1.0.0/16`) or name of the client; `*` in a name stands for any text.
    #[arg(long, value_name = "HOST")]
    client: Option<OsString>,
    /// NFS operation or system call; may be repeated.
    #[arg(long, short = 'S', value_name = "OPERATION")]
    operation: Vec<String>,
    /// `success`, `failure`, an error (`ENOENT`, or `-ENOENT` as in rules), or a status number.
    #[arg(long, value_name = "RESULT", value_parser = result, allow_hyphen_values = true)]
    result: Option<Done>,
    /// Access that the operation asked for, as results show it: read, write, create, truncate, …;
    /// with commas: all of them.
    #[arg(long, value_name = "WORDS", value_parser = access)]
    access: Option<u32>,
    /// A field as in rules: `flavour=krb5p`, `perm=w`, `exit=-EACCES`, `gid>=1000`; may be repeated.
    #[arg(long, short = 'F', value_name = "FIELD")]
    field: Vec<OsString>,
    /// Key of the rule that selected the record.
    #[arg(long, short, value_name = "KEY")]
    key: Option<OsString>,
    /// Class of records: operation, refusal, administrative, gap or host.
    #[arg(long, value_name = "CLASS", value_parser = class)]
    class: Option<Class>,
}

impl Filter {
    /// The likely mistake of a search without a match.
    pub(super) fn hint(&self) -> &'static str {
        match &self.export {
            Some(_) => {
                "; --export takes the directory on the server, not the path that clients mount"
            }
            None => "",
        }
    }

    pub(super) fn query(
        &self,
        directory: &Path,
        follows_names: bool,
        reading: SearchMode,
    ) -> Outcome<Query> {
        let forms = |text: &Option<OsString>| {
            text.as_ref()
                .filter(|text| !text.is_empty())
                .map_or_else(Vec::new, |text| forms(text.as_bytes()))
        };
        let file = match &self.file {
            Some(text) => data_encoding::HEXLOWER_PERMISSIVE
                .decode(text.as_bytes())
                .map_err(|error| Failure::input(text, error))?,
            None => Vec::new(),
        };
        let mut operations = None;
        for word in &self.operation {
            let set = operations::parse_operations(word).ok_or_else(|| {
                Failure::input(
                    word,
                    "is neither an NFS operation nor a system call that corresponds to one",
                )
            })?;
            *operations.get_or_insert(0) |= set;
        }
        let mut fields = self
            .field
            .iter()
            .map(|word| rule_field("--field", word.as_bytes()))
            .collect::<Outcome<Vec<_>>>()?;
        let (client, principal) = (named(&self.client), named(&self.principal));
        if let Some(client) = client {
            // A network never equals a record's client, and a wrong address would find nothing.
            let field = rule_field("--client", &[b"client=", client].concat())?;
            fields.extend((client.contains(&b'/') || client.contains(&b'*')).then_some(field));
        }
        let is_pattern = |name: &[u8]| name.contains(&b'*');
        if let Some(principal) = principal.filter(|name| is_pattern(name)) {
            fields.push(rule_field("--principal", &[b"principal=", principal].concat())?);
        }
        let mut query = Query {
            fields,
            access: self.access.unwrap_or(0),
            from_ns: self.from,
            until_ns: self.until,
            principal: if principal.is_some_and(is_pattern) {
                Vec::new()
            } else {
                forms(&self.principal)
            },
            uid: self.uid.as_deref().map(user).transpose()?,
            auid: self.auid.as_deref().map(user).transpose()?,
            path: paths("--path", forms(&self.path))?
                .iter()
                .map(|path| truncate_path(path).into_owned())
                .collect(),
            below: paths("--below", forms(&self.below))?,
            file,
            export: export(forms(&self.export))?,
            client: client.map_or_else(Vec::new, client_forms),
            operations,
            class: self.class,
            outcome: self.result,
            key: forms(&self.key),
            ..Query::default()
        };
        if follows_names {
            let seeds: Vec<FileSeed<'_>> = match &query.file[..] {
                [] => query.path.iter().map(|path| FileSeed::Path(path)).collect(),
                file => vec![FileSeed::File(file)],
            };
            if seeds.is_empty() {
                return Err(Failure::usage("--renames", "give the file by --path or --file"));
            }
            let mut names = FileHistory::default();
            for seed in seeds {
                let found = file_history(directory, reading, seed).at(directory.display())?;
                names.spans.extend(found.spans);
                names.files.extend(found.files);
            }
            query.names = Some(names);
            query.path.clear();
            query.file.clear();
        }
        Ok(query)
    }
}

/// The name itself, since names may have backslashes, and the bytes that it stands for.
fn forms(name: &[u8]) -> Alternatives {
    let mut forms = vec![name.to_vec(), as_shown(name)];
    forms.dedup();
    forms
}

fn named(text: &Option<OsString>) -> Option<&[u8]> {
    text.as_ref().map(|text| text.as_bytes()).filter(|text| !text.is_empty())
}

fn rule_field(option: &str, word: &[u8]) -> Outcome<Field> {
    Field::parse(word, &System).map_err(|why| Failure::usage(option, why))
}

/// Names of clients are recorded in lower case, and that of a host as it is.
fn client_forms(client: &[u8]) -> Alternatives {
    if client.contains(&b'/') || client.contains(&b'*') {
        return Vec::new();
    }
    let mut forms = forms(client);
    let address = std::str::from_utf8(client).ok().and_then(|text| text.parse::<IpAddr>().ok());
    let canonical = address.map(|address| address.to_canonical().to_string().into_bytes());
    for form in [Some(client.to_ascii_lowercase()), canonical].into_iter().flatten() {
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

/// Records have absolute paths without `//`, `/./` and a slash at the end.
fn paths(option: &str, forms: Alternatives) -> Outcome<Alternatives> {
    forms.into_iter().map(|path| normal(option, &path)).collect()
}

/// Also the name of a tree, as records of mounts have it.
fn export(forms: Alternatives) -> Outcome<Alternatives> {
    forms
        .into_iter()
        .map(|name| if name.starts_with(b"/") { normal("--export", &name) } else { Ok(name) })
        .collect()
}

fn normal(option: &str, path: &[u8]) -> Outcome<Vec<u8>> {
    if !path.starts_with(b"/") {
        return Err(Failure::usage(option, "records have absolute paths")
            .cure("begin with / and the directory of the export"));
    }
    let names: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&&b".."[..]) {
        return Err(Failure::usage(option, "records have paths without `..`")
            .cure("give the path that it stands for"));
    }
    Ok([b"/", &names.join(&b'/')[..]].concat())
}

/// `\xff` for a byte, and a backslash before a backslash or quote.
fn as_shown(name: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(name.len()), name);
    while let Some((byte, behind)) = rest.split_first() {
        let escaped = match behind {
            [b'x', high, low, behind @ ..] => {
                data_encoding::HEXLOWER.decode(&[*high, *low]).ok().map(|byte| (byte[0], behind))
            }
            [marked @ (b'\\' | b'"'), behind @ ..] => Some((*marked, behind)),
            _ => None,
        };
        let (byte, behind) = escaped.filter(|_| *byte == b'\\').unwrap_or((*byte, behind));
        bytes.push(byte);
        rest = behind;
    }
    bytes
}

fn instant(text: &str) -> Result<u64, String> {
    match when::parse_duration(text) {
        Ok(ago) if text.ends_with(|c: char| c.is_ascii_alphabetic()) && !text.contains('T') => {
            let seconds = when::now_s().saturating_sub(ago.as_secs());
            seconds.checked_mul(1_000_000_000).ok_or_else(|| "is too far in the future".into())
        }
        _ => when::parse_date_ns(text),
    }
}

fn result(text: &str) -> Result<Done, String> {
    match text {
        "success" => Ok(Done::Success),
        "failure" => Ok(Done::Failure),
        _ => {
            let errno = text.strip_prefix('-').unwrap_or(text);
            match (operations::errno_of_name(errno), errno.parse()) {
                (Some(errno), _) => Ok(Done::Errno(errno)),
                (None, Ok(errno)) if text.starts_with('-') => Ok(Done::Errno(errno)),
                _ => text.parse().map(Done::Is).map_err(|_| {
                    "give success, failure, an error such as ENOENT, or a status number".into()
                }),
            }
        }
    }
}

fn access(text: &str) -> Result<u32, String> {
    parse_words(text).ok_or_else(|| {
        "give read, lookup, write, append, delete, execute, create, truncate, unopened, mode, owner, acl, times, other or new".into()
    })
}

fn class(text: &str) -> Result<Class, String> {
    Class::ALL
        .iter()
        .copied()
        .find(|class| class.name() == text)
        .ok_or_else(|| "give operation, refusal, administrative, gap or host".into())
}

fn user(text: &str) -> Outcome<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let found = nix::unistd::User::from_name(text).map_err(std::io::Error::from).at(text)?;
    found
        .map(|user| user.uid.as_raw())
        .ok_or_else(|| Failure::not_found(text, "unknown user; give the number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct FilterCommand {
        #[command(flatten)]
        filter: Filter,
    }

    fn query(option: &str, value: &[u8]) -> Query {
        let words = ["vouch".as_ref(), option.as_ref(), std::ffi::OsStr::from_bytes(value)];
        let parsed = <FilterCommand as clap::Parser>::try_parse_from(words)
            .unwrap_or_else(|error| panic!("{error}"));
        parsed
            .filter
            .query(Path::new("/nowhere"), false, SearchMode::Scan)
            .unwrap_or_else(|_| panic!("{option} is taken"))
    }

    #[test]
    fn names_match_as_they_are_and_as_shown() {
        for name in [
            &b"/srv/x\xff\xfe"[..],
            b"/srv/plain",
            b"/srv/a\"b\\c\n\x1b[2J",
            b"/srv/\\x41",
            "/srv/\u{202e}\u{e9}".as_bytes(),
        ] {
            let shown = vouch_daemon::printable::quoted(name);
            let forms = query("--path", &shown.as_bytes()[1..shown.len() - 1]).path;
            assert!(forms.iter().any(|form| form == name), "{shown}");
        }
        assert_eq!(query("--below", b"/srv/x\xff\xfe").below, [b"/srv/x\xff\xfe"]);
        let unit = [&b"/a\\x2db"[..], b"/a-b"];
        assert_eq!(query("--client", b"a\\x2db").client, [&b"a\\x2db"[..], b"a-b"]);
        for option in ["--path", "--below", "--export", "--key", "--principal"] {
            let built = query(option, unit[0]);
            for (name, is_meant) in [(unit[0], true), (unit[1], true), (b"/a_b", false)] {
                let record = vouch_audit::Record {
                    path: name,
                    export: name,
                    key: name,
                    principal: name,
                    ..Default::default()
                };
                assert_eq!(built.matches(&record), is_meant, "{option}");
            }
        }
        for plain in [&b"/srv/a\\b"[..], b"/srv/\\xg0", b"/srv/\\x4", b"/srv/a\\"] {
            assert_eq!(query("--path", plain).path, [plain]);
        }
    }

    #[test]
    fn spellings_of_rules_select_or_are_refused() {
        let record = vouch_audit::Record {
            class: Class::Operation,
            operation: operations::number::OPEN,
            path: b"/srv/data/plan",
            export: b"/srv/data",
            client: b"c1.example.org",
            principal: b"alice@EXAMPLE.ORG",
            address: "127.0.0.1".parse().ok(),
            result: 10001,
            requested: parse_words("write,create"),
            ..Default::default()
        };
        for (option, value, is_meant) in [
            ("--path", "/srv/data/plan/", true),
            ("--path", "//srv/./data//plan", true),
            ("--path", "/srv/data", false),
            ("--below", "/srv/data/", true),
            ("--export", "/srv/data/", true),
            ("--client", "127.0.0.0/8", true),
            ("--client", "10.0.0.0/8", false),
            ("--client", "127.0.0.1", true),
            ("--client", "::ffff:127.0.0.1", true),
            ("--field", "client=::ffff:127.0.0.1", true),
            ("--client", "::ffff:127.0.0.2", false),
            ("--client", "*.example.org", true),
            ("--client", "C1.Example.ORG", true),
            ("--principal", "alice@*", true),
            ("--principal", "bob@*", false),
            ("--result", "ESTALE", true),
            ("--result", "-ESTALE", true),
            ("--result", "-116", true),
            ("--result", "10001", true),
            ("--result", "ENOENT", false),
            ("--access", "create", true),
            ("--access", "write,create", true),
            ("--access", "read,create", false),
            ("--field", "exit=-ESTALE", true),
            ("--field", "perm=w", true),
            ("--field", "flavour=krb5", false),
        ] {
            assert_eq!(
                query(option, value.as_bytes()).matches(&record),
                is_meant,
                "{option} {value}"
            );
        }
        for (option, value) in [
            ("--path", "srv/data"),
            ("--below", "."),
            ("--path", "/srv/../etc"),
            ("--client", "127.0.0"),
            ("--client", "127.0.0.0/33"),
            ("--client", "srv/8"),
            ("--field", "colour=red"),
            ("--field", "key=k"),
        ] {
            let words = ["vouch", option, value];
            let parsed = <FilterCommand as clap::Parser>::try_parse_from(words)
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(
                parsed.filter.query(Path::new("/nowhere"), false, SearchMode::Scan).is_err(),
                "{option} {value}"
            );
        }
    }

    #[test]
    fn long_path_is_found_by_all_of_it() {
        let path = [b"/srv", &b"/d".repeat(3000)[..], b"/f"].concat();
        let mut bytes = Vec::new();
        vouch_audit::Record { path: &path, ..Default::default() }.encode(&mut bytes);
        let mut scratch = Vec::new();
        let record = vouch_audit::Record::decode(&bytes, &mut scratch).unwrap();
        assert!(record.path.len() < path.len() && query("--path", &path).matches(&record));
        assert!(!query("--path", &[&path[..], b"2"].concat()).matches(&record));
    }

    #[test]
    fn record_times_are_accepted() {
        let ns = 1_795_392_211_879_137_000;
        assert_eq!(instant(&vouch_audit_pipeline::record_text::time(ns)), Ok(ns));
        assert_eq!(instant("1970-01-01T00:00:01.000000002Z"), Ok(1_000_000_002));
        assert!(instant("1969-12-31T23:59:59.9Z").is_err_and(|why| why.contains("before 1970")));
        assert!(
            instant("9999-01-01T00:00:00Z").is_err_and(|why| why.contains("too far in the future"))
        );
    }

    #[test]
    fn times_are_dates_instants_or_ages() {
        assert_eq!(instant("1970-01-02"), Ok(86_400_000_000_000));
        assert_eq!(instant("1970-01-01T00:00:01Z"), Ok(1_000_000_000));
        assert!(instant("2h").is_ok_and(|ns| ns > instant("2020-01-01").unwrap()));
        assert!(instant("yesterday").is_err());
    }
}
