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
    /// None: not known.
    is_dir: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Slot {
    #[default]
    Free,
    Taken(Entry),
    /// Any of them.
    Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Names([Slot; NAMES]);

impl Names {
    pub(super) const fn unknown() -> Self {
        Self([Slot::Unknown; NAMES])
    }

    pub(super) fn step(&self, op: u32, call: &Call, outcome: &Outcome) -> Option<Self> {
        let mut next = self.clone();
        match *call {
            Call::Create { name } | Call::Mkdir { name } => {
                let id = match outcome {
                    Outcome::Value(file) => Id::Known(*file),
                    _ => Id::CreatedBy(op),
                };
                let entry = Entry { id, is_dir: Some(matches!(call, Call::Mkdir { .. })) };
                next.add(name, entry, outcome)?;
            }
            Call::Link { name, file } => {
                next.add(name, Entry { id: Id::Known(file), is_dir: Some(false) }, outcome)?;
            }
            Call::Remove { name } => {
                let slot = &mut next.0[usize::from(name)];
                match (outcome, *slot) {
                    (Outcome::Done, Slot::Free) | (Outcome::NotFound, Slot::Taken(_)) => {
                        return None;
                    }
                    (Outcome::Done | Outcome::Unknown | Outcome::NotFound, _) => *slot = Slot::Free,
                    _ => {}
                }
            }
            Call::Replace { name, file } => {
                let entry = Entry { id: Id::Known(file), is_dir: Some(false) };
                next.0[usize::from(name)] = Slot::Taken(entry);
            }
            Call::Undone { key } => next.0[usize::from(key)] = Slot::Unknown,
            Call::Rename { from, to } => next.rename(from.into(), to.into(), outcome)?,
            Call::Lookup { name, .. } => next.lookup(name.into(), outcome)?,
            Call::Listed { name } => {
                let slot = &mut next.0[usize::from(name)];
                match (*slot, outcome) {
                    (Slot::Free | Slot::Unknown, Outcome::NotFound) => *slot = Slot::Free,
                    (Slot::Taken(_) | Slot::Unknown, Outcome::Done) | (_, Outcome::Unknown) => {}
                    _ => return None,
                }
            }
            Call::Links { file } => {
                let Outcome::Value(links) = *outcome else { return Some(next) };
                let is_name = |slot: &&Slot| matches!(slot, Slot::Taken(entry) if entry.id == Id::Known(file));
                let least = 1 + self.0.iter().filter(is_name).count() as u64;
                let unknown = self.0.iter().filter(|slot| **slot == Slot::Unknown).count() as u64;
                if !(least..=least + unknown).contains(&links) {
                    return None;
                }
            }
            _ => {}
        }
        Some(next)
    }

    fn add(&mut self, name: u8, entry: Entry, outcome: &Outcome) -> Option<()> {
        let slot = &mut self.0[usize::from(name)];
        match (*slot, outcome) {
            (Slot::Free | Slot::Unknown, Outcome::Done | Outcome::Value(_))
            | (Slot::Free, Outcome::Unknown) => *slot = Slot::Taken(entry),
            (Slot::Taken(_) | Slot::Unknown, Outcome::Exists | Outcome::Unknown) => {}
            _ => return None,
        }
        Some(())
    }

    fn lookup(&mut self, name: usize, outcome: &Outcome) -> Option<()> {
        match (self.0[name], outcome) {
            (Slot::Free, Outcome::NotFound) | (_, Outcome::Unknown) => {}
            (Slot::Unknown, Outcome::NotFound) => self.0[name] = Slot::Free,
            (Slot::Unknown, Outcome::Value(file)) => {
                self.0[name] = Slot::Taken(Entry { id: Id::Known(*file), is_dir: None });
            }
            (Slot::Taken(entry), Outcome::Value(file)) => match entry.id {
                Id::Known(known) if known != *file => return None,
                Id::Known(_) => {}
                unknown @ Id::CreatedBy(_) => {
                    for slot in &mut self.0 {
                        match slot {
                            Slot::Taken(other) if other.id == unknown => {
                                other.id = Id::Known(*file);
                            }
                            _ => {}
                        }
                    }
                }
            },
            _ => return None,
        }
        Some(())
    }

    fn rename(&mut self, from: usize, to: usize, outcome: &Outcome) -> Option<()> {
        let target = self.0[to];
        let source = match self.0[from] {
            Slot::Free => {
                return matches!(outcome, Outcome::NotFound | Outcome::Unknown).then_some(());
            }
            Slot::Unknown => {
                match outcome {
                    Outcome::NotFound => self.0[from] = Slot::Free,
                    Outcome::Done | Outcome::Unknown => {
                        (self.0[to], self.0[from]) = (Slot::Unknown, Slot::Unknown);
                    }
                    Outcome::Exists if target == Slot::Free => return None,
                    Outcome::Exists => {}
                    _ => return None,
                }
                return Some(());
            }
            Slot::Taken(source) => source,
        };
        let Slot::Taken(replaced) = target else {
            match (target, outcome) {
                (Slot::Free, Outcome::Done | Outcome::Unknown) => {
                    (self.0[to], self.0[from]) = (Slot::Taken(source), Slot::Free);
                }
                // Both may have been names of one file.
                (_, Outcome::Done) => {
                    (self.0[to], self.0[from]) = (Slot::Taken(source), Slot::Unknown);
                }
                (Slot::Unknown, Outcome::Unknown) => {
                    (self.0[to], self.0[from]) = (Slot::Unknown, Slot::Unknown);
                }
                (Slot::Unknown, Outcome::Exists) => {}
                _ => return None,
            }
            return Some(());
        };
        let differs = match (source.is_dir, replaced.is_dir) {
            (Some(one), Some(other)) => Some(one != other),
            _ => None,
        };
        match (outcome, differs) {
            (Outcome::Exists | Outcome::Unknown, Some(true)) | (Outcome::Exists, None) => {
                return Some(());
            }
            (Outcome::Done | Outcome::Unknown, Some(false) | None) => {}
            _ => return None,
        }
        // Two names of one file: RENAME succeeds and does nothing (RFC 8881 §18.26.3). Objects that
        // no one has looked up yet may be the same one only by two LINKs, whose file id is known.
        if replaced.id != source.id {
            (self.0[to], self.0[from]) = (Slot::Taken(source), Slot::Free);
        }
        if (outcome, differs) == (&Outcome::Unknown, None) {
            (self.0[to], self.0[from]) = (Slot::Unknown, Slot::Unknown);
        }
        Some(())
    }

    pub(super) fn explain(&self) -> String {
        let names = self.0.iter().enumerate().map(|(at, slot)| match slot {
            Slot::Free => format!("n{at}: no such name"),
            Slot::Unknown => format!("n{at}: not known"),
            Slot::Taken(Entry { id: Id::Known(file), .. }) => format!("n{at}: file id {file}"),
            Slot::Taken(Entry { id: Id::CreatedBy(op), .. }) => {
                format!("n{at}: created by call {op}")
            }
        });
        names.collect::<Vec<_>>().join("; ")
    }
}
