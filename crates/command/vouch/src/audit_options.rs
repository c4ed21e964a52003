use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use vouch_audit::trail::{Durability, Policy, Retention, Rotation, WriterOptions};

use crate::{size, when};
use vouch_daemon::audit_trail::TrailConfig;

/// Audit.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Audit")]
pub(crate) struct AuditArgs {
    /// Write an audit trail to this directory, whose key `vouch audit keygen` has made.
    #[arg(id = "audit", long = "audit", value_name = "DIR")]
    directory: Option<PathBuf>,
    /// File of rules in auditctl(8) syntax that select operations; without it, all that change or
    /// read data are recorded. Read again at SIGHUP.
    #[arg(long = "audit-rules", value_name = "FILE", requires = "audit")]
    rules: Option<PathBuf>,
    /// File of the trail's key, if not in the trail's directory.
    #[arg(long = "audit-key", value_name = "FILE", requires = "audit")]
    key: Option<PathBuf>,
    /// Policy when a record cannot be written.
    #[arg(
        long = "audit-policy",
        value_name = "POLICY",
        default_value = "count",
        requires = "audit"
    )]
    policy: PolicyName,
    /// When to make records durable: `each`, a number of records, a duration, or `none`.
    #[arg(long = "audit-sync", value_name = "WHEN", default_value = "1s", value_parser = parse_durable, requires = "audit")]
    sync: Durability,
    /// Close a segment at this length.
    #[arg(long = "audit-segment", value_name = "SIZE", default_value = "64M", value_parser = parse_segment, requires = "audit")]
    segment: u64,
    /// Close a segment at this age.
    #[arg(long = "audit-segment-age", value_name = "DURATION", default_value = "1h", value_parser = when::parse_duration, requires = "audit")]
    segment_age: Duration,
    /// Seal records after at most this time. An intruder could still alter unsealed records.
    #[arg(long = "audit-seal", value_name = "DURATION", default_value = "10s", value_parser = when::parse_duration, requires = "audit")]
    seal: Duration,
    /// Remove segments older than this; without it, keep them.
    #[arg(long = "audit-keep", value_name = "DURATION", value_parser = when::parse_duration, requires = "audit")]
    keep: Option<Duration>,
    /// Remove the oldest segments while all segments exceed this size.
    #[arg(long = "audit-keep-size", value_name = "SIZE", value_parser = size::parse, requires = "audit")]
    keep_size: Option<u64>,
    /// Never remove segments younger than this, whatever their size.
    #[arg(long = "audit-keep-floor", value_name = "DURATION", default_value = "30d", value_parser = when::parse_duration, requires = "audit")]
    keep_floor: Duration,
}

/// Policy when a record cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    /// Acknowledge nothing without its record on disk.
    Block,
    /// Continue, and record the number of lost records.
    Count,
    /// Stop the service.
    Halt,
}

impl AuditArgs {
    /// None without a trail.
    pub(crate) fn config(&self) -> Option<TrailConfig> {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let retention = Retention {
            age_ns_max: self.keep.map(nanos),
            len_max: self.keep_size,
            age_ns_min: nanos(self.keep_floor),
        };
        let policy = match self.policy {
            PolicyName::Block => Policy::Block,
            PolicyName::Count => Policy::Count,
            PolicyName::Halt => Policy::Halt,
        };
        Some(TrailConfig {
            directory: self.directory.clone()?,
            key: self.key.clone(),
            rules: self.rules.clone(),
            keeping: WriterOptions {
                policy,
                durability: self.sync,
                retention,
                ..WriterOptions::default()
            },
            rotation: Rotation {
                len_max: self.segment,
                age_ns_max: nanos(self.segment_age),
                seal_ns_max: nanos(self.seal),
            },
        })
    }
}

const SEGMENT_LEN_MIN: u64 = 4096;

fn parse_segment(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        len if len < SEGMENT_LEN_MIN => Err("a segment has at least 4K".into()),
        len => Ok(len),
    }
}

fn parse_durable(text: &str) -> Result<Durability, String> {
    match text {
        "each" => Ok(Durability::Each),
        "none" => Ok(Durability::System),
        _ => match text.parse::<u64>() {
            Ok(0) => Err("the number of records is at least 1".into()),
            Ok(count) => Ok(Durability::Records(count)),
            Err(_) => when::parse_duration(text).map(Durability::Every),
        },
    }
}
