use std::fmt::Write as _;

use vouch_audit::trail::Trail;

use super::RefusalLimit;

pub fn write(prefix: &str, trail: &Trail, bounds: &RefusalLimit, out: &mut String) {
    let counts = trail.counts();
    let series = [
        ("records_total", "Audit records written.", "counter", counts.written),
        ("records_lost_total", "Audit records lost.", "counter", counts.lost),
        ("refusals_left_out_total", "Refusals beyond the rate that is recorded.", "counter", bounds.left_out()),
        ("failures_total", "Times that the disk refused audit records.", "counter", counts.failures),
        ("waiting_bytes", "Bytes of audit records that are not written yet.", "gauge", counts.waiting_len),
        ("healthy", "Whether the disk took the last audit records.", "gauge", u64::from(counts.is_healthy)),
    ];
    for (name, help, kind, value) in series {
        let _ = writeln!(out, "# HELP {prefix}_{name} {help}\n# TYPE {prefix}_{name} {kind}\n{prefix}_{name} {value}");
    }
}
