//! The faults of a history, chosen by the seed.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use vouch_bench::Error;
use vouch_consistency::Rng;
use vouch_consistency::history::Fault;

use crate::CLIENTS;
use crate::machine::World;

/// Longer than a lease.
const APART: Duration = Duration::from_secs(25);

pub(crate) async fn run(
    world: World,
    minor: u32,
    start: Instant,
    mut rng: Rng,
) -> Result<Vec<Fault>, Error> {
    let mut faults = Vec::new();
    for _ in 0..rng.below(6) {
        sleep(Duration::from_micros(rng.below(60_000))).await;
        let begun = start.elapsed();
        let kind = match rng.below(10) {
            0..4 => {
                world.cut();
                "cut"
            }
            // 4.0 forgets with its process which calls it has executed.
            4..6 if minor > 0 => {
                let is_power_cut = rng.percent(50);
                world.crash(is_power_cut).await;
                sleep(Duration::from_millis(rng.below(500))).await;
                world.boot();
                "restart"
            }
            6..8 => {
                let client = rng.below(CLIENTS.into()) as u16;
                world.set_apart(client, true);
                let short = Duration::from_millis(rng.below(2_000));
                sleep(if rng.percent(50) { APART } else { short }).await;
                world.set_apart(client, false);
                "apart"
            }
            8 => {
                world.set_capacity(0);
                sleep(Duration::from_millis(rng.below(50))).await;
                world.set_capacity(1 << 30);
                "full"
            }
            _ => {
                world.jump_clock(rng.below(10_000_000));
                "clock"
            }
        };
        let (begun, end) = (begun.as_nanos() as u64, start.elapsed().as_nanos() as u64);
        faults.push(Fault { kind: kind.into(), start: begun, end });
    }
    Ok(faults)
}
