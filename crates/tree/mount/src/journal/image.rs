//! Replayed from the journal. Never panics: with a damaged journal the mount is not taken over.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use vouch_tree::Inode;
use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_xdr::{Reader, Xdr as _};

use super::record::{HandleRecord, MountRecord, NodeRecord, OpenRecord, Record, VolumeRecord};
use super::{FRAME_LEN_MAX, HEADER_LEN, MAGIC, VERSION};
use crate::volume::OLDER_MAX;

#[derive(Debug, Default)]
pub struct MountImage {
    pub(crate) mount: MountRecord,
    pub(crate) volumes: BTreeMap<u32, VolumeRecord>,
    pub(crate) nodes: HashMap<NodeId, NodeRecord>,
    pub(crate) missing: HashSet<(u32, NodeId, Box<[u8]>)>,
    pub(crate) referenced: HashSet<(u32, NodeId, Box<[u8]>)>,
    pub(crate) older_directories: VecDeque<(u32, NodeId, Arc<Inode>)>,
    pub(crate) open_files: HashMap<NodeId, OpenRecord>,
    pub(crate) handles: HashMap<u64, HandleRecord>,
    pub(crate) end: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("reading the mount journal: {0}")]
    Io(#[from] std::io::Error),
    #[error("the mount journal has version {found}, and this program knows version {VERSION} only")]
    Version { found: u32 },
    #[error("the mount journal is incomplete: a write to it failed")]
    Incomplete,
    #[error("the mount journal is damaged: {0}")]
    Damaged(&'static str),
}

impl MountImage {
    pub fn read(file: &File) -> Result<Self, JournalError> {
        let start_now = || {
            let mut header = [0; HEADER_LEN as usize];
            file.read_exact_at(&mut header, 0).map_err(|_| JournalError::Damaged("no header"))?;
            start_of(&header)
        };
        let start = start_now()?;
        let len = file.metadata()?.len();
        let body_len = len
            .checked_sub(start)
            .ok_or(JournalError::Damaged("it ends before its first record"))?;
        // This mount's own process wrote the frame into memory.
        let mut body =
            vec![0; usize::try_from(body_len).map_err(|_| JournalError::Damaged("too long"))?];
        file.read_exact_at(&mut body, start)?;
        if start_now()? != start {
            // The serving process has written a snapshot meanwhile.
            return Self::read(file);
        }
        Self::replay(&body, start)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, JournalError> {
        let header = bytes.first_chunk().ok_or(JournalError::Damaged("no header"))?;
        let start = start_of(header)?;
        let body = usize::try_from(start).ok().and_then(|start| bytes.get(start..));
        Self::replay(body.ok_or(JournalError::Damaged("it ends before its first record"))?, start)
    }

    fn replay(mut body: &[u8], start: u64) -> Result<Self, JournalError> {
        let mut image = Self { end: start, ..Self::default() };
        let mut has_mount = false;
        while let Some((len, rest)) = body.split_first_chunk() {
            let len = u32::from_be_bytes(*len) as usize;
            if len == 0 || len > FRAME_LEN_MAX {
                return Err(JournalError::Damaged("length of a frame"));
            }
            let Some((frame, rest)) = rest.split_at_checked(len) else { break };
            let mut reader = Reader::new(frame);
            while reader.remaining() > 0 {
                let record =
                    Record::decode(&mut reader).map_err(|_| JournalError::Damaged("a record"))?;
                has_mount |= matches!(record, Record::Mount(_));
                image.apply(record);
            }
            image.end += 4 + len as u64;
            body = rest;
        }
        if !has_mount {
            return Err(JournalError::Damaged("no record of the mount"));
        }
        image.check()?;
        Ok(image)
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Mount(mount) => self.mount = mount,
            Record::Volume(volume) => drop(self.volumes.insert(volume.number, volume)),
            Record::Node(node) => drop(self.nodes.insert(node.id, node)),
            Record::Lookups { id, lookups } => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.lookups = lookups;
                }
            }
            Record::Gone(id) => drop(self.nodes.remove(&id)),
            Record::Missing { volume, directory, name, is_cached: true } => {
                self.missing.insert((volume, directory, name));
            }
            Record::Missing { volume, directory, name, is_cached: false } => {
                self.missing.remove(&(volume, directory, name));
            }
            Record::MissingDropped { volume, directory } => {
                self.missing.retain(|(v, d, _)| (*v, *d) != (volume, directory))
            }
            Record::Referenced { volume, directory, name } => {
                self.referenced.insert((volume, directory, name));
            }
            Record::OlderDirectory { volume, id, inode } => {
                self.older_directories.push_back((volume, id, inode));
                if self.older_directories.len() > OLDER_MAX {
                    self.older_directories.pop_front();
                }
            }
            Record::Open(open) if open.count == 0 => drop(self.open_files.remove(&open.id)),
            Record::Open(open) => drop(self.open_files.insert(open.id, open)),
            Record::Handle(handle) => drop(self.handles.insert(handle.handle, handle)),
            Record::HandleClosed(handle) => drop(self.handles.remove(&handle)),
        }
    }

    fn check(&self) -> Result<(), JournalError> {
        if !self.nodes.contains_key(&NodeId::ROOT) {
            return Err(JournalError::Damaged("no root directory"));
        }
        for node in self.nodes.values() {
            let mut directories =
                node.other_paths.iter().map(|(directory, _)| directory).chain([&node.parent]);
            if !directories.all(|directory| self.nodes.contains_key(directory)) {
                return Err(JournalError::Damaged("a file without its directory"));
            }
            if node.volume.is_some_and(|number| !self.volumes.contains_key(&number)) {
                return Err(JournalError::Damaged("a file without its tree"));
            }
        }
        Ok(())
    }

    pub fn trees(&self) -> impl Iterator<Item = &str> {
        self.volumes.values().map(|volume| volume.label.as_str())
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }
}

fn start_of(header: &[u8; HEADER_LEN as usize]) -> Result<u64, JournalError> {
    let mut reader = Reader::new(header);
    let mut field = || {
        Some((
            reader.opaque_fixed::<8>().ok()?,
            reader.u32().ok()?,
            reader.u32().ok()?,
            reader.u64().ok()?,
        ))
    };
    let (magic, version, _, start) = field().ok_or(JournalError::Damaged("no header"))?;
    match (magic, version, start) {
        (magic, ..) if magic != MAGIC => Err(JournalError::Damaged("no journal of a mount")),
        (_, found, _) if found != VERSION => Err(JournalError::Version { found }),
        (_, _, 0) => Err(JournalError::Incomplete),
        (_, _, start) if start < HEADER_LEN => {
            Err(JournalError::Damaged("place of the first record"))
        }
        (_, _, start) => Ok(start),
    }
}
