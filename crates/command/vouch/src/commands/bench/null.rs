use std::time::Duration;

use vouch_bench::null_calls;
use vouch_bench::target::Target;

use crate::exit::{Failure, Outcome};
use crate::output;

/// Measure the rate of RPC NULL calls from one core in a plain loop, to a local thread or a server:
/// an upper bound for any load generator.
///
/// The workloads' generator also creates, protects and compares data. Each result row shows the
/// client's CPU time, and whether the client was the limit.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// NFS server to call; without it, a thread of this process.
    #[arg(long, value_name = "URL")]
    target: Option<Target>,
    /// Calls in flight.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// Duration in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let address = match &args.target {
        None => None,
        Some(Target::Nfs(nfs)) => Some(nfs.address()?),
        Some(_) => {
            return Err(Failure::usage(
                "--target",
                "the target must be an NFS server: nfs://HOST[:PORT]/",
            ));
        }
    };
    let ceiling = null_calls::measure(address, NFS, args.depth, Duration::from_secs(args.seconds))?;
    if args.json {
        return output::json(&ceiling);
    }
    output::text(&format!(
        "{:.0} calls/s, {:.2} µs of CPU a call: one core issues {:.0} calls/s\n",
        ceiling.calls as f64 / ceiling.seconds,
        ceiling.thread_s * 1e6 / ceiling.calls as f64,
        ceiling.calls_a_core()
    ))
}

const NFS: (u32, u32) = (100_003, 4);
