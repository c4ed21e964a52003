use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::bucket::{self, BucketDatabase};
use crate::disk::Disk;
use crate::{Error, Result};

/// The directory of the log, below the database.
pub const LOG_DIR: &str = "log";

/// Checkpoint of the log, below the database.
pub const LOG_CHECKPOINT: &str = "log/checkpoint";

/// A revision that is durable and not visible yet, below the database.
pub const PENDING: &str = "pending";

#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
    name: PathBuf,
    bucket: Option<Arc<dyn BucketDatabase>>,
}

impl Layout {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let bucket = bucket::open(path).map_err(Error::io("open", path))?;
        let root = bucket.as_ref().map_or(path, |bucket| bucket.work_dir()).to_owned();
        Ok(Self { root, name: path.to_owned(), bucket })
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    pub(crate) fn bucket(&self) -> Option<&Arc<dyn BucketDatabase>> {
        self.bucket.as_ref()
    }

    pub(crate) fn disk(&self, local: &Arc<dyn Disk>) -> Arc<dyn Disk> {
        self.bucket.as_ref().map_or_else(|| local.clone(), |bucket| bucket.disk())
    }

    /// False without a database. Updates local copies of a bucket's manifest and index, unless
    /// younger than `age_max`.
    pub(crate) fn refresh(&self, age_max: Duration) -> Result<bool> {
        match &self.bucket {
            Some(bucket) => bucket.refresh(age_max).map_err(Error::io("read", &self.name)),
            None => Ok(self.manifest().exists()),
        }
    }

    pub(crate) fn readable_pack(&self, class: PackClass, id: u32) -> Result<PathBuf> {
        let path = self.pack(class, id);
        match &self.bucket {
            Some(bucket) if !path.exists() => {
                bucket.local_pack(&pack_name(class, id), false).map_err(Error::io("read", &path))
            }
            _ => Ok(path),
        }
    }

    /// Asks a bucket for its present bytes.
    pub(crate) fn fresh_pack(&self, class: PackClass, id: u32) -> Result<PathBuf> {
        let path = self.pack(class, id);
        match &self.bucket {
            Some(bucket) => {
                bucket.local_pack(&pack_name(class, id), true).map_err(Error::io("read", &path))
            }
            None => Ok(path),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.root.join("manifest")
    }

    pub(crate) fn manifest_next(&self) -> PathBuf {
        self.root.join("manifest.next")
    }

    pub(crate) fn garbage(&self) -> PathBuf {
        self.root.join("garbage")
    }

    pub(crate) fn garbage_next(&self) -> PathBuf {
        self.root.join("garbage.next")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(crate) fn packs(&self) -> PathBuf {
        self.root.join("packs")
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.root.join("index")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join(LOG_DIR)
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.root.join(LOG_CHECKPOINT)
    }

    pub(crate) fn checkpoint_next(&self) -> PathBuf {
        self.log().join("checkpoint.next")
    }

    pub(crate) fn pending(&self) -> PathBuf {
        self.root.join(PENDING)
    }

    pub(crate) fn pending_next(&self) -> PathBuf {
        self.root.join("pending.next")
    }

    pub(crate) fn publisher(&self) -> PathBuf {
        self.root.join("publisher")
    }

    pub(crate) fn pack(&self, class: PackClass, id: u32) -> PathBuf {
        self.packs().join(pack_name(class, id))
    }

    pub(crate) fn segment(&self, id: u32) -> PathBuf {
        self.index().join(segment_name(id))
    }
}

/// Below the database.
pub(crate) fn pack_path(class: PackClass, id: u32) -> String {
    format!("packs/{}", pack_name(class, id))
}

pub(crate) fn segment_path(id: u32) -> String {
    format!("index/{}", segment_name(id))
}

/// Metadata is read far more often than data, so it is stored together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PackClass {
    Metadata,
    Data,
}

impl PackClass {
    pub(crate) const BOTH: [Self; 2] = [Self::Metadata, Self::Data];

    pub(crate) const fn of(kind: vouch_tree::FrameKind) -> Self {
        if kind.is_metadata() { Self::Metadata } else { Self::Data }
    }

    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Metadata => 1,
            Self::Data => 2,
        }
    }

    pub(crate) const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Metadata),
            2 => Some(Self::Data),
            _ => None,
        }
    }

    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Metadata => 'm',
            Self::Data => 'd',
        }
    }
}

pub(crate) fn pack_name(class: PackClass, id: u32) -> String {
    format!("{}-{id:08x}.pack", class.letter())
}

pub(crate) fn segment_name(id: u32) -> String {
    format!("{id:08x}.segment")
}

pub(crate) fn parse_pack_name(name: &str) -> Option<(PackClass, u32)> {
    let (letter, id) = name.strip_suffix(".pack")?.split_once('-')?;
    let class = PackClass::BOTH
        .into_iter()
        .find(|class| letter.len() == 1 && letter.starts_with(class.letter()))?;
    Some((class, parse_id(id)?))
}

pub(crate) fn parse_segment_name(name: &str) -> Option<u32> {
    parse_id(name.strip_suffix(".segment")?)
}

fn parse_id(text: &str) -> Option<u32> {
    let canonical = text.len() == 8 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    canonical.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip_and_others_are_refused() {
        let layout = Layout::open(Path::new("/db")).unwrap();
        for class in PackClass::BOTH {
            let path = layout.pack(class, 0xab_cdef);
            let name = path.file_name().and_then(|n| n.to_str()).unwrap();
            assert_eq!(parse_pack_name(name), Some((class, 0xab_cdef)));
        }
        for stranger in [
            "x-00000001.pack",
            "m-1.pack",
            "m-0000000G.pack",
            "m-00000001.pack~",
            "mm-00000001.pack",
            "-00000001.pack",
        ] {
            assert_eq!(parse_pack_name(stranger), None, "{stranger}");
        }
        assert_eq!(parse_segment_name("0000002a.segment"), Some(42));
        assert_eq!(parse_segment_name("2a.segment"), None);
    }
}
