//! What a client sees of the pseudo file system: with n exports an answer takes up to n questions,
//! so it is kept a while with the connection.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::tree::Tree;
use crate::access::admission::AGE_MS_MAX;
use crate::filehandle::PseudoId;

/// The last answers, of a list of exports, and since when there are any.
#[derive(Default)]
pub(crate) struct VisibilityCache {
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

impl VisibilityCache {
    fn renew(&mut self, tree: &Tree, now_ms: u64) {
        if self.generation != tree.generation || now_ms.saturating_sub(self.made_ms) >= AGE_MS_MAX {
            *self = VisibilityCache { generation: tree.generation, made_ms: now_ms, ..VisibilityCache::default() };
        }
    }

    /// Whether it can't be told yet of any export whether it is for the client.
    pub(crate) fn is_undecided(&mut self, tree: &Tree, peer: SocketAddr, now_ms: u64) -> bool {
        self.renew(tree, now_ms);
        self.decided = self.decided || !tree.is_undecided(peer);
        !self.decided
    }

    /// Whether a directory of the pseudo file system leads to an export that is for the client.
    pub(crate) fn leads(&mut self, tree: &Tree, node: PseudoId, peer: SocketAddr, now_ms: u64) -> bool {
        self.renew(tree, now_ms);
        if let Some(&leads) = self.leads.get(&node) {
            return leads;
        }
        let leads = tree.leads(node, peer);
        // One that leads nowhere may lead somewhere as soon as the client is known.
        self.decided = self.decided || !leads && !tree.is_undecided(peer);
        if leads || self.decided {
            if self.leads.len() >= NODES_MAX {
                self.leads.clear();
            }
            self.leads.insert(node, leads);
        }
        leads
    }
}
