//! Comparison of two readers of logs.

use vouch_log::merkle::Hash;
use vouch_log::reader::{LogReader, ReadError, TileSource};

/// True if a log has this entry. Searches from the end.
pub(crate) fn contains_leaf<S: TileSource>(
    log: &mut LogReader<S>,
    leaf: Hash,
) -> Result<bool, ReadError> {
    let mut end = log.size();
    while end > 0 {
        let first = (end - 1) / 256 * 256;
        if log.leaf_hashes(first)?.contains(&leaf) {
            return Ok(true);
        }
        end = first;
    }
    Ok(false)
}

/// The number of entries with which both logs begin.
pub(crate) fn common_size<A: TileSource, B: TileSource>(
    a: &mut LogReader<A>,
    b: &mut LogReader<B>,
) -> Result<u64, ReadError> {
    let (mut same, mut limit) = (0, a.size().min(b.size()));
    while same < limit {
        let middle = limit - (limit - same) / 2;
        if a.root_at(middle)? == b.root_at(middle)? {
            same = middle;
        } else {
            limit = middle - 1;
        }
    }
    Ok(same)
}
