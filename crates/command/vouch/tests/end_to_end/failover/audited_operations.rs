//! Successful operations in an audit trail, by the last component of their paths.

use std::collections::{HashMap, HashSet};

use vouch_audit::operations::number::{OPEN, RENAME, WRITE};

use crate::prelude::*;

#[derive(Default)]
pub(super) struct AuditedOperations {
    pub(super) opened: HashSet<String>,
    /// New names.
    pub(super) renamed: HashSet<String>,
    /// Ends of writes, in bytes.
    pub(super) written: HashSet<(String, u64)>,
    /// Flavours and principals, by the name that was opened, written or given to a file.
    pub(super) callers: HashMap<String, HashSet<String>>,
}

impl AuditedOperations {
    pub(super) fn read(trail: &Path) -> AuditedOperations {
        let mut audited = AuditedOperations::default();
        let read = records(trail, 1, |record| {
            if (record.class, record.result) == (Class::Operation, 0) {
                audited.add(record);
            }
        });
        read.expect("the trail is read");
        audited
    }

    fn add(&mut self, record: &Record) {
        let name = match record.operation {
            OPEN | WRITE => last_component(record.path),
            RENAME => last_component(record.path2),
            _ => return,
        };
        let caller =
            format!("{} {}", record.flavour.name(), String::from_utf8_lossy(record.principal));
        self.callers.entry(name.clone()).or_default().insert(caller);
        match record.operation {
            OPEN => drop(self.opened.insert(name)),
            RENAME => drop(self.renamed.insert(name)),
            _ => {
                let end = record.offset.unwrap_or_default() + record.written.unwrap_or_default();
                self.written.insert((name, end));
            }
        }
    }
}

fn last_component(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    path.rsplit('/').next().unwrap_or_default().to_owned()
}
