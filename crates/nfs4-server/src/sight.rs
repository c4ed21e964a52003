//! What a client sees of the pseudo file system: with n exports an answer takes up to n questions,
//! so it is kept a while with the connection.

use std::collections::HashMap;

use crate::admission::AGE_MS_MAX;
use crate::filehandle::PseudoId;
use crate::tree::{Child, Place, Tree};
use crate::walk::Walk;

/// The last answers, of a list of exports, and since when there are any.
#[derive(Default)]
pub(crate) struct Sight {
    generation: u64,
    made_ms: u64,
    /// Whether it can be told of each export whether it is for the client. As long as it can't, it
    /// is asked for again.
    decided: bool,
    /// Of directories: whether they lead to an export that is for the client.
    leads: HashMap<PseudoId, bool>,
}

/// Directories that are remembered of a connection; beyond it they are asked about anew.
const NODES_MAX: usize = 256;

impl Sight {
    fn renew(&mut self, tree: &Tree, now_ms: u64) {
        if self.generation != tree.generation || now_ms.saturating_sub(self.made_ms) >= AGE_MS_MAX {
            *self = Sight { generation: tree.generation, made_ms: now_ms, ..Sight::default() };
        }
    }
}

impl Walk<'_> {
    /// What stands at a place, if it is for the client or leads to what is.
    pub(crate) fn seen(&self, place: Place) -> Option<Child> {
        self.tree.seen(place, self.connection.peer(), |node| self.leads(node))
    }

    /// Whether it can't be told yet of any export whether it is for the client.
    pub(crate) fn is_undecided(&self) -> bool {
        let mut sight = self.connection.sight().lock();
        sight.renew(&self.tree, self.now.mono_ms);
        sight.decided = sight.decided || !self.tree.is_undecided(self.connection.peer());
        !sight.decided
    }

    /// Whether a directory of the pseudo file system leads to an export that is for the client.
    fn leads(&self, node: PseudoId) -> bool {
        let mut sight = self.connection.sight().lock();
        sight.renew(&self.tree, self.now.mono_ms);
        if let Some(&leads) = sight.leads.get(&node) {
            return leads;
        }
        let peer = self.connection.peer();
        let leads = self.tree.leads(node, peer);
        // One that leads nowhere may lead somewhere as soon as the client is known.
        sight.decided = sight.decided || !leads && !self.tree.is_undecided(peer);
        if leads || sight.decided {
            if sight.leads.len() >= NODES_MAX {
                sight.leads.clear();
            }
            sight.leads.insert(node, leads);
        }
        leads
    }
}
