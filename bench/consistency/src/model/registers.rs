//! Single values of one object: extended attributes, a mode, an access control list. SETATTR,
//! SETXATTR and REMOVEXATTR replace a value as a whole.

use crate::history::{Call, Outcome, SetHow};

pub(crate) const REGISTERS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Register {
    Unset,
    Set(u64),
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Registers([Register; REGISTERS]);

impl Default for Registers {
    fn default() -> Self {
        Self([Register::Unset; REGISTERS])
    }
}

impl Registers {
    pub(super) const fn unknown() -> Self {
        Self([Register::Unknown; REGISTERS])
    }

    pub(super) fn step(&self, call: &Call, outcome: &Outcome) -> Option<Self> {
        let mut next = self.clone();
        match *call {
            Call::Set { key, value, how } => {
                let place = &mut next.0[usize::from(key)];
                let (needs_set, needs_unset) = (how == SetHow::Replace, how == SetHow::Create);
                match (outcome, *place) {
                    (Outcome::Done, Register::Unset) if needs_set => return None,
                    (Outcome::Done, Register::Set(_)) if needs_unset => return None,
                    (Outcome::Done, _) => *place = Register::Set(value),
                    (Outcome::Exists, Register::Unset) => return None,
                    (Outcome::NotFound, Register::Set(_)) => return None,
                    (Outcome::Exists, _) if needs_unset => {}
                    (Outcome::NotFound, _) if needs_set => *place = Register::Unset,
                    (Outcome::Unknown, Register::Unset) if needs_set => {}
                    (Outcome::Unknown, Register::Set(_)) if needs_unset => {}
                    (Outcome::Unknown, Register::Unknown) if needs_set || needs_unset => {}
                    (Outcome::Unknown, _) => *place = Register::Set(value),
                    _ => return None,
                }
            }
            Call::Undone { key } => next.0[usize::from(key)] = Register::Unknown,
            Call::Unset { key } => {
                let place = &mut next.0[usize::from(key)];
                match (outcome, *place) {
                    (Outcome::Done, Register::Unset) | (Outcome::NotFound, Register::Set(_)) => {
                        return None;
                    }
                    (Outcome::Done | Outcome::NotFound | Outcome::Unknown, _) => {
                        *place = Register::Unset;
                    }
                    _ => return None,
                }
            }
            Call::Get { key } => {
                let place = &mut next.0[usize::from(key)];
                let seen = match outcome {
                    Outcome::Value(value) => Register::Set(*value),
                    Outcome::NotFound => Register::Unset,
                    _ => return None,
                };
                if *place != Register::Unknown && *place != seen {
                    return None;
                }
                *place = seen;
            }
            Call::Keys => {
                let Outcome::Value(keys) = outcome else { return None };
                for (key, place) in next.0.iter_mut().enumerate() {
                    match (keys >> key & 1 == 1, *place) {
                        (true, Register::Unset) | (false, Register::Set(_)) => return None,
                        (false, _) => *place = Register::Unset,
                        (true, _) => {}
                    }
                }
            }
            _ => {}
        }
        Some(next)
    }

    pub(super) fn explain(&self) -> String {
        let values = self.0.iter().enumerate().map(|(key, value)| match value {
            Register::Unset => format!("{key}: not set"),
            Register::Set(value) => format!("{key}: {value}"),
            Register::Unknown => format!("{key}: any value"),
        });
        values.collect::<Vec<_>>().join("; ")
    }
}
