use std::collections::HashMap;

use parking_lot::RwLock;
use vouch_tree::BlockHandle;

use crate::frames::checked_kind;
use crate::{FrameSink, FrameSource, Result};

#[derive(Debug, Default)]
pub struct MemoryStore {
    frames: RwLock<HashMap<BlockHandle, Vec<u8>>>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.frames.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.frames.read().is_empty()
    }

    pub fn remove(&self, handle: &BlockHandle) -> Option<Vec<u8>> {
        self.frames.write().remove(handle)
    }
}

impl FrameSource for MemoryStore {
    fn get(&self, handle: &BlockHandle) -> Result<Option<Vec<u8>>> {
        Ok(self.frames.read().get(handle).cloned())
    }
}

impl FrameSink for MemoryStore {
    fn contains(&self, handle: &BlockHandle) -> Result<bool> {
        Ok(self.frames.read().contains_key(handle))
    }

    fn put(&self, handle: &BlockHandle, frame: &[u8]) -> Result<bool> {
        checked_kind(frame)?;
        Ok(self.frames.write().insert(*handle, frame.to_vec()).is_none())
    }
}
