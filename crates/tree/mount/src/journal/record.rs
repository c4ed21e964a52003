//! docs/formats/mount-journal.md. Each record has the whole new state of one thing, so the last one
//! wins.

use std::sync::Arc;

use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree::name::FILE_NAME_LEN_MAX;
use vouch_tree::{Blob, BlobBody, Content, Inode};
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::attributes::{lacks_inline, without_inline};
use crate::node_table::PATHS_MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Mount(MountRecord),
    Volume(VolumeRecord),
    Node(NodeRecord),
    Lookups { id: NodeId, lookups: u64 },
    Gone(NodeId),
    Missing { volume: u32, directory: NodeId, name: Box<[u8]>, is_cached: bool },
    MissingDropped { volume: u32, directory: NodeId },
    Referenced { volume: u32, directory: NodeId, name: Box<[u8]> },
    OlderDirectory { volume: u32, id: NodeId, inode: Arc<Inode> },
    Open(OpenRecord),
    Handle(HandleRecord),
    HandleClosed(u64),
}

/// Agreed with the kernel until the unmount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MountRecord {
    pub(crate) point: Vec<u8>,
    pub(crate) device: Vec<u8>,
    pub(crate) kernel: KernelRecord,
    pub(crate) without_xattrs: bool,
    pub(crate) passthrough: bool,
    pub(crate) observed: bool,
    pub(crate) is_namespace: bool,
    pub(crate) is_pinned: bool,
    /// `None` serves all users.
    pub(crate) only_user: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KernelRecord {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) flags: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeRecord {
    pub(crate) number: u32,
    pub(crate) label: String,
    pub(crate) root: NodeId,
    pub(crate) signed: Vec<u8>,
    pub(crate) is_updating: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRecord {
    pub(crate) id: NodeId,
    pub(crate) volume: Option<u32>,
    pub(crate) parent: NodeId,
    pub(crate) name: Box<[u8]>,
    pub(crate) other_paths: Vec<(NodeId, Box<[u8]>)>,
    pub(crate) link_group: u64,
    pub(crate) lookups: u64,
    pub(crate) is_removed: bool,
    pub(crate) inode: Arc<Inode>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenRecord {
    pub(crate) id: NodeId,
    pub(crate) count: u64,
    pub(crate) backing: Option<BackingRecord>,
}

/// The kernel reads the file directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackingRecord {
    pub(crate) id: u32,
    pub(crate) blob: Blob,
    pub(crate) inode: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandleRecord {
    pub(crate) handle: u64,
    pub(crate) id: NodeId,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: Option<u32>,
    pub(crate) login: Option<u32>,
    /// Since 1970.
    pub(crate) opened_ms: u64,
    pub(crate) read: u64,
    pub(crate) failed: u64,
    pub(crate) passes_through: bool,
}

impl Xdr for Record {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Mount(mount) => {
                w.u32(1);
                mount.encode(w);
            }
            Self::Volume(volume) => {
                w.u32(2);
                w.u32(volume.number);
                w.opaque(volume.label.as_bytes());
                w.u64(volume.root.0);
                w.opaque(&volume.signed);
                w.bool(volume.is_updating);
            }
            Self::Node(node) => {
                w.u32(3);
                node.encode(w);
            }
            Self::Lookups { id, lookups } => {
                w.u32(4);
                w.u64(id.0);
                w.u64(*lookups);
            }
            Self::Gone(id) => {
                w.u32(5);
                w.u64(id.0);
            }
            Self::Missing { volume, directory, name, is_cached } => {
                w.u32(6);
                name_in(w, *volume, *directory, name);
                w.bool(*is_cached);
            }
            Self::MissingDropped { volume, directory } => {
                w.u32(7);
                w.u32(*volume);
                w.u64(directory.0);
            }
            Self::Referenced { volume, directory, name } => {
                w.u32(8);
                name_in(w, *volume, *directory, name);
            }
            Self::OlderDirectory { volume, id, inode } => {
                w.u32(9);
                w.u32(*volume);
                w.u64(id.0);
                encode_inode(w, inode);
            }
            Self::Open(open) => {
                w.u32(10);
                w.u64(open.id.0);
                w.u64(open.count);
                w.optional(open.backing.as_ref(), |w, backing| {
                    w.u32(backing.id);
                    backing.blob.encode(w);
                    w.u64(backing.inode);
                });
            }
            Self::Handle(handle) => {
                w.u32(11);
                handle.encode(w);
            }
            Self::HandleClosed(handle) => {
                w.u32(12);
                w.u64(*handle);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(match r.u32()? {
            1 => Self::Mount(MountRecord::decode(r)?),
            2 => Self::Volume(VolumeRecord {
                number: r.u32()?,
                label: r.string(LABEL_LEN_MAX)?.to_owned(),
                root: NodeId(r.u64()?),
                signed: r.opaque(SIGNED_LEN_MAX)?.to_vec(),
                is_updating: r.bool()?,
            }),
            3 => Self::Node(NodeRecord::decode(r)?),
            4 => Self::Lookups { id: NodeId(r.u64()?), lookups: r.u64()? },
            5 => Self::Gone(NodeId(r.u64()?)),
            6 => Self::Missing {
                volume: r.u32()?,
                directory: NodeId(r.u64()?),
                name: name(r)?,
                is_cached: r.bool()?,
            },
            7 => Self::MissingDropped { volume: r.u32()?, directory: NodeId(r.u64()?) },
            8 => Self::Referenced { volume: r.u32()?, directory: NodeId(r.u64()?), name: name(r)? },
            9 => Self::OlderDirectory {
                volume: r.u32()?,
                id: NodeId(r.u64()?),
                inode: Arc::new(decode_inode(r)?),
            },
            10 => Self::Open(OpenRecord {
                id: NodeId(r.u64()?),
                count: r.u64()?,
                backing: r.optional(|r| {
                    Ok(BackingRecord { id: r.u32()?, blob: Blob::decode(r)?, inode: r.u64()? })
                })?,
            }),
            11 => Self::Handle(HandleRecord::decode(r)?),
            12 => Self::HandleClosed(r.u64()?),
            value => return Err(XdrError::Unknown { what: "journal record", value }),
        })
    }
}

impl Xdr for MountRecord {
    fn encode(&self, w: &mut Writer) {
        w.opaque(&self.point);
        w.opaque(&self.device);
        w.u32(self.kernel.major);
        w.u32(self.kernel.minor);
        w.u64(self.kernel.flags);
        for flag in [
            self.without_xattrs,
            self.passthrough,
            self.observed,
            self.is_namespace,
            self.is_pinned,
        ] {
            w.bool(flag);
        }
        w.optional(self.only_user.as_ref(), |w, uid| w.u32(*uid));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            point: r.opaque(PATH_LEN_MAX)?.to_vec(),
            device: r.opaque(DEVICE_LEN_MAX)?.to_vec(),
            kernel: KernelRecord { major: r.u32()?, minor: r.u32()?, flags: r.u64()? },
            without_xattrs: r.bool()?,
            passthrough: r.bool()?,
            observed: r.bool()?,
            is_namespace: r.bool()?,
            is_pinned: r.bool()?,
            only_user: r.optional(Reader::u32)?,
        })
    }
}

impl Xdr for NodeRecord {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.id.0);
        w.optional(self.volume.as_ref(), |w, number| w.u32(*number));
        w.u64(self.parent.0);
        w.opaque(&self.name);
        w.count(self.other_paths.len());
        for (directory, name) in &self.other_paths {
            w.u64(directory.0);
            w.opaque(name);
        }
        w.u64(self.link_group);
        w.u64(self.lookups);
        w.bool(self.is_removed);
        encode_inode(w, &self.inode);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let id = NodeId(r.u64()?);
        let volume = r.optional(Reader::u32)?;
        let (parent, first) = (NodeId(r.u64()?), name(r)?);
        let count = r.count(PATHS_MAX)?;
        let mut other_paths = Vec::new();
        for _ in 0..count {
            other_paths.push((NodeId(r.u64()?), name(r)?));
        }
        let (link_group, lookups, is_removed) = (r.u64()?, r.u64()?, r.bool()?);
        let inode = Arc::new(decode_inode(r)?);
        Ok(Self {
            id,
            volume,
            parent,
            name: first,
            other_paths,
            link_group,
            lookups,
            is_removed,
            inode,
        })
    }
}

impl Xdr for HandleRecord {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.handle);
        w.u64(self.id.0);
        w.u32(self.uid);
        w.u32(self.gid);
        w.optional(self.pid.as_ref(), |w, pid| w.u32(*pid));
        w.optional(self.login.as_ref(), |w, uid| w.u32(*uid));
        w.u64(self.opened_ms);
        w.u64(self.read);
        w.u64(self.failed);
        w.bool(self.passes_through);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            handle: r.u64()?,
            id: NodeId(r.u64()?),
            uid: r.u32()?,
            gid: r.u32()?,
            pid: r.optional(Reader::u32)?,
            login: r.optional(Reader::u32)?,
            opened_ms: r.u64()?,
            read: r.u64()?,
            failed: r.u64()?,
            passes_through: r.bool()?,
        })
    }
}

fn name_in(w: &mut Writer, volume: u32, directory: NodeId, name: &[u8]) {
    w.u32(volume);
    w.u64(directory.0);
    w.opaque(name);
}

fn name(r: &mut Reader<'_>) -> Result<Box<[u8]>, XdrError> {
    Ok(r.opaque(FILE_NAME_LEN_MAX)?.into())
}

/// Inline content that was left out keeps its length.
fn encode_inode(w: &mut Writer, inode: &Inode) {
    let content_len = match &inode.content {
        Content::Regular { blob, .. } => inline_len(blob),
        _ => 0,
    };
    w.u32(content_len);
    w.u32(inline_len(&inode.xattrs));
    let empty = |blob: &Blob| if inline_len(blob) > 0 { Blob::empty() } else { blob.clone() };
    let content = match &inode.content {
        Content::Regular { blob, space } => Content::Regular { blob: empty(blob), space: *space },
        other => other.clone(),
    };
    Inode { xattrs: empty(&inode.xattrs), content, ..*inode }.encode(w);
}

fn decode_inode(r: &mut Reader<'_>) -> Result<Inode, XdrError> {
    let (content_len, xattrs_len) = (r.u32()?, r.u32()?);
    let mut inode = Inode::decode(r)?;
    let without_content = |len: u32| Blob { size: len.into(), body: BlobBody::Inline(Vec::new()) };
    if content_len > 0 {
        match &mut inode.content {
            Content::Regular { blob, .. } if blob.size == 0 => *blob = without_content(content_len),
            _ => return Err(XdrError::Invalid("inline content")),
        }
    }
    if xattrs_len > 0 {
        if inode.xattrs.size > 0 {
            return Err(XdrError::Invalid("inline xattrs"));
        }
        inode.xattrs = without_content(xattrs_len);
    }
    Ok(without_inline(&inode))
}

fn inline_len(blob: &Blob) -> u32 {
    if lacks_inline(blob) { u32::try_from(blob.size).unwrap_or(u32::MAX) } else { 0 }
}

const LABEL_LEN_MAX: usize = 1024;
const SIGNED_LEN_MAX: usize = 1 << 20;
const PATH_LEN_MAX: usize = 4096;
const DEVICE_LEN_MAX: usize = 64;
