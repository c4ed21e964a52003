//! Can be merged and sent. Values keep three digits.

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Nanoseconds.
#[derive(Debug, Clone)]
pub struct Latency(Histogram<u64>);

impl Latency {
    pub fn new() -> Self {
        let mut histogram = Histogram::new(3).expect("three digits are valid");
        histogram.auto(true);
        Self(histogram)
    }

    pub(crate) fn record(&mut self, nanoseconds: u64) {
        self.record_many(nanoseconds, 1);
    }

    pub(crate) fn record_many(&mut self, nanoseconds: u64, count: u64) {
        self.0.record_n(nanoseconds, count).expect("a growing histogram takes every value");
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("histograms that grow take every value");
    }

    /// Two digits, for records: an eighth as long.
    pub(crate) fn coarse(&self) -> Self {
        let mut histogram = Histogram::new(2).expect("two digits are valid");
        histogram.auto(true);
        for (nanoseconds, count) in self.pairs() {
            histogram.record_n(nanoseconds, count).expect("a growing histogram takes every value");
        }
        Self(histogram)
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Microseconds. NaN without calls.
    pub(crate) fn quantile_us(&self, part: f64) -> f64 {
        if self.0.is_empty() { f64::NAN } else { self.0.value_at_quantile(part) as f64 / 1e3 }
    }

    /// Microseconds. NaN without calls.
    pub(crate) fn mean_us(&self) -> f64 {
        if self.0.is_empty() { f64::NAN } else { self.0.mean() / 1e3 }
    }

    pub(crate) fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    fn pairs(&self) -> Vec<(u64, u64)> {
        self.0
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect()
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Latency {
    fn eq(&self, other: &Self) -> bool {
        self.pairs() == other.pairs()
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.pairs().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut latency = Self::new();
        for (nanoseconds, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            if nanoseconds > LONGEST {
                return Err(serde::de::Error::custom("a latency of over a day"));
            }
            latency.record_many(nanoseconds, count);
        }
        Ok(latency)
    }
}

/// Limits the histogram's growth.
const LONGEST: u64 = 86_400_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_equals_histogram_of_all_calls() {
        let (mut a, mut b, mut both) = (Latency::new(), Latency::new(), Latency::new());
        for n in 0..10_000u64 {
            let value = crate::content::mix(n) % 50_000_000;
            if n % 3 == 0 {
                a.record(value)
            } else {
                b.record(value)
            }
            both.record(value);
        }
        a.merge(&b);
        assert_eq!(a, both);
        assert_eq!(a.count(), 10_000);
        for part in [0.5, 0.99, 0.999] {
            assert_eq!(a.quantile_us(part), both.quantile_us(part));
        }
    }

    #[test]
    fn serialization_keeps_quantiles() {
        let mut latency = Latency::new();
        (1..2000).for_each(|n| latency.record(n * 977));
        let text = serde_json::to_string(&latency).expect("numbers");
        let back: Latency = serde_json::from_str(&text).expect("own JSON is valid");
        assert_eq!(back, latency);
        assert!((back.quantile_us(0.5) / 977.0 - 1.0).abs() < 0.01);
        assert!(serde_json::from_str::<Latency>("[[18446744073709551615, 1]]").is_err());
    }

    #[test]
    fn coarse_copy_is_short_and_within_two_percent() {
        let mut latency = Latency::new();
        (1..200_000u64).for_each(|n| latency.record(20_000 + crate::content::mix(n) % 3_000_000));
        let coarse = latency.coarse();
        assert_eq!(coarse.count(), latency.count());
        assert!(
            coarse.pairs().len() * 4 < latency.pairs().len(),
            "{} of {}",
            coarse.pairs().len(),
            latency.pairs().len()
        );
        for part in [0.5, 0.99, 0.999] {
            assert!((coarse.quantile_us(part) / latency.quantile_us(part) - 1.0).abs() < 0.02);
        }
        let text = serde_json::to_string(&coarse).expect("numbers");
        assert_eq!(serde_json::from_str::<Latency>(&text).expect("own JSON is valid"), coarse);
    }

    #[test]
    fn empty_histogram_has_no_quantiles() {
        assert!(Latency::new().quantile_us(0.5).is_nan());
        assert!(Latency::new().mean_us().is_nan());
    }
}
