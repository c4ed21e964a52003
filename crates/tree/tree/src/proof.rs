//! Proofs of what one signed revision holds at one path, checked without a replica: a signed
//! fsinfo, a path, and the frames from the root to the path's end and its content. [`Walk`] names
//! the frames for prover and checker.

use std::borrow::Cow;

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::blob::{FANOUT, Indirect, child_span};
use crate::directory::{InteriorPage, LeafPage};
use crate::frame::{self, FrameKind};
use crate::fsinfo::SIGNED_LEN_MAX;
use crate::name::NameError;
use crate::statement::KeyStatement;
use crate::verify::{NewestSeen, Refusal, Verified, verify_fsinfo};
use crate::{
    Blob, BlobBody, BlockHandle, Content, FileName, HostId, Inode, Iv, PageRef, SignedFsinfo,
};

/// Start of a proof file.
pub const MAGIC: [u8; 16] = *b"vouch proof v1\n\0";

/// Longest path, in bytes.
pub const PATH_LEN_MAX: usize = 65_536;

/// Length in XDR.
pub const HEADER_LEN_MAX: usize = MAGIC.len() + 4 + SIGNED_LEN_MAX + 4 + PATH_LEN_MAX;

/// The frames follow, each as XDR `opaque<>`, up to the end of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofHeader {
    /// [`SignedFsinfo`] in XDR.
    pub signed_fsinfo: Vec<u8>,
    /// Names joined by `/`; empty for the root.
    pub path: Vec<u8>,
}

impl ProofHeader {
    /// Verifies the signatures for this tree. The revision may have expired since. A revocation
    /// among `statements` refuses it; forwarding pointers do not.
    pub fn verify(
        &self,
        hostid: &HostId,
        statements: &[KeyStatement],
    ) -> Result<Verified, Refusal> {
        let start = SignedFsinfo::from_xdr(&self.signed_fsinfo)?.open(hostid)?.start;
        verify_fsinfo(
            hostid,
            &self.signed_fsinfo,
            start,
            &NewestSeen::default(),
            statements.iter().filter(|statement| statement.is_revocation()),
        )
    }
}

impl Xdr for ProofHeader {
    fn encode(&self, w: &mut Writer) {
        w.opaque_fixed(&MAGIC);
        w.opaque(&self.signed_fsinfo);
        w.opaque(&self.path);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        if r.opaque_fixed()? != MAGIC {
            return Err(XdrError::Invalid("magic of a proof"));
        }
        Ok(Self {
            signed_fsinfo: r.opaque(SIGNED_LEN_MAX)?.to_vec(),
            path: r.opaque(PATH_LEN_MAX)?.to_vec(),
        })
    }
}

/// What the signed revision holds at the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The content of a regular file follows as [`Piece`]s.
    Present(Inode),
    /// The directory at the first `depth` names lacks the next name.
    Absent {
        /// Names that exist.
        depth: usize,
    },
    /// The first `depth` names lead to a file that is no directory.
    NotADirectory {
        /// Names that exist.
        depth: usize,
    },
}

/// File content, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes of the file.
    Data(Cow<'a, [u8]>),
    /// A hole of this many bytes.
    Zeros(u64),
}

/// Why a frame of a proof is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not the expected frame.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// A frame that is not XDR of its kind.
    #[error("frame {0} is malformed: {1}")]
    Malformed(BlockHandle, XdrError),
    /// A frame that does not fit what its parent says about it.
    #[error("frame {0} contradicts its parent: {1}")]
    Contradiction(BlockHandle, &'static str),
    /// Not a path.
    #[error("the path is not a list of names: {0}")]
    Path(#[from] NameError),
}

#[derive(Debug, Clone, Copy)]
enum Pending {
    Page { page: PageRef, entries: u64 },
    Indirect { depth: u8, handle: BlockHandle, size: u64 },
    Leaf { handle: BlockHandle, size: u64 },
    Hole { size: u64 },
}

/// Visits the frames from a root inode to the end of a path, then the content.
#[derive(Debug)]
pub struct Walk {
    iv: Iv,
    names: Vec<FileName>,
    depth: usize,
    finding: Option<Finding>,
    pending: Vec<Pending>,
}

impl Walk {
    /// `root`: of a revision. `sink` gets inline content.
    pub fn begin(
        iv: Iv,
        root: &Inode,
        path: &[u8],
        sink: &mut impl FnMut(Piece<'_>),
    ) -> Result<Self, Error> {
        let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty());
        let names = names.map(FileName::parse).collect::<Result<Vec<_>, _>>()?;
        let mut walk = Self { iv, names, depth: 0, finding: None, pending: Vec::new() };
        walk.enter(root, sink);
        Ok(walk)
    }

    /// The frame for [`Walk::feed`]; `None` at the end.
    pub fn needed(&self) -> Option<(FrameKind, BlockHandle)> {
        self.pending.last().map(|pending| match pending {
            Pending::Page { page, .. } => (page.kind(), page.handle),
            Pending::Indirect { handle, .. } => (FrameKind::Indirect, *handle),
            Pending::Leaf { handle, .. } => (FrameKind::Leaf, *handle),
            Pending::Hole { .. } => {
                unreachable!("holes are delivered before the walk waits for a frame")
            }
        })
    }

    /// `None` until the walk knows.
    pub const fn finding(&self) -> Option<&Finding> {
        self.finding.as_ref()
    }

    /// The parts of the path.
    pub fn names(&self) -> &[FileName] {
        &self.names
    }

    /// Verifies the needed frame and advances. `sink` gets its content.
    ///
    /// # Panics
    /// No frame is needed.
    pub fn feed(&mut self, stored: &[u8], sink: &mut impl FnMut(Piece<'_>)) -> Result<(), Error> {
        let (kind, handle) = self.needed().expect("the caller asks which frame is needed");
        let payload = frame::open(&self.iv, &handle, kind, stored)?;
        match self.pending.pop() {
            Some(Pending::Page { page, entries }) => {
                self.feed_page(page, entries, &payload, sink)?
            }
            Some(Pending::Indirect { depth, size, .. }) => {
                let indirect =
                    Indirect::from_xdr(&payload).map_err(|e| Error::Malformed(handle, e))?;
                if indirect.depth != depth {
                    return Err(Error::Contradiction(handle, "its depth"));
                }
                self.push_children(&indirect, size, handle)?;
            }
            Some(Pending::Leaf { size, .. }) => {
                if payload.len() as u64 != size {
                    return Err(Error::Contradiction(handle, "its length"));
                }
                sink(Piece::Data(payload));
            }
            Some(Pending::Hole { .. }) | None => unreachable!("a frame was needed"),
        }
        self.deliver_holes(sink);
        Ok(())
    }

    fn feed_page(
        &mut self,
        page: PageRef,
        entries: u64,
        payload: &[u8],
        sink: &mut impl FnMut(Piece<'_>),
    ) -> Result<(), Error> {
        let name = self.names[self.depth].as_bytes();
        if page.height == 0 {
            let leaf = LeafPage::from_xdr(payload).map_err(|e| Error::Malformed(page.handle, e))?;
            if leaf.entries().len() as u64 != entries {
                return Err(Error::Contradiction(page.handle, "its number of entries"));
            }
            match leaf.find(name) {
                Some(entry) => {
                    self.depth += 1;
                    let inode = entry.inode.clone();
                    self.enter(&inode, sink);
                }
                None => self.finding = Some(Finding::Absent { depth: self.depth }),
            }
            return Ok(());
        }
        let interior =
            InteriorPage::from_xdr(payload).map_err(|e| Error::Malformed(page.handle, e))?;
        if interior.height() != page.height {
            return Err(Error::Contradiction(page.handle, "its height"));
        }
        let below: u64 = interior.children().iter().map(|child| child.entries).sum();
        if below != entries {
            return Err(Error::Contradiction(page.handle, "its number of entries"));
        }
        match interior
            .child_for(name)
            .and_then(|index| interior.page(index).zip(interior.children().get(index)))
        {
            Some((page, child)) => {
                self.pending.push(Pending::Page { page, entries: child.entries })
            }
            None => self.finding = Some(Finding::Absent { depth: self.depth }),
        }
        Ok(())
    }

    fn enter(&mut self, inode: &Inode, sink: &mut impl FnMut(Piece<'_>)) {
        if self.depth == self.names.len() {
            self.finding = Some(Finding::Present(inode.clone()));
            if let Content::Regular { blob, .. } = &inode.content {
                self.push_blob(blob, sink);
            }
            return;
        }
        match &inode.content {
            Content::Directory { entries, top: Some(page), .. } => {
                self.pending.push(Pending::Page { page: *page, entries: *entries })
            }
            Content::Directory { top: None, .. } => {
                self.finding = Some(Finding::Absent { depth: self.depth })
            }
            _ => self.finding = Some(Finding::NotADirectory { depth: self.depth }),
        }
    }

    fn push_blob(&mut self, blob: &Blob, sink: &mut impl FnMut(Piece<'_>)) {
        match &blob.body {
            BlobBody::Inline(bytes) if bytes.is_empty() => {}
            BlobBody::Inline(bytes) => sink(Piece::Data(Cow::Borrowed(bytes))),
            BlobBody::Hole => sink(Piece::Zeros(blob.size)),
            BlobBody::Leaf(handle) => {
                self.pending.push(Pending::Leaf { handle: *handle, size: blob.size })
            }
            BlobBody::Tree { depth, top } => self.pending.push(Pending::Indirect {
                depth: *depth,
                handle: *top,
                size: blob.size,
            }),
        }
    }

    fn push_children(
        &mut self,
        indirect: &Indirect,
        size: u64,
        handle: BlockHandle,
    ) -> Result<(), Error> {
        let span = child_span(indirect.depth);
        let count = size.div_ceil(span);
        if indirect.children.len() as u64 > count || count > FANOUT as u64 {
            return Err(Error::Contradiction(handle, "its number of children"));
        }
        for index in (0..count).rev() {
            let size = (size - index * span).min(span);
            self.pending.push(match indirect.child(index as usize) {
                None => Pending::Hole { size },
                Some(handle) if indirect.depth == 1 => Pending::Leaf { handle, size },
                Some(handle) => Pending::Indirect { depth: indirect.depth - 1, handle, size },
            });
        }
        Ok(())
    }

    fn deliver_holes(&mut self, sink: &mut impl FnMut(Piece<'_>)) {
        while let Some(Pending::Hole { size }) = self.pending.last() {
            sink(Piece::Zeros(*size));
            self.pending.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::BlobBuilder;
    use crate::directory::DirectoryBuilder;
    use crate::key::{SecretKey, SigningCert};
    use crate::statement::Body;
    use crate::{Counts, Fsinfo, LEAF_LEN_MAX};
    use std::collections::HashMap;

    const IV: Iv = Iv::from_bytes([7; 32]);
    const START: u64 = 1_000_000;

    #[derive(Default)]
    struct Store(HashMap<BlockHandle, Vec<u8>>);

    impl Store {
        fn put(&mut self, kind: FrameKind, payload: &[u8]) -> Result<BlockHandle, ()> {
            let frame = frame::build(kind, payload, 3);
            let handle = IV.handle_of(&frame);
            self.0.insert(handle, frame);
            Ok(handle)
        }

        fn directory(&mut self, entries: Vec<(String, Inode)>) -> Inode {
            let count = entries.len() as u64;
            let mut builder = DirectoryBuilder::new();
            for (name, inode) in entries {
                builder
                    .push(
                        FileName::parse(name.as_bytes()).unwrap(),
                        inode,
                        &mut |kind, payload: &[u8]| self.put(kind, payload),
                    )
                    .unwrap();
            }
            let top = builder.finish(&mut |kind, payload: &[u8]| self.put(kind, payload)).unwrap();
            inode(Content::Directory { entries: count, subdirs: 0, opaque: false, top })
        }

        fn file(&mut self, leaves: u64, stored: &[u64]) -> (Inode, Vec<u8>) {
            let mut content = vec![0; leaves as usize * LEAF_LEN_MAX - 5];
            let size = content.len() as u64;
            let mut builder = BlobBuilder::new();
            for index in 0..leaves {
                if !stored.contains(&index) {
                    builder.holes(1, &mut |kind, payload: &[u8]| self.put(kind, payload)).unwrap();
                    continue;
                }
                let range = index as usize * LEAF_LEN_MAX
                    ..((index as usize + 1) * LEAF_LEN_MAX).min(content.len());
                content[range.clone()]
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, byte)| *byte = (at as u64 * (index + 3) % 251) as u8);
                let handle = self.put(FrameKind::Leaf, &content[range]).unwrap();
                builder.leaf(handle, &mut |kind, payload: &[u8]| self.put(kind, payload)).unwrap();
            }
            let blob =
                builder.finish(size, &mut |kind, payload: &[u8]| self.put(kind, payload)).unwrap();
            (inode(Content::Regular { blob, space: size }), content)
        }

        fn prove(&self, root: &Inode, path: &str) -> Vec<Vec<u8>> {
            let mut walk = Walk::begin(IV, root, path.as_bytes(), &mut |_| {}).unwrap();
            let mut frames = Vec::new();
            while let Some((_, handle)) = walk.needed() {
                frames.push(self.0[&handle].clone());
                walk.feed(frames.last().unwrap(), &mut |_| {}).unwrap();
            }
            frames
        }
    }

    fn inode(content: Content) -> Inode {
        Inode::new(0o644, content)
    }

    fn check(
        root: &Inode,
        path: &str,
        frames: &[Vec<u8>],
    ) -> Result<(Option<Finding>, Vec<u8>), Error> {
        let mut content = Vec::new();
        let mut sink = |piece: Piece<'_>| match piece {
            Piece::Data(bytes) => content.extend_from_slice(&bytes),
            Piece::Zeros(count) => content.resize(content.len() + count as usize, 0),
        };
        let mut walk = Walk::begin(IV, root, path.as_bytes(), &mut sink)?;
        for stored in frames {
            walk.feed(stored, &mut sink)?;
        }
        Ok((walk.finding().cloned().filter(|_| walk.needed().is_none()), content))
    }

    #[test]
    fn proofs_show_content_absence_and_files_in_the_way() {
        let mut store = Store::default();
        let (large, large_content) = store.file(1030, &[0, 7, 1023, 1024, 1029]);
        let (small, small_content) = store.file(1, &[0]);
        let inline = inode(Content::Regular {
            blob: Blob { size: 2, body: BlobBody::Inline(b"hi".to_vec()) },
            space: 2,
        });
        let many = (0..3000).map(|n| (format!("{n:05}"), inline.clone())).collect();
        let many = store.directory(many);
        let below = store.directory(vec![
            ("large".into(), large),
            ("many".into(), many),
            ("small".into(), small),
        ]);
        let root = store.directory(vec![("a".into(), below)]);

        for (path, content) in [
            ("a/large", &large_content),
            ("a/small", &small_content),
            ("a/many/02999", &b"hi".to_vec()),
        ] {
            let frames = store.prove(&root, path);
            let (finding, found) = check(&root, path, &frames).unwrap();
            assert!(matches!(finding, Some(Finding::Present(_))) && found == *content, "{path}");
            assert_eq!(check(&root, path, &frames[..frames.len() - 1]).unwrap().0, None, "{path}");
            for at in 0..frames.len() {
                let mut altered = frames.clone();
                let middle = altered[at].len() / 2;
                altered[at][middle] ^= 1;
                assert!(
                    matches!(
                        check(&root, path, &altered),
                        Err(Error::Frame(frame::Error::WrongHash { .. }))
                    ),
                    "{path}: {at}"
                );
            }
        }
        for (path, expected) in [
            ("a/many/99999", Finding::Absent { depth: 2 }),
            ("a/many/+", Finding::Absent { depth: 2 }),
            ("b/c", Finding::Absent { depth: 0 }),
            ("a/small/x", Finding::NotADirectory { depth: 2 }),
        ] {
            assert_eq!(
                check(&root, path, &store.prove(&root, path)).unwrap().0,
                Some(expected),
                "{path}"
            );
        }
        assert!(matches!(check(&root, "a/../b", &[]), Err(Error::Path(_))));
    }

    #[test]
    fn frames_that_contradict_their_parents_are_refused() {
        let mut store = Store::default();
        let (small, _) = store.file(1, &[0]);
        let root = store.directory(vec![("a".into(), small.clone()), ("b".into(), small)]);
        let frames = store.prove(&root, "a");
        let mut miscounted = root.clone();
        if let Content::Directory { entries, .. } = &mut miscounted.content {
            *entries = 3;
        }
        assert!(matches!(check(&miscounted, "a", &frames), Err(Error::Contradiction(..))));
        let leaf = store.put(FrameKind::Leaf, &[1; 2000]).unwrap();
        let short = inode(Content::Regular {
            blob: Blob { size: 3000, body: BlobBody::Leaf(leaf) },
            space: 0,
        });
        assert!(matches!(
            check(&short, "", &[store.0[&leaf].clone()]),
            Err(Error::Contradiction(..))
        ));
    }

    #[test]
    fn header_verifies_after_expiry_but_not_for_other_or_revoked_keys() {
        let (root_key, key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let root = inode(Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None });
        let hostid = root_key.public().hostid();
        let fsinfo = Fsinfo {
            hostid,
            revision: 1,
            start: START,
            duration_s: 60,
            iv: IV,
            root,
            previous: None,
            counts: Counts::default(),
            tag: String::new(),
        };
        let sign = |not_after| {
            let cert = SigningCert::issue(&root_key, key.public(), 4, START - 1, not_after);
            ProofHeader {
                signed_fsinfo: SignedFsinfo::sign(&fsinfo, &key, cert).to_xdr(),
                path: b"a/b".to_vec(),
            }
        };
        let header = sign(START + 90);
        assert_eq!(ProofHeader::from_xdr(&header.to_xdr()).as_ref(), Ok(&header));
        assert_eq!(header.verify(&hostid, &[]).unwrap().fsinfo, fsinfo);
        let forwarding = KeyStatement::issue(
            &root_key,
            9,
            Body::Forwarding { to: crate::TreeName::new("h", hostid).unwrap() },
        );
        assert!(header.verify(&hostid, &[forwarding]).is_ok());
        let revocation =
            KeyStatement::issue(&root_key, 9, Body::Revocation { reason: String::new() });
        assert!(matches!(header.verify(&hostid, &[revocation]), Err(Refusal::Revoked { .. })));
        assert!(matches!(
            header.verify(&HostId::from_bytes([3; 32]), &[]),
            Err(Refusal::Forged(_))
        ));
        assert!(matches!(
            sign(START).verify(&hostid, &[]),
            Err(Refusal::OutsideCertificate { .. })
        ));
    }
}
