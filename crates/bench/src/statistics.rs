//! Medians, and how far they can be trusted. The bootstrap's randomness is a seed, so that the same figures give the same interval.

use serde::{Deserialize, Serialize};

/// A median, and from [`SURE`] values on where the true one lies with 95% confidence; of fewer values, only between which they were.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median of the sample.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Of how many values.
    #[serde(default)]
    pub values: usize,
}

/// From so many values on an interval holds the true median with 95% confidence: that all of five lie on one side of it happens once in sixteen.
pub const SURE: usize = 6;

impl Interval {
    /// Of these values; none of none. The ends are those between which 95% of the medians of resampled samples lie (Efron's percentile
    /// bootstrap); of fewer than nine values, for which that promises too much, the smallest and the largest, between which the true median of
    /// six lies with 96.9% (the sign test).
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let range = || values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)));
        if values.len() < BOOTSTRAPPED {
            let (low, high) = range();
            return Some(Self { median: median(values), low, high, values: values.len() });
        }
        let mut state = values.len() as u64;
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let mut drawn: Vec<f64> = values.iter().map(|_| values[draw(&mut state, values.len())]).collect();
                median_of(&mut drawn)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        let at = |part: f64| medians[((RESAMPLES - 1) as f64 * part).round() as usize];
        Some(Self { median: median(values), low: at(0.025), high: at(0.975), values: values.len() })
    }

    /// Whether it holds the true median with 95% confidence: of fewer values it is their range, and says nothing of the next one.
    pub const fn is_sure(&self) -> bool {
        self.values >= SURE
    }

    /// Half of its width, as a part of the median.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.median.abs() }
    }
}

/// The middle one, or the mean of the two in the middle; not a number of none.
pub fn median(values: &[f64]) -> f64 {
    median_of(&mut values.to_vec())
}

fn median_of(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

fn draw(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    ((u128::from(crate::content::mix(*state)) * below as u128) >> 64) as usize
}

const RESAMPLES: usize = 2000;
/// Of fewer values the bootstrap's interval is too narrow: of seven it holds the true median seven times of eight.
const BOOTSTRAPPED: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn an_interval_holds_its_median_and_the_same_figures_give_the_same() {
        let values: Vec<f64> = (0..25).map(|n| 100.0 + f64::from(n % 7)).collect();
        let interval = Interval::of(&values).expect("there are values");
        assert!(interval.low <= interval.median && interval.median <= interval.high);
        assert!(interval.low >= 100.0 && interval.high <= 106.0);
        assert_eq!(Interval::of(&values), Some(interval));
    }

    #[test]
    fn it_covers_the_true_median_about_as_often_as_it_says() {
        let mut state = 1;
        let trials = 400;
        for (count, at_least, at_most) in [(21, 360, 395), (6, 376, 400), (7, 376, 400), (8, 376, 400), (9, 370, 400)] {
            let covered = (0..trials)
                .filter(|_| {
                    // Skewed, with median ln 2.
                    let value = |state: &mut u64| -((draw(state, 1 << 30) as f64 + 1.0) / f64::from(1 << 30)).ln();
                    let values: Vec<f64> = (0..count).map(|_| value(&mut state)).collect();
                    let interval = Interval::of(&values).expect("there are values");
                    assert!(interval.is_sure());
                    interval.low <= std::f64::consts::LN_2 && std::f64::consts::LN_2 <= interval.high
                })
                .count();
            assert!((at_least..=at_most).contains(&covered), "{covered} of {trials} with {count} values");
        }
    }

    #[test]
    fn few_values_have_a_range_and_promise_nothing() {
        let interval = Interval::of(&[3.0, 1.0, 2.0]).expect("there are values");
        assert_eq!((interval.low, interval.high, interval.values, interval.is_sure()), (1.0, 3.0, 3, false));
        assert!(Interval::of(&[1.0; 6]).is_some_and(|interval| interval.is_sure()));
    }

    #[test]
    fn more_values_make_it_narrower() {
        let of = |count: u64| Interval::of(&(0..count).map(|n| (crate::content::mix(n) % 1000) as f64 + 1000.0).collect::<Vec<_>>());
        let (few, many) = (of(10).expect("values"), of(1000).expect("values"));
        assert!(many.spread() < few.spread() / 3.0, "{few:?} {many:?}");
    }

    #[test]
    fn equal_values_leave_no_doubt_and_none_give_none() {
        assert_eq!(Interval::of(&[5.0; 4]), Some(Interval { median: 5.0, low: 5.0, high: 5.0, values: 4 }));
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&[f64::NAN]), None);
    }
}
