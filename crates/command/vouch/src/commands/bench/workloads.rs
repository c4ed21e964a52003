use vouch_bench::published_tree::{Peers, PublishedTree};
use vouch_bench::workload;

use super::measure::{BenchRequest, Measure, Part};
use super::subjects::Subjects;
use super::{local, tree};
use crate::cli::Global;
use crate::exit::Outcome;
use crate::size;

/// Measure file copies in both directions: rate by size, many small files, some large ones (LANL's
/// kerberized NFS).
#[derive(Debug, clap::Args)]
pub(super) struct Transfer {
    /// File sizes, in powers of 1024 with K, M, G.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = some_bytes)]
    sizes: Option<Vec<u64>>,
    /// Number of small files.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    small_files: Option<u64>,
    /// Number of large files.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    large_files: Option<u64>,
    /// Size of each large file, in bytes.
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    large_size: Option<u64>,
    /// Small files in flight for each session and agent; cp and scp copy one at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    streams: u32,
    /// Blocks in flight for each file.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    #[command(flatten)]
    subjects: Subjects,
    #[command(flatten)]
    measure: Measure,
}

impl Transfer {
    pub(super) fn run(self, global: &Global) -> Outcome {
        let mut how = self.measure.extent(workload::Transfer::quick, workload::Transfer::full);
        how.sizes = self.sizes.unwrap_or(how.sizes);
        how.small.0 = self.small_files.unwrap_or(how.small.0);
        how.large =
            (self.large_files.unwrap_or(how.large.0), self.large_size.unwrap_or(how.large.1));
        (how.streams, how.depth) = (self.streams, self.depth);
        let plan = workload::transfer(&how);
        let depth = self.depth.max(self.streams);
        let part = on(&self.subjects, depth, move |bench| bench.run_all(&plan));
        self.measure.run(global, &BenchRequest::new(), vec![part])
    }
}

/// Measure latency against operations per second, by flavour, up to the knee (ONTAP).
#[derive(Debug, clap::Args)]
pub(super) struct Iops {
    #[command(flatten)]
    load: Load,
    /// Bytes of an operation.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = block)]
    blocks: Option<Vec<u32>>,
    /// Load steps up to the maximum rate.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    steps: Option<u32>,
    #[command(flatten)]
    subjects: Subjects,
    #[command(flatten)]
    measure: Measure,
}

/// Options of load on one file.
#[derive(Debug, clap::Args)]
struct Load {
    /// Most calls in flight, of all sessions and agents together.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// Seconds of each measurement.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// Size of the file, in bytes.
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    file_size: Option<u64>,
}

impl Iops {
    pub(super) fn run(self, global: &Global) -> Outcome {
        let mut how = self.measure.extent(workload::Iops::quick, workload::Iops::full);
        how.depth = self.load.depth;
        how.seconds = self.load.seconds.unwrap_or(how.seconds);
        how.file_len = self.load.file_size.unwrap_or(how.file_len);
        how.blocks = self.blocks.unwrap_or(how.blocks);
        how.steps = self.steps.unwrap_or(how.steps);
        let part = on(&self.subjects, how.depth, move |bench| workload::iops(bench, &how));
        self.measure.run(global, &BenchRequest::new(), vec![part])
    }
}

/// Measure added latency at low concurrency and lost throughput at high concurrency (Azure NetApp
/// Files).
#[derive(Debug, clap::Args)]
pub(super) struct Concurrency {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    subjects: Subjects,
    #[command(flatten)]
    measure: Measure,
}

impl Concurrency {
    pub(super) fn run(self, global: &Global) -> Outcome {
        let mut how =
            self.measure.extent(workload::Concurrency::quick, workload::Concurrency::full);
        how.depth = self.load.depth;
        how.seconds = self.load.seconds.unwrap_or(how.seconds);
        how.file_len = self.load.file_size.unwrap_or(how.file_len);
        let plan = workload::concurrency(&how);
        let part = on(&self.subjects, how.depth, move |bench| bench.run_all(&plan));
        self.measure.run(global, &BenchRequest::new(), vec![part])
    }
}

/// Run all applicable workloads: transfer, iops and concurrency if a target or mount is given;
/// tree; seal; and audit if kernel auditing is available.
#[derive(Debug, clap::Args)]
pub(super) struct All {
    /// Directory for the files of audit.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    audit_dir: std::path::PathBuf,
    /// Leave out the published tree.
    #[arg(long)]
    no_tree: bool,
    /// Leave out kernel auditing.
    #[arg(long)]
    no_audit: bool,
    #[command(flatten)]
    subjects: Subjects,
    #[command(flatten)]
    measure: Measure,
}

impl All {
    pub(super) fn run(self, global: &Global) -> Outcome {
        let quick = self.measure.quick;
        let transfer = self.measure.extent(workload::Transfer::quick, workload::Transfer::full);
        let iops = self.measure.extent(workload::Iops::quick, workload::Iops::full);
        let concurrency =
            self.measure.extent(workload::Concurrency::quick, workload::Concurrency::full);
        let work = move |bench: &mut vouch_bench::runner::Runner| {
            bench.run_all(&workload::transfer(&transfer))?;
            workload::iops(bench, &iops)?;
            bench.run_all(&workload::concurrency(&concurrency))
        };
        let (wish, mut left_out) = (BenchRequest::new(), Vec::new());
        let published = match self.no_tree {
            true => None,
            false => match PublishedTree::create(&std::env::temp_dir(), quick, None, wish.stop()) {
                Ok(published) => Some(published),
                Err(error) if wish.stop().is_set() => return Err(error.into()),
                Err(error) => {
                    left_out.push(format!("tree: {error}"));
                    None
                }
            },
        };
        let mut parts = Vec::new();
        if self.subjects.are_none() {
            left_out
                .push("transfer, iops, concurrency: neither --target nor --mount is given".into());
        } else {
            parts.push(on(&self.subjects, DEPTH, work));
        }
        let mut more = published
            .as_ref()
            .map_or_else(Vec::new, |published| tree::parts(published, Peers::default(), quick));
        more.push(local::seal(local::of_seal(quick)));
        more.extend(local::audit_parts(
            &self.audit_dir,
            if quick { 2_000 } else { 50_000 },
            !self.no_audit,
        ));
        parts.extend(more.into_iter().map(Part::optional));
        self.measure.run_without(global, &wish, parts, left_out)
    }
}

fn on<'a>(
    subjects: &'a Subjects,
    depth: u32,
    work: impl FnOnce(&mut vouch_bench::runner::Runner) -> Result<(), vouch_bench::Error> + 'a,
) -> Part<'a> {
    Part::new(
        move |run: &mut vouch_bench::Run, stop: &vouch_bench::StopFlag| {
            subjects.make(depth, run, stop)
        },
        work,
    )
}

const DEPTH: u32 = 64;

/// Whole pages, at most the limit of servers for one call.
fn block(text: &str) -> Result<u32, String> {
    let len = size::parse(text)?;
    u32::try_from(len)
        .ok()
        .filter(|len| *len > 0 && *len % PAGE_LEN == 0 && *len <= 1 << 20)
        .ok_or_else(|| "a multiple of 4K, at most 1M".into())
}

fn file_size(text: &str) -> Result<u64, String> {
    let len = size::parse(text)?;
    if len >= 1 << 20 && len % (1 << 20) == 0 { Ok(len) } else { Err("whole MiB: 512M".into()) }
}

fn some_bytes(text: &str) -> Result<u64, String> {
    size::parse(text)
        .and_then(|len| if len > 0 { Ok(len) } else { Err("at least one byte".into()) })
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value| (0.01..=3600.0).contains(value))
        .ok_or_else(|| "write seconds, from 0.01 to 3600".into())
}

const PAGE_LEN: u32 = vouch_bench::content::PAGE_LEN as u32;
