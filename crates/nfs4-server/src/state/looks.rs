//! How often it is looked for who could make room. A look takes some time where there is much, and
//! nobody else is served meanwhile; so one origin has few, fewer while they are in vain, and all
//! together have a bound. What may be short is looked for each apart: whoever looks for one thing
//! in vain keeps neither others from theirs nor himself from another.

use super::limits::{LOOKS_MAX, LOOKS_PER_ORIGIN_MAX, ROOM_LOOK_DOUBLINGS_MAX, ROOM_LOOK_INTERVAL_MS};
use super::places::Held;

/// What may be short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scarce {
    Opens,
    Owners,
    Sessions,
    Replies,
}

const SCARCE: usize = 4;

impl Scarce {
    /// How much of it an origin has.
    pub(super) fn of(self, held: &Held) -> usize {
        match self {
            Scarce::Opens => held.opens,
            Scarce::Owners => held.owners,
            Scarce::Sessions => held.sessions,
            Scarce::Replies => held.cache_len(),
        }
    }
}

/// The looks of one origin.
#[derive(Debug, Default)]
pub(super) struct Gates([Gate; SCARCE]);

/// Its looks for one thing.
#[derive(Debug, Default)]
struct Gate {
    /// When they begin to be counted anew.
    until_ms: u64,
    looks: u32,
    /// How many were in vain since one was not, as far as that counts.
    vain: u32,
}

/// The looks of all.
#[derive(Debug, Default)]
pub(super) struct Looks {
    until_ms: u64,
    looks: u32,
}

impl Looks {
    /// Whether one of this origin may look for this now. If so, it has.
    pub(super) fn may(&mut self, gates: &mut Gates, scarce: Scarce, now: u64) -> bool {
        let gate = &mut gates.0[scarce as usize];
        if now >= gate.until_ms {
            (gate.until_ms, gate.looks) = (now + ROOM_LOOK_INTERVAL_MS, 0);
        }
        if now >= self.until_ms {
            *self = Looks { until_ms: now + ROOM_LOOK_INTERVAL_MS, looks: 0 };
        }
        if gate.looks >= LOOKS_PER_ORIGIN_MAX || self.looks >= LOOKS_MAX {
            return false;
        }
        gate.looks += 1;
        self.looks += 1;
        true
    }
}

impl Gates {
    /// It has looked for this. In vain, so that it waits longer each time; or not.
    pub(super) fn looked(&mut self, scarce: Scarce, found: bool, now: u64) {
        let gate = &mut self.0[scarce as usize];
        if found {
            gate.vain = 0;
            return;
        }
        (gate.until_ms, gate.looks) = (now + (ROOM_LOOK_INTERVAL_MS << gate.vain), LOOKS_PER_ORIGIN_MAX);
        gate.vain = (gate.vain + 1).min(ROOM_LOOK_DOUBLINGS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_in_vain_costs_who_looks_and_for_what_he_looks_alone() {
        let (mut all, mut one, mut other) = (Looks::default(), Gates::default(), Gates::default());
        assert!(all.may(&mut one, Scarce::Opens, 0));
        one.looked(Scarce::Opens, false, 0);
        assert!(!all.may(&mut one, Scarce::Opens, ROOM_LOOK_INTERVAL_MS - 1));
        assert!(all.may(&mut one, Scarce::Replies, 1) && all.may(&mut other, Scarce::Opens, 1));
        // Again and again in vain: seldom.
        let (mut now, mut looks) = (ROOM_LOOK_INTERVAL_MS, 0);
        while now < 100 * ROOM_LOOK_INTERVAL_MS {
            if all.may(&mut one, Scarce::Opens, now) {
                looks += 1;
                one.looked(Scarce::Opens, false, now);
            }
            now += 1;
        }
        assert!((5..=10).contains(&looks), "{looks}");
        // One that found somebody makes up for it.
        now += ROOM_LOOK_INTERVAL_MS << ROOM_LOOK_DOUBLINGS_MAX;
        assert!(all.may(&mut one, Scarce::Opens, now));
        one.looked(Scarce::Opens, true, now);
        assert!(all.may(&mut one, Scarce::Opens, now));
    }

    #[test]
    fn no_number_of_origins_looks_without_end() {
        let mut all = Looks::default();
        let mut looks = |now| {
            let mut one = Gates::default();
            (0..LOOKS_MAX * 2).filter(|_| all.may(&mut one, Scarce::Sessions, now)).count() as u32
        };
        let counts: Vec<u32> = (0..10).map(|_| looks(0)).collect();
        assert_eq!((counts[0], counts.iter().sum::<u32>()), (LOOKS_PER_ORIGIN_MAX, LOOKS_MAX));
        assert_eq!(looks(ROOM_LOOK_INTERVAL_MS), LOOKS_PER_ORIGIN_MAX);
    }
}
