use vouch_audit::operations::number;
use vouch_audit::record::{Class, Refusal, access};
use vouch_audit::rules::Rules;
use vouch_audit::{Record, operations};
use vouch_nfs4_server::{
    Denial, Denied, Details, Export, Observation, Principal, Stage, requested,
};
use vouch_vfs::FileId;

use super::names::{Others, Paths};
use super::{
    Audit, BADHANDLE, MOVES, NAMING, PUTFH, PathSnapshot, Refused, SERVERFAULT, WRONGSEC, flavour,
    now_ns, principal, set_must_be_durable, transport,
};

const _: () = assert!(
    access::CREATE == requested::CREATE
        && access::TRUNCATE == requested::TRUNCATE
        && access::UNOPENED == requested::UNOPENED
        && access::MODE == requested::MODE
        && access::OWNER == requested::OWNER
        && access::ACL == requested::ACL
        && access::TIMES == requested::TIMES
        && access::OTHER == requested::OTHER
        && access::TYPE_SHIFT == requested::TYPE_SHIFT
);

impl Audit {
    pub(super) fn operation(&self, seen: &Observation<'_>) {
        let operation = u16::try_from(seen.op).unwrap_or(u16::MAX);
        let refused = match (operation, seen.status) {
            (PUTFH, BADHANDLE) => {
                Some((Refusal::Handle, "a filehandle that was never given out".to_owned()))
            }
            (_, WRONGSEC) => Some((Refusal::Flavour, self.operation_and_name(operation, seen))),
            _ => None,
        };
        if let Some((why, detail)) = refused {
            let export = seen
                .details
                .as_ref()
                .and_then(|details| details.export)
                .map_or("", |export| &*export.source);
            let refused = Refused {
                export,
                detail: &detail,
                enctype: seen.enctype,
                ..Refused::of(why, seen.connection)
            };
            self.refuse(&refused.by(seen.flavour, seen.principal));
        }
        let Some(details) = &seen.details else { return };
        self.rules.with(|rules| self.record(operation, seen, details, rules));
        self.save_moved_paths();
        if seen.status == 0 && MOVES.contains(&operation) {
            self.names.moved.wait();
        }
    }

    fn operation_and_name(&self, operation: u16, seen: &Observation<'_>) -> String {
        let name = seen
            .details
            .as_ref()
            .and_then(|details| details.arguments.name)
            .map(String::from_utf8_lossy);
        let operation = operations::name(operation);
        name.map_or_else(|| operation.to_owned(), |name| format!("{operation} {name:?}"))
    }

    pub(super) fn denied(&self, denied: &Denied<'_>) {
        let detail = match denied.why {
            Denial::Client => "the export is not for this client",
            Denial::Port => "the export is for callers from a port below 1024 only",
            // The operation itself is recorded, with WRONGSEC.
            Denial::Transport => return,
            Denial::Caller => "the caller has no account here",
            Denial::NameService => {
                "the name service does not answer, and the caller is not cached: NFS4ERR_DELAY"
            }
        };
        let refused = Refused {
            export: &denied.export.source,
            detail,
            enctype: denied.enctype,
            ..Refused::of(Refusal::Client, denied.connection)
        };
        self.refuse(&refused.by(denied.flavour, denied.principal));
    }

    fn record(&self, operation: u16, seen: &Observation<'_>, details: &Details<'_>, rules: &Rules) {
        let is_recorded = rules.may_record(operation);
        if !is_recorded && !NAMING.contains(&operation) {
            return;
        }
        let noted = details.note.and_then(|noted| noted.downcast_ref::<PathSnapshot>());
        let (found, path);
        let paths = if let Some(noted) = noted {
            FilePaths::of(&noted.paths)
        } else if let Some((export, file)) = used(operation, seen, details, rules) {
            path = self.names.path(export, file);
            FilePaths {
                path: &path,
                new_path: b"",
                file: Some(file),
                others: &Others::NONE,
                new_others: &Others::NONE,
            }
        } else {
            found = self.names.paths(seen, details, rules);
            FilePaths::of(&found)
        };
        if !is_recorded {
            return;
        }
        let name = self.hosts.name(seen.connection.peer().ip().to_canonical());
        let client = name.as_ref().map_or(&b""[..], |name| name.as_bytes());
        let time_ns = noted.map_or_else(now_ns, |noted| noted.time_ns);
        let mut record = operation_record(operation, seen, details, &paths, client, time_ns);
        let Some((key, by)) = select(rules, &record, paths.others, paths.new_others) else {
            return;
        };
        let is_named = details.arguments.name.is_some()
            || details.arguments.new_name.is_some()
            || !paths.new_path.is_empty();
        let detail = detail(&record, details, by, is_named);
        if let MatchedName::Link(other) = by
            && !is_named
        {
            record.path = other;
        }
        (record.key, record.detail) = (key, detail.as_bytes());
        // SERVERFAULT refuses an operation that cannot be recorded.
        let must_be_durable = self.denies
            && seen.status != SERVERFAULT
            && seen.export.is_some_and(|export| self.denied.read().contains(&export));
        match must_be_durable {
            true => {
                set_must_be_durable(true);
                self.trail.record_and_wait(&record)
            }
            false => self.trail.record(&record),
        };
    }
}

fn operation_record<'r>(
    operation: u16,
    seen: &'r Observation<'_>,
    details: &'r Details<'_>,
    paths: &FilePaths<'r>,
    client: &'r [u8],
    time_ns: u64,
) -> Record<'r> {
    let peer = seen.connection.peer();
    let (uid, gid) = match (details.caller, seen.principal) {
        (Some(caller), _) => (Some(caller.uid), Some(caller.gid)),
        (None, Principal::Sys { uid, gid, .. }) => (Some(*uid), Some(*gid)),
        (None, _) => (None, None),
    };
    let is_data =
        matches!(operation, number::READ | number::READ_PLUS | number::WRITE | number::COPY)
            && details.stage != Stage::Started;
    let done = |bytes: u64| (bytes > 0 || is_data).then_some(bytes);
    let mut record = Record {
        time_ns,
        class: Class::Operation,
        operation,
        flavour: flavour(seen.flavour),
        minor: u8::try_from(seen.minor).unwrap_or(u8::MAX),
        result: seen.status,
        principal: principal(seen.principal).as_bytes(),
        enctype: seen.enctype,
        uid,
        gid,
        address: Some(peer.ip()),
        port: Some(peer.port()),
        client,
        export: details.export.map_or(&b""[..], |export| export.source.as_bytes()),
        path: paths.path,
        path2: paths.new_path,
        file: paths.file.map_or(&b""[..], |file| file.as_bytes()),
        requested: details.arguments.access,
        granted: details.granted,
        offset: details.arguments.offset,
        read: done(seen.bytes_read),
        written: done(seen.bytes_written),
        connection: Some(seen.connection.id().0),
        xid: Some(seen.xid),
        mode: details.arguments.mode,
        ..transport(seen.connection)
    };
    if let Some(totals) = details.totals {
        record.read = Some(totals.read);
        record.written = Some(totals.written);
        record.open_ns = Some(totals.open_ms.saturating_mul(1_000_000));
    }
    record
}

struct FilePaths<'p> {
    path: &'p [u8],
    new_path: &'p [u8],
    file: Option<&'p FileId>,
    others: &'p Others,
    new_others: &'p Others,
}

impl<'p> FilePaths<'p> {
    fn of(paths: &'p Paths) -> Self {
        let Paths { path, new_path, file, others, new_others } = paths;
        FilePaths { path, new_path, file: file.as_ref(), others, new_others }
    }
}

/// The operation has no names, and no rule needs other names.
fn used<'o>(
    operation: u16,
    seen: &Observation<'o>,
    details: &Details<'o>,
    rules: &Rules,
) -> Option<(&'o Export, &'o FileId)> {
    let is_plain = details.arguments.name.is_none()
        && details.arguments.new_name.is_none()
        && !rules.has_path_rules();
    (is_plain && USES.contains(&operation)).then_some(details.export.zip(seen.file)).flatten()
}

const USES: [u16; 6] =
    [number::READ, number::WRITE, number::GETATTR, number::CLOSE, number::ACCESS, number::COMMIT];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchedName<'p> {
    Path,
    Link(&'p [u8]),
    Former(&'p [u8]),
    Unknown,
}

/// Rules apply to all names of a file, and to directories wherever they moved.
pub(super) fn select<'r, 'p>(
    rules: &'r Rules,
    record: &Record<'_>,
    others: &'p Others,
    new_others: &'p Others,
) -> Option<(&'r [u8], MatchedName<'p>)> {
    if let Some(key) = rules.select(record) {
        return Some((key, MatchedName::Path));
    }
    let by_old = |by: MatchedName<'p>, path: &'p [u8]| {
        rules.select(&Record { path, ..record.clone() }).map(|key| (key, by))
    };
    let by_new = |by: MatchedName<'p>, path2: &'p [u8]| {
        rules.select(&Record { path2, ..record.clone() }).map(|key| (key, by))
    };
    by_any(others, by_old).or_else(|| by_any(new_others, by_new))
}

fn by_any<'p, T>(
    others: &'p Others,
    mut is_by: impl FnMut(MatchedName<'p>, &'p [u8]) -> Option<T>,
) -> Option<T> {
    let links = others.links.iter().map(|path| (MatchedName::Link(path), &**path));
    let former = others.former.iter().map(|path| (MatchedName::Former(path), &**path));
    let unknown = others.are_more.then_some((MatchedName::Unknown, &b""[..]));
    links.chain(former).chain(unknown).find_map(|(by, path)| is_by(by, path))
}

fn detail(record: &Record<'_>, about: &Details<'_>, by: MatchedName<'_>, is_named: bool) -> String {
    // Most operations have no detail and allocate nothing.
    let sets = match record.operation {
        number::OPEN => 0,
        _ => record.requested.unwrap_or(0),
    };
    let empties = record.operation == number::OPEN
        && record.granted.is_some_and(|granted| granted & access::TRUNCATE != 0);
    let is_known =
        record.export.is_empty() || (!record.path.is_empty() && !Rules::is_partial(record.path));
    if !empties
        && access::changes_nothing(sets)
        && is_known
        && about.stage == Stage::Whole
        && by == MatchedName::Path
    {
        return String::new();
    }
    let mut detail = if empties {
        "empties the file".to_owned()
    } else {
        access::describe_changes(sets, record.mode, about.new_owner)
    };
    let mut say = |part: &str| {
        if !detail.is_empty() && !part.is_empty() {
            detail.push_str("; ");
        }
        detail.push_str(part);
    };
    say(match about.stage {
        Stage::Whole => "",
        Stage::Started => "continues in the background",
        Stage::Ended => "ended in the background",
        Stage::Stopped => "stopped in the background before its end",
    });
    say(&by.detail(record.path, is_named));
    if !record.export.is_empty() {
        if record.path.is_empty() && !matches!(by, MatchedName::Link(_)) {
            say("its path is not known");
        } else if Rules::is_partial(record.path) {
            say("its path is not known in part");
        }
    }
    detail
}

impl MatchedName<'_> {
    /// A matching link replaces `used` if the call had no name.
    pub(super) fn detail(self, used: &[u8], is_named: bool) -> String {
        let quoted = |path: &[u8]| format!("{:?}", String::from_utf8_lossy(path));
        match self {
            MatchedName::Path => String::new(),
            MatchedName::Link(other) => {
                format!("also named {}", quoted(if is_named { other } else { used }))
            }
            MatchedName::Former(former) => format!("was {} before a rename", quoted(former)),
            MatchedName::Unknown => "it may have another name, which is not known".into(),
        }
    }
}
