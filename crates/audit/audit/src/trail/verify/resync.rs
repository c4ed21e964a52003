use crate::frame::{self, Kind};
use crate::seal::SEAL_LEN;

pub(super) fn find_seal(bytes: &[u8], from: usize, trail: &[u8; 16]) -> Option<usize> {
    let heads = [frame::head(Kind::Checkpoint, SEAL_LEN), frame::head(Kind::Close, SEAL_LEN)];
    let len = frame::HEAD_LEN + trail.len();
    bytes
        .get(from..)?
        .windows(len)
        .position(|w| heads.iter().any(|head| w.starts_with(head)) && w.ends_with(trail))
        .map(|at| from + at)
}

pub(super) fn seal_follows(bytes: &[u8], from: usize, trail: &[u8; 16]) -> bool {
    find_seal(bytes, from + 1, trail).is_some()
}
