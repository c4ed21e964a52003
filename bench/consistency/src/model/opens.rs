//! Share reservations of one file (RFC 8881 §9.7): an OPEN conflicts if its access is denied by
//! another open, or if it denies another open's access.

use std::collections::BTreeMap;

use crate::history::{Call, Outcome, Owner};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Opens(BTreeMap<Owner, (u8, u8)>);

impl Opens {
    pub(super) fn step(&self, call: &Call, outcome: &Outcome) -> Option<Self> {
        let mut next = self.clone();
        match *call {
            Call::Open { owner, access, deny } => {
                let conflicts = self
                    .0
                    .iter()
                    .any(|(other, held)| *other != owner && (held.0 & deny | held.1 & access) != 0);
                match (conflicts, outcome) {
                    (false, Outcome::Done | Outcome::Unknown) => {
                        next.0.insert(owner, (access, deny));
                    }
                    (true, Outcome::Denied | Outcome::Unknown) => {}
                    _ => return None,
                }
            }
            Call::Close { owner } | Call::Drop { owner } => {
                next.0.remove(&owner);
            }
            _ => {}
        }
        Some(next)
    }

    pub(super) fn explain(&self) -> String {
        let opens = self
            .0
            .iter()
            .map(|(owner, (access, deny))| format!("owner {owner}: access {access} deny {deny}"));
        match self.0.is_empty() {
            true => "the file is not open".into(),
            false => opens.collect::<Vec<_>>().join("; "),
        }
    }
}
