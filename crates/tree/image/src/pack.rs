//! Packs a directory of a tree as an image of one layer, into an image layout.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;
use vouch_tree::xattr::Xattrs;
use vouch_tree::{Blob, Content, FileType, Inode};
use vouch_tree_client::{Position, Seek, Tree};

use crate::chunked::{Described, LayerWriter, describe};
use crate::config::{
    CONFIG_NAME, CONFIG_TYPE, Descriptor, INDEX_TYPE, Index, MANIFEST_TYPE, Manifest, PlatformJson,
    REF_NAME, kept,
};
use crate::digest::Sha256Digest;
use crate::error::Error;
use crate::merge::printable;
use crate::platform::Platform;
use crate::registry::{Registry, RegistryOptions};
use crate::source::{Place, PlaceKind};
use crate::tar_writer;

/// An image in a layout.
pub struct Packed {
    manifest: Manifest,
    /// Digest of the manifest.
    pub digest: String,
    /// Bytes of the compressed layer.
    pub layer_len: u64,
    /// Entries of the layer.
    pub entries: u64,
    /// Sockets, which archives cannot have.
    pub left_out: u64,
    /// Opaque directories, whose names are hidden.
    pub opaque: u64,
}

/// Writes the layout `dir`, which must not exist. `platform`: of a tree that came from no image.
pub async fn pack(
    tree: &Arc<Tree>,
    root: &Inode,
    dir: &Path,
    reference: Option<&str>,
    platform: Option<&Platform>,
) -> Result<Packed, Error> {
    let blobs = dir.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).map_err(Error::io(blobs.display()))?;
    let mut packing = Packing {
        tree: tree.clone(),
        layer: LayerWriter::new(dir)?,
        waiting: VecDeque::new(),
        links: HashMap::new(),
        config: None,
        entries: 0,
        left_out: 0,
        opaque: 0,
    };
    packing.directories(root).await?;
    let Packing { layer, config, entries, left_out, opaque, .. } = packing;
    let (layer, diff_id) = layer.finish(dir)?;
    let layer_len = layer.size;
    let (config, platform) = configuration(config, platform, &diff_id);
    let config = put(dir, CONFIG_TYPE, &config)?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: MANIFEST_TYPE.to_owned(),
        config,
        layers: vec![layer],
    };
    let bytes = serde_json::to_vec(&manifest).map_err(|e| Error::io("manifest")(e.into()))?;
    let mut entry = put(dir, MANIFEST_TYPE, &bytes)?;
    let digest = entry.digest.to_string();
    entry.platform = Some(platform);
    let name = reference.map(|name| (REF_NAME.to_owned(), name.to_owned()));
    entry.annotations.extend(name);
    let index =
        Index { schema_version: 2, media_type: INDEX_TYPE.to_owned(), manifests: vec![entry] };
    let index = serde_json::to_vec(&index).map_err(|e| Error::io("index.json")(e.into()))?;
    write(&dir.join("index.json"), &index)?;
    write(&dir.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(Packed { manifest, digest, layer_len, entries, left_out, opaque })
}

impl Packed {
    /// Brings the layout `dir` to its place. `partial`: a free name beside the place.
    pub fn deliver(
        &self,
        dir: &Path,
        place: &Place,
        partial: &Path,
        registry: &RegistryOptions,
    ) -> Result<(), Error> {
        match place.kind {
            PlaceKind::Layout => Ok(()),
            PlaceKind::OciArchive => archive(dir, partial).map_err(Error::io(partial.display())),
            PlaceKind::Registry => Registry::new(&place.at, registry)?.push(dir, &self.manifest),
            PlaceKind::DockerArchive => Err(Error::invalid(
                &place.at,
                "archives of Docker are read only; give oci-archive:FILE",
            )),
        }
    }
}

impl Place {
    /// The file or directory that is written; `None` for a registry.
    pub fn path(&self) -> Option<PathBuf> {
        (self.kind != PlaceKind::Registry).then(|| PathBuf::from(&self.at))
    }

    /// True if the path is the layout's directory.
    pub fn is_layout(&self) -> bool {
        self.kind == PlaceKind::Layout
    }

    /// Name of the image within.
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }
}

fn archive(dir: &Path, to: &Path) -> io::Result<()> {
    let mut tar = tar::Builder::new(BufWriter::new(File::create_new(to)?));
    let mut names = vec!["index.json".to_owned(), "oci-layout".to_owned()];
    let mut blobs: Vec<String> = std::fs::read_dir(dir.join("blobs/sha256"))?
        .map(|entry| Ok(format!("blobs/sha256/{}", entry?.file_name().display())))
        .collect::<io::Result<_>>()?;
    blobs.sort();
    names.extend(blobs);
    for name in names {
        let file = File::open(dir.join(&name))?;
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(file.metadata()?.len());
        for set in [tar::Header::set_uid, tar::Header::set_gid, tar::Header::set_mtime] {
            set(&mut header, 0);
        }
        tar.append_data(&mut header, &name, file)?;
    }
    tar.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

fn configuration(
    from: Option<Map<String, Value>>,
    platform: Option<&Platform>,
    diff_id: &Sha256Digest,
) -> (Vec<u8>, PlatformJson) {
    let mut config = match from.as_ref().map(kept) {
        Some(Value::Object(config)) => config,
        _ => Map::new(),
    };
    let fallback = platform.cloned().unwrap_or_default();
    let text = |config: &Map<String, Value>, key: &str| {
        config.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let is_known = platform.is_none() && text(&config, "architecture").is_some();
    let platform = PlatformJson {
        os: text(&config, "os").filter(|_| is_known).unwrap_or(fallback.os),
        architecture: text(&config, "architecture")
            .filter(|_| is_known)
            .unwrap_or(fallback.architecture),
        variant: if is_known { text(&config, "variant") } else { fallback.variant },
    };
    config.insert("os".to_owned(), json!(platform.os));
    config.insert("architecture".to_owned(), json!(platform.architecture));
    config.remove("variant");
    config.extend(platform.variant.as_ref().map(|v| ("variant".to_owned(), json!(v))));
    config.entry("config").or_insert_with(|| json!({}));
    config.insert("rootfs".to_owned(), json!({ "type": "layers", "diff_ids": [diff_id] }));
    config.insert("history".to_owned(), json!([{ "created_by": "vouch get --oci" }]));
    (Value::Object(config).to_string().into_bytes(), platform)
}

fn put(dir: &Path, media_type: &str, bytes: &[u8]) -> Result<Descriptor, Error> {
    let digest = Sha256Digest::of(bytes);
    write(&dir.join(digest.path()), bytes)?;
    Ok(Descriptor::new(media_type, digest, bytes.len() as u64))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(Error::io(path.display()))
}

struct Packing {
    tree: Arc<Tree>,
    layer: LayerWriter,
    /// In the order of the archive; contents of small files are fetched meanwhile.
    waiting: VecDeque<Waiting>,
    /// First path of each file with several.
    links: HashMap<u64, Vec<u8>>,
    config: Option<Map<String, Value>>,
    entries: u64,
    left_out: u64,
    opaque: u64,
}

struct Waiting {
    path: Vec<u8>,
    header: Vec<u8>,
    described: Described,
    data: Data,
}

enum Data {
    None,
    Fetched(JoinHandle<vouch_tree_client::Result<Bytes>>, u64),
    Large(Blob),
}

impl Packing {
    /// Each directory, its files, then its directories, in the order of names.
    async fn directories(&mut self, root: &Inode) -> Result<(), Error> {
        let mut stack = vec![(b".".to_vec(), root.clone())];
        while let Some((path, inode)) = stack.pop() {
            self.entry(&path, &inode).await?;
            if matches!(inode.content, Content::Directory { opaque: true, .. }) {
                self.opaque += 1;
                continue;
            }
            let is_root = path == b".";
            let prefix = if is_root { Vec::new() } else { [&path, &b"/"[..]].concat() };
            let (mut position, mut below) = (Position::Start, Vec::new());
            loop {
                let page = self.tree.list(&inode, position).await?;
                for entry in page.entries() {
                    let path = [&prefix, entry.name.as_bytes()].concat();
                    if entry.inode.file_type() == FileType::Directory {
                        below.push((path, entry.inode.clone()));
                    } else if is_root && path == CONFIG_NAME {
                        self.config = self.configuration(&entry.inode).await?;
                    } else {
                        self.entry(&path, &entry.inode).await?;
                    }
                }
                if page.last {
                    break;
                }
                position = page.next();
            }
            stack.extend(below.into_iter().rev());
        }
        while !self.waiting.is_empty() {
            self.write_first().await?;
        }
        Ok(())
    }

    async fn configuration(&self, inode: &Inode) -> Result<Option<Map<String, Value>>, Error> {
        let Content::Regular { blob, .. } = &inode.content else { return Ok(None) };
        if blob.size > CONFIG_LEN_MAX {
            return Ok(None);
        }
        let bytes = self.tree.read(blob, 0, CONFIG_LEN_MAX as usize).await?;
        Ok(serde_json::from_slice(&bytes).ok())
    }

    async fn entry(&mut self, path: &[u8], inode: &Inode) -> Result<(), Error> {
        let mut link = None;
        if inode.link_group != 0 && !inode.is_directory() {
            link = self.links.get(&inode.link_group).cloned();
            self.links.entry(inode.link_group).or_insert_with(|| path.to_vec());
        }
        let xattrs = match inode.xattrs.size {
            0 => Arc::new(Xattrs::default()),
            _ => self.tree.xattrs(inode).await?,
        };
        let Some(header) = tar_writer::header(path, inode, &xattrs, link.as_deref()) else {
            self.left_out += 1;
            return Ok(());
        };
        self.entries += 1;
        let described = describe(path, inode, &xattrs, link.as_deref());
        let data = match &inode.content {
            Content::Regular { blob, .. } if link.is_none() && blob.size > SMALL_LEN_MAX => {
                Data::Large(blob.clone())
            }
            Content::Regular { blob, .. } if link.is_none() && blob.size > 0 => {
                let (tree, blob, size) = (self.tree.clone(), blob.clone(), blob.size);
                let read = async move { tree.read(&blob, 0, size as usize).await };
                Data::Fetched(tokio::spawn(read), size)
            }
            _ => Data::None,
        };
        self.waiting.push_back(Waiting { path: path.to_vec(), header, described, data });
        if self.waiting.len() > WAITING_COUNT_MAX {
            self.write_first().await?;
        }
        Ok(())
    }

    async fn write_first(&mut self) -> Result<(), Error> {
        let Some(Waiting { path, header, described, data }) = self.waiting.pop_front() else {
            return Ok(());
        };
        let failed = || Error::io(printable(&path));
        let size = match &data {
            Data::None => 0,
            Data::Fetched(_, size) => *size,
            Data::Large(blob) => blob.size,
        };
        self.layer.begin(&header, described, size).map_err(failed())?;
        match data {
            Data::None => {}
            Data::Fetched(read, size) => {
                let bytes = read.await.map_err(|e| failed()(io::Error::other(e)))??;
                if bytes.len() as u64 != size {
                    return Err(failed()(io::ErrorKind::UnexpectedEof.into()));
                }
                self.layer.content(&bytes).map_err(failed())?;
            }
            Data::Large(blob) => self.large(&path, &blob).await?,
        }
        self.layer.end().map_err(failed())
    }

    async fn large(&mut self, path: &[u8], blob: &Blob) -> Result<(), Error> {
        let failed = || Error::io(printable(path));
        let reader = self.tree.open_file(blob.clone());
        let mut at = 0;
        while at < blob.size {
            let data = self.tree.seek(blob, at, Seek::Data).await?.unwrap_or(blob.size);
            while at < data {
                let len = (data - at).min(ZEROS.len() as u64);
                self.layer.content(&ZEROS[..len as usize]).map_err(failed())?;
                at += len;
            }
            let end = match at < blob.size {
                true => self.tree.seek(blob, at, Seek::Hole).await?.unwrap_or(blob.size),
                false => at,
            };
            while at < end {
                let bytes = reader.read(at, (end - at).min(STEP_LEN) as usize).await?;
                if bytes.is_empty() {
                    return Err(failed()(io::ErrorKind::UnexpectedEof.into()));
                }
                self.layer.content(&bytes).map_err(failed())?;
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }
}

static ZEROS: [u8; 4 << 10] = [0; 4 << 10];

const CONFIG_LEN_MAX: u64 = 8 << 20;

/// Fetched whole, and ahead.
const SMALL_LEN_MAX: u64 = 1 << 20;

/// Enough to fill a fast link with small files.
const WAITING_COUNT_MAX: usize = 64;

const STEP_LEN: u64 = 1 << 20;
