//! An operation becomes a record: what is known of it, which rule keeps it, and what there is to
//! say in words.

use vouch_audit::operations::number;
use vouch_audit::record::{Class, Refusal, access};
use vouch_audit::rules::Rules;
use vouch_audit::{Record, operations};
use vouch_nfs4_server::{Denial, Denied, Details, Export, Observation, Principal, Stage, requested};
use vouch_vfs::FileId;

use super::names::{Others, Paths};
use super::{Audit, BADHANDLE, MOVES, NAMING, Noted, PUTFH, Refused, SERVERFAULT, WRONGSEC, flavour, now_ns, principal, set_must_be_kept};

/// What the engine says was asked and granted goes into records as it is.
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
    /// What the engine tells.
    pub(super) fn operation(&self, seen: &Observation<'_>) {
        let operation = u16::try_from(seen.op).unwrap_or(u16::MAX);
        let refused = match (operation, seen.status) {
            (PUTFH, BADHANDLE) => Some((Refusal::Handle, "a filehandle that was never given out".to_owned())),
            (_, WRONGSEC) => Some((Refusal::Flavour, self.asked_for(operation, seen))),
            _ => None,
        };
        if let Some((why, detail)) = refused {
            let export = seen.details.as_ref().and_then(|details| details.export).map_or("", |export| &*export.source);
            let refused = Refused { export, detail: &detail, enctype: seen.enctype, ..Refused::of(why, seen.connection) };
            self.refuse(&refused.by(seen.flavour, seen.principal));
        }
        let Some(told) = &seen.details else { return };
        self.rules.with(|rules| self.record(operation, seen, told, rules));
        self.keep_moved();
        if seen.status == 0 && MOVES.contains(&operation) {
            // Before it is answered.
            self.names.moved.wait();
        }
    }

    /// Of what was refused for its flavour: the operation, and the name.
    fn asked_for(&self, operation: u16, seen: &Observation<'_>) -> String {
        let name = seen.details.as_ref().and_then(|details| details.arguments.name).map(String::from_utf8_lossy);
        let operation = operations::name(operation);
        name.map_or_else(|| operation.to_owned(), |name| format!("{operation} {name:?}"))
    }

    /// An export was asked for by somebody whom it is not for.
    pub(super) fn denied(&self, denied: &Denied<'_>) {
        let detail = match denied.why {
            Denial::Client => "the export is not for this client",
            Denial::Port => "the export is for callers from a port below 1024 only",
            Denial::Caller => "who calls is nobody here",
        };
        let refused =
            Refused { export: &denied.export.source, detail, enctype: denied.enctype, ..Refused::of(Refusal::Client, denied.connection) };
        self.refuse(&refused.by(denied.flavour, denied.principal));
    }

    fn record(&self, operation: u16, seen: &Observation<'_>, told: &Details<'_>, rules: &Rules) {
        let peer = seen.connection.peer();
        let is_recorded = rules.may_record(operation);
        if !is_recorded && !NAMING.contains(&operation) {
            return;
        }
        let noted = told.note.and_then(|noted| noted.downcast_ref::<Noted>());
        let (found, path);
        let paths = if let Some(noted) = noted {
            About::of(&noted.paths)
        } else if let Some((export, file)) = used(operation, seen, told, rules) {
            path = self.names.path(export, file);
            About { path: &path, new_path: b"", file: Some(file), others: &Others::NONE, new_others: &Others::NONE }
        } else {
            found = self.names.paths(seen, told, rules);
            About::of(&found)
        };
        if !is_recorded {
            return;
        }
        let (uid, gid) = match (told.caller, seen.principal) {
            (Some(caller), _) => (Some(caller.uid), Some(caller.gid)),
            (None, Principal::Sys { uid, gid, .. }) => (Some(*uid), Some(*gid)),
            (None, _) => (None, None),
        };
        let is_data = matches!(operation, number::READ | number::READ_PLUS | number::WRITE | number::COPY) && told.stage != Stage::Begun;
        let done = |bytes: u64| (bytes > 0 || is_data).then_some(bytes);
        let name = self.hosts.name(peer.ip().to_canonical());
        let mut record = Record {
            time_ns: noted.map_or_else(now_ns, |noted| noted.time_ns),
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
            client: name.as_ref().map_or(b"", |name| name.as_bytes()),
            export: told.export.map_or(&b""[..], |export| export.source.as_bytes()),
            path: paths.path,
            path2: paths.new_path,
            file: paths.file.map_or(&b""[..], |file| file.as_bytes()),
            requested: told.arguments.access,
            granted: told.granted,
            offset: told.arguments.offset,
            read: done(seen.bytes_read),
            written: done(seen.bytes_written),
            connection: Some(seen.connection.id().0),
            xid: Some(seen.xid),
            mode: told.arguments.mode,
            ..Record::default()
        };
        if let Some(totals) = told.totals {
            record.read = Some(totals.read);
            record.written = Some(totals.written);
            record.open_ns = Some(totals.open_ms.saturating_mul(1_000_000));
        }
        let Some((key, by)) = select(rules, &record, paths.others, paths.new_others) else { return };
        let is_named = told.arguments.name.is_some() || told.arguments.new_name.is_some() || !paths.new_path.is_empty();
        let detail = detail(&record, told, by, is_named);
        if let By::Link(other) = by
            && !is_named
        {
            record.path = other;
        }
        (record.key, record.detail) = (key, detail.as_bytes());
        // What was refused, since it could not be recorded, is not held for that; and what an operation is
        // admitted by is where it began.
        let must_be_kept =
            self.denies && seen.status != SERVERFAULT && seen.export.is_some_and(|export| self.denied.read().contains(&export));
        match must_be_kept {
            true => {
                set_must_be_kept(true);
                self.trail.record_and_wait(&record)
            }
            false => self.trail.record(&record),
        };
    }
}

/// What is known of the files of an operation, as [`Paths`] has it.
struct About<'p> {
    path: &'p [u8],
    new_path: &'p [u8],
    file: Option<&'p FileId>,
    others: &'p Others,
    new_others: &'p Others,
}

impl<'p> About<'p> {
    fn of(paths: &'p Paths) -> Self {
        let Paths { path, new_path, file, others, new_others } = paths;
        About { path, new_path, file: file.as_ref(), others, new_others }
    }
}

/// The file of an operation that names none and is about one alone, where it doesn't matter what
/// else that is called: of most, nothing more has to be found out.
fn used<'o>(operation: u16, seen: &Observation<'o>, told: &Details<'o>, rules: &Rules) -> Option<(&'o Export, &'o FileId)> {
    let is_plain = told.arguments.name.is_none() && told.arguments.new_name.is_none() && !rules.has_path_rules();
    (is_plain && USES.contains(&operation)).then_some(told.export.zip(seen.file)).flatten()
}

/// Operations that are about the current file and no other.
const USES: [u16; 6] = [number::READ, number::WRITE, number::GETATTR, number::CLOSE, number::ACCESS, number::COMMIT];

/// By which of its names an operation was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By<'p> {
    /// The one that it was used by.
    Use,
    /// Another link.
    Link(&'p [u8]),
    /// What it was called before it was moved.
    Former(&'p [u8]),
    /// One that it may have.
    Unknown,
}

/// The key with which it is kept, and by which name. Rules are asked about each of a file's names:
/// who watches a file means it under all its names, and a directory wherever it is moved to.
pub(super) fn select<'r, 'p>(
    rules: &'r Rules,
    record: &Record<'_>,
    others: &'p Others,
    new_others: &'p Others,
) -> Option<(&'r [u8], By<'p>)> {
    if let Some(key) = rules.select(record) {
        return Some((key, By::Use));
    }
    let by_old = |by: By<'p>, path: &'p [u8]| rules.select(&Record { path, ..record.clone() }).map(|key| (key, by));
    let by_new = |by: By<'p>, path2: &'p [u8]| rules.select(&Record { path2, ..record.clone() }).map(|key| (key, by));
    by_any(others, by_old).or_else(|| by_any(new_others, by_new))
}

fn by_any<'p, T>(others: &'p Others, mut is_by: impl FnMut(By<'p>, &'p [u8]) -> Option<T>) -> Option<T> {
    let links = others.links.iter().map(|path| (By::Link(path), &**path));
    let former = others.former.iter().map(|path| (By::Former(path), &**path));
    let unknown = others.are_more.then_some((By::Unknown, &b""[..]));
    links.chain(former).chain(unknown).find_map(|(by, path)| is_by(by, path))
}

fn detail(record: &Record<'_>, about: &Details<'_>, by: By<'_>, is_named: bool) -> String {
    // Of most operations there is nothing to say, and nothing is allocated.
    let sets = match record.operation {
        number::OPEN => 0,
        _ => record.requested.unwrap_or(0),
    };
    let empties = record.operation == number::OPEN && record.granted.is_some_and(|granted| granted & access::TRUNCATE != 0);
    let is_known = record.export.is_empty() || (!record.path.is_empty() && !Rules::is_partial(record.path));
    if !empties && access::changes_nothing(sets) && is_known && about.stage == Stage::Whole && by == By::Use {
        return String::new();
    }
    let mut told = if empties { "empties the file".to_owned() } else { access::describe_changes(sets, record.mode, about.new_owner) };
    let mut say = |part: &str| {
        if !told.is_empty() && !part.is_empty() {
            told.push_str("; ");
        }
        told.push_str(part);
    };
    say(match about.stage {
        Stage::Whole => "",
        Stage::Begun => "goes on in the background",
        Stage::Ended => "ended in the background",
        Stage::Stopped => "stopped in the background before its end",
    });
    say(&by.told(record.path, is_named));
    if !record.export.is_empty() {
        if record.path.is_empty() && !matches!(by, By::Link(_)) {
            say("its path is not known");
        } else if Rules::is_partial(record.path) {
            say("its path is not known in part");
        }
    }
    told
}

impl By<'_> {
    /// In words; `used`: the path that it was used by, which a link that no call named takes the
    /// place of.
    pub(super) fn told(self, used: &[u8], is_named: bool) -> String {
        let quoted = |path: &[u8]| format!("{:?}", String::from_utf8_lossy(path));
        match self {
            By::Use => String::new(),
            By::Link(other) => format!("also named {}", quoted(if is_named { other } else { used })),
            By::Former(former) => format!("was {} before a rename", quoted(former)),
            By::Unknown => "it may have another name, which is not known".into(),
        }
    }
}
