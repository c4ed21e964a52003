//! Checks of decoders for arbitrary bytes, for the fuzz targets.

use crate::{hostlist, limits, wire};

/// Messages of the broker round-trip, and Slurm's lists of nodes are bounded.
pub fn request(input: &[u8]) {
    if let Ok((request, tickets)) = wire::decode::<wire::Request>(input) {
        let again = wire::encode(&request, tickets);
        assert_eq!(wire::decode::<wire::Request>(&again).ok(), Some((request, tickets)));
    }
    if let Ok((reply, tickets)) = wire::decode::<wire::Reply>(input) {
        let again = wire::encode(&reply, tickets);
        assert_eq!(wire::decode::<wire::Reply>(&again).ok(), Some((reply, tickets)));
    }
    if let Ok(list) = std::str::from_utf8(input)
        && let Ok(nodes) = hostlist::expand(list)
    {
        assert!(!nodes.is_empty() && nodes.len() <= limits::NODE_COUNT_MAX);
    }
}
