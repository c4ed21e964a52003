//! Which revisions are kept: rules as those of `restic forget`. Days and weeks are of UTC.

use crate::manifest::Revision;

/// A revision stays if one rule keeps it. The newest one and tagged ones always stay. Without any
/// rule, all stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// The newest ones.
    pub last: usize,
    /// Those that were signed at most so long before the newest one.
    pub within_s: Option<u64>,
    /// The newest one of each of so many days that have one.
    pub daily: usize,
    /// The newest one of each of so many weeks that have one.
    pub weekly: usize,
}

impl From<usize> for Retention {
    fn from(last: usize) -> Self {
        Self { last: last.max(1), ..Self::default() }
    }
}

impl Retention {
    /// If there is no other rule.
    pub fn only_last(&self) -> Option<usize> {
        (self.last > 0 && *self == Self::from(self.last)).then_some(self.last)
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn apply(&self, revisions: &mut Vec<Revision>) {
        let (Some(newest), false) =
            (revisions.last().map(|revision| revision.start), self.is_empty())
        else {
            return;
        };
        let (mut daily, mut weekly) = (Periods::new(self.daily), Periods::new(self.weekly));
        let mut at = 0;
        let mut is_kept: Vec<bool> = revisions
            .iter()
            .rev()
            .map(|revision| {
                at += 1;
                // 1970 began on a Thursday.
                let day = revision.start.div_euclid(86_400);
                let (of_day, of_week) = (daily.takes(day), weekly.takes((day + 3).div_euclid(7)));
                let age_s = newest.saturating_sub(revision.start);
                let is_young = self
                    .within_s
                    .is_some_and(|max| u64::try_from(age_s).is_ok_and(|age| age <= max));
                at <= self.last.max(1) || is_young || of_day || of_week || revision.tag.is_some()
            })
            .collect();
        revisions.retain(|_| is_kept.pop().unwrap_or(true));
    }
}

struct Periods {
    left: usize,
    last: Option<i64>,
}

impl Periods {
    const fn new(count: usize) -> Self {
        Self { left: count, last: None }
    }

    fn takes(&mut self, period: i64) -> bool {
        let takes = self.left > 0 && self.last != Some(period);
        if takes {
            self.left -= 1;
            self.last = Some(period);
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every six hours from a Monday on, for five weeks.
    fn kept(policy: Retention, tagged: Option<u64>) -> Vec<u64> {
        let fsinfo = vouch_tree::BlockHandle::from_bytes([0; 32]);
        let revision = |number: u64| {
            let tag = (tagged == Some(number)).then(|| "tag".to_owned());
            Revision { number, start: 4 * 86_400 + (number as i64 - 1) * 21_600, fsinfo, tag }
        };
        let mut revisions: Vec<_> = (1..=140).map(revision).collect();
        policy.apply(&mut revisions);
        revisions.iter().map(|revision| revision.number).collect()
    }

    #[test]
    fn rules_keep_what_restic_keeps() {
        assert_eq!(kept(Retention::from(2), None), [139, 140]);
        assert_eq!(kept(Retention { daily: 3, ..Default::default() }, None), [132, 136, 140]);
        assert_eq!(kept(Retention { weekly: 3, ..Default::default() }, Some(1)), [1, 84, 112, 140]);
        assert_eq!(
            kept(Retention { within_s: Some(43_200), ..Default::default() }, None),
            [138, 139, 140]
        );
        assert_eq!(
            kept(Retention { last: 2, daily: 2, weekly: 2, ..Default::default() }, None),
            [112, 136, 139, 140]
        );
        assert_eq!(kept(Retention::default(), None).len(), 140);
    }
}
