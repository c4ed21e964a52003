use crate::cli::Global;
use crate::exit::Outcome;

mod after;
mod agent;
mod consistency;
mod fairness;
mod local;
mod measure;
mod null;
mod outputs;
mod subjects;
mod tree;
mod workloads;

/// Measure what each security level costs, on any NFSv4.1 server, mounted directory or host.
///
/// Each workload reproduces the tables of a published measurement. Subjects are measured in turns
/// (A B A B), so that each ratio compares neighbours. Each figure has its 95% confidence interval
/// (with fewer than six rounds, as by --quick, only its range), the CPU time of client and server,
/// bytes, operations and errors. Data read is compared with data written; for loads by fio only
/// checksums are compared, which find no lost write, and HTTPS responses are not compared. The run
/// works in its own directory on the target, and removes it at the end, also after Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    vouch bench iops --target nfs://filer/export --sec sys,krb5p --html iops.html\n  \
    vouch bench transfer --target nfs://filer/export --sec sys,krb5,krb5i,krb5p --quick\n  \
    vouch bench concurrency --target ours=nfs://a/export --target theirs=nfs://b/export --json run.json\n  \
    vouch bench transfer --mount ours=/mnt/vouch --mount sshfs=/mnt/sshfs --target scp://\n  \
    vouch bench iops --agent node1:20490 --agent node2:20490 --token-file secret --target nfs://filer/export\n  \
    vouch bench null                                            what a core can call at most\n\n\
    --sec krb5, krb5i and krb5p need a ticket (kinit). A server of this machine is found by its address and its CPU read; one elsewhere is told by \
    --server-cpu.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    Transfer(Box<workloads::Transfer>),
    Iops(Box<workloads::Iops>),
    Concurrency(Box<workloads::Concurrency>),
    Tree(Box<tree::Tree>),
    Seal(Box<local::Seal>),
    Audit(Box<local::Audit>),
    All(Box<workloads::All>),
    Consistency(Box<consistency::Args>),
    Fairness(Box<fairness::Args>),
    Null(Box<null::Args>),
    Agent(Box<agent::Args>),
    Compare(Box<after::Compare>),
    Report(Box<after::Report>),
    Work(Box<local::Work>),
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    match args.what {
        Subcommand::Transfer(args) => args.run(global),
        Subcommand::Iops(args) => args.run(global),
        Subcommand::Concurrency(args) => args.run(global),
        Subcommand::Tree(args) => args.run(global),
        Subcommand::Seal(args) => args.run(global),
        Subcommand::Audit(args) => args.run(global),
        Subcommand::All(args) => args.run(global),
        Subcommand::Agent(args) => agent::run(&args),
        Subcommand::Work(args) => args.run(),
        Subcommand::Consistency(args) => args.run(),
        Subcommand::Fairness(args) => args.run(),
        Subcommand::Null(args) => null::run(&args),
        Subcommand::Compare(args) => args.run(),
        Subcommand::Report(args) => args.run(),
    }
}
