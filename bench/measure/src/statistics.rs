//! The bootstrap's seed is fixed: equal values give equal intervals.

use serde::{Deserialize, Serialize};

/// A median with its 95% confidence interval, or with the range of fewer than six values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    #[serde(default)]
    pub values: usize,
}

/// For a 95% confidence interval: all of five values lie on one side of the median once in sixteen
/// times.
pub(crate) const SURE_COUNT_MIN: usize = 6;

impl Interval {
    /// None without values or with one that is not finite. Up to fifteen values, the interval is
    /// the innermost pair that holds the true median with 95% confidence (sign test). From sixteen
    /// on, its ends are percentiles of resampled medians (Efron).
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        if values.len() < BOOTSTRAP_COUNT_MIN {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            let left_out = left_out(values.len());
            let (low, high) = (sorted[left_out], sorted[values.len() - 1 - left_out]);
            return Some(Self { median: median(values), low, high, values: values.len() });
        }
        let mut state = values.len() as u64;
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let mut drawn: Vec<f64> =
                    values.iter().map(|_| values[draw(&mut state, values.len())]).collect();
                median_of(&mut drawn)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        let at = |part: f64| medians[((RESAMPLES - 1) as f64 * part).round() as usize];
        Some(Self { median: median(values), low: at(0.025), high: at(0.975), values: values.len() })
    }

    /// True for a 95% confidence interval, false for a range.
    pub(crate) const fn is_sure(&self) -> bool {
        self.values >= SURE_COUNT_MIN
    }

    pub(crate) fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.median.abs() }
    }
}

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

/// Values to leave out at each end for 95% confidence (sign test).
fn left_out(values: usize) -> usize {
    let (mut ways, mut beyond, all) = (1.0, 0.0, 2f64.powi(values as i32));
    for heads in 0..values / 2 {
        beyond += 2.0 * ways;
        if beyond > 0.05 * all {
            return heads.saturating_sub(1);
        }
        ways *= (values - heads) as f64 / (heads + 1) as f64;
    }
    0
}

fn draw(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    ((u128::from(crate::content::mix(*state)) * below as u128) >> 64) as usize
}

const RESAMPLES: usize = 2000;
/// With seven values the bootstrap's interval covers 88%, with ten 93%.
const BOOTSTRAP_COUNT_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_no_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn interval_holds_median_and_narrows_with_values() {
        let of = |count: u64| {
            Interval::of(
                &(0..count)
                    .map(|n| (crate::content::mix(n) % 1000) as f64 + 1000.0)
                    .collect::<Vec<_>>(),
            )
        };
        let (few, many) = (of(10).expect("values"), of(1000).expect("values"));
        assert!(many.spread() < few.spread() / 3.0, "{few:?} {many:?}");
        for interval in [few, many] {
            assert!(
                interval.low <= interval.median
                    && interval.median <= interval.high
                    && interval.low >= 1000.0
                    && interval.high < 2000.0
            );
        }
        assert_eq!(of(1000), Some(many), "deterministic");
        let interval = Interval::of(&[3.0, 1.0, 2.0]).expect("there are values");
        assert_eq!(
            (interval.low, interval.high, interval.values, interval.is_sure()),
            (1.0, 3.0, 3, false)
        );
        assert!(Interval::of(&[1.0; 6]).is_some_and(|interval| interval.is_sure()));
        assert_eq!(
            Interval::of(&[5.0; 4]),
            Some(Interval { median: 5.0, low: 5.0, high: 5.0, values: 4 })
        );
        assert_eq!((Interval::of(&[]), Interval::of(&[f64::NAN])), (None, None));
    }

    #[test]
    fn interval_covers_true_median_as_often_as_promised() {
        let mut state = 1;
        let trials = 1000;
        for (count, at_least, at_most) in [
            (21, 900, 988),
            (6, 950, 1000),
            (7, 950, 1000),
            (8, 950, 1000),
            (9, 945, 990),
            (10, 955, 1000),
            (12, 945, 990),
            (15, 945, 990),
        ] {
            let covered = (0..trials)
                .filter(|_| {
                    let value = |state: &mut u64| {
                        -((draw(state, 1 << 30) as f64 + 1.0) / f64::from(1 << 30)).ln()
                    };
                    let values: Vec<f64> = (0..count).map(|_| value(&mut state)).collect();
                    let interval = Interval::of(&values).expect("there are values");
                    assert!(interval.is_sure());
                    interval.low <= std::f64::consts::LN_2
                        && std::f64::consts::LN_2 <= interval.high
                })
                .count();
            assert!(
                (at_least..=at_most).contains(&covered),
                "{covered} of {trials} with {count} values"
            );
        }
    }

    #[test]
    fn leaves_out_as_many_values_as_sign_test_allows() {
        let wanted =
            [(6, 0), (7, 0), (8, 0), (9, 1), (10, 1), (11, 1), (12, 2), (13, 2), (14, 2), (15, 3)];
        assert_eq!(wanted.map(|(values, _)| (values, left_out(values))), wanted);
        let interval = Interval::of(&[9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0, 100.0])
            .expect("there are values");
        assert_eq!((interval.low, interval.high), (2.0, 9.0));
    }

    #[test]
    fn early_stop_keeps_coverage() {
        let (mut state, trials) = (1, 1000);
        let covered = (0..trials)
            .filter(|_| {
                let value = |state: &mut u64| {
                    1.0 + 0.013
                        * ((0..12)
                            .map(|_| draw(state, 1 << 30) as f64 / f64::from(1 << 30))
                            .sum::<f64>()
                            - 6.0)
                };
                let mut values: Vec<f64> = (0..SURE_COUNT_MIN).map(|_| value(&mut state)).collect();
                loop {
                    let interval = Interval::of(&values).expect("there are values");
                    if interval.spread() <= 0.02 || values.len() == 10 {
                        return interval.low <= 1.0 && 1.0 <= interval.high;
                    }
                    values.push(value(&mut state));
                }
            })
            .count();
        assert!((945..=990).contains(&covered), "{covered} of {trials}");
    }
}
