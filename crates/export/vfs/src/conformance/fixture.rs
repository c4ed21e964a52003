use std::any::Any;
use std::sync::Arc;

use crate::{
    AccessOverride, Attributes, Blocking, Caller, Content, CreateHow, Created, DirectoryChange,
    Error, FileId, FileSystem, Name, NewNode, OpenAccess, OpenFile, ReadInto, Renamed, Result,
    SetAttributes, Stability,
};

pub struct Fixture {
    pub fs: Arc<dyn FileSystem>,
    pub owner: Caller,
    pub any_caller: bool,
    pub keep: Box<dyn Any>,
}

pub type Rule = (&'static str, fn(&Fixture));

pub(crate) const READ: OpenAccess = OpenAccess { read: true, write: false };
pub(crate) const WRITE: OpenAccess = OpenAccess { read: false, write: true };
pub(crate) const BOTH: OpenAccess = OpenAccess { read: true, write: true };

pub(crate) fn alice() -> Caller {
    Caller::new(1001, 2001, [3001, 3002])
}

pub(crate) fn bob() -> Caller {
    Caller::new(1002, 2002, [3002])
}

pub(crate) fn name(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).expect("tests use names")
}

pub(crate) fn mode(mode: u16) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

macro_rules! refused {
    ($result:expr, $pattern:pat, $($why:tt)*) => {
        match $result {
            Err($pattern) => {}
            Err(other) => panic!("{}: failed with {other:?}", format!($($why)*)),
            Ok(_) => panic!("{}: succeeded", format!($($why)*)),
        }
    };
}
pub(crate) use refused;

impl Fixture {
    /// If false, prints a message: rules about several callers cannot be checked.
    pub(crate) fn has_callers(&self) -> bool {
        if !self.any_caller {
            eprintln!("not applicable: acts for one caller only");
        }
        self.any_caller
    }

    pub(crate) fn root(&self) -> FileId {
        self.fs.root()
    }

    pub(crate) fn attributes(&self, id: &FileId) -> Attributes {
        self.fs.attributes(id, Blocking::Allowed).expect("attributes of a file that exists")
    }

    pub(crate) fn change(&self, id: &FileId) -> u64 {
        self.attributes(id).change
    }

    pub(crate) fn create_as(
        &self,
        caller: &Caller,
        directory: &FileId,
        file: &str,
        how: CreateHow,
        set: &SetAttributes,
    ) -> Result<Created> {
        self.fs.create(caller, directory, name(file), how, set, BOTH)
    }

    pub(crate) fn create(
        &self,
        directory: &FileId,
        file: &str,
        how: CreateHow,
        set: &SetAttributes,
    ) -> Result<Created> {
        self.create_as(&self.owner, directory, file, how, set)
    }

    pub(crate) fn file(&self, directory: &FileId, file: &str, content: &[u8]) -> FileId {
        let made = self.create(directory, file, CreateHow::Guarded, &mode(0o644));
        let made = made.expect("creating a file succeeds");
        write(&*made.open, 0, content);
        made.id
    }

    pub(crate) fn directory(&self, directory: &FileId, new: &str, bits: u16) -> FileId {
        let made = self.make(directory, new, NewNode::Directory, &mode(bits));
        made.expect("creating a directory succeeds").0
    }

    pub(crate) fn make(
        &self,
        directory: &FileId,
        new: &str,
        node: NewNode<'_>,
        set: &SetAttributes,
    ) -> Result<(FileId, Attributes, DirectoryChange)> {
        self.fs.make(&self.owner, directory, name(new), node, set)
    }

    pub(crate) fn symlink(&self, directory: &FileId, new: &str, target: &[u8]) -> FileId {
        let made = self.make(directory, new, NewNode::Symlink(target), &SetAttributes::default());
        made.expect("creating a symbolic link succeeds").0
    }

    pub(crate) fn link(&self, file: &FileId, to: &FileId, new: &str) -> Result<DirectoryChange> {
        self.fs.link(&self.owner, file, to, name(new))
    }

    pub(crate) fn rename(
        &self,
        from: &FileId,
        old: &str,
        to: &FileId,
        new: &str,
    ) -> Result<Renamed> {
        self.fs.rename(&self.owner, from, name(old), to, name(new), None)
    }

    pub(crate) fn parent(&self, directory: &FileId) -> Result<FileId> {
        self.fs.parent(&self.owner, directory, Blocking::Allowed)
    }

    pub(crate) fn sync(&self, ids: &[FileId]) {
        self.fs.sync_metadata(ids, Blocking::Allowed).expect("the sync succeeds");
    }

    pub(crate) fn lookup(&self, directory: &FileId, file: &str) -> Result<FileId> {
        self.fs.lookup(&self.owner, directory, name(file), Blocking::Allowed).map(|found| found.0)
    }

    pub(crate) fn found(&self, directory: &FileId, file: &str) -> FileId {
        self.lookup(directory, file).expect("the file exists")
    }

    pub(crate) fn try_remove(
        &self,
        directory: &FileId,
        file: &str,
    ) -> Result<(DirectoryChange, Option<FileId>)> {
        self.fs.remove(&self.owner, directory, name(file), None)
    }

    pub(crate) fn remove(&self, directory: &FileId, file: &str) -> Option<FileId> {
        self.try_remove(directory, file).expect("the name can be removed").1
    }

    pub(crate) fn open_as(
        &self,
        caller: &Caller,
        id: &FileId,
        access: OpenAccess,
        access_override: AccessOverride,
    ) -> Result<Arc<dyn OpenFile>> {
        self.fs.open(caller, id, access, access_override, Blocking::Allowed)
    }

    pub(crate) fn try_open(&self, id: &FileId, access: OpenAccess) -> Result<Arc<dyn OpenFile>> {
        self.open_as(&self.owner, id, access, AccessOverride::None)
    }

    pub(crate) fn open(&self, id: &FileId, access: OpenAccess) -> Arc<dyn OpenFile> {
        self.try_open(id, access).expect("the owner can open the file")
    }

    pub(crate) fn content(&self, id: &FileId) -> Vec<u8> {
        read(&*self.open(id, READ), 0, 1 << 20).0
    }

    pub(crate) fn set(&self, id: &FileId, set: SetAttributes) {
        self.fs.set_attributes(&self.owner, id, None, &set).expect("the owner can set attributes");
    }

    pub(crate) fn names(&self, directory: &FileId) -> Vec<String> {
        let mut names = Vec::new();
        let done = self.fs.read_directory(
            &self.owner,
            directory,
            0,
            false,
            Blocking::Allowed,
            &mut |entry| {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
                std::ops::ControlFlow::Continue(())
            },
        );
        assert!(done.expect("the owner can list"), "an uninterrupted listing reaches the end");
        names.sort();
        names
    }
}

pub(crate) fn write(open: &dyn OpenFile, offset: u64, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        let written = open
            .write(offset + done as u64, &data[done..], Stability::Unstable, Blocking::Allowed)
            .expect("an open file can be written");
        assert!(written.len > 0, "a write writes something");
        done += written.len;
    }
}

pub(crate) fn read(open: &dyn OpenFile, offset: u64, len: usize) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    match open
        .read(offset, len, ReadInto { bytes: &mut bytes, span_allowed: false }, Blocking::Allowed)
        .expect("an open file can be read")
    {
        Content::Bytes { len, eof } => {
            assert_eq!(len, bytes.len(), "the returned length is the number of appended bytes");
            (bytes, eof)
        }
        Content::Span { .. } => panic!("a span was not allowed"),
    }
}

pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % sides
    }
}

pub(crate) fn is_stale<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Stale))
}
