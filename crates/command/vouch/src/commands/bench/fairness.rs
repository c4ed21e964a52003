use std::path::PathBuf;
use std::time::Duration;

use vouch_bench::nfs::{Fairness, FairnessOptions, measure_fairness};
use vouch_bench::target::{Sec, Target};
use vouch_bench::{StopFlag, report};

use super::subjects::{Labelled, ServerAccess};
use crate::exit::{Failure, Outcome};
use crate::{interrupt, output};

/// Measure the latency of quiet clients beside greedy ones, and the share of one client beside another.
///
/// Quiet clients send one GETATTR or 4 KiB READ at a time: alone first, then beside clients that keep
/// 1 MiB WRITEs, or LOOKUPs of missing names, in flight without end. Then one client sends long compounds
/// beside another one that does so with four sessions: a fair server gives each a half, if the server is
/// the limit. Clients of a server at 127.0.0.1 have an address each (127.1.0.0/16); others share this
/// machine's address. Threads of greedy clients have a lower priority than the one that measures; as
/// root, that one has a real-time priority. Start a server of this machine by `chrt --rr 1`, so that
/// other programs do not count.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    vouch bench fairness --target nfs://127.0.0.1/export\n  \
    vouch bench fairness --target ours=nfs://127.0.0.1/export --target theirs=nfs://127.0.0.1:2050/export --svg page.svg\n  \
    vouch bench fairness --target nfs://127.0.0.1/export --greedy-clients 10 --quiet-clients 990 --depths 64")]
pub(super) struct Args {
    /// Server to measure: nfs://HOST[:PORT]/EXPORT, with a label as LABEL=nfs://…; may be repeated.
    #[arg(long, value_name = "URL", required = true)]
    target: Vec<Labelled<Target>>,
    /// Flavour of all clients.
    #[arg(long, value_name = "SEC", default_value = "sys")]
    sec: Sec,
    #[command(flatten)]
    access: ServerAccess,
    /// Quiet clients. They take turns.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    quiet_clients: u16,
    /// Greedy clients: the first writes, the second looks up, and so on.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    greedy_clients: u16,
    /// Calls in flight of each greedy client, one part of the measurement for each number.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,64", value_parser = clap::value_parser!(u16).range(1..=256))]
    depths: Vec<u16>,
    /// Duration of each part, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Rounds over all servers.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Write a chart of the latency against greed.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Args {
    pub(super) fn run(self) -> Outcome {
        let mut targets = Vec::new();
        for Labelled { label, value } in self.target {
            let Target::Nfs(target) = value else {
                return Err(Failure::usage(
                    "--target",
                    "the target must be an NFS server: nfs://HOST[:PORT]/EXPORT",
                ));
            };
            targets.push((label.unwrap_or_else(|| target.to_string()), target));
        }
        let options = FairnessOptions {
            targets,
            sec: self.sec,
            service: self.access.service.clone(),
            tls: self.access.tls(),
            quiet: self.quiet_clients,
            greedy: self.greedy_clients,
            depths: self.depths,
            phase: Duration::from_secs(self.seconds),
            rounds: self.rounds,
        };
        let stop = StopFlag::default();
        let stop_requested = stop.clone();
        let _taken = interrupt::stop_gracefully(move || stop_requested.set());
        let servers = measure_fairness(&options, &stop)?;
        if let Some(path) = &self.svg {
            std::fs::write(path, report::fairness_svg(&servers))
                .map_err(vouch_bench::Error::file(path))?;
        }
        if self.json { output::json(&servers) } else { output::text(&table(&servers)) }
    }
}

fn table(servers: &[Fairness]) -> String {
    let head = [
        "SERVER",
        "GREEDY CALLS",
        "GETATTR P99",
        "X IDLE",
        "READ P99",
        "X IDLE",
        "WRITES",
        "LOOKUPS",
        "SHARE",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let us = |us: f64| format!("{us:.0} µs");
    for server in servers {
        let idle = &server.idle;
        let mut row = vec![server.server.clone(), "0".into()];
        row.extend([us(idle.getattr_p99), "1".into(), us(idle.read_p99), "1".into()]);
        row.extend(["-".into(), "-".into(), format!("{:.0} %", server.share * 100.0)]);
        rows.push(row);
        rows.extend(server.greed.iter().map(|greed| {
            let quiet = &greed.quiet;
            vec![
                String::new(),
                greed.depth.to_string(),
                us(quiet.getattr_p99),
                format!("{:.2}", quiet.getattr_p99 / idle.getattr_p99),
                us(quiet.read_p99),
                format!("{:.2}", quiet.read_p99 / idle.read_p99),
                format!("{:.0} MB/s", greed.written_bytes_per_second / 1e6),
                format!("{:.0}/s", greed.lookups_per_second),
                String::new(),
            ]
        }));
    }
    output::table(&rows, &[1, 2, 3, 4, 5, 6, 7, 8])
}
