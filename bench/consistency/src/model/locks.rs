//! Byte-range locks of one file (RFC 8881 §9.1, §18.10.3). Write locks exclude all locks of other
//! owners. A restart changes nothing here: a lock that its owner reclaims was held all the time
//! (§8.4.2), so no other owner may get it meanwhile.

use std::collections::BTreeMap;

use crate::history::{Call, Outcome, Owner};

pub(crate) const LOCK_BYTES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Held {
    No,
    Read,
    Write,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Locks(BTreeMap<Owner, [Held; LOCK_BYTES]>);

impl Locks {
    fn conflicts(&self, owner: Owner, write: bool, first: u8, len: u8) -> bool {
        let range = usize::from(first)..usize::from(first + len);
        self.0.iter().filter(|(other, _)| **other != owner).any(|(_, held)| {
            held[range.clone()].iter().any(|held| match held {
                Held::No => false,
                Held::Read => write,
                Held::Write => true,
            })
        })
    }

    fn set(&mut self, owner: Owner, first: u8, len: u8, to: Held) {
        let held = self.0.entry(owner).or_insert([Held::No; LOCK_BYTES]);
        held[usize::from(first)..usize::from(first + len)].fill(to);
        if held.iter().all(|held| *held == Held::No) {
            self.0.remove(&owner);
        }
    }

    pub(super) fn step(&self, call: &Call, outcome: &Outcome) -> Option<Self> {
        let mut next = self.clone();
        match *call {
            Call::Lock { owner, write, first, len, .. } => {
                match (self.conflicts(owner, write, first, len), outcome) {
                    (false, Outcome::Done | Outcome::Unknown) => {
                        let held = if write { Held::Write } else { Held::Read };
                        next.set(owner, first, len, held);
                    }
                    (true, Outcome::Denied | Outcome::Unknown) => {}
                    _ => return None,
                }
            }
            Call::Unlock { owner, first, len } => next.set(owner, first, len, Held::No),
            Call::Drop { owner } => {
                next.0.remove(&owner);
            }
            _ => {}
        }
        Some(next)
    }

    pub(super) fn explain(&self) -> String {
        if self.0.is_empty() {
            return "no locks are held".into();
        }
        let owners = self.0.iter().map(|(owner, held)| {
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
