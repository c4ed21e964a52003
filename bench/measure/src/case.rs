//! One measurement, described completely, on this node or another one.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Case {
    Put(Copy),
    Get(Copy),
    Load(Load),
    Metadata {
        depth: u32,
        seconds: f64,
    },
    Getattr {
        depth: u32,
        seconds: f64,
    },
    Read(Read),
    Compile {
        parts: u32,
        jobs: u32,
    },
    /// The build command of another project, whose sources are read from the subject.
    Build,
    Primitive {
        work: Primitive,
        len: u64,
        seconds: f64,
    },
    Replay {
        clients: u32,
        seconds: f64,
    },
    Audit {
        work: AuditWork,
        files: u64,
    },
    Changes {
        files: u64,
        depth: u32,
    },
    Connect {
        depth: u32,
        seconds: f64,
    },
}

impl Case {
    pub(crate) fn parameters(&self) -> String {
        use crate::byte_units::{block, size};
        let time = |seconds: f64| format!("{seconds} s each");
        match *self {
            Self::Put(Copy { streams, depth, .. }) | Self::Get(Copy { streams, depth, .. }) => {
                format!("{streams} small files at a time, {depth} blocks of a large one in flight")
            }
            Self::Load(Load { block: len, depth, seconds, file_len, .. }) => {
                format!(
                    "{depth} in flight, blocks of {}, a file of {}, {}",
                    block(len),
                    size(file_len),
                    time(seconds)
                )
            }
            Self::Metadata { depth, seconds } | Self::Getattr { depth, seconds } => {
                format!("{depth} in flight, {}", time(seconds))
            }
            Self::Read(Read { block: len, .. }) => format!("blocks of {}", block(len)),
            Self::Compile { jobs, .. } => format!("{jobs} compilers at a time"),
            Self::Replay { seconds, .. }
            | Self::Connect { seconds, .. }
            | Self::Primitive { seconds, .. } => time(seconds),
            Self::Audit { .. } | Self::Build => String::new(),
            Self::Changes { depth, .. } => format!("{depth} in flight"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Primitive {
    Sign,
    Verify,
    Hash,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Copy {
    pub files: u64,
    pub len: u64,
    pub content: Content,
    pub streams: u32,
    pub depth: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Read {
    pub files: u64,
    pub len: u64,
    pub block: u32,
    pub content: Content,
    /// Random reads make as many calls as sequential ones.
    pub order: Order,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    Zeros,
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub order: Order,
    pub block: u32,
    pub read_percent: u8,
    pub depth: u32,
    /// Calls due each second (open loop). Without a rate, each reply starts the next call (closed
    /// loop).
    pub rate: Option<f64>,
    pub seconds: f64,
    pub file_len: u64,
}

#[cfg(test)]
impl Load {
    pub(crate) const READS: Load = Load {
        order: Order::Random,
        block: 4096,
        read_percent: 100,
        depth: 4,
        rate: None,
        seconds: 1.0,
        file_len: 1 << 20,
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditWork {
    Files,
    SystemCalls,
    Hybrid,
    /// STREAM's four kernels on arrays larger than any cache.
    Memory,
    Mpi,
    MpiLatency,
    MpiBandwidth,
    MpiExchange,
    /// Barrier, broadcast, reduction, gathering and all-to-all.
    MpiCollectives,
}

impl AuditWork {
    pub const ALL: [Self; 9] = [
        Self::Files,
        Self::SystemCalls,
        Self::Hybrid,
        Self::Memory,
        Self::Mpi,
        Self::MpiLatency,
        Self::MpiBandwidth,
        Self::MpiExchange,
        Self::MpiCollectives,
    ];

    pub(crate) const fn is_mpi(self) -> bool {
        matches!(
            self,
            Self::Mpi
                | Self::MpiLatency
                | Self::MpiBandwidth
                | Self::MpiExchange
                | Self::MpiCollectives
        )
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::SystemCalls => "system-calls",
            Self::Hybrid => "hybrid",
            Self::Memory => "memory",
            Self::Mpi => "mpi",
            Self::MpiLatency => "mpi-latency",
            Self::MpiBandwidth => "mpi-bandwidth",
            Self::MpiExchange => "mpi-exchange",
            Self::MpiCollectives => "mpi-collectives",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Sequential,
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    BytesPerSecond,
    OperationsPerSecond,
    /// Less is better.
    Seconds,
}

impl Metric {
    pub(crate) const fn more_is_better(self) -> bool {
        !matches!(self, Self::Seconds)
    }
}

impl Case {
    pub const fn metric(&self) -> Metric {
        match self {
            Self::Put(copy) | Self::Get(copy) if copy.files == 1 => Metric::BytesPerSecond,
            Self::Put(_)
            | Self::Get(_)
            | Self::Audit { .. }
            | Self::Changes { .. }
            | Self::Compile { .. }
            | Self::Build => Metric::Seconds,
            Self::Primitive { work: Primitive::Hash, .. } => Metric::BytesPerSecond,
            Self::Read(_) => Metric::BytesPerSecond,
            Self::Load(load) if load.block >= LARGE_BLOCK => Metric::BytesPerSecond,
            Self::Load(_)
            | Self::Metadata { .. }
            | Self::Getattr { .. }
            | Self::Connect { .. }
            | Self::Replay { .. }
            | Self::Primitive { .. } => Metric::OperationsPerSecond,
        }
    }

    pub(crate) fn estimated_s(&self) -> f64 {
        match self {
            Self::Put(copy) | Self::Get(copy) => {
                0.05 + copy.files as f64 * 4e-4 + (copy.files * copy.len) as f64 / 500e6
            }
            Self::Read(read) => {
                0.3 + read.files as f64 * 2e-4 + (read.files * read.len) as f64 / 300e6
            }
            Self::Audit { files, .. } => 0.05 + *files as f64 * 5e-5,
            Self::Changes { files, .. } => 0.5 + *files as f64 * 3e-4,
            Self::Compile { parts, jobs } => {
                0.5 + f64::from(*parts) * 0.1 / f64::from((*jobs).max(1))
            }
            Self::Build => 60.0,
            Self::Load(Load { seconds, .. })
            | Self::Primitive { seconds, .. }
            | Self::Replay { seconds, .. }
            | Self::Metadata { seconds, .. }
            | Self::Getattr { seconds, .. }
            | Self::Connect { seconds, .. } => 0.05 + seconds,
        }
    }

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
            Self::Metadata { depth, .. }
            | Self::Getattr { depth, .. }
            | Self::Changes { depth, .. } => *depth,
            Self::Compile { jobs, .. } => *jobs,
            Self::Replay { clients, .. } => *clients,
            Self::Connect { .. }
            | Self::Audit { .. }
            | Self::Read(_)
            | Self::Build
            | Self::Primitive { .. } => 1,
        }
    }
}

const LARGE_BLOCK: u32 = 32 * 1024;
