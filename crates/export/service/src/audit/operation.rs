use vouch_audit::operations::number;
use vouch_audit::record::{Class, Refusal, access};
use vouch_audit::rules::Rules;
use vouch_audit::{Record, operations};
use vouch_nfs4::Status;
use vouch_nfs4_server::{
    Arguments, CallOrigin, CompletedOp, Denial, EventPaths, Export, OpDetails, OtherNames,
    Principal, Stage, requested,
};

use super::{Audit, MOVES, NAMING, PUTFH, Refused, flavour, now_ns, principal, transport};

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
    /// True if the reply must wait until the record is stored.
    pub(super) fn operation(&self, origin: &CallOrigin, done: &CompletedOp<'_>) -> bool {
        let operation = operations::code(done.op);
        let refused = match (operation, done.status) {
            (PUTFH, Status::BADHANDLE) => {
                Some((Refusal::Handle, "a filehandle that was never given out".to_owned()))
            }
            (_, Status::WRONGSEC) => Some((Refusal::Flavour, operation_and_name(operation, done))),
            _ => None,
        };
        if let Some((why, detail)) = refused {
            // Without details, only the operation is of interest.
            let export = done.export_or_entered().filter(|_| done.arguments.is_some());
            let export = export.map_or("", |export| &*export.source);
            self.refuse(&Refused { export, detail: &detail, ..Refused::of_call(why, origin) });
        }
        let Some(arguments) = &done.arguments else { return false };
        let awaits =
            self.rules.with(|rules| self.record(operation, origin, done, arguments, rules));
        self.save_moved_paths();
        if done.status.is_ok() && MOVES.contains(&operation) {
            self.names.moved.wait();
        }
        awaits
    }

    pub(super) fn denied(&self, origin: &CallOrigin, export: &Export, why: Denial) {
        let detail = match why {
            Denial::Client => "the export is not for this client",
            Denial::Port => "the export is for callers from a port below 1024 only",
            // The operation itself is recorded, with WRONGSEC.
            Denial::Transport => return,
            Denial::Caller => "the caller has no account here",
            Denial::NameService => {
                "the name service does not answer, and the caller is not cached: NFS4ERR_DELAY"
            }
        };
        let export = &export.source;
        self.refuse(&Refused { export, detail, ..Refused::of_call(Refusal::Client, origin) });
    }

    fn record(
        &self,
        operation: u16,
        origin: &CallOrigin,
        done: &CompletedOp<'_>,
        arguments: &Arguments<'_>,
        rules: &Rules,
    ) -> bool {
        let is_recorded = rules.may_record(operation);
        if !is_recorded && !NAMING.contains(&operation) {
            return false;
        }
        let noted = done.details.paths.as_deref();
        let found;
        let paths = match noted {
            Some(noted) => noted,
            None => {
                found = self.paths_now(operation, done, arguments, rules);
                &found
            }
        };
        if !is_recorded {
            return false;
        }
        let name = self.hosts.name(origin.connection.peer().ip().to_canonical());
        let client = name.as_ref().map_or(&b""[..], |name| name.as_bytes());
        let time_ns = noted.map_or_else(now_ns, |noted| noted.time_ns);
        let mut record =
            operation_record(operation, origin, done, arguments, paths, client, time_ns);
        let Some((key, by)) = select(rules, &record, &paths.others, &paths.new_others) else {
            return false;
        };
        let is_named =
            arguments.name.is_some() || arguments.new_name.is_some() || !paths.new_path.is_empty();
        let detail = detail(&record, &done.details, by, is_named);
        if let MatchedName::Link(other) = by
            && !is_named
        {
            record.path = other;
        }
        (record.key, record.detail) = (key, detail.as_bytes());
        // SERVERFAULT refuses an operation that cannot be recorded.
        let must_be_stored = self.denies
            && done.status != Status::SERVERFAULT
            && done.export().is_some_and(|export| self.denied.read().contains(&export.id));
        match must_be_stored {
            true => self.trail.record_and_wait(&record),
            false => self.trail.record(&record),
        };
        must_be_stored
    }

    fn paths_now(
        &self,
        operation: u16,
        done: &CompletedOp<'_>,
        arguments: &Arguments<'_>,
        rules: &Rules,
    ) -> EventPaths {
        // The operation has no names, and no rule needs other names.
        let is_plain = arguments.name.is_none()
            && arguments.new_name.is_none()
            && !rules.has_path_rules()
            && USES.contains(&operation);
        match (done.export(), done.file()) {
            (Some(export), Some(file)) if is_plain => EventPaths {
                path: self.names.path(export, file).into(),
                file: Some(*file),
                ..EventPaths::default()
            },
            _ => self.names.paths(done, arguments, rules),
        }
    }
}

fn operation_and_name(operation: u16, done: &CompletedOp<'_>) -> String {
    let name = done.arguments.as_ref().and_then(|arguments| arguments.name.as_deref());
    let operation = operations::name(operation);
    name.map_or_else(
        || operation.to_owned(),
        |name| format!("{operation} {:?}", String::from_utf8_lossy(name)),
    )
}

fn operation_record<'r>(
    operation: u16,
    origin: &'r CallOrigin,
    done: &'r CompletedOp<'_>,
    arguments: &Arguments<'_>,
    paths: &'r EventPaths,
    client: &'r [u8],
    time_ns: u64,
) -> Record<'r> {
    let peer = origin.connection.peer();
    let details = &done.details;
    let (uid, gid) = match (done.caller(), &origin.principal) {
        (Some(caller), _) => (Some(caller.uid), Some(caller.gid)),
        (None, Principal::Sys { uid, gid, .. }) => (Some(*uid), Some(*gid)),
        (None, _) => (None, None),
    };
    let is_data =
        matches!(operation, number::READ | number::READ_PLUS | number::WRITE | number::COPY)
            && details.stage != Stage::Started;
    let moved = |bytes: u64| (bytes > 0 || is_data).then_some(bytes);
    let mut record = Record {
        time_ns,
        class: Class::Operation,
        operation,
        flavour: flavour(origin.flavour),
        minor: u8::try_from(origin.minor).unwrap_or(u8::MAX),
        result: done.status.0,
        principal: principal(&origin.principal).as_bytes(),
        enctype: origin.enctype,
        uid,
        gid,
        address: Some(peer.ip()),
        port: Some(peer.port()),
        client,
        export: done.export_or_entered().map_or(&b""[..], |export| export.source.as_bytes()),
        path: &paths.path,
        path2: &paths.new_path,
        file: paths.file.as_ref().map_or(&b""[..], |file| file.as_bytes()),
        requested: arguments.access,
        granted: details.granted,
        offset: arguments.offset,
        read: moved(details.bytes_read),
        written: moved(details.bytes_written),
        connection: Some(origin.connection.id().0),
        xid: Some(origin.xid),
        mode: arguments.mode,
        ..transport(&origin.connection)
    };
    if let Some(totals) = details.totals {
        record.read = Some(totals.read);
        record.written = Some(totals.written);
        record.open_ns = Some(totals.open_ms.saturating_mul(1_000_000));
    }
    record
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
    others: &'p OtherNames,
    new_others: &'p OtherNames,
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
    others: &'p OtherNames,
    mut is_by: impl FnMut(MatchedName<'p>, &'p [u8]) -> Option<T>,
) -> Option<T> {
    let links = others.links.iter().map(|path| (MatchedName::Link(path), &**path));
    let former = others.former.iter().map(|path| (MatchedName::Former(path), &**path));
    let unknown = others.are_more.then_some((MatchedName::Unknown, &b""[..]));
    links.chain(former).chain(unknown).find_map(|(by, path)| is_by(by, path))
}

fn detail(record: &Record<'_>, about: &OpDetails, by: MatchedName<'_>, is_named: bool) -> String {
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
