//! Sequential models of single objects. `step` executes one call and returns the next state, or
//! None if no right server gives this outcome in this state. `Outcome::Unknown` has every effect
//! that the call can have in this state; the checker may also leave such a call out.

mod file;
mod locks;
mod names;
mod opens;
mod registers;

use crate::history::{Call, Outcome};

pub(crate) use file::CELLS;
pub(crate) use locks::LOCK_BYTES;
pub(crate) use names::NAMES;
pub(crate) use registers::REGISTERS;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum State {
    File(file::File),
    Names(names::Names),
    Locks(locks::Locks),
    Opens(opens::Opens),
    Registers(registers::Registers),
}

impl State {
    /// The model that has this call.
    pub(crate) fn of(call: &Call) -> Option<Self> {
        match call {
            Call::Write { .. }
            | Call::Read { .. }
            | Call::Truncate { .. }
            | Call::Punch { .. }
            | Call::Clone { .. }
            | Call::Allocate { .. }
            | Call::Size
            | Call::Commit
            | Call::Loss => Some(Self::File(file::File::default())),
            Call::Create { .. }
            | Call::Mkdir { .. }
            | Call::Link { .. }
            | Call::Rename { .. }
            | Call::Replace { .. }
            | Call::Remove { .. }
            | Call::Lookup { .. }
            | Call::Links { .. }
            | Call::Listed { .. } => Some(Self::Names(names::Names::default())),
            Call::Lock { .. } | Call::Unlock { .. } => Some(Self::Locks(locks::Locks::default())),
            Call::Open { .. } | Call::Close { .. } | Call::Use { .. } => {
                Some(Self::Opens(opens::Opens::default()))
            }
            Call::Set { .. } | Call::Get { .. } | Call::Unset { .. } | Call::Keys => {
                Some(Self::Registers(registers::Registers::default()))
            }
            Call::Drop { .. } | Call::Undone { .. } | Call::Change | Call::List => None,
        }
    }

    /// Every state of this model: for the rest of a history whose beginning was left out.
    pub(crate) fn unknown(&self) -> Self {
        match self {
            Self::File(_) => Self::File(file::File::unknown()),
            Self::Names(_) => Self::Names(names::Names::unknown()),
            Self::Locks(_) => Self::Locks(locks::Locks::unknown()),
            Self::Opens(_) => Self::Opens(opens::Opens::unknown()),
            Self::Registers(_) => Self::Registers(registers::Registers::unknown()),
        }
    }

    pub(crate) fn step(&self, id: u32, call: &Call, outcome: &Outcome) -> Option<Self> {
        if matches!(outcome, Outcome::Failed(_)) {
            return Some(self.clone());
        }
        match self {
            Self::File(state) => state.step(call, outcome).map(Self::File),
            Self::Names(state) => state.step(id, call, outcome).map(Self::Names),
            Self::Locks(state) => state.step(call, outcome).map(Self::Locks),
            Self::Opens(state) => state.step(call, outcome).map(Self::Opens),
            Self::Registers(state) => state.step(call, outcome).map(Self::Registers),
        }
    }

    /// Why this outcome is impossible here, for a person.
    pub(crate) fn explain(&self) -> String {
        match self {
            Self::File(state) => state.explain(),
            Self::Names(state) => state.explain(),
            Self::Locks(state) => state.explain(),
            Self::Opens(state) => state.explain(),
            Self::Registers(state) => state.explain(),
        }
    }
}
