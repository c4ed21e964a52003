//! Checks of decoders for arbitrary bytes, for the fuzz targets.

use crate::names::{JobId, NodeName};
use crate::pods::{PodCluster, PodToken};
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
    pod_token(input);
    if let Ok(list) = std::str::from_utf8(input)
        && let Ok(nodes) = hostlist::expand(list)
    {
        assert!(!nodes.is_empty() && nodes.len() <= limits::NODE_COUNT_MAX);
    }
}

/// No token without a signature stands for a pod.
fn pod_token(input: &[u8]) {
    let cluster = PodCluster {
        issuer: String::new(),
        audience: String::new(),
        keys: "/dev/null".into(),
        users: "/dev/null".into(),
    };
    let (Ok(job), Ok(node)) = (JobId::parse("pod-1"), NodeName::parse("n1")) else { return };
    let token = PodToken::new(String::from_utf8_lossy(input).into_owned());
    assert!(cluster.identify(&token, (&job, &node), 0).is_err());
}
