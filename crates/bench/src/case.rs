//! What can be measured: one value describes a measurement wholly, here or on another node.

use serde::{Deserialize, Serialize};

/// One thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Case {
    /// Copies whole files there: each is made, written, made durable and closed.
    Put(Copy),
    /// Copies them back, and compares every byte.
    Get(Copy),
    /// Reads and writes of one size within one large file.
    Load(Load),
    /// What a version control system does to metadata.
    Metadata {
        /// Calls in flight.
        depth: u32,
        /// Longest time.
        seconds: f64,
    },
    /// Attributes of one file after another.
    Getattr {
        /// Calls in flight.
        depth: u32,
        /// Longest time.
        seconds: f64,
    },
    /// Reads of files that are there.
    Read(Read),
    /// A small C project compiled and run; its source is what is read, objects are elsewhere.
    Compile {
        /// Source files.
        parts: u32,
        /// Compilers at a time.
        jobs: u32,
    },
    /// The reads of such a compile, as its client made them, call after call, by many clients at
    /// once.
    Replay {
        /// How many, each with a connection of its own.
        clients: u32,
        /// Longest time.
        seconds: f64,
    },
    /// Work on files under the kernel's audit.
    Audit {
        /// Which.
        work: AuditWork,
        /// Files.
        files: u64,
    },
    /// Small files made, appended to and removed on an export.
    Changes {
        /// Files.
        files: u64,
        /// Calls in flight.
        depth: u32,
    },
    /// Connections, each for one small file; `depth` components of its name.
    Connect {
        /// Components of the name.
        depth: u32,
        /// Longest time.
        seconds: f64,
    },
}

impl Case {
    /// What it is measured with, beyond what its name says.
    pub fn parameters(&self) -> String {
        use crate::workload::{block, size};
        let time = |seconds: f64| format!("{seconds} s each");
        match *self {
            Self::Put(Copy { streams, depth, .. }) | Self::Get(Copy { streams, depth, .. }) => {
                format!("{streams} small files at a time, {depth} blocks of a large one in flight")
            }
            Self::Load(Load { block: len, depth, seconds, file_len, .. }) => {
                format!("{depth} in flight, blocks of {}, a file of {}, {}", block(len), size(file_len), time(seconds))
            }
            Self::Metadata { depth, seconds } | Self::Getattr { depth, seconds } => format!("{depth} in flight, {}", time(seconds)),
            Self::Read(Read { block: len, .. }) => format!("blocks of {}", block(len)),
            Self::Compile { jobs, .. } => format!("{jobs} compilers at a time"),
            Self::Replay { seconds, .. } | Self::Connect { seconds, .. } => time(seconds),
            Self::Audit { .. } => String::new(),
            Self::Changes { depth, .. } => format!("{depth} in flight"),
        }
    }
}

/// Files that are copied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Copy {
    /// How many.
    pub files: u64,
    /// Bytes of each.
    pub len: u64,
    /// What is in them.
    pub content: Content,
    /// Small files at a time.
    pub streams: u32,
    /// Blocks of a large file in flight.
    pub depth: u32,
}

/// Files that are read whole, or a large one by the block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Read {
    /// How many.
    pub files: u64,
    /// Bytes of each.
    pub len: u64,
    /// Bytes of a read.
    pub block: u32,
    /// What is in them.
    pub content: Content,
    /// Whether one block after another or anywhere, as many in all.
    pub order: Order,
}

/// What is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Nothing but zeros.
    Zeros,
    /// Noise that tells where it belongs.
    Random,
}

/// Reads and writes within a file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Whether one after another or anywhere.
    pub order: Order,
    /// Bytes of each.
    pub block: u32,
    /// Of 100, how many are reads.
    pub read_percent: u8,
    /// Calls in flight at most.
    pub depth: u32,
    /// Calls a second that are due, whether or not the server keeps up; as fast as answers come
    /// without.
    pub rate: Option<f64>,
    /// Longest time.
    pub seconds: f64,
    /// Bytes of the file.
    pub file_len: u64,
}

/// What is done while the kernel audits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditWork {
    /// Many files made, appended to and removed.
    Files,
    /// Rights, owners and names changed.
    SystemCalls,
    /// Both, and computing between.
    Hybrid,
    /// Files made and removed by the ranks of an MPI program, in step.
    Mpi,
}

impl AuditWork {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Files, Self::SystemCalls, Self::Hybrid, Self::Mpi];

    /// As a command line names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::SystemCalls => "system-calls",
            Self::Hybrid => "hybrid",
            Self::Mpi => "mpi",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.name() == name)
    }
}

/// Where the next block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// After the one before.
    Sequential,
    /// Anywhere.
    Random,
}

/// What a case's figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Bytes of file data a second: more is better.
    BytesPerSecond,
    /// Operations a second: more is better.
    OperationsPerSecond,
    /// Seconds for all of it: less is better.
    Seconds,
}

impl Metric {
    /// Whether a larger figure is the better one.
    pub const fn more_is_better(self) -> bool {
        !matches!(self, Self::Seconds)
    }
}

impl Case {
    /// What its figure is, unless whoever plans it says otherwise.
    pub const fn metric(&self) -> Metric {
        match self {
            Self::Put(copy) | Self::Get(copy) if copy.files == 1 => Metric::BytesPerSecond,
            Self::Put(_) | Self::Get(_) | Self::Audit { .. } | Self::Changes { .. } | Self::Compile { .. } => Metric::Seconds,
            Self::Read(_) => Metric::BytesPerSecond,
            Self::Load(load) if load.block >= LARGE_BLOCK => Metric::BytesPerSecond,
            Self::Load(_) | Self::Metadata { .. } | Self::Getattr { .. } | Self::Connect { .. } | Self::Replay { .. } => {
                Metric::OperationsPerSecond
            }
        }
    }

    /// SubjectInfo how long one measurement takes, seconds: for the time that is left.
    pub fn about_s(&self) -> f64 {
        match self {
            Self::Put(copy) | Self::Get(copy) => 0.05 + copy.files as f64 * 4e-4 + (copy.files * copy.len) as f64 / 500e6,
            Self::Read(read) => 0.3 + read.files as f64 * 2e-4 + (read.files * read.len) as f64 / 300e6,
            Self::Audit { files, .. } => 0.05 + *files as f64 * 5e-5,
            Self::Changes { files, .. } => 0.5 + *files as f64 * 3e-4,
            Self::Compile { parts, jobs } => 0.5 + f64::from(*parts) * 0.1 / f64::from((*jobs).max(1)),
            Self::Load(Load { seconds, .. })
            | Self::Replay { seconds, .. }
            | Self::Metadata { seconds, .. }
            | Self::Getattr { seconds, .. }
            | Self::Connect { seconds, .. } => 0.05 + seconds,
        }
    }

    /// Calls in flight at most.
    pub const fn depth(&self) -> u32 {
        match self {
            Self::Put(copy) | Self::Get(copy) => {
                if copy.depth > copy.streams {
                    copy.depth
                } else {
                    copy.streams
                }
            }
            Self::Load(load) => load.depth,
            Self::Metadata { depth, .. } | Self::Getattr { depth, .. } | Self::Changes { depth, .. } => *depth,
            Self::Compile { jobs, .. } => *jobs,
            Self::Replay { clients, .. } => *clients,
            Self::Connect { .. } | Self::Audit { .. } | Self::Read(_) => 1,
        }
    }
}

/// From here on blocks are told by bytes, not by operations.
const LARGE_BLOCK: u32 = 32 * 1024;
