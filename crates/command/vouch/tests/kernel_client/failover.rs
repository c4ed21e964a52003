//! Two heads in network namespaces, with one state directory and one address: mounted clients whose
//! server fails.

#[path = "../end_to_end/failover/audited_operations.rs"]
mod audited_operations;
mod kills;
mod observer;
mod pair;
#[path = "../end_to_end/failover/pauses.rs"]
mod pauses;
mod realm;
#[path = "../end_to_end/failover/worker.rs"]
mod worker;

use std::time::Duration;

use crate::VERSIONS;
use crate::guest::{Guest, Network};
use pair::Pair;

/// VOUCH_TEST_FAILOVERS: number of takeovers. Every fourth head stops in order, and the others are
/// killed. Every third takeover begins before the client has recovered from the one before.
#[test]
#[ignore = "needs root and guests"]
fn takeover_keeps_opens_locks_and_acknowledged_data() {
    let count = std::env::var("VOUCH_TEST_FAILOVERS")
        .map_or(2, |count| count.parse::<u64>().expect("a number of takeovers"));
    for version in VERSIONS {
        let network = Network::new();
        let mut pair = Pair::start(&network);
        let limit = 600 + 60 * u32::try_from(count).expect("a small number");
        let guest = Guest::with_port(&network, pair.port())
            .set("VERSION", version)
            .set("SERVER", &pair.address());
        let guest = guest.set("SECONDS_OF_LOAD", "1").limit(limit).start("survivor.sh");
        pair.files.wait_for("begun");
        for takeover in 0..count {
            std::thread::sleep(Duration::from_millis(300 + takeover * 200 % 1_000));
            pair.fail_over(if takeover % 4 == 3 { "TERM" } else { "KILL" });
            if takeover % 3 != 2 {
                pair.files.wait_for_progress();
            }
        }
        std::fs::write(pair.files.path("enough"), "").expect("a file");
        println!("{version}, {count} takeovers: {}", guest.ok());
        let names = pair.files.names();
        assert!(
            names.iter().all(|name| !name.starts_with(".nfs")),
            "{version}: a silly name was left: {names:?}"
        );
    }
}
