//! The names of one directory. Creation, LINK, RENAME and REMOVE are atomic and execute exactly
//! once (RFC 8881 §2.10.6.1, §18.26.3); a LOOKUP that begins after their reply sees the change.

use crate::history::{Call, Outcome};

pub(crate) const NAMES: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Id {
    /// File id, as seen by a client.
    Known(u64),
    /// Of the object that this call created. The first look at it tells its file id.
    CreatedBy(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Entry {
    id: Id,
    is_dir: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Names([Option<Entry>; NAMES]);

impl Names {
    pub(super) fn step(&self, op: u32, call: &Call, outcome: &Outcome) -> Option<Self> {
        let mut next = self.clone();
        match *call {
            Call::Create { name } | Call::Mkdir { name } => {
                let id = match outcome {
                    Outcome::Value(file) => Id::Known(*file),
                    _ => Id::CreatedBy(op),
                };
                let entry = Entry { id, is_dir: matches!(call, Call::Mkdir { .. }) };
                next.add(name, entry, outcome)?;
            }
            Call::Link { name, file } => {
                next.add(name, Entry { id: Id::Known(file), is_dir: false }, outcome)?;
            }
            Call::Remove { name } => {
                let is_there = self.0[usize::from(name)].is_some();
                match outcome {
                    Outcome::Done if !is_there => return None,
                    Outcome::NotFound if is_there => return None,
                    Outcome::Done | Outcome::Unknown => next.0[usize::from(name)] = None,
                    _ => {}
                }
            }
            Call::Rename { from, to } => next.rename(from.into(), to.into(), outcome)?,
            Call::Lookup { name } => match (self.0[usize::from(name)], outcome) {
                (None, Outcome::NotFound) | (_, Outcome::Unknown) => {}
                (Some(entry), Outcome::Value(file)) => match entry.id {
                    Id::Known(known) if known != *file => return None,
                    Id::Known(_) => {}
                    unknown @ Id::CreatedBy(_) => {
                        for other in next.0.iter_mut().flatten().filter(|e| e.id == unknown) {
                            other.id = Id::Known(*file);
                        }
                    }
                },
                _ => return None,
            },
            Call::Listed { name } => match (self.0[usize::from(name)], outcome) {
                (None, Outcome::NotFound) | (Some(_), Outcome::Done) | (_, Outcome::Unknown) => {}
                _ => return None,
            },
            _ => {}
        }
        Some(next)
    }

    fn add(&mut self, name: u8, entry: Entry, outcome: &Outcome) -> Option<()> {
        let place = &mut self.0[usize::from(name)];
        match (&place, outcome) {
            (None, Outcome::Done | Outcome::Value(_) | Outcome::Unknown) => *place = Some(entry),
            (Some(_), Outcome::Exists | Outcome::Unknown) => {}
            _ => return None,
        }
        Some(())
    }

    fn rename(&mut self, from: usize, to: usize, outcome: &Outcome) -> Option<()> {
        let (Some(source), target) = (self.0[from], self.0[to]) else {
            return matches!(outcome, Outcome::NotFound | Outcome::Unknown).then_some(());
        };
        if target.is_some_and(|target| target.is_dir != source.is_dir) {
            return matches!(outcome, Outcome::Exists | Outcome::Unknown).then_some(());
        }
        if !matches!(outcome, Outcome::Done | Outcome::Unknown) {
            return None;
        }
        // Two names of one file: RENAME succeeds and does nothing (RFC 8881 §18.26.3).
        if target.is_none_or(|target| target.id != source.id) {
            (self.0[to], self.0[from]) = (Some(source), None);
        }
        Some(())
    }

    pub(super) fn explain(&self) -> String {
        let names = self.0.iter().enumerate().map(|(at, entry)| match entry {
            None => format!("n{at}: no such name"),
            Some(Entry { id: Id::Known(file), .. }) => format!("n{at}: file id {file}"),
            Some(Entry { id: Id::CreatedBy(op), .. }) => format!("n{at}: created by call {op}"),
        });
        names.collect::<Vec<_>>().join("; ")
    }
}
