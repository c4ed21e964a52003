use crate::frame::{self, Kind};
use crate::seal::SEAL_LENS;

pub(super) fn find_seal(bytes: &[u8], from: usize, trail: &[u8; 16]) -> Option<usize> {
    let heads =
        SEAL_LENS.map(|len| [Kind::Checkpoint, Kind::Close].map(|kind| frame::head(kind, len)));
    let len = frame::HEAD_LEN + trail.len();
    bytes
        .get(from..)?
        .windows(len)
        .position(|w| {
            heads.as_flattened().iter().any(|head| w.starts_with(head)) && w.ends_with(trail)
        })
        .map(|at| from + at)
}

pub(super) fn seal_follows(bytes: &[u8], from: usize, trail: &[u8; 16]) -> bool {
    find_seal(bytes, from + 1, trail).is_some()
}
