//! Compares `vouch bench seal` with libipsec-mb (`bench/workloads/seal_peers.c`, which must be built by
//! hand).

use std::path::PathBuf;

use clap::Parser;
use vouch_bench::report;
use vouch_bench::workload::{Seal, seal};
use vouch_benches::bench;

#[derive(Parser)]
#[command(about = "Kerberos message protection on one core, compared with OpenSSL and libipsec-mb")]
struct Args {
    /// The built program: cc -O2 -o seal_peers bench/workloads/seal_peers.c -lcrypto -lIPSec_MB
    #[arg(long, value_name = "PROGRAM")]
    peer: PathBuf,
    /// Rounds after the warm-up.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Measure fewer counts and sizes of messages.
    #[arg(long)]
    quick: bool,
}

fn main() {
    let args = Args::parse();
    let plan = if args.quick { Seal::quick() } else { Seal::full() };
    let mut bench = bench(Vec::new(), args.rounds);
    let outcome = seal(&mut bench, &Seal { ipsec_mb: Some(args.peer), ..plan });
    print!("{}", report::table(&bench.finish(&outcome)));
}
