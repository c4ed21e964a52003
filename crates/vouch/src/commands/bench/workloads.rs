//! The options of each workload, and the plan that they make.

use vouch_bench::workload;

use super::measure::{Measure, Part, Wish};
use super::subjects::Subjects;
use super::{local, tree};
use crate::cli::Global;
use crate::exit::Outcome;
use crate::size;

/// Files copied there and back: the rate by size, many small, some large (LANL's kerberized NFS).
#[derive(Debug, clap::Args)]
pub(super) struct Transfer {
    /// Sizes of the files whose rate is measured, in powers of 1024 with K, M, G.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = some_bytes)]
    sizes: Option<Vec<u64>>,
    /// How many small files.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    small_files: Option<u64>,
    /// How many large files.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    large_files: Option<u64>,
    /// Bytes of each large file.
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    large_size: Option<u64>,
    /// Small files at a time, of each session and agent; cp and scp take one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    streams: u32,
    /// Blocks in flight of each file.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    #[command(flatten)]
    subjects: Subjects,
    #[command(flatten)]
    measure: Measure,
}

impl Transfer {
    /// The plan.
    pub(super) fn run(self, global: &Global) -> Outcome {
        let mut how = if self.measure.quick { workload::Transfer::quick() } else { workload::Transfer::full() };
        how.sizes = self.sizes.unwrap_or(how.sizes);
        how.small.0 = self.small_files.unwrap_or(how.small.0);
        how.large = (self.large_files.unwrap_or(how.large.0), self.large_size.unwrap_or(how.large.1));
        (how.streams, how.depth) = (self.streams, self.depth);
        let plan = workload::transfer(&how);
        self.measure.run(global, &Wish::new(), vec![on(&self.subjects, self.depth.max(self.streams), move |bench| bench.run_all(&plan))])
    }
}

/// Latency against operations a second, by flavour, stepped until the knee (ONTAP).
#[derive(Debug, clap::Args)]
pub(super) struct Iops {
    #[command(flatten)]
    load: Load,
    /// Bytes of an operation.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = block)]
    blocks: Option<Vec<u32>>,
    /// Steps up to what the fastest does.
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
    /// Calls in flight at most, of all sessions and agents together.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// Seconds of each measurement.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// Bytes of the file that is read and written.
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    file_size: Option<u64>,
}

impl Iops {
    /// The plan.
    pub(super) fn run(self, global: &Global) -> Outcome {
        let mut how = if self.measure.quick { workload::Iops::quick() } else { workload::Iops::full() };
        how.depth = self.load.depth;
        how.seconds = self.load.seconds.unwrap_or(how.seconds);
        how.file_len = self.load.file_size.unwrap_or(how.file_len);
        how.blocks = self.blocks.unwrap_or(how.blocks);
        how.steps = self.steps.unwrap_or(how.steps);
        self.measure.run(global, &Wish::new(), vec![on(&self.subjects, how.depth, move |bench| workload::iops(bench, &how))])
    }
}

/// Latency added at low concurrency, maximum lost at high (Azure NetApp Files).
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
    /// The plan.
    pub(super) fn run(self, global: &Global) -> Outcome {
        let mut how = if self.measure.quick { workload::Concurrency::quick() } else { workload::Concurrency::full() };
        how.depth = self.load.depth;
        how.seconds = self.load.seconds.unwrap_or(how.seconds);
        how.file_len = self.load.file_size.unwrap_or(how.file_len);
        let plan = workload::concurrency(&how);
        self.measure.run(global, &Wish::new(), vec![on(&self.subjects, how.depth, move |bench| bench.run_all(&plan))])
    }
}

/// All that applies, in one run: transfer, iops, concurrency where a target or a mount is named;
/// tree; seal; and audit where the kernel's audit can be taken.
#[derive(Debug, clap::Args)]
pub(super) struct All {
    /// Where audit makes its files.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    audit_dir: std::path::PathBuf,
    /// Publish and mount no tree.
    #[arg(long)]
    no_tree: bool,
    /// Leave the kernel's audit alone.
    #[arg(long)]
    no_audit: bool,
    #[command(flatten)]
    subjects: Subjects,
    #[command(flatten)]
    measure: Measure,
}

impl All {
    /// The plan.
    pub(super) fn run(self, global: &Global) -> Outcome {
        let quick = self.measure.quick;
        let (transfer, iops, concurrency) = match quick {
            true => (workload::Transfer::quick(), workload::Iops::quick(), workload::Concurrency::quick()),
            false => (workload::Transfer::full(), workload::Iops::full(), workload::Concurrency::full()),
        };
        let work = move |bench: &mut vouch_bench::runner::Runner| {
            bench.run_all(&workload::transfer(&transfer))?;
            workload::iops(bench, &iops)?;
            bench.run_all(&workload::concurrency(&concurrency))
        };
        let (wish, mut left_out) = (Wish::new(), Vec::new());
        let world = match self.no_tree {
            true => None,
            false => match tree::World::make(&std::env::temp_dir(), quick, wish.stop()) {
                Ok(world) => Some(world),
                Err(failure) if wish.stop().is_set() => return Err(failure),
                Err(failure) => {
                    left_out.push(format!("tree: {failure}"));
                    None
                }
            },
        };
        let mut parts = Vec::new();
        if self.subjects.are_none() {
            left_out.push("transfer, iops, concurrency: neither --target nor --mount says what to measure".into());
        } else {
            parts.push(on(&self.subjects, DEPTH, work));
        }
        let mut more = world.as_ref().map_or_else(Vec::new, |world| tree::parts(world, &[], quick));
        more.push(local::seal(local::of_seal(quick)));
        more.extend(local::audit_parts(&self.audit_dir, if quick { 2_000 } else { 50_000 }, !self.no_audit));
        parts.extend(more.into_iter().map(Part::optional));
        self.measure.run_without(global, &wish, parts, left_out)
    }
}

/// A plan on the subjects that were named.
fn on<'a>(
    subjects: &'a Subjects,
    depth: u32,
    work: impl FnOnce(&mut vouch_bench::runner::Runner) -> Result<(), vouch_bench::Error> + 'a,
) -> Part<'a> {
    Part::new(move |run: &mut vouch_bench::Run, stop: &vouch_bench::StopFlag| subjects.make(depth, run, stop), work)
}

/// Calls in flight where nothing else is said.
const DEPTH: u32 = 64;

/// A block of whole pages, at most what a server takes at once.
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

/// Bytes of a file: one has to be there to be copied.
fn some_bytes(text: &str) -> Result<u64, String> {
    size::parse(text).and_then(|len| if len > 0 { Ok(len) } else { Err("at least one byte".into()) })
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value| (0.01..=3600.0).contains(value)).ok_or_else(|| "write seconds, from 0.01 to 3600".into())
}

/// Data is checked by the page.
const PAGE_LEN: u32 = vouch_bench::content::PAGE_LEN as u32;
