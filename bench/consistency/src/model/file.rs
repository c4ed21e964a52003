//! A file of a few cells, each written and read whole. WRITE and READ of one aligned cell are
//! linearizable. A restart may undo data that was neither stable nor committed (RFC 8881 §18.32.3,
//! §18.3.3), so each cell has the set of contents that it may have. Sets of cells are independent
//! of each other: the model permits more after a restart than a server can do, never less.

use crate::history::{Call, Outcome};

pub(crate) const CELLS: usize = 4;
/// Beyond the end of the file.
const ABSENT: u64 = u64::MAX;
/// Any content, or none.
const ANY: u64 = u64::MAX - 2;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Content {
    possible: Vec<u64>,
    /// The content after a loss may be one of these instead, until a COMMIT.
    undo: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct File([Content; CELLS]);

impl Default for File {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Content { possible: vec![ABSENT], undo: Vec::new() }))
    }
}

fn add(set: &mut Vec<u64>, more: &[u64]) {
    set.extend_from_slice(more);
    set.sort_unstable();
    set.dedup();
}

impl Content {
    fn set(&mut self, map: impl Fn(u64) -> u64, stable: bool) {
        let before = self.possible.clone();
        self.possible.iter_mut().for_each(|value| *value = map(*value));
        self.possible.sort_unstable();
        self.possible.dedup();
        match stable {
            true => self.undo.clear(),
            false if before != self.possible => add(&mut self.undo, &before),
            false => {}
        }
    }

    fn read(&mut self, value: u64) -> Option<()> {
        if self.possible.contains(&ANY) {
            self.possible = vec![value];
        }
        self.narrow(|possible| possible == value)
    }

    fn narrow(&mut self, keep: impl Fn(u64) -> bool) -> Option<()> {
        self.possible.retain(|&value| keep(value));
        (!self.possible.is_empty()).then_some(())
    }
}

impl File {
    pub(super) fn unknown() -> Self {
        let content = Content { possible: vec![ANY], undo: vec![ANY] };
        Self(std::array::from_fn(|_| content.clone()))
    }

    /// Writes beyond the end make a hole.
    fn fill(&mut self, cells: usize, stable: bool) {
        for hole in &mut self.0[..cells] {
            // The loss of a write within the file leaves a hole.
            if hole.undo.contains(&ABSENT) {
                add(&mut hole.undo, &[0]);
            }
            if hole.possible.contains(&ABSENT) {
                hole.set(|old| if old == ABSENT { 0 } else { old }, stable);
            }
        }
    }

    pub(super) fn step(&self, call: &Call, outcome: &Outcome) -> Option<Self> {
        let mut next = self.clone();
        match (call, outcome) {
            (Call::Write { cell, value, stable }, Outcome::Done | Outcome::Unknown) => {
                let stable = *stable && *outcome == Outcome::Done;
                let cell = usize::from(*cell);
                next.fill(cell, stable);
                next.0[cell].set(|_| *value, stable);
            }
            (Call::Clone { values }, Outcome::Done | Outcome::Unknown) => {
                for (content, value) in next.0.iter_mut().zip(values) {
                    content.set(|_| *value, false);
                }
            }
            (Call::Truncate { cells }, Outcome::Done | Outcome::Unknown) => {
                next.fill(usize::from(*cells), false);
                for content in &mut next.0[usize::from(*cells)..] {
                    content.set(|_| ABSENT, false);
                }
            }
            (Call::Allocate { cells }, Outcome::Done | Outcome::Unknown) => {
                next.fill(usize::from(*cells), false);
            }
            (Call::Punch { cell }, Outcome::Done | Outcome::Unknown) => {
                let content = &mut next.0[usize::from(*cell)];
                let was_any = content.possible.contains(&ANY);
                content.set(|old| if old == ABSENT { ABSENT } else { 0 }, false);
                if was_any {
                    add(&mut content.possible, &[ABSENT]);
                }
            }
            (Call::Commit, Outcome::Done) => next.0.iter_mut().for_each(|c| c.undo.clear()),
            // `undo` stays: data that survives a restart of the process is still not on the disk, and a
            // later power cut may undo it.
            (Call::Loss, _) => {
                for Content { possible, undo } in &mut next.0 {
                    add(possible, undo);
                }
            }
            (Call::Read { cell, .. }, Outcome::Value(value)) => {
                next.0[usize::from(*cell)].read(*value)?
            }
            (Call::Read { cell, .. }, Outcome::Absent) => {
                next.0[usize::from(*cell)].read(ABSENT)?
            }
            (Call::Size, Outcome::Value(cells)) => {
                for (at, content) in next.0.iter_mut().enumerate() {
                    let exists = (at as u64) < *cells;
                    if !exists && content.possible.contains(&ANY) {
                        content.possible = vec![ABSENT];
                    }
                    content.narrow(|value| (value != ABSENT) == exists)?;
                }
            }
            _ => {}
        }
        Some(next)
    }

    pub(super) fn explain(&self) -> String {
        let name = |value: &u64| match *value {
            ABSENT => "beyond the end".to_owned(),
            ANY => "not known".to_owned(),
            value => value.to_string(),
        };
        let cells = self.0.iter().enumerate().map(|(at, content)| {
            let values: Vec<String> = content.possible.iter().map(name).collect();
            format!("cell {at}: {}", values.join(" or "))
        });
        cells.collect::<Vec<_>>().join("; ")
    }
}
