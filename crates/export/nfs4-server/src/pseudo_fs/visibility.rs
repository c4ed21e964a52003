//! Cached with the connection: an answer may check each export.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::tree::Tree;
use crate::access::admission::AGE_MS_MAX;
use crate::filehandle::PseudoId;

#[derive(Default)]
pub(crate) struct VisibilityCache {
    generation: u64,
    made_ms: u64,
    decided: bool,
    leads: HashMap<PseudoId, bool>,
}

const NODES_MAX: usize = 256;

impl VisibilityCache {
    fn renew(&mut self, tree: &Tree, now_ms: u64) {
        if self.generation != tree.generation || now_ms.saturating_sub(self.made_ms) >= AGE_MS_MAX {
            *self = VisibilityCache {
                generation: tree.generation,
                made_ms: now_ms,
                ..VisibilityCache::default()
            };
        }
    }

    pub(crate) fn is_undecided(&mut self, tree: &Tree, peer: SocketAddr, now_ms: u64) -> bool {
        self.renew(tree, now_ms);
        self.decided = self.decided || !tree.is_undecided(peer);
        !self.decided
    }

    pub(crate) fn leads_to_visible_export(
        &mut self,
        tree: &Tree,
        node: PseudoId,
        peer: SocketAddr,
        now_ms: u64,
    ) -> bool {
        self.renew(tree, now_ms);
        if let Some(&leads) = self.leads.get(&node) {
            return leads;
        }
        let leads = tree.leads_to_visible_export(node, peer);
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
