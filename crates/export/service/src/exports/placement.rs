//! Number, fsid and path of an export: equal at each start.

use vouch_nfs4_server::ExportId;

use super::syntax::{Fsid, Source};

/// From `fsid=`, the tree or the path, so equal at each start, and for a tree on each server. The
/// highest bit marks identifiers that are not from `fsid=`.
pub(super) fn number(
    source: &Source,
    fsid: Option<Fsid>,
    tree_number: Option<u64>,
) -> (ExportId, Option<(u64, u64)>) {
    let hashed = |bytes: &[u8]| {
        let hash = blake3::hash(bytes);
        let word = hash.as_bytes().first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        ExportId(word | 1 << 31)
    };
    match (fsid, source, tree_number) {
        (Some(Fsid::Number(number)), ..) => {
            (ExportId(number & !(1 << 31)), Some((number.into(), 0)))
        }
        (Some(Fsid::Root), ..) => (ExportId(0), Some((0, 0))),
        (Some(Fsid::Uuid(uuid)), ..) => {
            let half =
                |at: usize| uuid[at..].first_chunk().map_or(0, |half| u64::from_be_bytes(*half));
            (hashed(&uuid), Some((half(0), half(8))))
        }
        (None, _, Some(tree)) => (hashed(&tree.to_be_bytes()), None),
        (None, Source::Directory(path), None) => (hashed(path), None),
        (None, Source::Tree(tree), None) => (hashed(&[b"tree:", &tree[..]].concat()), None),
    }
}

/// The export's path, or its path below the root export (`fsid=root`), as in the kernel's server.
pub(super) fn place(source: &Source, pseudo: Option<&str>, root: Option<&Source>) -> Vec<Vec<u8>> {
    let parts = |path: &[u8]| {
        path.split(|&byte| byte == b'/')
            .filter(|part| !part.is_empty())
            .map(<[u8]>::to_vec)
            .collect::<Vec<_>>()
    };
    if let Some(pseudo) = pseudo {
        return parts(pseudo.as_bytes());
    }
    match source {
        Source::Directory(path) => {
            let own = parts(path);
            match root {
                Some(Source::Directory(root)) => {
                    own.strip_prefix(&parts(root)[..]).map_or(own.clone(), <[Vec<u8>]>::to_vec)
                }
                _ => own,
            }
        }
        Source::Tree(tree) => [vec![b"tree".to_vec()], parts(tree)].concat(),
    }
}
