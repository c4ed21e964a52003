//! Successful operations in an audit trail, by the last component of their paths.

use std::collections::HashSet;

use vouch_audit::operations::number::{OPEN, RENAME, WRITE};

use crate::prelude::*;

#[derive(Default)]
pub(super) struct AuditedOperations {
    pub(super) opened: HashSet<String>,
    /// New names.
    pub(super) renamed: HashSet<String>,
    /// Ends of writes, in bytes.
    pub(super) written: HashSet<(String, u64)>,
}

impl AuditedOperations {
    pub(super) fn read(trail: &Path) -> AuditedOperations {
        let mut audited = AuditedOperations::default();
        let read = entries(trail, 1, |entry| {
            let mut scratch = Vec::new();
            if entry.kind == Kind::Record
                && let Ok(record) = Record::decode(&entry.body, &mut scratch)
                && (record.class, record.result) == (Class::Operation, 0)
            {
                audited.add(&record);
            }
            true
        });
        read.expect("the trail is read");
        audited
    }

    fn add(&mut self, record: &Record) {
        match record.operation {
            OPEN => drop(self.opened.insert(last_component(record.path))),
            RENAME => drop(self.renamed.insert(last_component(record.path2))),
            WRITE => {
                let end = record.offset.unwrap_or_default() + record.written.unwrap_or_default();
                self.written.insert((last_component(record.path), end));
            }
            _ => {}
        }
    }
}

fn last_component(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    path.rsplit('/').next().unwrap_or_default().to_owned()
}
