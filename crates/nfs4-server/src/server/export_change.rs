//! Another list of exports, and other answers to the question for whom they are: what clients hold
//! that is not theirs by it any more ends.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use vouch_nfs4::Status;
use vouch_vfs::FileId;

use super::Server;
use crate::files::file_ref::FileRef;
use crate::pseudo_fs::{Site, Tree};
use crate::state::{ClientKey, HOLDINGS_AT_ONCE, Holding, Terms};
use crate::{Effect, ExportId, Exports};

/// What came of another list of exports.
#[must_use]
pub struct Replaced {
    /// To be carried out.
    pub effects: Vec<Effect>,
    /// Opens, delegations and copies that clients have lost by it, with their locks.
    pub ended: usize,
}

impl Server {
    /// From now on these are exported. What was open, locked or delegated by exports that are gone,
    /// or that show another directory now, ends; filehandles of theirs are stale, or of
    /// files that the new directory has too. So does what a client holds of an export that is not
    /// for it any more, or not under the flavour or from the ports that it was granted by, or of
    /// a file that its export does not show any more. Waits for the file systems of the exports,
    /// while calls go on. O(n) in all state.
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
            let stays = |site: &Site| tree.site(site.export.id).is_some_and(|after| after.shows_the_same_as(site));
            let gone: Vec<ExportId> = before.sites().filter(|site| !stays(site)).map(|site| site.export.id).collect();
            if !gone.is_empty() {
                self.anonymous.forget_exports(&gone);
            }
            self.end_by(&tree, &gone, &mut replaced);
            (before, tree)
        };
        // Last, as a file system may let wait for long that is mounted below an export.
        let opened_anew = |site: &&Arc<Site>| before.site(site.export.id).is_some_and(|before| site.is_opened_anew(before));
        if tree.sites().any(|site| opened_anew(&site)) {
            let mut hidden: HashMap<(ExportId, FileId), bool> = HashMap::new();
            self.end_where(&mut replaced, |held, _| {
                let (Some(site), Some(before)) = (tree.site(held.export()), before.site(held.export())) else { return false };
                *hidden.entry((held.export(), held.file.file)).or_insert_with(|| site.hides(before, &held.file.file))
            });
        }
        replaced
    }

    /// It is known by now, or has changed, for whom the exports are: what clients hold that they
    /// are not for ends, as by [`Server::replace_exports`]. O(n) in all state.
    pub fn clients_changed(&self) -> Replaced {
        let mut replaced = Replaced { effects: Vec::new(), ended: 0 };
        let _turn = self.ending.lock();
        // Nothing is granted by what connections remember of it, nor by calls that have begun.
        let mut tree = Tree::clone(&self.tree());
        tree.generation += 1;
        let tree = Arc::new(tree);
        *self.tree.write() = tree.clone();
        self.end_by(&tree, &[], &mut replaced);
        replaced
    }

    /// Ends what was granted by exports that are gone, or are not for who holds it.
    fn end_by(&self, tree: &Tree, gone: &[ExportId], replaced: &mut Replaced) {
        let mut let_in: HashMap<(ClientKey, ExportId, Terms), bool> = HashMap::new();
        self.end_where(replaced, |held, peers| {
            let known = (held.client, held.export(), held.terms);
            let lets_in = || tree.site(held.export()).is_none_or(|site| site.lets_in(peers, held.terms));
            gone.contains(&held.export()) || !*let_in.entry(known).or_insert_with(lets_in)
        });
    }

    /// Ends what is said to be lost. That is asked outside of the state's lock, which is held for a
    /// part of all state at a time: calls that have begun with the exports that are in force
    /// now are granted nothing that would have to be asked for here.
    fn end_where(&self, replaced: &mut Replaced, mut is_lost: impl FnMut(&Holding, &[SocketAddr]) -> bool) {
        let now_ms = self.now.lock().mono_ms;
        let mut peers_of: HashMap<ClientKey, Vec<SocketAddr>> = HashMap::new();
        let mut lost: Vec<Holding> = Vec::new();
        for from in (0..).step_by(HOLDINGS_AT_ONCE) {
            let holdings = {
                let state = self.state.lock();
                let Some(holdings) = state.holdings(from) else { break };
                let peers = self.peers.lock();
                for held in &holdings {
                    peers_of
                        .entry(held.client)
                        .or_insert_with(|| state.peers_of(held.client, |connection| peers.get(&connection).copied()));
                }
                holdings
            };
            lost.extend(holdings.into_iter().filter(|held| is_lost(held, &peers_of[&held.client])));
        }
        for part in lost.chunks(ENDED_AT_ONCE) {
            self.with_state(&mut replaced.effects, now_ms, |state| state.end_waits(part, now_ms));
        }
        for part in lost.chunks(ENDED_AT_ONCE) {
            replaced.ended += self.with_state(&mut replaced.effects, now_ms, |state| state.end_holdings(part, now_ms));
        }
    }

    /// Which exports are in force.
    pub(crate) fn generation(&self) -> u64 {
        self.tree.read().generation
    }

    /// Whether a call that began with the exports of a generation may still be granted something of
    /// a file that it has found in one of them; and by which generation that is said. As where
    /// the export is asked for anew: STALE if it is gone, shows another directory or not this file,
    /// or is not for the client any more; DELAY if that can't be told yet; ACCESS or WRONGSEC
    /// if it is not on such terms. May ask a disk, so not under a lock.
    pub(crate) fn still_grants(&self, generation: u64, file: &FileRef, peer: SocketAddr, terms: Terms) -> (u64, Result<(), Status>) {
        if self.generation() == generation {
            return (generation, Ok(()));
        }
        let tree = self.tree();
        let ask = || {
            let before = &file.grant.site;
            let site = tree.site(before.export.id).filter(|site| site.shows_the_same_as(before)).ok_or(Status::STALE)?;
            let clients = &site.export.clients;
            let refusal = || if clients.is_undecided(peer) { Status::DELAY } else { Status::STALE };
            let access = clients.access_for(peer).ok_or_else(refusal)?;
            if access.refuses_port(terms.flavour, peer.port()) {
                return Err(Status::ACCESS);
            }
            access.under(terms.flavour).ok_or(Status::WRONGSEC)?;
            if site.hides(before, &file.id) { Err(Status::STALE) } else { Ok(()) }
        };
        (tree.generation, ask())
    }
}

/// What is ended under one holding of the state's lock.
const ENDED_AT_ONCE: usize = 128;
