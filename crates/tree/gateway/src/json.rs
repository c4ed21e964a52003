use serde::Serialize;
use vouch_daemon::printable::JsonName;
use vouch_tree::{Content, FileType, Inode};
use vouch_tree_client::Revision;

#[derive(Serialize)]
pub(crate) struct PageLocation<'a> {
    pub(crate) tree: String,
    pub(crate) revision: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) tag: &'a str,
    #[serde(flatten)]
    pub(crate) path: JsonName,
}

/// Keys as in `vouch ls --json`.
#[derive(Serialize)]
pub(crate) struct FileRecord {
    #[serde(flatten)]
    name: JsonName,
    #[serde(rename = "type")]
    kind: &'static str,
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime_s: i64,
    mtime_ns: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<JsonName>,
}

impl FileRecord {
    pub(crate) fn new(name: &[u8], inode: &Inode) -> Self {
        let target = match &inode.content {
            Content::Symlink(target) => Some(JsonName::new(target)),
            _ => None,
        };
        Self {
            name: JsonName::new(name),
            kind: type_word(inode.file_type()),
            mode: format!("{:04o}", inode.mode),
            links: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size(),
            mtime_s: inode.mtime.s,
            mtime_ns: inode.mtime.ns,
            target,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct FileAnswer<'a> {
    #[serde(flatten)]
    pub(crate) place: PageLocation<'a>,
    pub(crate) file: FileRecord,
    pub(crate) etag: &'a str,
    pub(crate) content_type: String,
}

#[derive(Serialize)]
pub(crate) struct RevisionRecord<'a> {
    pub(crate) revision: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) tag: &'a str,
    pub(crate) signed: u64,
    pub(crate) expires: i64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl<'a> RevisionRecord<'a> {
    pub(crate) fn new(revision: &'a Revision) -> Self {
        let fsinfo = &revision.fsinfo;
        Self {
            revision: revision.number(),
            tag: &fsinfo.tag,
            signed: fsinfo.start,
            expires: revision.expires(),
            files: fsinfo.counts.files,
            bytes: fsinfo.counts.bytes,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct ErrorAnswer<'a> {
    pub(crate) status: u16,
    pub(crate) error: &'a str,
}

pub(crate) const fn type_word(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
    }
}

pub(crate) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data encodes")
}
