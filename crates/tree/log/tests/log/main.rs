//! Logs against a plain model, lying files, published vectors and Go's implementations.

mod go;
mod golden;
mod messages;
mod policies;
mod trees;
mod vectors;

use std::collections::HashMap;
use std::io;

use vouch_log::append::LogFile;
use vouch_log::merkle::Hash;
use vouch_log::reader::TileSource;

/// A log's files in memory.
#[derive(Default, Clone)]
struct Files(HashMap<String, Vec<u8>>);

impl Files {
    fn store(&mut self, files: Vec<LogFile>) {
        for file in files {
            let old = self.0.insert(file.id.path(), file.bytes.clone());
            assert!(old.is_none_or(|old| old == file.bytes), "{:?} was replaced", file.id);
        }
    }
}

impl TileSource for Files {
    fn read(&self, path: &str, len_max: usize) -> io::Result<Vec<u8>> {
        let bytes = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        if bytes.len() > len_max {
            Err(io::ErrorKind::InvalidData.into())
        } else {
            Ok(bytes.clone())
        }
    }
}

/// RFC 6962 §2.1, word for word.
fn naive_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Hash::EMPTY_TREE,
        [leaf] => *leaf,
        _ => {
            let middle = leaves.len().next_power_of_two() / 2;
            Hash::node(naive_root(&leaves[..middle]), naive_root(&leaves[middle..]))
        }
    }
}

fn entry(number: u64) -> Vec<u8> {
    format!("entry {number} {}", "x".repeat((number % 97) as usize)).into_bytes()
}
