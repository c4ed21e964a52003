//! The audit trail without a server: writer speed, bytes per record, and search time. `exports
//! --audited` and `vouch bench audit` measure the cost of a trail for a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use vouch_audit::keys::Ratchet;
use vouch_audit::operations::number;
use vouch_audit::trail::{
    Durability, Index, KEY_FILE, Log, Options, Policy, Query, SearchMode, Segment, SystemDisk,
    Trail, WriterOptions, create_key, search, segments,
};
use vouch_audit::{Class, Flavour, Record};
use vouch_bench::machine::Machine;
use vouch_bench::statistics::median;
use vouch_benches::OrExit as _;
use vouch_benches::servers::resident_kib;

#[derive(Parser)]
#[command(about = "Measure the audit trail: records a second, bytes a record, time of a search")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the writer on one core, without and with its threads.
    Writer {
        /// Directory for trails. They are removed after each round.
        #[arg(long)]
        dir: PathBuf,
        /// Records per round.
        #[arg(long, default_value_t = 2_000_000)]
        records: u64,
        /// Rounds.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Make an indexed and compressed trail, and print memory while it grows.
    Make {
        /// The trail's directory, which must not exist.
        #[arg(long)]
        dir: PathBuf,
        /// Number of records.
        #[arg(long, default_value_t = 100_000_000)]
        records: u64,
    },
    /// Print the bytes per record of a trail's closed segments.
    Size {
        /// The trail's directory.
        #[arg(long)]
        dir: PathBuf,
    },
    /// Search a trail that `make` made, for users, paths and files.
    Search {
        /// The trail's directory.
        #[arg(long)]
        dir: PathBuf,
        /// Searches of each kind.
        #[arg(long, default_value_t = 20)]
        rounds: u64,
    },
}

fn main() {
    println!("{}", Machine::this().brief());
    match Args::parse().command {
        Command::Writer { dir, records, rounds } => writer(&dir, records, rounds),
        Command::Make { dir, records } => make(&dir, records),
        Command::Size { dir } => size(&dir),
        Command::Search { dir, rounds } => search_all(&dir, rounds),
    }
}

const GROUP: usize = 150;

/// A busy site: 3,000 users on 300 clients open, read and close files of 400 directories.
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

    fn next(&mut self, use_record: &mut impl FnMut(&Record<'_>)) {
        use std::fmt::Write as _;
        // Four records for each file.
        let (turn, step) = (self.at / 4, self.at % 4);
        self.at += 1;
        self.random = mix(turn);
        let user = mix(turn / 16) % USERS;
        let (directory, name) = (self.random % 400, (self.random >> 20) % 10_000);
        self.path.clear();
        self.principal.clear();
        let _ =
            write!(self.path, "/srv/data/project-{directory}/run-{}/result-{name}.dat", name % 7);
        let _ = write!(self.principal, "user{user}@EXAMPLE.ORG");
        self.file[..8].copy_from_slice(&(directory * 10_000 + name).to_le_bytes());
        let (operation, access, len) = match step {
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
            requested: access,
            granted: access,
            offset: (operation == number::READ).then_some(0),
            read: len,
            connection: Some(user % 300),
            xid: Some(self.random as u32),
            ..Record::default()
        };
        use_record(&record);
    }
}

/// SplitMix64.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn new_log(dir: &Path) -> Log {
    fs::create_dir(dir).or_exit(dir.display());
    create_key(&SystemDisk, &dir.join(KEY_FILE), &Ratchet::new([1; 16], &[2; 32]))
        .or_exit("create a key");
    Log::open(Arc::new(SystemDisk), dir, Options::default(), now_ns()).or_exit("open a trail").0
}

fn writer(dir: &Path, records: u64, rounds: usize) {
    let (mut log_rates, mut thread_rates, mut wall_rates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let place = dir.join(format!("writer-{round}"));
        log_rates.push(log_rate(&place, records));
        let (thread_rate, wall_rate) = trail_rates(&place, records);
        thread_rates.push(thread_rate);
        wall_rates.push(wall_rate);
        print_rates(&format!("round {round}"), log_rates[round], thread_rate, wall_rate);
    }
    print_rates("median", median(&log_rates), median(&thread_rates), median(&wall_rates));
}

fn print_rates(of: &str, log: f64, thread: f64, wall: f64) {
    println!(
        "{of}: log {log:.0} records/s, writer thread {thread:.0} records/s of its CPU time, one recording thread {wall:.0} records/s"
    );
}

fn log_rate(place: &Path, records: u64) -> f64 {
    let mut log = new_log(place);
    let mut bodies: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut load = Load::new(0);
    (0..10_000).for_each(|_| {
        load.next(&mut |record| {
            let mut body = Vec::new();
            record.encode(&mut body);
            bodies.push((record.time_ns, body));
        })
    });
    let begun = Instant::now();
    for first in (0..records).step_by(GROUP) {
        let mut appending = log.append_batch();
        for number in first..records.min(first + GROUP as u64) {
            let (time, body) = &mut bodies[(number % 10_000) as usize];
            appending.append(body, *time);
        }
        drop(appending);
        if first % 150 == 0 {
            log.write().or_exit("write");
            log.maintain(now_ns()).or_exit("seal");
        }
    }
    log.sync().or_exit("sync");
    let rate = records as f64 / begun.elapsed().as_secs_f64();
    drop(log);
    fs::remove_dir_all(place).or_exit(place.display());
    rate
}

/// Of the writer's CPU time, and of one recording thread.
fn trail_rates(place: &Path, records: u64) -> (f64, f64) {
    let options = WriterOptions {
        policy: Policy::Block,
        durability: Durability::Every(Duration::from_secs(1)),
        compress: false,
        ..WriterOptions::default()
    };
    let trail =
        Trail::start(new_log(place), Arc::new(SystemDisk), options, || ()).or_exit("open a trail");
    let begun = Instant::now();
    let mut load = Load::new(0);
    (0..records).for_each(|_| load.next(&mut |record| assert!(trail.record(record))));
    while trail.counts().waiting_len > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let wall_rate = records as f64 / begun.elapsed().as_secs_f64();
    let thread_rate = records as f64 / cpu_of_thread("audit");
    trail.stop();
    drop(trail);
    fs::remove_dir_all(place).or_exit(place.display());
    (thread_rate, wall_rate)
}

fn cpu_of_thread(name: &str) -> f64 {
    for task in fs::read_dir("/proc/self/task").or_exit("list threads").flatten() {
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

fn make(dir: &Path, records: u64) {
    let keeping = WriterOptions { policy: Policy::Block, ..WriterOptions::default() };
    let trail =
        Trail::start(new_log(dir), Arc::new(SystemDisk), keeping, || ()).or_exit("open a trail");
    let begun = Instant::now();
    let mut load = Load::new(0);
    for number in 1..=records {
        load.next(&mut |record| assert!(trail.record(record)));
        if number % 10_000_000 == 0 {
            println!(
                "{number} records, {:.0} s, {} MiB resident",
                begun.elapsed().as_secs_f64(),
                resident_kib(std::process::id()) / 1024
            );
        }
    }
    trail.stop();
    println!(
        "{records} records in {:.0} s, with index and compression",
        begun.elapsed().as_secs_f64()
    );
    size(dir);
}

fn size(dir: &Path) {
    let (mut len, mut index, mut plain, mut records, mut count) = (0, 0, 0, 0, 0);
    let len_of = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    for file in segments(dir).or_exit(dir.display()).iter().filter(|file| file.is_compressed) {
        let segment = Segment::open(file).or_exit(file.path.display());
        let Some(known) = Index::open(file, &segment) else { continue };
        len += len_of(&file.path);
        index += len_of(&dir.join(format!("{:012}.index", file.number)));
        plain += segment.uncompressed_len();
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

fn search_all(dir: &Path, rounds: u64) {
    let total: u64 = segments(dir)
        .or_exit(dir.display())
        .iter()
        .filter_map(|file| Index::open(file, &Segment::open(file).ok()?))
        .map(|index| index.span.1)
        .sum();
    println!("{total} records");
    type MakeQuery = fn(u64) -> Query;
    let kinds: [(&str, MakeQuery); 4] = [
        ("a user, 50 newest", |number| Query {
            principal: vec![format!("user{}@EXAMPLE.ORG", number % USERS).into_bytes()],
            ..Query::default()
        }),
        ("a uid, 50 newest", |number| Query {
            uid: Some(10_000 + (number % USERS) as u32),
            ..Query::default()
        }),
        ("a path, all", |number| {
            let (directory, name) = (number % 400, (number >> 20) % 10_000);
            Query {
                path: vec![
                    format!("/srv/data/project-{directory}/run-{}/result-{name}.dat", name % 7)
                        .into_bytes(),
                ],
                ..Query::default()
            }
        }),
        ("a file id, all", |number| {
            let mut file = [0; 16];
            file[..8]
                .copy_from_slice(&(number % 400 * 10_000 + (number >> 20) % 10_000).to_le_bytes());
            Query { file: file.to_vec(), ..Query::default() }
        }),
    ];
    for (name, question) in kinds {
        let (mut times, mut hits) = (Vec::new(), 0);
        for round in 0..rounds {
            let (query, begun, mut left) = (
                question(mix(round * 7919)),
                Instant::now(),
                if name.contains("50") { 50 } else { u64::MAX },
            );
            search(dir, &query, true, SearchMode::Index, |_| {
                hits += 1;
                left -= 1;
                left > 0
            })
            .or_exit("search");
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let worst = times.iter().copied().fold(0.0, f64::max);
        println!(
            "{name}: median {:.1} ms, longest {worst:.1} ms, {:.1} records each",
            median(&times),
            hits as f64 / rounds as f64
        );
    }
}

const USERS: u64 = 3000;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
