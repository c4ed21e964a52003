//! Stores a tree that is no directory of this machine: the caller brings its entries.

use std::io::{self, Read};

use parking_lot::Mutex;
use rayon::prelude::*;
use vouch_tree::blob::{BlobBuilder, INLINE_LEN_MAX};
use vouch_tree::directory::DirectoryBuilder;
use vouch_tree::xattr::Xattrs;
use vouch_tree::{Blob, BlobBody, Content, Counts, FileName, Inode, LEAF_LEN_MAX};
use vouch_xdr::Xdr as _;

use crate::error::{Error, FileError};
use crate::file::{blob_of_bytes, is_private, is_zero};
use crate::frames::Frames;
use crate::options::{Options, Progress, Signer, Summary};
use crate::pages::count_entry;
use crate::revision::publish_found;
use crate::walk::WalkResult;

/// Takes contents of files, then directories from the leaves to the root.
pub struct Assembly<'a> {
    frames: Frames<'a>,
    threads: rayon::ThreadPool,
    progress: &'a Progress,
    totals: Mutex<Totals>,
}

#[derive(Default)]
struct Totals {
    counts: Counts,
    private_count: u64,
    private_example: Option<String>,
}

/// Publishes the tree that `build` assembles; it returns the root. Of `options`, those for
/// directories are ignored. The stat cache is void afterwards.
pub fn publish_assembly<E: From<Error>>(
    writer: &vouch_tree_store::Writer,
    signer: &Signer<'_>,
    options: &Options,
    progress: &Progress,
    build: impl FnOnce(&Assembly<'_>) -> Result<Inode, E>,
) -> Result<Summary, E> {
    publish_found(writer, signer, options, progress, false, |frames, _, _| {
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|n| format!("publish-{n}"))
            .build()
            .map_err(|e| Error::Threads(e.to_string()))?;
        let assembly = Assembly { frames, threads, progress, totals: Mutex::default() };
        let root = build(&assembly)?;
        let Totals { mut counts, private_count, private_example } = assembly.totals.into_inner();
        counts.directories += 1;
        counts.with_xattrs += u64::from(root.xattrs.size > 0);
        let counted = assembly.frames.counted();
        let (skipped, skipped_count) = (Vec::new(), 0);
        Ok(WalkResult {
            root,
            counts,
            skipped,
            skipped_count,
            private_count,
            private_example,
            counted,
        })
    })
}

impl Assembly<'_> {
    /// Stores the content of a file: `size` bytes of `input`. Blocks of zeros become holes.
    pub fn file(&self, size: u64, input: &mut impl Read) -> Result<Content, AssemblyError> {
        if self.progress.is_stopped() {
            return Err(Error::Stopped.into());
        }
        self.progress.count_read(size);
        if size <= INLINE_LEN_MAX as u64 {
            let mut bytes = vec![0; size as usize];
            input.read_exact(&mut bytes).map_err(AssemblyError::Input)?;
            // Key files are this short.
            if is_private(&bytes) {
                return Err(AssemblyError::PrivateKey);
            }
            let blob = Blob { size, body: BlobBody::Inline(bytes) };
            return Ok(Content::Regular { blob, space: size });
        }
        let (mut builder, mut space, mut left) = (BlobBuilder::new(), 0, size);
        let mut put = |kind, payload: &[u8]| self.frames.put(kind, payload);
        let mut buffer = vec![0; size.min(BATCH_LEN) as usize];
        while left > 0 {
            let batch = &mut buffer[..left.min(BATCH_LEN) as usize];
            input.read_exact(batch).map_err(AssemblyError::Input)?;
            left -= batch.len() as u64;
            let handles = self.threads.install(|| {
                let leaves = batch.par_chunks(LEAF_LEN_MAX);
                leaves.map(|leaf| self.leaf(leaf)).collect::<Result<Vec<_>, _>>()
            })?;
            for (handle, leaf) in handles.into_iter().zip(batch.chunks(LEAF_LEN_MAX)) {
                match handle {
                    Some(handle) => {
                        builder.leaf(handle, &mut put)?;
                        space += leaf.len() as u64;
                    }
                    None => builder.holes(1, &mut put)?,
                }
            }
        }
        let blob = builder.finish(size, &mut put)?;
        Ok(Content::Regular { blob, space })
    }

    fn leaf(&self, leaf: &[u8]) -> Result<Option<vouch_tree::BlockHandle>, Error> {
        if is_zero(leaf) {
            return Ok(None);
        }
        self.frames.put(vouch_tree::FrameKind::Leaf, leaf).map(Some)
    }

    /// Stores many small files on all threads.
    pub fn files(&self, contents: &[Vec<u8>]) -> Result<Vec<Content>, AssemblyError> {
        self.threads.install(|| {
            contents
                .par_iter()
                .map(|bytes| self.file(bytes.len() as u64, &mut bytes.as_slice()))
                .collect()
        })
    }

    /// Stores a set of extended attributes.
    pub fn xattrs(&self, pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Blob, Error> {
        if pairs.is_empty() {
            return Ok(Blob::empty());
        }
        blob_of_bytes(&self.frames, &Xattrs::new(pairs).to_xdr()).map_err(|error| match error {
            FileError::Fatal(error) => error,
            other => other.at(b"extended attributes"),
        })
    }

    /// Stores a directory.
    ///
    /// # Panics
    /// The names are not in order.
    pub fn directory(
        &self,
        entries: impl IntoIterator<Item = (FileName, Inode)>,
    ) -> Result<Content, Error> {
        let (mut builder, mut subdirs, mut counts) =
            (DirectoryBuilder::new(), 0, Counts::default());
        let mut put = |kind, payload: &[u8]| self.frames.put(kind, payload);
        for (name, inode) in entries {
            count_entry(&mut counts, &inode);
            subdirs += u32::from(inode.is_directory());
            builder.push(name, inode, &mut put)?;
        }
        let entries = builder.entries();
        let top = builder.finish(&mut put)?;
        self.totals.lock().counts += &counts;
        Ok(Content::Directory { entries, subdirs, opaque: false, top })
    }

    /// A file that other users cannot read at its place.
    pub fn count_private(&self, path: impl FnOnce() -> String) {
        let mut totals = self.totals.lock();
        totals.private_count += 1;
        totals.private_example.get_or_insert_with(path);
    }
}

/// A file cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// The input ends early, or cannot be read.
    #[error(transparent)]
    Input(io::Error),
    /// The content is a private key of a tree.
    #[error("this is a private key, and published files are readable by everyone")]
    PrivateKey,
    /// The database failed.
    #[error(transparent)]
    Publish(#[from] Error),
}

/// Bytes of a large file in memory: enough leaves for all threads.
const BATCH_LEN: u64 = 32 * LEAF_LEN_MAX as u64;
