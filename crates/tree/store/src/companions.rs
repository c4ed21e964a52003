//! Frames sent with a revision's fsinfo, which a new client would request next.

use std::collections::VecDeque;

use vouch_tree::protocol::COMPANIONS_MAX;
use vouch_tree::{BlockHandle, Inode, frame, references};

use crate::{FrameSource, Result};

/// The first needed first: the top page of the root directory, then frames below it, breadth first,
/// while they fit into one burst. Does not verify: the receiver does.
pub fn companions(source: &dyn FrameSource, root: &Inode) -> Result<Vec<BlockHandle>> {
    let (mut chosen, mut len) = (Vec::new(), 0);
    let mut queue: VecDeque<_> = references::of_inode(root).take(CANDIDATES_MAX).collect();
    let mut looks = 0;
    while let Some((kind, handle)) = queue.pop_front() {
        looks += 1;
        if chosen.len() == COMPANIONS_MAX || looks > CANDIDATES_MAX {
            break;
        }
        let Some(stored) = source.get(&handle)? else { continue };
        let len_max = if chosen.is_empty() { FIRST_LEN_MAX } else { BURST_LEN_MAX };
        if len + stored.len() > len_max || chosen.contains(&handle) {
            continue;
        }
        len += stored.len();
        chosen.push(handle);
        let Ok(payload) = frame::payload(kind, &stored) else { continue };
        let below = references::of_payload(kind, &payload).unwrap_or_default();
        queue.extend(below.into_iter().take(CANDIDATES_MAX.saturating_sub(queue.len())));
    }
    Ok(chosen)
}

/// Longest top page: it is needed in any case.
const FIRST_LEN_MAX: usize = 16 * 1024;

/// With fsinfo and headers, TCP's initial window of ten segments (RFC 6928).
const BURST_LEN_MAX: usize = 12 * 1024;

/// Frames considered: bounds time and memory.
const CANDIDATES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::IV;
    use crate::{FrameSink as _, MemoryStore};
    use vouch_tree::directory::DirectoryBuilder;
    use vouch_tree::protocol::COMPANIONS_LEN_MAX;
    use vouch_tree::{Blob, BlobBody, Content, FileName, FrameKind};

    const _: () = assert!(FIRST_LEN_MAX <= COMPANIONS_LEN_MAX && BURST_LEN_MAX <= FIRST_LEN_MAX);

    fn inode(content: Content) -> Inode {
        Inode::new(0o644, content)
    }

    fn put(store: &MemoryStore, kind: FrameKind, payload: &[u8]) -> BlockHandle {
        let bytes = frame::build(kind, payload, 0);
        let handle = IV.handle_of(&bytes);
        store.put(&handle, &bytes).unwrap();
        handle
    }

    fn file(store: &MemoryStore, byte: u8, len: usize) -> Inode {
        let body = BlobBody::Leaf(put(store, FrameKind::Leaf, &vec![byte; len]));
        inode(Content::Regular { blob: Blob { size: len as u64, body }, space: 0 })
    }

    fn directory(store: &MemoryStore, entries: Vec<(String, Inode)>) -> Inode {
        let mut builder = DirectoryBuilder::new();
        let count = entries.len() as u64;
        let mut put = |kind, payload: &[u8]| Ok::<_, ()>(put(store, kind, payload));
        for (name, inode) in entries {
            builder.push(FileName::parse(name.as_bytes()).unwrap(), inode, &mut put).unwrap();
        }
        let top = builder.finish(&mut put).unwrap();
        inode(Content::Directory { entries: count, subdirs: 0, opaque: false, top })
    }

    fn lens(store: &MemoryStore, root: &Inode) -> Vec<usize> {
        companions(store, root)
            .unwrap()
            .iter()
            .map(|handle| store.get(handle).unwrap().unwrap().len())
            .collect()
    }

    #[test]
    fn small_tree_comes_whole() {
        let store = MemoryStore::new();
        let below = directory(&store, vec![("leaf".into(), file(&store, 1, 2000))]);
        let root = directory(
            &store,
            vec![("below".into(), below), ("file".into(), file(&store, 2, 3000))],
        );
        let found = lens(&store, &root);
        assert_eq!(found.len(), 4);
        assert_eq!((found[2], found[3]), (3002, 2002), "breadth first");
    }

    #[test]
    fn large_tree_fills_one_burst() {
        let store = MemoryStore::new();
        let of = |count: usize| {
            let files =
                (0..count).map(|i| (format!("{i:05}"), file(&store, i as u8, 1500))).collect();
            lens(&store, &directory(&store, files))
        };
        assert!((4..=COMPANIONS_MAX).contains(&of(20).len()));
        for count in (10..400).step_by(10) {
            let (found, sum) = (of(count), of(count).iter().sum::<usize>());
            assert!(
                sum <= BURST_LEN_MAX || (found.len() == 1 && sum <= FIRST_LEN_MAX),
                "{count}: {found:?}"
            );
        }
    }

    #[test]
    fn missing_frames_are_left_out() {
        let store = MemoryStore::new();
        let lost = inode(Content::Regular {
            blob: Blob { size: 5000, body: BlobBody::Leaf(BlockHandle::from_bytes([7; 32])) },
            space: 0,
        });
        assert_eq!(lens(&store, &directory(&store, vec![("lost".into(), lost)])).len(), 1);
        assert_eq!(lens(&store, &directory(&store, Vec::new())), [0; 0]);
    }
}
