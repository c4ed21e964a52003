//! Paths name files in a database's manifest.

use std::sync::Arc;

use vouch_log::tile::TileId;
use vouch_tree::HostId;
use vouch_tree_store::LOG_CHECKPOINT;

use crate::answer::Replica;
use crate::trees::{ServedFile, Tree};

pub(super) struct WebFile {
    pub(super) body: Body,
    pub(super) tag: String,
}

pub(super) enum Body {
    Manifest(Arc<[u8]>),
    /// The newest signed head of the log.
    Checkpoint(Arc<[u8]>),
    /// A file of the log.
    Log(Arc<[u8]>),
    /// A file that never changes under its name, and its length.
    File(ServedFile, u64),
    Cached(Arc<Tree>, String, u64),
}

pub(super) enum FileLookup {
    File(WebFile),
    Missing,
    Failed,
}

impl WebFile {
    pub(super) fn len(&self) -> u64 {
        match &self.body {
            Body::Manifest(bytes) | Body::Checkpoint(bytes) | Body::Log(bytes) => {
                bytes.len() as u64
            }
            Body::File(_, len) | Body::Cached(_, _, len) => *len,
        }
    }

    pub(super) fn cache_control(&self) -> &'static str {
        match self.body {
            Body::Manifest(_) | Body::Checkpoint(_) => "public, max-age=30, must-revalidate",
            Body::Log(_) | Body::File(..) | Body::Cached(..) => {
                "public, max-age=31536000, immutable"
            }
        }
    }

    pub(super) const fn content_type(&self) -> &'static str {
        match self.body {
            Body::Checkpoint(_) => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        }
    }
}

impl Replica {
    /// `/HOSTID/FILE`; `/FILE` with one tree only.
    pub(super) fn find(&self, path: &str) -> FileLookup {
        let path = path.trim_start_matches('/');
        let by_hostid = path
            .split_once('/')
            .and_then(|(first, rest)| Some((first.parse::<HostId>().ok()?, rest)));
        let (tree, name) = match by_hostid {
            Some((hostid, name)) => (self.trees.get(&hostid), name),
            None => (self.trees.only(), path),
        };
        tree.map_or(FileLookup::Missing, |tree| file_of(&tree, name))
    }
}

fn file_of(tree: &Arc<Tree>, name: &str) -> FileLookup {
    if name == "manifest" {
        let offer = tree.newest_offer();
        return FileLookup::File(WebFile {
            body: Body::Manifest(offer.manifest.clone()),
            tag: offer.manifest_tag.clone(),
        });
    }
    if name == LOG_CHECKPOINT {
        let offer = tree.newest_offer();
        let Some(checkpoint) = &offer.checkpoint else { return FileLookup::Missing };
        let (body, tag) = (Body::Checkpoint(checkpoint.clone()), offer.manifest_tag.clone());
        return FileLookup::File(WebFile { body, tag });
    }
    if let Some(id) = name.strip_prefix("log/").and_then(TileId::parse) {
        return match tree.snapshot().log_file(&id) {
            // The content never changes under its name.
            Ok(Some(bytes)) => FileLookup::File(WebFile {
                body: Body::Log(bytes.into()),
                tag: format!("\"{}\"", id.path().replace('/', "-")),
            }),
            Ok(None) => FileLookup::Missing,
            Err(error) => {
                tracing::error!(path = %tree.path().display(), name, %error, "file can't be served");
                FileLookup::Failed
            }
        };
    }
    if let Some(cache) = &tree.cache
        && let Some(len) = tree.snapshot().pack_len(name)
    {
        let Some(tag) = cache.tag(name) else { return FileLookup::Missing };
        return FileLookup::File(WebFile {
            body: Body::Cached(tree.clone(), name.to_owned(), len),
            tag: format!("\"{tag}\""),
        });
    }
    let open = || -> vouch_tree_store::Result<Option<WebFile>> {
        let Some((file, len)) = tree.snapshot().file(name)? else { return Ok(None) };
        // Other web servers make the same tags; the content never changes.
        let tag = format!("\"{len:x}-{:x}\"", file.modified_ns()?);
        Ok(Some(WebFile { body: Body::File(ServedFile(file), len), tag }))
    };
    match open() {
        Ok(Some(found)) => FileLookup::File(found),
        Ok(None) => FileLookup::Missing,
        Err(error) => {
            tracing::error!(path = %tree.path().display(), name, %error, "file can't be served");
            FileLookup::Failed
        }
    }
}
