//! Kind byte, codec byte, payload. The hash covers all three: a client verifies before it
//! decompresses.

use std::borrow::Cow;
use std::cell::RefCell;

use crate::{BlockHandle, Iv};

/// The file data in a full leaf.
pub const LEAF_LEN_MAX: usize = 128 * 1024;

/// Header and raw payload.
pub const FRAME_LEN_MAX: usize = HEADER_LEN + LEAF_LEN_MAX;

const HEADER_LEN: usize = 2;
const CODEC_RAW: u8 = 0;
const CODEC_ZSTD: u8 = 1;

/// Shorter payloads are stored raw: the zstd header costs more than it saves.
const COMPRESS_LEN_MIN: usize = 64;

/// What a frame holds; its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FrameKind {
    /// File data, up to [`LEAF_LEN_MAX`] bytes.
    Leaf = 1,
    /// Handles of leaves or of indirect frames: [`crate::blob::Indirect`].
    Indirect = 2,
    /// Sorted entries of a directory: [`crate::directory::LeafPage`].
    DirLeaf = 3,
    /// Handles of directory pages: [`crate::directory::InteriorPage`].
    DirInterior = 4,
    /// A signed fsinfo, stored as history: [`crate::SignedFsinfo`].
    Fsinfo = 5,
}

impl FrameKind {
    /// `None` for a byte that is no kind of version 1.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Leaf,
            2 => Self::Indirect,
            3 => Self::DirLeaf,
            4 => Self::DirInterior,
            5 => Self::Fsinfo,
            _ => return None,
        })
    }

    /// Everything but file data.
    pub const fn is_metadata(self) -> bool {
        !matches!(self, Self::Leaf)
    }
}

/// [`Error::WrongHash`] is the replica's fault, the others are the publisher's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error("frame of {len} bytes does not hash to {handle}")]
    WrongHash { handle: BlockHandle, len: usize },
    #[error("frame of {0} bytes is outside the limits")]
    Length(usize),
    #[error("frame has kind {found} instead of {expected:?}")]
    WrongKind { expected: FrameKind, found: u8 },
    #[error("frame codec {0} is unknown; a newer version of vouch may support it")]
    UnknownCodec(u8),
    #[error("frame payload does not decompress")]
    Corrupt,
}

/// Compresses with zstd at `level` if that saves at least 1/16; level 0 stores raw.
///
/// # Panics
/// `payload` is longer than [`LEAF_LEN_MAX`].
pub fn build(kind: FrameKind, payload: &[u8], level: i32) -> Vec<u8> {
    assert!(payload.len() <= LEAF_LEN_MAX, "payloads are cut to LEAF_LEN_MAX by their builders");
    if level != 0 && payload.len() >= COMPRESS_LEN_MIN {
        let worth_max = payload.len() - payload.len() / 16;
        let mut frame = vec![0; HEADER_LEN + worth_max];
        frame[0] = kind as u8;
        frame[1] = CODEC_ZSTD;
        // An error: the compressed payload does not fit, so compression does not pay.
        if let Some(len) =
            COMPRESSOR.with_borrow_mut(|c| c.compress(level, payload, &mut frame[HEADER_LEN..]))
        {
            frame.truncate(HEADER_LEN + len);
            return frame;
        }
    }
    let mut frame = Vec::with_capacity(HEADER_LEN + payload.len());
    frame.extend_from_slice(&[kind as u8, CODEC_RAW]);
    frame.extend_from_slice(payload);
    frame
}

/// Verifies handle and kind, then decompresses.
pub fn open<'a>(
    iv: &Iv,
    handle: &BlockHandle,
    kind: FrameKind,
    frame: &'a [u8],
) -> Result<Cow<'a, [u8]>, Error> {
    verify(iv, handle, frame)?;
    payload(kind, frame)
}

/// Verifies the hash only.
pub fn verify(iv: &Iv, handle: &BlockHandle, frame: &[u8]) -> Result<(), Error> {
    if frame.len() < HEADER_LEN || frame.len() > FRAME_LEN_MAX {
        return Err(Error::Length(frame.len()));
    }
    // Handles are public: no comparison in constant time.
    if iv.handle_of(frame) != *handle {
        return Err(Error::WrongHash { handle: *handle, len: frame.len() });
    }
    Ok(())
}

/// The payload of a frame, decompressed up to [`LEAF_LEN_MAX`]. Checks no hash: see [`verify`].
pub fn payload(kind: FrameKind, frame: &[u8]) -> Result<Cow<'_, [u8]>, Error> {
    let (&[found, codec], stored) =
        frame.split_first_chunk::<HEADER_LEN>().ok_or(Error::Length(frame.len()))?;
    if found != kind as u8 {
        return Err(Error::WrongKind { expected: kind, found });
    }
    match codec {
        CODEC_RAW if stored.len() <= LEAF_LEN_MAX => Ok(Cow::Borrowed(stored)),
        CODEC_RAW => Err(Error::Length(frame.len())),
        CODEC_ZSTD => DECOMPRESSOR.with_borrow_mut(|d| d.decompress(stored)).map(Cow::Owned),
        other => Err(Error::UnknownCodec(other)),
    }
}

/// `None` for an empty frame or an unknown kind.
pub fn kind_of(frame: &[u8]) -> Option<FrameKind> {
    frame.first().copied().and_then(FrameKind::from_byte)
}

#[derive(Default)]
struct Compressor(Option<(i32, zstd::bulk::Compressor<'static>)>);

impl Compressor {
    fn compress(&mut self, level: i32, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        if self.0.as_ref().is_none_or(|(have, _)| *have != level) {
            self.0 = Some((level, zstd::bulk::Compressor::new(level).ok()?));
        }
        self.0.as_mut()?.1.compress_to_buffer(payload, out).ok()
    }
}

struct Decompressor {
    context: Option<zstd::bulk::Decompressor<'static>>,
    scratch: Vec<u8>,
}

impl Decompressor {
    fn decompress(&mut self, stored: &[u8]) -> Result<Vec<u8>, Error> {
        if self.context.is_none() {
            self.context = Some(zstd::bulk::Decompressor::new().map_err(|_| Error::Corrupt)?);
        }
        let context = self.context.as_mut().ok_or(Error::Corrupt)?;
        // Bounds the output, whatever length the frame claims.
        self.scratch.resize(LEAF_LEN_MAX, 0);
        let len = context
            .decompress_to_buffer(stored, self.scratch.as_mut_slice())
            .map_err(|_| Error::Corrupt)?;
        Ok(self.scratch[..len].to_vec())
    }
}

thread_local! {
    static COMPRESSOR: RefCell<Compressor> = RefCell::default();
    static DECOMPRESSOR: RefCell<Decompressor> = const { RefCell::new(Decompressor { context: None, scratch: Vec::new() }) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const IV: Iv = Iv::from_bytes([7; 32]);

    #[test]
    fn round_trips_raw_and_compressed_frames() {
        for payload in [
            vec![],
            vec![1; 63],
            vec![2; 4096],
            (0..=255).collect::<Vec<u8>>(),
            vec![9; LEAF_LEN_MAX],
        ] {
            for level in [0, 1, 3] {
                let frame = build(FrameKind::Leaf, &payload, level);
                assert_eq!(
                    open(&IV, &IV.handle_of(&frame), FrameKind::Leaf, &frame).unwrap(),
                    payload
                );
            }
        }
    }

    #[test]
    fn refuses_any_flipped_bit() {
        let frame = build(FrameKind::DirLeaf, &[5; 300], 3);
        let handle = IV.handle_of(&frame);
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(
                open(&IV, &handle, FrameKind::DirLeaf, &bad),
                Err(Error::WrongHash { .. })
            ));
        }
    }

    #[test]
    fn refuses_another_kind_and_decompression_bomb() {
        let opened = |kind, frame: &[u8]| open(&IV, &IV.handle_of(frame), kind, frame).map(|_| ());
        let leaf = build(FrameKind::Leaf, b"data", 0);
        assert_eq!(
            opened(FrameKind::DirLeaf, &leaf),
            Err(Error::WrongKind { expected: FrameKind::DirLeaf, found: 1 })
        );
        let bomb = zstd::bulk::compress(&vec![0; LEAF_LEN_MAX + 1], 3).unwrap();
        assert_eq!(
            opened(FrameKind::Leaf, &[&[FrameKind::Leaf as u8, CODEC_ZSTD], &bomb[..]].concat()),
            Err(Error::Corrupt)
        );
    }

    #[test]
    fn handle_matches_published_blake3_vector_and_depends_on_the_iv() {
        let iv = Iv::from_bytes(*b"whats the Elvish word for friend");
        assert_eq!(
            iv.handle_of(&[0]).to_string(),
            "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b"
        );
        assert_ne!(IV.handle_of(&[0]), iv.handle_of(&[0]));
    }

    /// script/prove raises the bounds.
    fn bound(small: usize, large: usize) -> usize {
        if std::env::var_os("VOUCH_PROVE").is_some() { large } else { small }
    }

    /// All headers with all payloads of up to two bytes: raw ones come back, and nothing panics.
    #[test]
    fn exhaustive_short_frames_are_refused_or_opened() {
        let kinds = [1, 2, 3, 4, 5].map(|kind| FrameKind::from_byte(kind).expect("a kind"));
        for len in 0..=bound(2, 3) {
            for number in 0..1_u32 << (8 * len) {
                let bytes = &number.to_be_bytes()[4 - len..];
                for kind in kinds {
                    let found = payload(kind, bytes);
                    match bytes {
                        [] | [_] => assert_eq!(found, Err(Error::Length(len))),
                        [found_kind, ..] if *found_kind != kind as u8 => {
                            assert_eq!(
                                found,
                                Err(Error::WrongKind { expected: kind, found: *found_kind })
                            );
                        }
                        [_, CODEC_RAW, rest @ ..] => assert_eq!(found.as_deref(), Ok(rest)),
                        [_, CODEC_ZSTD, ..] => {
                            assert!(found.is_err() || found.is_ok_and(|p| p.len() <= LEAF_LEN_MAX))
                        }
                        [_, codec, ..] => assert_eq!(found, Err(Error::UnknownCodec(*codec))),
                    }
                }
            }
        }
    }
}
