//! Measures what the log adds to a publication: one append to a large log, with both keys and every
//! sync, and the proof of the newest entry. An append writes the last bundle of entries anew, so each
//! row names the length of an entry and the entries in that bundle. `append_cost DIRECTORY [ENTRIES]`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vouch_log::append::{Appender, LogFile};
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::merkle::Hash;
use vouch_log::proof::TlogProof;
use vouch_log::reader::{LogReader, TileSource};
use vouch_log::revision::{LogSigners, origin};
use vouch_log::tile::{TileId, TileKind};
use vouch_tree::HostId;

/// Signed fsinfos of trees without inline attributes.
const KINDS: [(&str, usize); 2] = [("classic keys", 700), ("key pairs", 8_100)];
/// Entries in the last bundle after the append.
const FILLS: [u16; 5] = [1, 64, 128, 192, 250];
const APPENDS: usize = 100;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Directory<'a>(&'a Path);

impl TileSource for Directory<'_> {
    fn read(&self, path: &str, _: usize) -> io::Result<Vec<u8>> {
        std::fs::read(self.0.join(path))
    }
}

/// The head of a log, and its files.
#[derive(Clone, Copy)]
struct Log<'a> {
    root: &'a Path,
    size: u64,
    hash: Hash,
}

impl<'a> Log<'a> {
    /// Without bundles: an append reads the last one only, and each row makes that.
    fn build(root: &'a Path, entries: u64) -> Result<Self> {
        let mut tree = Appender::new();
        while tree.size() < entries {
            tree.push(&tree.size().to_be_bytes())?;
            for file in tree.take_full() {
                write(root, &file, false)?;
            }
        }
        Self::finish(root, tree, false)
    }

    fn finish(root: &'a Path, tree: Appender, is_synced: bool) -> Result<Self> {
        let (size, hash) = (tree.size(), tree.root());
        for file in tree.finish() {
            write(root, &file, is_synced)?;
        }
        Ok(Self { root, size, hash })
    }

    fn append(self, entry_len: usize, count: u64, is_synced: bool) -> Result<Self> {
        let mut reader = LogReader::open(Directory(self.root), self.size, self.hash)?;
        let mut tree = Appender::open(&mut reader)?;
        for number in self.size..self.size + count {
            tree.push(&number.to_be_bytes().repeat(entry_len.div_ceil(8))[..entry_len])?;
        }
        Self::finish(self.root, tree, is_synced)
    }

    fn prove(self, signers: &LogSigners, hostid: &HostId) -> Result<TlogProof> {
        let head = Checkpoint::new(&origin(hostid), self.size, self.hash);
        let mut checkpoint = SignedCheckpoint::unsigned(&head)?;
        for signer in signers.all() {
            checkpoint.note_mut().sign(signer, 1)?;
        }
        let mut reader = LogReader::open(Directory(self.root), self.size, self.hash)?;
        let (index, hashes) = (self.size - 1, reader.inclusion_proof(self.size - 1)?);
        Ok(TlogProof { extra: None, index, hashes, checkpoint })
    }
}

fn write(root: &Path, file: &LogFile, is_synced: bool) -> io::Result<()> {
    let path = root.join(file.id.path());
    let dir = path.parent().expect("a file of the log is in a directory");
    std::fs::create_dir_all(dir)?;
    let mut new = File::create(&path)?;
    new.write_all(&file.bytes)?;
    if is_synced {
        new.sync_data()?;
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// Time of this thread on a processor; exact to a tick.
fn cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let running = stat.split(' ').next().ok_or("schedstat has no first field")?;
    Ok(Duration::from_nanos(running.parse()?))
}

/// Appends one entry again and again to the same log. `fill`: entries in its bundle afterwards.
fn measure(full: Log<'_>, entry_len: usize, fill: u16) -> Result<String> {
    let hostid = HostId::from_bytes([1; 32]);
    let signers = LogSigners::from_seeds(&hostid, &[1; 32], Some(&[2; 32]))?;
    let before = full.append(entry_len, u64::from(fill) - 1, false)?;
    let (mut times, mut text, mut hashes) = (Vec::new(), String::new(), 0);
    let start_cpu = cpu()?;
    for _ in 0..APPENDS {
        let start = Instant::now();
        let proof = before.append(entry_len, 1, true)?.prove(&signers, &hostid)?;
        times.push(start.elapsed());
        hashes = proof.hashes.iter().map(|hash| hash.to_base64().len() + 1).sum();
        text = proof.to_text();
        for kind in [TileKind::Hashes(0), TileKind::Entries] {
            let id = TileId { kind, index: full.size / 256, width: fill };
            std::fs::remove_file(full.root.join(id.path()))?;
        }
    }
    let cpu = cpu()?.saturating_sub(start_cpu) / APPENDS as u32;
    times.sort_unstable();
    let (least, median, len) = (times[0], times[times.len() / 2], text.len());
    Ok(format!(
        "append {median:.2?} (median), {least:.2?} (least), CPU {cpu:.2?} (mean); proof {len} bytes, \
         of which hashes {hashes}"
    ))
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().ok_or("name a directory")?);
    let entries = arguments.next().map_or(Ok(1_000_000), |count| count.parse::<u64>())?;
    let full = Log::build(&root, entries / 256 * 256)?;
    for (kind, entry_len) in KINDS {
        for fill in FILLS {
            let row = measure(full, entry_len, fill)?;
            println!("{kind}, entries of {entry_len} bytes, {fill} in the last bundle: {row}");
        }
    }
    Ok(())
}
