//! Fuzzes the messages of the broker of tickets, and Slurm's lists of nodes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/jobs/src/hostlist.rs"]
mod hostlist;
#[path = "../../crates/jobs/src/limits.rs"]
#[allow(dead_code, reason = "the target uses a part of the module")]
mod limits;
#[path = "../../crates/jobs/src/names.rs"]
#[allow(dead_code, reason = "the target uses a part of the module")]
mod names;
#[path = "../../crates/jobs/src/wire.rs"]
mod wire;

fuzz_target!(|input: &[u8]| {
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
});
