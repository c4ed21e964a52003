use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use vouch_audit::Record;
use vouch_audit::host::{Assembler, Event, Line, Stamp};
use vouch_audit::record::{Act, Class};
use vouch_audit::trail::{Log, LogError, Options, Query, SearchMode, SystemDisk, search};
use vouch_daemon::failure::{At as _, Failure, Outcome};
use vouch_daemon::interrupt;

use serials::Serials;

mod serials;

#[derive(Debug)]
pub struct KernelEvents {
    pub directory: PathBuf,
    pub source: Source,
    pub realm: Option<String>,
    pub key: Option<PathBuf>,
}

#[derive(Debug)]
pub enum Source {
    /// auditd's log and its rotated files; with `once`, to the end of the log.
    Log {
        path: PathBuf,
        once: bool,
    },
    Netlink,
}

const PROGRAM: &str = concat!("vouch audit host ", env!("CARGO_PKG_VERSION"));
const PAUSE: Duration = Duration::from_millis(200);
/// MAX_AUDIT_MESSAGE_LENGTH of the kernel with its header.
const MESSAGE_LEN_MAX: usize = 8970 + 16;
const HEAD_LEN: usize = 16;
/// The rest of a longer line is ignored.
const LINE_LEN_MAX: usize = 64 * 1024;
const PIECE_LEN: usize = 4 << 20;
/// Rotated logs to search for the trail's last event: the maximum of num_logs in auditd.conf.
const ROTATED_MAX: usize = 1000;
const READ_LOG: u32 = 1;

pub fn record(args: &KernelEvents) -> Outcome {
    let (last, last_boot) = last_of(&args.directory)?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot: Vec<u8> =
        data_encoding::HEXLOWER.decode(boot.trim().replace('-', "").as_bytes()).unwrap_or_default();
    let boot: [u8; 16] = boot.try_into().unwrap_or_default();
    let options = Options { boot, key: args.key.clone(), ..Options::default() };
    let opened = Log::open(Arc::new(SystemDisk), &args.directory, options, now_ns());
    let (log, _) = opened.map_err(|error| failure(&error))?;
    if let Some(error) = log.recovery_error() {
        return Err(failure(error).cure("make room"));
    }
    let client = rustix::system::uname().nodename().to_bytes().to_vec();
    let (names, assembler) = (HashMap::new(), Assembler::default());
    let mut recorder = EventRecorder {
        log,
        resume_point: ResumePoint::All,
        client,
        realm: args.realm.clone(),
        names,
        assembler,
    };
    let source = match &args.source {
        Source::Netlink => "the kernel".to_owned(),
        Source::Log { path, .. } => path.display().to_string(),
    };
    let boot_text = data_encoding::HEXLOWER.encode(&boot);
    recorder.act(Act::Start, &format!("{PROGRAM}; boot {boot_text}; listens to {source}"));
    let taken = interrupt::stop_gracefully(|| {});
    let done = match &args.source {
        // Events from the kernel are always new.
        Source::Netlink => recorder
            .resume_after(last, last_boot == Some(boot))
            .and_then(|serials| listen(&mut recorder, serials)),
        Source::Log { path, once } => resume(path, last, &mut recorder)
            .and_then(|first| read_log(path, first, *once, &mut recorder)),
    };
    recorder.finish();
    recorder.act(
        Act::Stop,
        &done
            .as_ref()
            .err()
            .map_or_else(|| PROGRAM.to_owned(), |error| format!("{PROGRAM}: {error}")),
    );
    let closed = recorder.log.close(now_ns()).map_err(|error| failure(&error));
    drop(taken);
    done.and(closed)
}

struct EventRecorder {
    log: Log,
    resume_point: ResumePoint,
    client: Vec<u8>,
    realm: Option<String>,
    /// User names by number; empty if unknown.
    names: HashMap<u32, Vec<u8>>,
    assembler: Assembler,
}

/// The order of the log counts, not the time: clocks may be set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResumePoint {
    All,
    /// After the trail's last event, which is ahead in the log.
    AtEvent(Stamp),
    /// After the remaining lines of the trail's last event.
    AfterEvent(Stamp),
    /// With newer events: the log no longer holds the trail's last event.
    Newer(Stamp),
}

impl ResumePoint {
    fn takes(&mut self, stamp: Stamp) -> bool {
        match *self {
            ResumePoint::All => true,
            ResumePoint::AtEvent(last) => {
                if stamp == last {
                    *self = ResumePoint::AfterEvent(last);
                }
                false
            }
            ResumePoint::AfterEvent(last) => stamp != last,
            ResumePoint::Newer(last) => stamp > last,
        }
    }
}

impl EventRecorder {
    fn line(&mut self, line: &Line<'_>) {
        let mut whole = Vec::new();
        self.assembler.push(line, |event| whole.push(event));
        whole.iter().for_each(|event| self.record(event));
    }

    fn finish(&mut self) {
        let mut whole = Vec::new();
        self.assembler.finish(|event| whole.push(event));
        whole.iter().for_each(|event| self.record(event));
    }

    fn record(&mut self, event: &Event) {
        if !self.resume_point.takes(event.stamp) {
            return;
        }
        let principal = match (&self.realm, event.login) {
            (Some(realm), Some(login)) => {
                let known = &mut self.names;
                // The kernel's own records, and auditd's without log_format=ENRICHED, hold only the
                // number.
                let name = match &event.login_name[..] {
                    [] => known.entry(login).or_insert_with(|| name_of(login)).as_slice(),
                    name => name,
                };
                if name.is_empty() {
                    Vec::new()
                } else {
                    [name, &b"@"[..], realm.as_bytes()].concat()
                }
            }
            _ => Vec::new(),
        };
        self.log.append_record(&event.to_record(&principal, &self.client));
    }

    fn act(&mut self, what: Act, detail: &str) {
        let (class, operation) = (Class::Administrative, what as u16);
        let uid = Some(rustix::process::getuid().as_raw());
        self.log.append_record(&Record {
            time_ns: now_ns(),
            class,
            operation,
            uid,
            detail: detail.as_bytes(),
            ..Record::default()
        });
    }

    fn record_gap(&mut self, count: Option<u64>, detail: &str) {
        self.log.append_record(&Record {
            time_ns: now_ns(),
            class: Class::Gap,
            gap: count,
            detail: detail.as_bytes(),
            ..Record::default()
        });
    }

    /// Events of earlier boots can't be counted.
    fn resume_after(&mut self, last: Stamp, is_same_boot: bool) -> Outcome<Serials> {
        let is_new = last == Stamp::default();
        if !is_new && !is_same_boot {
            self.record_gap(
                None,
                "the machine rebooted since the last event of this trail: events before this program's start are missing",
            );
        }
        self.sync()?;
        Ok(Serials::after((!is_new && is_same_boot).then_some(last.serial)))
    }

    fn sync(&mut self) -> Outcome {
        self.log.sync().and_then(|()| self.log.maintain(now_ns())).map_err(|error| failure(&error))
    }
}

fn name_of(uid: u32) -> Vec<u8> {
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    user.map_or_else(Vec::new, |user| user.name.into_bytes())
}

fn last_of(directory: &Path) -> Outcome<(Stamp, Option<[u8; 16]>)> {
    let query = Query { class: Some(Class::Host), ..Query::default() };
    let mut last = (Stamp::default(), None);
    search(directory, &query, true, SearchMode::Index, |hit| {
        if let Ok(record) = hit.record(&mut Vec::new()) {
            last = (Stamp { time_ns: record.time_ns, serial: record.xid.unwrap_or(0) }, hit.boot);
        }
        false
    })
    .at(directory.display())?;
    Ok(last)
}

/// If no log holds the event, newer events are taken and a gap is recorded.
fn resume(path: &Path, last: Stamp, recorder: &mut EventRecorder) -> Outcome<Option<File>> {
    if last == Stamp::default() {
        return Ok(None);
    }
    // Open all logs before searching them, newest first: a rotation meanwhile only renames them.
    let mut opened = Vec::new();
    for number in 0..ROTATED_MAX {
        let name = if number == 0 {
            path.to_owned()
        } else {
            PathBuf::from(format!("{}.{number}", path.display()))
        };
        let Ok(file) = File::open(&name) else { break };
        let holds = holds(&file, last).at(name.display())?;
        opened.push(file);
        if holds {
            recorder.resume_point = ResumePoint::AtEvent(last);
            break;
        }
    }
    if recorder.resume_point == ResumePoint::All {
        recorder.resume_point = ResumePoint::Newer(last);
        recorder.record_gap(None, "the log no longer holds the last event of this trail: events in between may be missing");
    }
    while opened.len() > 1 {
        let mut reader =
            BufReader::with_capacity(LINE_LEN_MAX, opened.pop().expect("two entries exist"));
        read_rest(&mut reader, &mut Vec::new(), recorder).at(path.display())??;
    }
    Ok(opened.pop())
}

fn holds(mut file: &File, wanted: Stamp) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(LINE_LEN_MAX, file);
    let (mut line, mut found) = (Vec::new(), false);
    while !found && read_line(&mut reader, &mut line)? > 0 {
        if line.ends_with(b"\n") {
            found = Line::parse(line.trim_ascii_end()).is_some_and(|line| line.stamp == wanted);
            line.clear();
        }
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(found)
}

fn read_rest(
    reader: &mut impl io::BufRead,
    line: &mut Vec<u8>,
    recorder: &mut EventRecorder,
) -> io::Result<Outcome> {
    let mut unsynced = 0;
    loop {
        let read = read_line(reader, line)?;
        if line.ends_with(b"\n") {
            if let Some(line) = Line::parse(line.trim_ascii_end()) {
                recorder.line(&line);
            }
            line.clear();
        }
        if read == 0 {
            return Ok(Ok(()));
        }
        // Sync in pieces, which bounds memory and segments.
        unsynced += read;
        if unsynced >= PIECE_LEN {
            if let Err(error) = recorder.sync() {
                return Ok(Err(error));
            }
            unsynced = 0;
        }
    }
}

fn read_log(
    path: &Path,
    mut first: Option<File>,
    once: bool,
    recorder: &mut EventRecorder,
) -> Outcome {
    while !interrupt::requested() {
        let file = match first.take().map_or_else(|| File::open(path), Ok) {
            // During a rotation the name may be missing for a moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !once => {
                std::thread::sleep(PAUSE);
                continue;
            }
            other => other.at(path.display())?,
        };
        let mut reader = BufReader::with_capacity(LINE_LEN_MAX, file);
        let (mut line, mut is_last) = (Vec::new(), false);
        loop {
            read_rest(&mut reader, &mut line, recorder).at(path.display())??;
            if once {
                return Ok(());
            }
            // The file was read to its end: make whole events durable before a new file is opened.
            recorder.sync()?;
            if is_last || interrupt::requested() {
                break;
            }
            is_last = is_rotated(path, reader.get_ref());
            if !is_last {
                std::thread::sleep(PAUSE);
            }
        }
    }
    Ok(())
}

fn read_line(reader: &mut impl io::BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let room = LINE_LEN_MAX.saturating_sub(line.len()).max(1) as u64;
    let read = io::Read::take(reader, room).read_until(b'\n', line)?;
    if line.len() >= LINE_LEN_MAX && !line.ends_with(b"\n") {
        line.clear();
    }
    Ok(read)
}

fn is_rotated(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let same =
        |a: &std::fs::Metadata, b: &std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    match (std::fs::metadata(path), file.metadata()) {
        (Ok(named), Ok(open)) => !same(&named, &open),
        _ => false,
    }
}

fn listen(recorder: &mut EventRecorder, mut serials: Serials) -> Outcome {
    let what = "the kernel's audit";
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::AUDIT),
    );
    let socket = socket.map_err(io::Error::from).at(what)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, READ_LOG))
        .map_err(io::Error::from)
        .at(what)?;
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        Some(PAUSE),
    )
    .map_err(io::Error::from)
    .at(what)?;
    let mut bytes = vec![0; MESSAGE_LEN_MAX];
    let mut synced = Instant::now();
    while !interrupt::requested() {
        // Sync even without a pause: memory is lost with the process.
        if synced.elapsed() >= PAUSE {
            recorder.sync()?;
            synced = Instant::now();
        }
        match rustix::net::recv(&socket, &mut bytes[..], RecvFlags::empty()) {
            Ok((len, _)) => {
                let Some((head, message)) =
                    bytes[..len.min(MESSAGE_LEN_MAX)].split_at_checked(HEAD_LEN)
                else {
                    continue;
                };
                let kind = u16::from_ne_bytes([head[4], head[5]]);
                if let Some(line) = Line::parse_message(kind, message.trim_ascii_end()) {
                    if let Some(count) = serials.count_missed_before(line.stamp.serial) {
                        recorder.record_gap(
                            Some(count),
                            "events missing by the kernel's serial numbers",
                        );
                    }
                    recorder.line(&line);
                }
            }
            Err(rustix::io::Errno::AGAIN) => {
                serials.are_read();
                recorder.sync()?;
            }
            Err(rustix::io::Errno::INTR) => recorder.sync()?,
            Err(rustix::io::Errno::NOBUFS) => {
                serials.are_lost();
                recorder.record_gap(
                    None,
                    "the kernel produced audit events faster than they were read",
                );
            }
            Err(error) => return Err(io::Error::from(error)).at(what),
        }
    }
    Ok(())
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn failure(error: &LogError) -> Failure {
    match error {
        LogError::Busy { .. } => {
            Failure::io("", io::Error::new(io::ErrorKind::ResourceBusy, error.to_string()))
        }
        _ => Failure::io("", io::Error::other(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_after_last_one_are_taken_whatever_the_clock() {
        let at = |time_ns, serial| Stamp { time_ns, serial };
        let log = [at(100, 1), at(200, 2), at(50, 3), at(60, 4), at(60, 4), at(20, 5), at(210, 6)];
        let taken = |mut from: ResumePoint| {
            log.into_iter()
                .filter(|stamp| from.takes(*stamp))
                .map(|stamp| stamp.serial)
                .collect::<Vec<_>>()
        };
        assert_eq!(taken(ResumePoint::AtEvent(at(60, 4))), [5, 6]);
        assert_eq!(taken(ResumePoint::All), [1, 2, 3, 4, 4, 5, 6]);
        assert_eq!(taken(ResumePoint::Newer(at(150, 9))), [2, 6]);
    }

    #[test]
    fn user_numbers_get_names_where_known() {
        assert_eq!(name_of(0), b"root");
        assert_eq!(name_of(3_999_999_979), b"");
    }
}
