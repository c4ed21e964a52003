use std::path::PathBuf;

use vouch_bench::published_tree::{HASHED_LENGTHS, Peers, PublishedTree, primitives};
use vouch_bench::target::{Sec, Target};
use vouch_bench::{Run, StopFlag, workload};

use super::measure::{BenchRequest, Measure, Part};
use crate::cli::Global;
use crate::exit::{Failure, Outcome};

/// Measure reads of a published tree with and without caches, the cost of verification, a compile
/// on the tree, clients that replay the reads of a compile, and connections per second (the SFS
/// read-only paper).
///
/// The run publishes a tree, serves it from a replica on loopback and mounts it. The baselines are
/// the source directory and sshfs of that directory. The compile reads its sources from the mount
/// and writes objects to local disk. To measure the cost of verification, one client repeats the
/// calls that the mount makes for a read and verifies each answer, and another repeats them without
/// verifying. The time of the small reads is broken down into its parts, and signing, verifying and
/// hashing are measured alone. A connection is made by a client without any cache, which reads one small file by a
/// name of one component (small) and of three (one/two/small); a private nginx over HTTP and HTTPS
/// is measured beside it, and each server given with --target http://HOST/small, which stands for
/// /small and /one/two/small there. A server given with --target nfs://HOST/EXPORT reads the same
/// files over a session from user space, one call at a time, without a cache.
#[derive(Debug, clap::Args)]
pub(super) struct Tree {
    /// Directory for the tree.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    dir: PathBuf,
    /// Server for comparison: http:// or https:// for connections, nfs:// for reads; may be
    /// repeated.
    #[arg(long, value_name = "URL")]
    target: Vec<Target>,
    /// Flavours of each NFS target: sys, krb5, krb5i, krb5p.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sys")]
    sec: Vec<Sec>,
    /// Service principal of the NFS servers, if not nfs@HOST.
    #[arg(long, value_name = "SERVICE@HOST")]
    service: Option<String>,
    /// Directory with a project of your own, which becomes part of the tree as `project`.
    #[arg(long, value_name = "DIR", requires = "build")]
    project: Option<PathBuf>,
    /// Shell command that builds the project: it starts in an empty local directory, and $SRC is
    /// the project's directory in the tree.
    #[arg(long, value_name = "COMMAND", requires = "project")]
    build: Option<String>,
    #[command(flatten)]
    measure: Measure,
}

impl Tree {
    pub(super) fn run(self, global: &Global) -> Outcome {
        if self.target.iter().any(|target| matches!(target, Target::Scp(_))) {
            return Err(Failure::usage(
                "--target",
                "a tree is compared with http://, https:// and nfs://; scp:// is for `transfer`",
            ));
        }
        let (quick, wish) = (self.measure.quick, BenchRequest::new());
        let published =
            PublishedTree::create(&self.dir, quick, self.project.as_deref(), wish.stop())?;
        let peers = Peers {
            targets: &self.target,
            sec: &self.sec,
            service: self.service.as_deref(),
            build: self.build.as_deref(),
        };
        let outcome = self.measure.run(global, &wish, parts(&published, peers, quick));
        drop(published);
        outcome
    }
}

pub(super) fn parts<'a>(
    published: &'a PublishedTree,
    peers: Peers<'a>,
    quick: bool,
) -> Vec<Part<'a>> {
    let (reads, replay, connections) = (
        workload::tree(quick, peers.build.is_some()),
        workload::replay(quick),
        workload::connections(quick),
    );
    let subjects = move |run: &mut Run, stop: &StopFlag| Ok(published.readers(peers, run, stop)?);
    let replayed = move |run: &mut Run, stop: &StopFlag| Ok(published.replayed(quick, run, stop)?);
    let asked = move |run: &mut Run, stop: &StopFlag| {
        Ok(published.connections(peers.targets, run, stop)?)
    };
    let verified = workload::verification(quick).into_iter().map(move |(read, case)| {
        let subjects = move |_: &mut Run, stop: &StopFlag| Ok(published.verifying(read, stop)?);
        Part::new(subjects, move |bench| bench.run_all(&[case]))
    });
    let (read, whole) = workload::breakdown(quick);
    let broken = Part::new(
        move |_: &mut Run, stop: &StopFlag| Ok(published.breakdown(read, stop)?),
        move |bench| bench.run_all(&[whole]),
    );
    let alone = workload::primitives(quick, &HASHED_LENGTHS);
    let primitives_part = Part::new(
        |_: &mut Run, _: &StopFlag| Ok(vec![primitives()]),
        move |bench| bench.run_all(&alone),
    );
    let first = Part::new(subjects, move |bench| bench.run_all(&reads));
    let last = [
        broken,
        primitives_part,
        Part::new(replayed, move |bench| bench.run_all(&replay)),
        Part::new(asked, move |bench| bench.run_all(&connections)),
    ];
    std::iter::once(first).chain(verified).chain(last).collect()
}
