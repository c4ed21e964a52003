//! After the SFS read-only paper, with connections a second.

use crate::Case;
use crate::case::{Content, Metric, Order, Primitive, Read};
use crate::runner::PlannedCase;

pub(crate) fn tree_reads(quick: bool) -> Vec<(&'static str, &'static str, Read)> {
    let (files, large) = if quick { (200, 8 << 20) } else { (1000, 40 << 20) };
    let read = |files, len, content, order| Read { files, len, block: 8192, content, order };
    vec![
        ("Small files", "1 KB files", read(files, 1024, Content::Random, Order::Sequential)),
        ("A large file", "sequential", read(1, large, Content::Random, Order::Sequential)),
        ("A large file", "random", read(1, large, Content::Random, Order::Random)),
        ("A large file", "sequential, zeros", read(1, large, Content::Zeros, Order::Sequential)),
        ("A large file", "random, zeros", read(1, large, Content::Zeros, Order::Random)),
    ]
}

pub fn tree(quick: bool, project: bool) -> Vec<PlannedCase> {
    let planned = |(panel, name, read): (&str, &str, Read)| {
        let name = if read.files > 1 {
            format!("{} × {name}", read.files)
        } else {
            format!("{} MiB {name}", read.len >> 20)
        };
        let metric = if read.files > 1 { Metric::Seconds } else { Metric::BytesPerSecond };
        PlannedCase { metric, ..PlannedCase::new("tree", panel, name, Case::Read(read)) }
    };
    let compile = PlannedCase::new(
        "tree",
        "A compile",
        format!("{} sources", source_count(quick)),
        Case::Compile { parts: source_count(quick), jobs: 2 },
    );
    let build = project.then(|| PlannedCase::new("tree", "A compile", "your project", Case::Build));
    tree_reads(quick).into_iter().map(planned).chain([compile]).chain(build).collect()
}

pub fn breakdown(quick: bool) -> (Read, PlannedCase) {
    let (_, name, read) = tree_reads(quick).swap_remove(0);
    let name = format!("{} × {name}", read.files);
    (
        read,
        PlannedCase {
            metric: Metric::Seconds,
            ..PlannedCase::new("tree", "Where the time of small reads goes", name, Case::Read(read))
        },
    )
}

pub fn primitives(quick: bool, lens: &[(&str, u64)]) -> Vec<PlannedCase> {
    let seconds = if quick { 0.02 } else { 0.3 };
    let case = |name: String, work, len| {
        PlannedCase::new(
            "tree",
            "Primitives, one core",
            name,
            Case::Primitive { work, len, seconds },
        )
    };
    let signatures = [("sign an fsinfo", Primitive::Sign), ("verify an fsinfo", Primitive::Verify)];
    let hashes = lens.iter().map(|(what, len)| case(format!("hash {what}"), Primitive::Hash, *len));
    signatures.map(|(name, work)| case(name.into(), work, 0)).into_iter().chain(hashes).collect()
}

pub fn verification(quick: bool) -> Vec<(Read, PlannedCase)> {
    let seconds = if quick { 0.3 } else { 1.0 };
    let planned = |(_, name, read): (&str, &str, Read)| {
        let name = if read.files > 1 {
            format!("{} × {name}", read.files)
        } else {
            format!("{} MiB", read.len >> 20)
        };
        (
            read,
            PlannedCase::new(
                "tree",
                "A client that verifies, and one that does not",
                name,
                Case::Replay { clients: 1, seconds },
            ),
        )
    };
    tree_reads(quick).into_iter().take(2).map(planned).collect()
}

pub(crate) const fn source_count(quick: bool) -> u32 {
    if quick { 6 } else { 48 }
}

pub fn replay(quick: bool) -> Vec<PlannedCase> {
    let (counts, seconds): (&[u32], f64) =
        if quick { (&[1, 8, 64], 0.5) } else { (&[1, 2, 4, 8, 16, 32, 64, 128, 256], 3.0) };
    let case = |&clients: &u32| {
        let name = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        PlannedCase::new(
            "tree",
            "Clients that replay a compile's reads",
            name,
            Case::Replay { clients, seconds },
        )
        .at(f64::from(clients))
    };
    counts.iter().map(case).collect()
}

pub fn connections(quick: bool) -> Vec<PlannedCase> {
    let seconds = if quick { 0.5 } else { 5.0 };
    let case = |depth, name: &str| {
        PlannedCase::new("tree", "Connections", name, Case::Connect { depth, seconds })
    };
    vec![case(1, "a name of one component"), case(3, "a name of three")]
}
