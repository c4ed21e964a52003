//! A server's link: transfers share its bandwidth chunk by chunk.

use std::collections::VecDeque;

pub(crate) type Micros = u64;

/// Bytes of one transfer before the next one's turn.
pub(crate) const CHUNK: u64 = 64 << 10;

const PACKET: u64 = 1448;

/// RFC 6928.
const WINDOW_FIRST: u64 = 10 * PACKET;

/// Shortest of Linux.
pub(crate) const RETRANSMISSION_TIMEOUT: Micros = 200_000;

pub(crate) type TransferId = u64;

pub(crate) struct Link {
    /// Bytes per microsecond.
    rate: f64,
    pub(crate) is_busy: bool,
    pub(crate) turns: VecDeque<TransferId>,
}

impl Link {
    pub(crate) fn new(bytes_per_s: f64) -> Self {
        Self { rate: bytes_per_s / 1e6, is_busy: false, turns: VecDeque::new() }
    }

    pub(crate) fn duration(&self, len: u64) -> Micros {
        (len as f64 / self.rate).ceil() as Micros
    }
}

/// By TCP's slow start, which ends where the window covers the path.
pub(crate) fn slow_start(offset: u64, rtt: Micros, bytes_per_s: f64) -> Micros {
    let path = (bytes_per_s * rtt as f64 / 1e6) as u64;
    let doublings = (offset.min(path) / WINDOW_FIRST + 1).ilog2();
    rtt * Micros::from(doublings)
}

pub(crate) fn packets(len: u64) -> u64 {
    len.div_ceil(PACKET)
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of `packets` is lost.
    pub(crate) fn loses(&mut self, loss: f64, packets: u64) -> bool {
        loss > 0.0 && self.unit() < 1.0 - (1.0 - loss).powf(packets as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_doubles_until_the_path_is_full() {
        let at = |offset| slow_start(offset, 20_000, 125e6);
        assert_eq!(
            [at(0), at(WINDOW_FIRST - 1), at(WINDOW_FIRST), at(3 * WINDOW_FIRST)],
            [0, 0, 20_000, 40_000]
        );
        assert_eq!(at(u64::MAX), at(2_500_000));
    }

    #[test]
    fn loss_has_its_rate() {
        let mut random = Random(1);
        let lost = (0..100_000).filter(|_| random.loses(0.01, 1)).count();
        assert!((900..1100).contains(&lost), "{lost}");
        assert!(!random.loses(0.0, 1000));
    }
}
