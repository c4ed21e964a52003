//! RFC 2203 §5.3.3.1. The caller has verified each number.

use crate::GssSeq;

/// A client with 64 slots on 16 connections has 1,024 calls in flight. Windows of 32 or 128 drop
/// some percent under load.
pub(crate) const WINDOW_LEN: u32 = 2048;

const WORDS: usize = WINDOW_LEN as usize / 64;

/// Sequence numbers that were used.
#[derive(Clone, Debug)]
pub struct Window {
    newest: Option<GssSeq>,
    seen: [u64; WORDS],
}

impl Default for Window {
    fn default() -> Self {
        Self { newest: None, seen: [0; WORDS] }
    }
}

impl Window {
    /// False for a repeated or too old number: drop the call without an answer.
    #[must_use]
    pub fn take(&mut self, seq: GssSeq) -> bool {
        match self.newest {
            None => {}
            Some(newest) if seq > newest => self.advance(newest, seq),
            Some(newest) => {
                // RFC 2203 §5.3.3.1: from N down to N - seq_window + 1.
                let (word, bit) = place(seq);
                if newest.0 - seq.0 >= WINDOW_LEN || self.seen[word] & bit != 0 {
                    return false;
                }
                self.seen[word] |= bit;
                return true;
            }
        }
        self.newest = Some(seq);
        let (word, bit) = place(seq);
        self.seen[word] |= bit;
        true
    }

    fn advance(&mut self, from: GssSeq, to: GssSeq) {
        if to.0 - from.0 >= WINDOW_LEN {
            self.seen = [0; WORDS];
            return;
        }
        let mut at = from.0 + 1;
        while at <= to.0 {
            let (word, bit) = place(GssSeq(at));
            if at.is_multiple_of(64) && to.0 - at >= 63 {
                self.seen[word] = 0;
                at += 64;
            } else {
                self.seen[word] &= !bit;
                at += 1;
            }
        }
    }
}

const fn place(seq: GssSeq) -> (usize, u64) {
    let at = seq.0 % WINDOW_LEN;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[derive(Default)]
    struct Model {
        newest: Option<u32>,
        seen: HashSet<u32>,
    }

    impl Model {
        fn take(&mut self, seq: u32) -> bool {
            if self.newest.is_some_and(|newest| {
                i64::from(seq) < i64::from(newest) - i64::from(WINDOW_LEN) + 1
            }) {
                return false;
            }
            self.newest = Some(self.newest.map_or(seq, |newest| newest.max(seq)));
            self.seen.insert(seq)
        }
    }

    #[test]
    fn window_edges_follow_the_rfc() {
        let mut window = Window::default();
        assert!(window.take(GssSeq(5000)));
        assert!(window.take(GssSeq(5000 - WINDOW_LEN + 1)));
        assert!(!window.take(GssSeq(5000 - WINDOW_LEN)));
        assert!(!window.take(GssSeq(5000)));
        assert!(window.take(GssSeq(GssSeq::MAX.0 - 1)));
        assert!(!window.take(GssSeq(5001)));
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_model(
            start in 0u32..GssSeq::MAX.0 - 1_000_000,
            steps in proptest::collection::vec((-3000i64..3000, 0u32..20), 1..400),
        ) {
            let (mut window, mut model) = (Window::default(), Model::default());
            let mut at = i64::from(start);
            for (step, repeats) in steps {
                at = (at + if step % 97 == 0 { step * 5 } else { step }).max(0);
                for seq in at..=at + i64::from(repeats) {
                    let seq = u32::try_from(seq).unwrap();
                    proptest::prop_assert_eq!(window.take(GssSeq(seq)), model.take(seq), "{}", seq);
                }
            }
        }

        #[test]
        fn no_number_is_accepted_twice(seqs in proptest::collection::vec(0u32..6000, 1..4000)) {
            let (mut window, mut taken) = (Window::default(), HashSet::new());
            for seq in seqs {
                if window.take(GssSeq(seq)) {
                    proptest::prop_assert!(taken.insert(seq));
                }
            }
        }
    }

    /// script/prove raises the bounds.
    fn bound(small: usize, large: usize) -> usize {
        if std::env::var_os("VOUCH_PROVE").is_some() { large } else { small }
    }

    fn each_next(window: &Window, model: &Model, depth: usize, taken: &mut Vec<(u32, bool)>) {
        // Around the ends of words, of the window, and of all numbers.
        const NUMBERS: [u32; 13] = [
            0,
            1,
            63,
            64,
            65,
            WINDOW_LEN - 1,
            WINDOW_LEN,
            WINDOW_LEN + 1,
            WINDOW_LEN + 63,
            2 * WINDOW_LEN - 1,
            2 * WINDOW_LEN,
            GssSeq::MAX.0 - 1,
            GssSeq::MAX.0,
        ];
        for seq in NUMBERS {
            let mut next =
                (window.clone(), Model { newest: model.newest, seen: model.seen.clone() });
            let found = next.0.take(GssSeq(seq));
            assert_eq!(found, next.1.take(seq), "{seq} after {taken:?}");
            assert!(!found || !taken.contains(&(seq, true)), "{seq} twice: {taken:?}");
            if depth > 1 {
                taken.push((seq, found));
                each_next(&next.0, &next.1, depth - 1, taken);
                taken.pop();
            }
        }
    }

    /// All orders of some numbers: each is taken once at most, and as the model says.
    #[test]
    fn exhaustive_orders_take_each_number_once() {
        each_next(&Window::default(), &Model::default(), bound(4, 5), &mut Vec::new());
    }
}
