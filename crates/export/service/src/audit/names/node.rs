//! Compact keys for name tables, which exceed the CPU's caches.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use quick_cache::Equivalent;
use vouch_nfs4_server::ExportId;
use vouch_vfs::FileId;

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// Export number, length of the identity, and the identity padded with zeros.
    Short([u8; SHORT_LEN]),
    Long(Arc<(ExportId, FileId)>),
}

impl Node {
    pub(super) fn of(export: ExportId, file: &FileId) -> Node {
        let bytes = file.as_bytes();
        let mut short = [0; SHORT_LEN];
        match short[ID_AT..].get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                short[..LEN_AT].copy_from_slice(&export.0.to_le_bytes());
                short[LEN_AT] = bytes.len() as u8;
                Node::Short(short)
            }
            None => Node::Long(Arc::new((export, *file))),
        }
    }

    pub(super) fn file(&self) -> FileId {
        match self {
            Node::Short(short) => {
                let bytes = &short[ID_AT..][..usize::from(short[LEN_AT])];
                FileId::new(bytes).expect("the value was built from one")
            }
            Node::Long(long) => long.1,
        }
    }

    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        let bytes = match self {
            Node::Short(short) => &short[..],
            Node::Long(long) => long.1.as_bytes(),
        };
        let (words, rest) = bytes.as_chunks::<8>();
        let rest = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        words.iter().map(|word| u64::from_le_bytes(*word)).chain([rest])
    }
}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Node::Short(short) => state.write(short),
            Node::Long(long) => long.hash(state),
        }
    }
}

#[derive(Clone)]
pub(super) enum Name {
    Short(u8, [u8; SHORT_NAME_LEN_MAX]),
    Long(Arc<[u8]>),
}

impl From<&[u8]> for Name {
    fn from(name: &[u8]) -> Name {
        let mut short = [0; SHORT_NAME_LEN_MAX];
        match short.get_mut(..name.len()) {
            Some(place) => {
                place.copy_from_slice(name);
                Name::Short(name.len() as u8, short)
            }
            None => Name::Long(name.into()),
        }
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Name::Short(len, short) => &short[..usize::from(*len)],
            Name::Long(long) => long,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

pub(super) type Link = (Node, Name);

#[derive(Hash)]
pub(super) struct Child<'a>(pub(super) &'a Node, pub(super) &'a [u8]);

impl Equivalent<Link> for Child<'_> {
    fn equivalent(&self, (directory, name): &Link) -> bool {
        self.1 == &**name && self.0 == directory
    }
}

const LEN_AT: usize = size_of::<ExportId>();
const ID_AT: usize = LEN_AT + 1;
/// Identities of usual file systems have 13 to 33 bytes.
const SHORT_LEN: usize = ID_AT + 34;
/// Fits most names, and the pointer of a long one.
const SHORT_NAME_LEN_MAX: usize = 22;
const _: () = assert!(size_of::<Node>() == 40 && size_of::<Name>() == 24);

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn files_and_names_of_each_length_round_trip() {
        let bytes: Vec<u8> = (1..=64).collect();
        let node =
            |export, len: usize| Node::of(ExportId(export), &FileId::new(&bytes[..len]).unwrap());
        for len in 0..=bytes.len() {
            assert_eq!(node(7, len).file().as_bytes(), &bytes[..len]);
            assert!(node(7, len) == node(7, len) && node(7, len) != node(8, len), "{len}");
            assert!(len == 0 || node(7, len) != node(7, len - 1), "{len}");
            assert_eq!(&*Name::from(&bytes[..len]), &bytes[..len]);
        }
        let (zero, none) = (FileId::new(&[0]).unwrap(), FileId::new(&[]).unwrap());
        assert!(
            Node::of(ExportId(7), &zero) != Node::of(ExportId(7), &none),
            "zeros that follow are not of it"
        );
    }

    #[test]
    fn borrowed_key_finds_owned_name() {
        let hashes = std::hash::RandomState::new();
        let bytes: Vec<u8> = (1..=64).collect();
        for len in 1..=bytes.len() {
            let (directory, name) =
                (Node::of(ExportId(7), &FileId::new(&bytes[..len]).unwrap()), &bytes[..len]);
            let link = (directory.clone(), Name::from(name));
            assert_eq!(hashes.hash_one(Child(&directory, name)), hashes.hash_one(&link), "{len}");
            assert!(
                Child(&directory, name).equivalent(&link)
                    && !Child(&directory, &name[1..]).equivalent(&link),
                "{len}"
            );
        }
    }
}
