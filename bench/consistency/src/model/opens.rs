//! Share reservations of one file (RFC 8881 §9.7): an OPEN conflicts if its access is denied by
//! another open, or if it denies another open's access.

use std::collections::BTreeMap;

use crate::history::{Call, Outcome, Owner};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Opens {
    held: BTreeMap<Owner, (u8, u8)>,
    /// The most that opens from before the history may have: access and deny.
    unknown: (u8, u8),
}

impl Opens {
    pub(super) fn unknown() -> Self {
        Self { unknown: (3, 3), ..Self::default() }
    }

    pub(super) fn step(&self, call: &Call, outcome: &Outcome) -> Option<Self> {
        let mut next = self.clone();
        match *call {
            Call::Open { owner, access, deny, .. } => {
                let conflicts = self
                    .held
                    .iter()
                    .any(|(other, held)| *other != owner && (held.0 & deny | held.1 & access) != 0);
                let may_conflict = self.unknown.0 & deny | self.unknown.1 & access != 0;
                match (conflicts, outcome) {
                    (false, Outcome::Denied | Outcome::Unknown) if may_conflict => {}
                    (false, Outcome::Done | Outcome::Unknown) => {
                        next.unknown.0 &= !deny;
                        next.unknown.1 &= !access;
                        next.held.insert(owner, (access, deny));
                    }
                    (true, Outcome::Denied | Outcome::Unknown) => {}
                    _ => return None,
                }
            }
            Call::Close { owner } | Call::Drop { owner } => {
                next.held.remove(&owner);
            }
            Call::Use { access } => {
                let denied = self.held.values().any(|held| held.1 & access != 0);
                match outcome {
                    Outcome::Done if denied => return None,
                    Outcome::Done => next.unknown.1 &= !access,
                    Outcome::Denied if !denied && self.unknown.1 & access == 0 => return None,
                    _ => {}
                }
            }
            _ => {}
        }
        Some(next)
    }

    pub(super) fn explain(&self) -> String {
        let opens = self
            .held
            .iter()
            .map(|(owner, (access, deny))| format!("owner {owner}: access {access} deny {deny}"));
        match self.held.is_empty() {
            true => "the file is not open".into(),
            false => opens.collect::<Vec<_>>().join("; "),
        }
    }
}
