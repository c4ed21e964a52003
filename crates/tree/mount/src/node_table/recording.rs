//! Writes the table's changes to the journal, and restores the table.

use std::sync::Arc;

use vouch_tree::inode_number::InodeNumber as NodeId;

use super::{Inner, Node, NodeTable, NodeView, Owner};
use crate::journal::Journal;
use crate::journal::record::{NodeRecord, Record};

impl<V: Owner> NodeTable<V> {
    /// Nodes of a missing tree are kept, and every use fails.
    pub(crate) fn restore(
        &self,
        nodes: impl Iterator<Item = NodeRecord>,
        volume_of: impl Fn(u32) -> Option<Arc<V>>,
    ) {
        let mut inner = self.inner.lock();
        for node in nodes {
            let volume = node.volume.and_then(&volume_of);
            let is_lost = node.volume.is_some() && volume.is_none();
            for directory in
                node.other_paths.iter().map(|(directory, _)| *directory).chain([node.parent])
            {
                if node.id != NodeId::ROOT {
                    inner.children.entry(directory).or_default().insert(node.id);
                }
            }
            let view = NodeView {
                volume,
                inode: node.inode,
                parent: node.parent,
                is_removed: node.is_removed || is_lost,
            };
            let (id, is_pinned) = (node.id, node.id == NodeId::ROOT);
            let NodeRecord { name, other_paths, link_group, lookups, .. } = node;
            inner.nodes.insert(
                id,
                Box::new(Node { view, name, other_paths, link_group, lookups, is_pinned }),
            );
        }
    }

    pub(crate) fn record_all(&self, journal: &Journal) {
        let ids: Vec<NodeId> = self.inner.lock().nodes.keys().copied().collect();
        for step in ids.chunks(STEP) {
            let inner = self.inner.lock();
            journal.append(step.iter().filter_map(|id| Some(inner.nodes.get(id)?.record(*id))));
        }
    }
}

impl<V> Inner<V> {
    pub(super) fn note_changed(&mut self, id: NodeId) {
        if self.journal.is_some() {
            self.changed.push(id);
        }
    }

    pub(super) fn note_counted(&mut self, id: NodeId) {
        if self.journal.is_some() {
            self.counted.push(id);
        }
    }
}

impl<V: Owner> Inner<V> {
    pub(super) fn record(&mut self) {
        self.record_by(Journal::append);
    }

    pub(super) fn record_later(&mut self) {
        self.record_by(Journal::append_later);
    }

    fn record_by(&mut self, append: impl Fn(&Journal, Vec<Record>)) {
        let Some(journal) = &self.journal else { return };
        if self.changed.is_empty() && self.counted.is_empty() {
            return;
        }
        let changed = self.changed.iter().map(|id| match self.nodes.get(id) {
            Some(node) => node.record(*id),
            None => Record::Gone(*id),
        });
        let counted = self.counted.iter().filter_map(|id| {
            Some(Record::Lookups { id: *id, lookups: self.nodes.get(id)?.lookups })
        });
        append(journal, changed.chain(counted).collect());
        self.changed.clear();
        self.counted.clear();
    }
}

impl<V: Owner> Node<V> {
    fn record(&self, id: NodeId) -> Record {
        Record::Node(NodeRecord {
            id,
            volume: self.view.volume.as_ref().map(|volume| volume.number()),
            parent: self.view.parent,
            name: self.name.clone(),
            other_paths: self.other_paths.clone(),
            link_group: self.link_group,
            lookups: self.lookups,
            is_removed: self.view.is_removed,
            inode: self.view.inode.clone(),
        })
    }
}

const STEP: usize = 1024;
