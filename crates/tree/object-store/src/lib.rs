//! Published trees as a read-only store of the crate [`object_store`], so that DataFusion, Delta Lake
//! and others read them.
//!
//! A [`TreeStore`] is one revision of a tree. Objects are its regular files, and symbolic links to
//! them. Names that [`Path`] does not allow are percent-encoded, as [`Path::from`] does. Each byte is
//! verified before it is returned; an error's source is a [`vouch_tree_client::Error`].
//!
//! The trait is that of object_store 0.13, which DataFusion 55 takes. The directory
//! `crates/tree/object-store/datafusion` of the repository has a program for SQL on a tree's Parquet
//! files, and its test.
//!
//! # Example
//!
//! ```no_run
//! use object_store::{ObjectStoreExt as _, path::Path};
//! use vouch_object_store::TreeStore;
//! use vouch_tree_client::{Client, ClientOptions, TreeOptions};
//!
//! # async fn read() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(ClientOptions::default())?;
//! let name = "@pub.example.org,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".parse()?;
//! let tree = client.open(&name, &TreeOptions::default()).await?;
//! let store = TreeStore::new(tree.clone(), tree.revision()?);
//! let header = store.get_range(&Path::from("data/table.parquet"), 0..4).await?;
//! // DataFusion: context.register_object_store(&"vouch://data".parse()?, Arc::new(store));
//! # Ok(())
//! # }
//! ```

mod list; // Files below a directory, page by page.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use percent_encoding::percent_decode_str;
use vouch_tree::{Blob, Content, Inode};
use vouch_tree_client::{ErrorClass, ResolvedPath, Revision, Tree};
use vouch_xdr::Xdr as _;

/// One revision of a published tree. Cheap to clone.
#[derive(Clone)]
pub struct TreeStore {
    tree: Arc<Tree>,
    revision: Arc<Revision>,
}

impl TreeStore {
    /// The revision stays the same: a newer one needs a new store.
    pub const fn new(tree: Arc<Tree>, revision: Arc<Revision>) -> Self {
        Self { tree, revision }
    }

    /// The file, with symbolic links followed; `None` for a link out of the tree.
    async fn resolve(&self, location: &Path) -> Result<Option<Inode>> {
        let resolved = self.tree.resolve_path(self.revision.root(), &tree_path(location)).await;
        match resolved.map_err(|error| failed(location, error))? {
            ResolvedPath::Inside { inode, .. } => Ok(Some(inode)),
            ResolvedPath::Outside { .. } => Ok(None),
        }
    }

    async fn object(&self, location: &Path) -> Result<(ObjectMeta, Blob)> {
        let inode = self.resolve(location).await?;
        let object = inode.and_then(|inode| self.describe(location.clone(), &inode));
        object.ok_or_else(|| Error::NotFound {
            path: location.to_string(),
            source: "not a regular file of the tree".into(),
        })
    }

    /// `None` unless it is a regular file.
    fn describe(&self, location: Path, inode: &Inode) -> Option<(ObjectMeta, Blob)> {
        let Content::Regular { blob, .. } = &inode.content else { return None };
        let seconds = Duration::from_secs(u64::try_from(inode.mtime.s).unwrap_or(0));
        // A blob is its content or a hash of it.
        let tag = blake3::derive_key("vouch object store 2026 entity tag", &blob.to_xdr());
        let meta = ObjectMeta {
            location,
            last_modified: UNIX_EPOCH.checked_add(seconds).unwrap_or_else(SystemTime::now).into(),
            size: blob.size,
            e_tag: Some(format!("\"{}\"", data_encoding::BASE64URL_NOPAD.encode(&tag[..18]))),
            version: Some(self.revision.number().to_string()),
        };
        Some((meta, blob.clone()))
    }

    /// Pieces of a file, with read-ahead.
    fn pieces(
        &self,
        location: &Path,
        blob: Blob,
        range: Range<u64>,
    ) -> BoxStream<'static, Result<Bytes>> {
        let (reader, location) = (self.tree.open_file(blob), location.clone());
        stream::try_unfold((reader, range), move |(reader, range)| {
            let location = location.clone();
            async move {
                let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                if len == 0 {
                    return Ok(None);
                }
                let read = reader.read(range.start, len.min(PIECE_LEN_MAX)).await;
                let piece = read.map_err(|error| failed(&location, error))?;
                if piece.is_empty() {
                    return Err(generic("the file ends before its size"));
                }
                let start = range.start + piece.len() as u64;
                Ok(Some((piece, (reader, start..range.end))))
            }
        })
        .boxed()
    }
}

#[async_trait]
impl ObjectStore for TreeStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (meta, blob) = self.object(location).await?;
        options.check_preconditions(&meta)?;
        if options.version.is_some() && options.version != meta.version {
            return Err(Error::NotFound {
                path: location.to_string(),
                source: format!("this store is revision {}", self.revision.number()).into(),
            });
        }
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(generic)?,
            None => 0..meta.size,
        };
        let wanted = if options.head { range.start..range.start } else { range.clone() };
        Ok(GetResult {
            payload: GetResultPayload::Stream(self.pieces(location, blob, wanted)),
            meta,
            range,
            attributes: Default::default(),
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (_, blob) = &self.object(location).await?;
        let read = |range: Range<u64>| async move {
            let len = range.end.min(blob.size).saturating_sub(range.start);
            let len = usize::try_from(len).map_err(generic)?;
            let bytes = self.tree.read(blob, range.start, len).await;
            bytes.map_err(|error| failed(location, error))
        };
        stream::iter(ranges.iter().cloned().map(read)).buffered(RANGES_AT_ONCE).try_collect().await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        list::all_below(self.clone(), prefix.cloned().unwrap_or_default())
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        list::directory(self, prefix.cloned().unwrap_or_default()).await
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(read_only())
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only())
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        locations.map(|location| location.and(Err(read_only()))).boxed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(read_only())
    }
}

impl fmt::Display for TreeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vouch://{}/@{}", self.tree.name(), self.revision.number())
    }
}

impl fmt::Debug for TreeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreeStore({self})")
    }
}

fn tree_path(location: &Path) -> Vec<u8> {
    percent_decode_str(location.as_ref()).collect()
}

fn failed(location: &Path, error: vouch_tree_client::Error) -> Error {
    match error.class() {
        // Also a path through a file, and symbolic links in a circle.
        ErrorClass::NotFound | ErrorClass::Input => {
            Error::NotFound { path: location.to_string(), source: error.into() }
        }
        _ => generic(error),
    }
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "vouch", source: source.into() }
}

fn read_only() -> Error {
    Error::NotSupported { source: "published trees are read-only; publish a new revision".into() }
}

/// One leaf is not copied. The client reads ahead by itself.
const PIECE_LEN_MAX: usize = vouch_tree::LEAF_LEN_MAX;

/// Column chunks of a query.
const RANGES_AT_ONCE: usize = 64;
