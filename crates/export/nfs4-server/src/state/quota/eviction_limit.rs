use crate::state::limits::{
    EVICTION_INTERVAL_MS, EVICTION_SCANS_MAX, EVICTION_SCANS_PER_SOURCE_MAX,
};

#[derive(Debug, Default)]
pub(super) struct EvictionScans {
    until_ms: u64,
    count: u32,
}

#[derive(Debug, Default)]
pub(super) struct EvictionLimit(EvictionScans);

impl EvictionScans {
    fn count_at(&mut self, now: u64) -> &mut u32 {
        if now >= self.until_ms {
            *self = EvictionScans { until_ms: now + EVICTION_INTERVAL_MS, count: 0 };
        }
        &mut self.count
    }
}

impl EvictionLimit {
    pub(super) fn admit(&mut self, source: Option<&mut EvictionScans>, now: u64) -> bool {
        let all = self.0.count_at(now);
        let mut none = 0;
        let own = source.map_or(&mut none, |scans| scans.count_at(now));
        if *own >= EVICTION_SCANS_PER_SOURCE_MAX || *all >= EVICTION_SCANS_MAX {
            return false;
        }
        *own += 1;
        *all += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_are_limited_for_one_source_and_for_all() {
        let mut limit = EvictionLimit::default();
        let mut admitted = |now| {
            let mut source = EvictionScans::default();
            (0..EVICTION_SCANS_MAX * 2).filter(|_| limit.admit(Some(&mut source), now)).count()
                as u32
        };
        let counts: Vec<u32> = (0..10).map(|_| admitted(0)).collect();
        assert_eq!(
            (counts[0], counts.iter().sum::<u32>()),
            (EVICTION_SCANS_PER_SOURCE_MAX, EVICTION_SCANS_MAX)
        );
        assert_eq!(admitted(EVICTION_INTERVAL_MS), EVICTION_SCANS_PER_SOURCE_MAX);
    }
}
