//! Bounded by bytes. Evicts the least recently opened pack; open files stay readable.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::download::download;
use crate::objects::Objects;
use crate::runtime;

#[derive(Debug)]
pub(crate) struct PackCache {
    dir: PathBuf,
    len_max: u64,
    stripes: [Mutex<()>; STRIPES],
}

impl PackCache {
    pub(crate) fn new(dir: PathBuf, len_max: u64) -> Self {
        Self { dir, len_max, stripes: Default::default() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn get(
        &self,
        objects: &Arc<Objects>,
        name: &str,
        is_fresh: bool,
    ) -> io::Result<PathBuf> {
        let path = self.path(name);
        if !is_fresh && touch(&path) {
            return Ok(path);
        }
        let stripe =
            name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
                % STRIPES;
        let _one_at_a_time = self.stripes[stripe].lock();
        if !is_fresh && touch(&path) {
            return Ok(path);
        }
        let (objects, object, to) = (objects.clone(), format!("packs/{name}"), path.clone());
        let (dir, len_max) = (self.dir.clone(), self.len_max);
        // A sandbox may keep the caller from changing files.
        runtime::run(async move {
            download(&objects, &object, &to, None).await?;
            evict(&dir, len_max);
            Ok(())
        })?;
        Ok(path)
    }

    /// The bucket has the file already.
    pub(crate) fn take(&self, file: &Path) -> io::Result<()> {
        let name = file.file_name().unwrap_or_default();
        fs::rename(file, self.dir.join(name))?;
        evict(&self.dir, self.len_max);
        Ok(())
    }
}

/// Oldest first, but never the newest packs, which are in use.
fn evict(dir: &Path, len_max: u64) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut packs: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    packs.sort_unstable();
    let mut len: u64 = packs.iter().map(|(_, len, _)| len).sum();
    let evictable = packs.len().saturating_sub(KEPT_MIN);
    for (_, of_pack, path) in packs.into_iter().take(evictable) {
        if len <= len_max {
            break;
        }
        let _ = fs::remove_file(path);
        len -= of_pack;
    }
}

fn touch(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| {
        let _ = file.set_modified(SystemTime::now());
        true
    })
}

const STRIPES: usize = 16;
const KEPT_MIN: usize = 16;
