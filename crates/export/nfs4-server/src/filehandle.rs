//! ```text
//! version 1 | kind 0 pseudo, 1 file | number u32: 0, or of the export | identity: 8 bytes of a pseudo node, or a FileId | authenticator 16
//! version 1 | kind 2 file of a layout | number u32 of the export | change attribute u64 | FileId | authenticator 16
//! ```
//! The authenticator is keyed BLAKE3 over all before it (docs/formats/filehandle.md).

use vouch_nfs4::{FILEHANDLE_LEN_MAX, Filehandle, Status};
use vouch_vfs::FileId;

use crate::ExportId;

const VERSION: u8 = 1;
const KIND_PSEUDO: u8 = 0;
const KIND_FILE: u8 = 1;
const KIND_LAYOUT: u8 = 2;
const HEAD_LEN: usize = 6;
const CHANGE_LEN: usize = 8;
const MAC_LEN: usize = 16;

const _: () = assert!(
    HEAD_LEN + CHANGE_LEN + vouch_vfs::FILE_ID_LEN_MAX + MAC_LEN <= FILEHANDLE_LEN_MAX,
    "the longest identity fits a filehandle"
);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PseudoId(pub(crate) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleTarget {
    Pseudo(PseudoId),
    File(ExportId, FileId),
    /// Only for the content that has this change attribute.
    LayoutFile(ExportId, FileId, u64),
}

/// No `Debug`: contains the secret.
pub(crate) struct HandleCodec {
    key: [u8; 32],
}

impl HandleCodec {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        HandleCodec { key }
    }

    pub(crate) fn seal(&self, named: &HandleTarget) -> Filehandle {
        let mut bytes = [0u8; FILEHANDLE_LEN_MAX];
        bytes[0] = VERSION;
        let (kind, export, number, identity) = match named {
            HandleTarget::Pseudo(id) => (KIND_PSEUDO, 0, Some(id.0), &[][..]),
            HandleTarget::File(export, id) => (KIND_FILE, export.0, None, id.as_bytes()),
            HandleTarget::LayoutFile(export, id, change) => {
                (KIND_LAYOUT, export.0, Some(*change), id.as_bytes())
            }
        };
        bytes[1] = kind;
        bytes[2..HEAD_LEN].copy_from_slice(&export.to_be_bytes());
        let mut at = HEAD_LEN;
        if let Some(number) = number {
            bytes[at..at + CHANGE_LEN].copy_from_slice(&number.to_be_bytes());
            at += CHANGE_LEN;
        }
        let end = at + identity.len();
        bytes[at..end].copy_from_slice(identity);
        let mac = self.mac(&bytes[..end]);
        bytes[end..end + MAC_LEN].copy_from_slice(&mac);
        Filehandle::new(&bytes[..end + MAC_LEN])
            .expect("an identity is short enough, as asserted above")
    }

    /// BADHANDLE for a handle of another server (RFC 8881 §15.1.2.1).
    pub(crate) fn open(&self, handle: &Filehandle) -> Result<HandleTarget, Status> {
        let (body, mac) =
            handle.as_bytes().split_last_chunk::<MAC_LEN>().ok_or(Status::BADHANDLE)?;
        let (head, identity) = body.split_first_chunk::<HEAD_LEN>().ok_or(Status::BADHANDLE)?;
        if !same(&self.mac(body), mac) {
            return Err(Status::BADHANDLE);
        }
        let [version, kind, export @ ..] = *head;
        match (version, kind) {
            (VERSION, KIND_PSEUDO) => Ok(HandleTarget::Pseudo(PseudoId(u64::from_be_bytes(
                identity.try_into().map_err(|_| Status::BADHANDLE)?,
            )))),
            (VERSION, KIND_FILE) => Ok(HandleTarget::File(
                ExportId(u32::from_be_bytes(export)),
                FileId::new(identity).ok_or(Status::BADHANDLE)?,
            )),
            (VERSION, KIND_LAYOUT) => {
                let (change, identity) =
                    identity.split_first_chunk::<CHANGE_LEN>().ok_or(Status::BADHANDLE)?;
                let (export, id) = (
                    ExportId(u32::from_be_bytes(export)),
                    FileId::new(identity).ok_or(Status::BADHANDLE)?,
                );
                Ok(HandleTarget::LayoutFile(export, id, u64::from_be_bytes(*change)))
            }
            // Authentic, so another version of this server made it.
            _ => Err(Status::STALE),
        }
    }

    fn mac(&self, bytes: &[u8]) -> [u8; MAC_LEN] {
        let hash = blake3::keyed_hash(&self.key, bytes);
        *hash.as_bytes().first_chunk().expect("a BLAKE3 hash has 32 bytes")
    }
}

fn same(a: &[u8; MAC_LEN], b: &[u8; MAC_LEN]) -> bool {
    let same = std::hint::black_box(a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b))) == 0;
    // The peer learns it.
    #[cfg(test)]
    let same = vouch_testkit::memcheck::published(same.into());
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<HandleTarget> {
        vec![
            HandleTarget::Pseudo(PseudoId(0)),
            HandleTarget::Pseudo(PseudoId(u64::MAX)),
            HandleTarget::File(ExportId(7), FileId::new(b"").unwrap()),
            HandleTarget::File(
                ExportId(u32::MAX),
                FileId::new(&[9; vouch_vfs::FILE_ID_LEN_MAX]).unwrap(),
            ),
            HandleTarget::LayoutFile(ExportId(7), FileId::new(b"").unwrap(), 0),
            HandleTarget::LayoutFile(
                ExportId(u32::MAX),
                FileId::new(&[9; vouch_vfs::FILE_ID_LEN_MAX]).unwrap(),
                u64::MAX,
            ),
        ]
    }

    #[test]
    #[ignore = "needs valgrind"]
    fn authenticator_is_checked_in_constant_time() {
        use vouch_testkit::memcheck::{hide, is_in_memcheck, publish};
        if !is_in_memcheck("filehandle::tests::authenticator_is_checked_in_constant_time") {
            return;
        }
        let mut key = [7; 32];
        hide(&mut key);
        let codec = HandleCodec::new(key);
        for target in samples() {
            let mut bytes = codec.seal(&target).as_bytes().to_vec();
            publish(&mut bytes);
            let handle = Filehandle::new(&bytes).unwrap();
            assert_eq!(codec.open(&handle), Ok(target));
            for at in 0..bytes.len() {
                bytes[at] ^= 1;
                assert!(codec.open(&Filehandle::new(&bytes).unwrap()).is_err());
                bytes[at] ^= 1;
            }
        }
    }

    #[test]
    fn only_unaltered_handle_of_this_server_opens() {
        let (codec, theirs) = (HandleCodec::new([3; 32]), HandleCodec::new([4; 32]));
        for named in samples() {
            let sealed = codec.seal(&named);
            for at in 0..sealed.as_bytes().len() {
                let mut bytes = sealed.as_bytes().to_vec();
                bytes[at] ^= 0x40;
                assert_eq!(
                    codec.open(&Filehandle::new(&bytes).unwrap()),
                    Err(Status::BADHANDLE),
                    "{named:?}: byte {at}"
                );
            }
            assert_eq!(
                codec.open(&theirs.seal(&named)),
                Err(Status::BADHANDLE),
                "{named:?} of another server"
            );
            assert_eq!(codec.open(&sealed), Ok(named));
        }
        for len in 0..30 {
            assert_eq!(
                codec.open(&Filehandle::new(&vec![1; len]).unwrap()),
                Err(Status::BADHANDLE),
                "{len} bytes"
            );
        }
    }
}
