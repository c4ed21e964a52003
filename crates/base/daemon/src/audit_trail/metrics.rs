use vouch_audit::trail::Trail;

use super::RefusalLimit;
use crate::exposition::{Exposition, Metric};

pub fn write(prefix: &str, trail: &Trail, bounds: &RefusalLimit, page: &mut Exposition) {
    let counts = trail.counts();
    let series = [
        ("records_total", "Audit records written.", Metric::Counter, counts.written),
        ("records_lost_total", "Audit records lost.", Metric::Counter, counts.lost),
        (
            "refusals_left_out_total",
            "Refusals beyond the rate that is recorded.",
            Metric::Counter,
            bounds.left_out(),
        ),
        (
            "failures_total",
            "Times that the disk refused audit records.",
            Metric::Counter,
            counts.failures,
        ),
        (
            "waiting_bytes",
            "Bytes of audit records that are not written yet.",
            Metric::Gauge,
            counts.waiting_len,
        ),
        (
            "healthy",
            "Whether the disk took the last audit records.",
            Metric::Gauge,
            u64::from(counts.is_healthy),
        ),
    ];
    for (name, help, kind, value) in series {
        page.single(&format!("{prefix}_{name}"), kind, help, value);
    }
}
