//! The audit trail by itself: what a record costs its writer, how long trails are, how fast they
//! answer, and whether memory stays flat. What it costs an export is measured by `exports
//! --audited`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use vouch_audit::keys::Ratchet;
use vouch_audit::operations::number;
use vouch_audit::trail::{
    Durable, Index, KEY, Keeping, Log, Options, Policy, Query, Reading, Rotation, Segment, SystemDisk, Trail, Trust, create, search,
    segments, verify,
};
use vouch_audit::{Class, Flavour, Record};
use vouch_benches::{OrStop as _, machine, median};

#[derive(Parser)]
#[command(about = "Records a second, bytes a record, time of a search")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Records a second of the writer on one core, without and with its threads.
    Writer {
        /// Directory for trails, which are removed.
        #[arg(long)]
        dir: PathBuf,
        /// Records a round.
        #[arg(long, default_value_t = 2_000_000)]
        records: u64,
        /// Rounds.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Makes a trail by the writer with its threads, which indexes and compresses it; tells memory
    /// as it grows.
    Make {
        /// The trail's directory, which must not exist.
        #[arg(long)]
        dir: PathBuf,
        /// Records.
        #[arg(long, default_value_t = 100_000_000)]
        records: u64,
    },
    /// Bytes a record of a trail's closed segments.
    Size {
        /// The trail's directory.
        #[arg(long)]
        dir: PathBuf,
    },
    /// Searches a trail that `make` has made, for users, paths and files.
    Search {
        /// The trail's directory.
        #[arg(long)]
        dir: PathBuf,
        /// Questions of each kind.
        #[arg(long, default_value_t = 20)]
        rounds: u64,
    },
    /// Records for so long at so many a second; tells memory, and whether the trail is without a
    /// gap.
    Soak {
        /// The trail's directory, which must not exist.
        #[arg(long)]
        dir: PathBuf,
        /// Seconds.
        #[arg(long, default_value_t = 180)]
        seconds: u64,
        /// Records a second.
        #[arg(long, default_value_t = 50_000)]
        rate: u64,
    },
}

fn main() {
    println!("audit: machine: {}", machine());
    match Args::parse().what {
        What::Writer { dir, records, rounds } => writer(&dir, records, rounds),
        What::Make { dir, records } => make(&dir, records),
        What::Size { dir } => size(&dir),
        What::Search { dir, rounds } => ask(&dir, rounds),
        What::Soak { dir, seconds, rate } => soak(&dir, seconds, rate),
    }
}

/// Records that the writer takes at once.
const GROUP: usize = 150;

/// What a user of a site does: files of a few hundred directories, by a few thousand users from
/// some hundred clients; each opened, read and closed.
struct Load {
    at: u64,
    random: u64,
    path: String,
    principal: String,
    file: [u8; 16],
}

impl Load {
    fn new(at: u64) -> Load {
        Load { at, random: 0, path: String::new(), principal: String::new(), file: [0; 16] }
    }

    fn each(&mut self, done: &mut impl FnMut(&Record<'_>)) {
        use std::fmt::Write as _;
        // Four records on a file, then another.
        let (turn, step) = (self.at / 4, self.at % 4);
        self.at += 1;
        self.random = mix(turn);
        let user = mix(turn / 16) % USERS;
        let (directory, name) = (self.random % 400, (self.random >> 20) % 10_000);
        self.path.clear();
        self.principal.clear();
        let _ = write!(self.path, "/srv/data/project-{directory}/run-{}/result-{name}.dat", name % 7);
        let _ = write!(self.principal, "user{user}@EXAMPLE.ORG");
        self.file[..8].copy_from_slice(&(directory * 10_000 + name).to_le_bytes());
        let (operation, asked, len) = match step {
            0 => (number::OPEN, Some(1), None),
            1 => (number::READ, Some(1), Some(self.random >> 44)),
            2 => (number::GETATTR, None, None),
            _ => (number::CLOSE, None, Some(self.random >> 44)),
        };
        let record = Record {
            time_ns: now_ns(),
            class: Class::Operation,
            operation,
            flavour: Flavour::Krb5p,
            minor: 2,
            principal: self.principal.as_bytes(),
            enctype: Some(20),
            uid: Some(10_000 + user as u32),
            gid: Some(100),
            address: Some(std::net::Ipv4Addr::from_bits(0x0a00_0000 + (user % 300) as u32).into()),
            port: Some(700 + (user % 200) as u16),
            export: b"/srv/data",
            path: self.path.as_bytes(),
            file: &self.file,
            asked,
            granted: asked,
            offset: (operation == number::READ).then_some(0),
            read: len,
            connection: Some(user % 300),
            xid: Some(self.random as u32),
            ..Record::default()
        };
        done(&record);
    }
}

fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn begin(dir: &Path) -> Log {
    fs::create_dir(dir).or_stop(dir.display());
    create(&SystemDisk, &dir.join(KEY), &Ratchet::new([1; 16], &[2; 32])).or_stop("a key");
    Log::open(Arc::new(SystemDisk), dir, Options::default(), now_ns()).or_stop("a trail").0
}

fn writer(dir: &Path, records: u64, rounds: usize) {
    let (mut alone, mut of_thread, mut wall) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let place = dir.join(format!("writer-{round}"));
        let mut log = begin(&place);
        // What threads that record do, is done before.
        let mut bodies: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut load = Load::new(0);
        (0..10_000).for_each(|_| {
            load.each(&mut |record| {
                let mut body = Vec::new();
                record.encode(&mut body);
                bodies.push((record.time_ns, body));
            })
        });
        let begun = Instant::now();
        for first in (0..records).step_by(GROUP) {
            let mut appending = log.appending();
            for number in first..records.min(first + GROUP as u64) {
                let (time, body) = &mut bodies[(number % 10_000) as usize];
                appending.append(body, *time);
            }
            drop(appending);
            if first % 150 == 0 {
                log.write().or_stop("a write");
                log.maintain(now_ns()).or_stop("a seal");
            }
        }
        log.sync().or_stop("a sync");
        alone.push(records as f64 / begun.elapsed().as_secs_f64());
        drop(log);
        fs::remove_dir_all(&place).or_stop(place.display());

        let log = begin(&place);
        let keeping =
            Keeping { policy: Policy::Block, durable: Durable::Every(Duration::from_secs(1)), compress: false, ..Keeping::default() };
        let trail = Trail::start(log, Arc::new(SystemDisk), keeping, || ()).or_stop("a trail");
        let begun = Instant::now();
        let mut load = Load::new(0);
        (0..records).for_each(|_| load.each(&mut |record| assert!(trail.record(record))));
        while trail.counts().waiting_len > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        wall.push(records as f64 / begun.elapsed().as_secs_f64());
        of_thread.push(records as f64 / cpu_of_thread("audit"));
        trail.stop();
        drop(trail);
        fs::remove_dir_all(&place).or_stop(place.display());
        println!(
            "round {round}: log alone {:.0}/s, writer thread {:.0}/s of its CPU, with one that records {:.0}/s",
            alone[round], of_thread[round], wall[round]
        );
    }
    println!(
        "median: log alone {:.0} records/s of one core, writer thread {:.0} records a second of its CPU, with one thread that records {:.0} records/s",
        median(alone),
        median(of_thread),
        median(wall)
    );
}

/// CPU that a thread of this process has used, seconds.
fn cpu_of_thread(name: &str) -> f64 {
    for task in fs::read_dir("/proc/self/task").or_stop("threads").flatten() {
        let stat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim() == name
            && let Some(ns) = stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok())
        {
            return ns / 1e9;
        }
    }
    f64::NAN
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn make(dir: &Path, records: u64) {
    let keeping = Keeping { policy: Policy::Block, ..Keeping::default() };
    let trail = Trail::start(begin(dir), Arc::new(SystemDisk), keeping, || ()).or_stop("a trail");
    let begun = Instant::now();
    let mut load = Load::new(0);
    for number in 1..=records {
        load.each(&mut |record| assert!(trail.record(record)));
        if number % 10_000_000 == 0 {
            println!("{number} records, {:.0} s, {} MiB resident", begun.elapsed().as_secs_f64(), resident_kib() / 1024);
        }
    }
    trail.stop();
    println!("{records} records in {:.0} s, with index and compression", begun.elapsed().as_secs_f64());
    size(dir);
}

fn size(dir: &Path) {
    let (mut len, mut index, mut plain, mut records, mut count) = (0, 0, 0, 0, 0);
    let len_of = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    for file in segments(dir).or_stop(dir.display()).iter().filter(|file| file.packed) {
        let segment = Segment::open(file).or_stop(file.path.display());
        let Some(known) = Index::open(file, &segment) else { continue };
        len += len_of(&file.path);
        index += len_of(&dir.join(format!("{:012}.index", file.number)));
        plain += segment.plain_len();
        records += known.span.1;
        count += 1;
    }
    let each = |len: u64| len as f64 / records as f64;
    println!(
        "{records} records in {count} compressed segments: {:.1} bytes a record on disk, {:.1} of the index, {:.1} before compression",
        each(len),
        each(index),
        each(plain)
    );
}

fn ask(dir: &Path, rounds: u64) {
    let total: u64 = segments(dir)
        .or_stop(dir.display())
        .iter()
        .filter_map(|file| Index::open(file, &Segment::open(file).ok()?))
        .map(|index| index.span.1)
        .sum();
    println!("{total} records");
    type Ask = fn(u64) -> Query;
    let kinds: [(&str, Ask); 4] = [
        ("a user, 50 newest", |number| Query {
            principal: vec![format!("user{}@EXAMPLE.ORG", number % USERS).into_bytes()],
            ..Query::default()
        }),
        ("a uid, 50 newest", |number| Query { uid: Some(10_000 + (number % USERS) as u32), ..Query::default() }),
        ("a path, all", |number| {
            let (directory, name) = (number % 400, (number >> 20) % 10_000);
            Query {
                path: vec![format!("/srv/data/project-{directory}/run-{}/result-{name}.dat", name % 7).into_bytes()],
                ..Query::default()
            }
        }),
        ("a file id, all", |number| {
            let mut file = [0; 16];
            file[..8].copy_from_slice(&(number % 400 * 10_000 + (number >> 20) % 10_000).to_le_bytes());
            Query { file: file.to_vec(), ..Query::default() }
        }),
    ];
    for (name, question) in kinds {
        let (mut times, mut hits) = (Vec::new(), 0);
        for round in 0..rounds {
            let (query, begun, mut left) = (question(mix(round * 7919)), Instant::now(), if name.contains("50") { 50 } else { u64::MAX });
            search(dir, &query, true, Reading::Index, |_| {
                hits += 1;
                left -= 1;
                left > 0
            })
            .or_stop("a search");
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let worst = times.iter().copied().fold(0.0, f64::max);
        println!("{name}: median {:.1} ms, longest {worst:.1} ms, {:.1} records each", median(times), hits as f64 / rounds as f64);
    }
}

fn soak(dir: &Path, seconds: u64, rate: u64) {
    let rotation = Rotation { len_max: 8 << 20, ..Rotation::default() };
    fs::create_dir(dir).or_stop(dir.display());
    let key = Ratchet::new([1; 16], &[2; 32]);
    create(&SystemDisk, &dir.join(KEY), &key).or_stop("a key");
    let log = Log::open(Arc::new(SystemDisk), dir, Options { rotation, ..Options::default() }, now_ns()).or_stop("a trail").0;
    let trail = Trail::start(log, Arc::new(SystemDisk), Keeping::default(), || ()).or_stop("a trail");
    let (begun, mut load, mut sent, mut told) = (Instant::now(), Load::new(0), 0u64, 0);
    let mut resident = Vec::new();
    while begun.elapsed() < Duration::from_secs(seconds) {
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        while sent < due {
            load.each(&mut |record| {
                trail.record(record);
            });
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(5));
        if begun.elapsed().as_secs() >= told + 10 {
            told += 10;
            resident.push(resident_kib());
            println!("{told} s: {sent} records, {} KiB resident, {} lost", resident_kib(), trail.counts().lost);
        }
    }
    let lost = trail.counts().lost;
    trail.stop();
    let report = verify(dir, &Trust { public: Some(key.public()), ..Trust::default() }, |_, _| {}).or_stop("the trail");
    println!(
        "{sent} records sent, {} in the trail, {lost} lost, {} segments, {} faults, {} unsealed; resident {} to {} KiB",
        report.records,
        report.segments,
        report.faults.len(),
        report.unsealed,
        resident.iter().min().unwrap_or(&0),
        resident.iter().max().unwrap_or(&0)
    );
    assert!(report.faults.is_empty() && report.records == sent - lost + u64::from(lost > 0), "the trail is whole");
}

const USERS: u64 = 3000;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
