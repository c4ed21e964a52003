//! Log of the name store: records in order that the database does not have yet. The log survives
//! the end of the process, but not a power failure.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | FNV-1a of all following bytes |
//! | 2 | length of the following bytes, big-endian |
//! | 1 + … | length of the file's identity, identity |
//! | 1 + … | length of the directory's identity, identity; 0 if the file was removed |
//! | … | name |

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use vouch_vfs::FileId;

use crate::id_store::Record;

/// A longer log belongs to a lost database.
const LEN_MAX: u64 = 64 << 20;

pub(crate) struct IdLog {
    file: File,
    empty: bool,
}

impl IdLog {
    pub(crate) fn open(path: &Path) -> io::Result<(Self, HashMap<FileId, Record>)> {
        let file =
            OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
        let mut bytes = Vec::new();
        (&file).take(LEN_MAX).read_to_end(&mut bytes)?;
        let mut records = HashMap::new();
        let mut rest = &bytes[..];
        while let Some((id, record, after)) = parse(rest) {
            records.insert(id, record);
            rest = after;
        }
        Ok((IdLog { file, empty: bytes.is_empty() }, records))
    }

    /// A failure costs at most a stale file after a restart.
    pub(crate) fn append(&mut self, id: &FileId, record: Option<&(FileId, Vec<u8>)>) {
        self.empty = false;
        let _ = self.file.write_all(&bytes(id, record));
    }

    pub(crate) fn clear(&mut self) {
        if !self.empty {
            self.empty = self.file.set_len(0).is_ok();
        }
    }
}

fn bytes(id: &FileId, record: Option<&(FileId, Vec<u8>)>) -> Vec<u8> {
    let (directory, name) =
        record.map_or((&[][..], &[][..]), |(directory, name)| (directory.as_bytes(), name));
    let len = |part: &[u8]| u8::try_from(part.len()).expect("an identity is at most 64 bytes");
    let mut body = vec![0; 2];
    body.push(len(id.as_bytes()));
    body.extend_from_slice(id.as_bytes());
    body.push(len(directory));
    body.extend_from_slice(directory);
    body.extend_from_slice(name);
    let rest = u16::try_from(body.len() - 2).expect("two identities and a name");
    body[..2].copy_from_slice(&rest.to_be_bytes());
    [&sum(&body).to_be_bytes()[..], &body].concat()
}

fn parse(bytes: &[u8]) -> Option<(FileId, Record, &[u8])> {
    let (stored_sum, body) = bytes.split_first_chunk()?;
    let (len, _) = body.split_first_chunk()?;
    let (body, after) = body.split_at_checked(2 + usize::from(u16::from_be_bytes(*len)))?;
    if sum(body) != u64::from_be_bytes(*stored_sum) {
        return None;
    }
    let part =
        |bytes: &'_ [u8]| -> Option<(usize, usize)> { Some((1, 1 + usize::from(*bytes.first()?))) };
    let rest = &body[2..];
    let (start, end) = part(rest)?;
    let id = FileId::new(rest.get(start..end)?)?;
    let rest = &rest[end..];
    let (start, end) = part(rest)?;
    let directory = rest.get(start..end)?;
    let record = if directory.is_empty() {
        None
    } else {
        Some((FileId::new(directory)?, rest[end..].to_vec()))
    };
    Some((id, record, after))
}

/// FNV-1a detects torn ends; nobody else writes here.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> FileId {
        FileId::new(&[byte; 25]).expect("short")
    }

    #[test]
    fn log_is_read_up_to_torn_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let (mut log, records) = IdLog::open(&path).expect("creation succeeds");
        assert!(records.is_empty());
        log.append(&id(1), Some(&(id(9), b"one".to_vec())));
        log.append(&id(2), Some(&(id(9), b"two".to_vec())));
        log.append(&id(1), None);
        let whole = std::fs::read(&path).expect("the file exists");
        let expected = HashMap::from([(id(1), None), (id(2), Some((id(9), b"two".to_vec())))]);
        assert_eq!(IdLog::open(&path).expect("reading succeeds").1, expected);
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).expect("cut");
            let records = IdLog::open(&path).expect("reading succeeds").1;
            assert!(records.len() <= 2 && records.get(&id(1)).is_none_or(Option::is_some), "{len}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            std::fs::write(&path, &flipped).expect("changed");
            assert_ne!(IdLog::open(&path).expect("reading succeeds").1, expected, "{at}");
        }
        log.clear();
        assert!(IdLog::open(&path).expect("reading succeeds").1.is_empty());
    }
}
