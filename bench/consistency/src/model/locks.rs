//! Byte-range locks of one file (RFC 8881 §9.1, §18.10.3). Write locks exclude all locks of other
//! owners. A restart changes nothing here: a lock that its owner reclaims was held all the time
//! (§8.4.2), so no other owner may get it meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Call, Outcome, Owner};

pub(crate) const LOCK_BYTES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Held {
    No,
    Read,
    Write,
}

impl Held {
    const fn excludes(self, write: bool) -> bool {
        match self {
            Self::No => false,
            Self::Read => write,
            Self::Write => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Locks {
    held: BTreeMap<Owner, [Held; LOCK_BYTES]>,
    /// The most that owners from before the history may hold.
    unknown: [Held; LOCK_BYTES],
    /// Ranges that owners wait for. Servers may keep a freed range for them (RFC 8881 §9.6).
    awaited: BTreeSet<(Owner, bool, u8, u8)>,
}

impl Default for Locks {
    fn default() -> Self {
        Self { held: BTreeMap::new(), unknown: [Held::No; LOCK_BYTES], awaited: BTreeSet::new() }
    }
}

impl Locks {
    pub(super) fn unknown() -> Self {
        Self { unknown: [Held::Write; LOCK_BYTES], ..Self::default() }
    }

    fn conflicts(&self, owner: Owner, write: bool, first: u8, len: u8) -> bool {
        let range = usize::from(first)..usize::from(first + len);
        self.held
            .iter()
            .filter(|(other, _)| **other != owner)
            .any(|(_, held)| held[range.clone()].iter().any(|held| held.excludes(write)))
    }

    fn is_awaited(&self, owner: Owner, write: bool, first: u8, len: u8) -> bool {
        self.awaited.iter().any(|&(other, writes, start, count)| {
            other != owner && (write || writes) && start < first + len && first < start + count
        })
    }

    fn set(&mut self, owner: Owner, first: u8, len: u8, to: Held) {
        let held = self.held.entry(owner).or_insert([Held::No; LOCK_BYTES]);
        held[usize::from(first)..usize::from(first + len)].fill(to);
        if held.iter().all(|held| *held == Held::No) {
            self.held.remove(&owner);
        }
    }

    pub(super) fn step(&self, call: &Call, outcome: &Outcome) -> Option<Self> {
        let mut next = self.clone();
        match *call {
            Call::Lock { owner, write, first, len, waits, .. } => {
                let range = usize::from(first)..usize::from(first + len);
                let unknown = &mut next.unknown[range];
                let may_conflict = unknown.iter().any(|held| held.excludes(write))
                    || self.is_awaited(owner, write, first, len);
                match (self.conflicts(owner, write, first, len), outcome) {
                    (false, Outcome::Denied) if may_conflict => {}
                    (false, Outcome::Done | Outcome::Unknown) => {
                        let others = if write { Held::No } else { Held::Read };
                        unknown.iter_mut().for_each(|held| *held = others.min(*held));
                        let held = if write { Held::Write } else { Held::Read };
                        next.set(owner, first, len, held);
                    }
                    (true, Outcome::Denied | Outcome::Unknown) => {}
                    _ => return None,
                }
                if waits && *outcome != Outcome::Done {
                    next.awaited.insert((owner, write, first, len));
                } else if *outcome == Outcome::Done {
                    // A server may still keep other ranges for which the owner waited.
                    next.awaited.retain(|&(other, _, start, count)| {
                        (other, start, count) != (owner, first, len)
                    });
                }
            }
            Call::Unlock { owner, first, len } => next.set(owner, first, len, Held::No),
            Call::Drop { owner } => {
                next.held.remove(&owner);
            }
            _ => {}
        }
        Some(next)
    }

    pub(super) fn explain(&self) -> String {
        if self.held.is_empty() {
            return "no locks are held".into();
        }
        let owners = self.held.iter().map(|(owner, held)| {
            let bytes: String = held
                .iter()
                .map(|held| match held {
                    Held::No => '-',
                    Held::Read => 'r',
                    Held::Write => 'w',
                })
                .collect();
            format!("owner {owner}: {bytes}")
        });
        owners.collect::<Vec<_>>().join("; ")
    }
}
