//! Changed exports and clients end state that is no longer allowed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use vouch_nfs4::Status;
use vouch_vfs::FileId;

use super::Server;
use crate::files::file_ref::FileRef;
use crate::pseudo_fs::{Site, Tree};
use crate::state::{ClientEnd, ClientKey, HOLDINGS_AT_ONCE, Holding, Loss, Terms};
use crate::{Effect, ExportId, Exports};

#[must_use]
pub struct Replaced {
    pub effects: Vec<Effect>,
    pub ended: usize,
}

impl Server {
    /// State ends if its export is gone, shows another directory, no longer shows the file, or no
    /// longer accepts the client, its flavour or its port. Calls continue. Blocks on the file
    /// systems. O(n) in all state.
    pub fn replace_exports(&self, exports: Exports) -> Replaced {
        let now = *self.now.lock();
        let change = self.tree.read().change.wrapping_add(1);
        let mut tree = Tree::new(&exports, 0, change, now.wall);
        let mut replaced = Replaced { effects: Vec::new(), ended: 0 };
        let (before, tree) = {
            let _turn = self.ending.lock();
            tree.generation = self.generation() + 1;
            let tree = Arc::new(tree);
            let before = std::mem::replace(&mut *self.tree.write(), tree.clone());
            let stays = |site: &Site| {
                tree.site(site.export.id).is_some_and(|after| after.shows_same_directory_as(site))
            };
            let gone: Vec<ExportId> =
                before.sites().filter(|site| !stays(site)).map(|site| site.export.id).collect();
            if !gone.is_empty() {
                self.anonymous.forget_exports(&gone);
            }
            self.end_by(&tree, &gone, &mut replaced);
            (before, tree)
        };
        let reopened = |site: &&Arc<Site>| {
            before.site(site.export.id).is_some_and(|before| site.is_reopened(before))
        };
        if tree.sites().any(|site| reopened(&site)) {
            let mut hidden: HashMap<(ExportId, FileId), bool> = HashMap::new();
            self.end_where(&mut replaced, access_lost, |held, _| {
                let (Some(site), Some(before)) =
                    (tree.site(held.export()), before.site(held.export()))
                else {
                    return false;
                };
                *hidden
                    .entry((held.export(), held.file.file))
                    .or_insert_with(|| site.no_longer_shows(before, &held.file.file))
            });
        }
        replaced
    }

    /// After an answer of the name service. O(n) in all state.
    pub fn clients_changed(&self) -> Replaced {
        let mut replaced = Replaced { effects: Vec::new(), ended: 0 };
        let _turn = self.ending.lock();
        let mut tree = Tree::clone(&self.tree());
        tree.generation += 1;
        let tree = Arc::new(tree);
        *self.tree.write() = tree.clone();
        self.end_by(&tree, &[], &mut replaced);
        replaced
    }

    /// Call it often: a call in progress can still open a file of a part that has just been removed.
    /// Does nothing while another change ends state, which may wait for a file system. O(n) in all
    /// state if such files are open.
    pub fn end_state_of_removed_files(&self) -> Replaced {
        let mut replaced = Replaced { effects: Vec::new(), ended: 0 };
        let Some(_turn) = self.ending.try_lock() else { return replaced };
        let tree = self.tree();
        if tree.sites().any(|site| site.export.file_system.has_removed_files()) {
            self.end_where(&mut replaced, access_lost, |held, _| {
                tree.site(held.export())
                    .is_some_and(|site| site.export.file_system.is_removed(&held.file.file))
            });
        }
        replaced
    }

    fn end_by(&self, tree: &Tree, gone: &[ExportId], replaced: &mut Replaced) {
        let mut admitted: HashMap<(ClientKey, ExportId, Terms), bool> = HashMap::new();
        self.end_where(replaced, access_lost, |held, peers| {
            let known = (held.client, held.export(), held.terms);
            let admits =
                || tree.site(held.export()).is_none_or(|site| site.admits(peers, held.terms));
            gone.contains(&held.export()) || !*admitted.entry(known).or_insert_with(admits)
        });
    }

    /// Calls `is_lost` outside the state's lock, for a part at a time.
    pub(super) fn end_where(
        &self,
        replaced: &mut Replaced,
        why: impl Fn(usize, u64) -> ClientEnd,
        mut is_lost: impl FnMut(&Holding, &[SocketAddr]) -> bool,
    ) {
        let now_ms = self.now.lock().mono_ms;
        let mut peers_of: HashMap<ClientKey, Vec<SocketAddr>> = HashMap::new();
        let mut lost: Vec<Holding> = Vec::new();
        for from in (0..).step_by(HOLDINGS_AT_ONCE) {
            let holdings = {
                let state = self.state.lock();
                let Some(holdings) = state.holdings(from) else { break };
                let peers = self.peers.lock();
                for held in &holdings {
                    peers_of.entry(held.client).or_insert_with(|| {
                        state.peers_of(held.client, |connection| peers.get(&connection).copied())
                    });
                }
                holdings
            };
            lost.extend(holdings.into_iter().filter(|held| is_lost(held, &peers_of[&held.client])));
        }
        for part in lost.chunks(ENDED_AT_ONCE) {
            self.with_state(&mut replaced.effects, now_ms, |state| state.end_waits(part, now_ms));
        }
        for part in lost.chunks(ENDED_AT_ONCE) {
            replaced.ended += self.with_state(&mut replaced.effects, now_ms, |state| {
                state.end_holdings(part, now_ms, Loss::Revoked, &why)
            });
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.tree.read().generation
    }

    /// For a call that began under `generation`; returns the generation of the answer. STALE if the
    /// export is gone, shows another directory or not this file, or does not name the client; DELAY
    /// if unknown; ACCESS or WRONGSEC for port, flavour or transport. May read a disk.
    pub(crate) fn still_grants(
        &self,
        generation: u64,
        file: &FileRef,
        peer: SocketAddr,
        terms: Terms,
    ) -> (u64, Result<(), Status>) {
        if self.generation() == generation {
            return (generation, Ok(()));
        }
        let tree = self.tree();
        let ask = || {
            let before = &file.grant.site;
            let site = tree
                .site(before.export.id)
                .filter(|site| site.shows_same_directory_as(before))
                .ok_or(Status::STALE)?;
            let clients = &site.export.clients;
            let refusal = || if clients.is_undecided(peer) { Status::DELAY } else { Status::STALE };
            let access = clients.access_for(peer).ok_or_else(refusal)?;
            if access.refuses_port(terms.flavour, peer.port()) {
                return Err(Status::ACCESS);
            }
            access
                .under(terms.flavour)
                .filter(|under| terms.transport >= under.transport_min)
                .ok_or(Status::WRONGSEC)?;
            if site.no_longer_shows(before, &file.id) { Err(Status::STALE) } else { Ok(()) }
        };
        (tree.generation, ask())
    }
}

fn access_lost(ended: usize, _silent_ms: u64) -> ClientEnd {
    ClientEnd::AccessLost { ended }
}

pub(super) const ENDED_AT_ONCE: usize = 128;
