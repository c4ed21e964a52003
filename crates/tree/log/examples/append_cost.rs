//! Measures what a publication adds: an append to a large log of small revisions, with both keys and
//! every sync, and the proof of the newest entry. `append_cost DIRECTORY [ENTRIES]`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use vouch_log::append::{Appender, LogFile};
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::proof::TlogProof;
use vouch_log::reader::{LogReader, TileSource};
use vouch_log::revision::{LogSigners, origin};
use vouch_tree::HostId;

/// A signed fsinfo of a tree without inline attributes.
const ENTRY_LEN: usize = 700;
const APPENDS: u64 = 50;

struct Directory<'a>(&'a Path);

impl TileSource for Directory<'_> {
    fn read(&self, path: &str, _: usize) -> io::Result<Vec<u8>> {
        std::fs::read(self.0.join(path))
    }
}

fn entry(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(ENTRY_LEN / 8)
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().ok_or("name a directory")?);
    let entries = arguments.next().map_or(Ok(1_000_000), |count| count.parse())?;
    let mut tree = Appender::new();
    while tree.size() < entries {
        tree.push(&entry(tree.size()))?;
        for file in tree.take_full() {
            write(&root, &file, false)?;
        }
    }
    let (mut size, mut hash) = (tree.size(), tree.root());
    for file in tree.finish() {
        write(&root, &file, false)?;
    }
    let hostid = HostId::from_bytes([1; 32]);
    let signers = LogSigners::from_seeds(&hostid, &[1; 32], Some(&[2; 32]))?;
    let (mut times, mut proof_len, mut hashes_len) = (Vec::new(), 0, 0);
    for number in 0..APPENDS {
        let start = Instant::now();
        let mut tree = Appender::open(&mut LogReader::open(Directory(&root), size, hash)?)?;
        tree.push(&entry(size))?;
        (size, hash) = (tree.size(), tree.root());
        for file in tree.finish() {
            write(&root, &file, true)?;
        }
        let head = Checkpoint::new(&origin(&hostid), size, hash);
        let mut checkpoint = SignedCheckpoint::unsigned(&head)?;
        for signer in signers.all() {
            checkpoint.note_mut().sign(signer, number)?;
        }
        let hashes = LogReader::open(Directory(&root), size, hash)?.inclusion_proof(size - 1)?;
        times.push(start.elapsed());
        hashes_len = hashes.iter().map(|hash| hash.to_base64().len() + 1).sum();
        proof_len = TlogProof { extra: None, index: size - 1, hashes, checkpoint }.to_text().len();
    }
    times.sort_unstable();
    let (least, median) = (times[0], times[times.len() / 2]);
    println!("{size} entries: append {median:.2?} (median), {least:.2?} (least)");
    println!("proof {proof_len} bytes, of which hashes {hashes_len}");
    Ok(())
}
