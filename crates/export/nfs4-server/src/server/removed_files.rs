//! Space of removed files that clients with expired leases still hold open.

use vouch_vfs::{Blocking, SystemId};

use super::Server;
use super::export_change::ENDED_AT_ONCE;
use crate::background_job::JobProgress;
use crate::state::{HOLDINGS_AT_ONCE, Holding};
use crate::{Effect, Now};

impl Server {
    /// False if a search would find nothing. O(n) in clients.
    pub(crate) fn may_free_removed_files(&self, now: Now) -> bool {
        let recent = self.last_search.lock().recent(now.mono_ms);
        recent.unwrap_or_else(|| self.state.lock().has_expired_holders())
    }

    /// Ends state on removed files of this file system, and closes them. True if the caller should try
    /// again. Blocks on the file system. O(n) in all state.
    pub(crate) fn free_removed_files(
        &self,
        system: SystemId,
        now: Now,
        effects: &mut Vec<Effect>,
    ) -> bool {
        // Others wait for the space that this one frees.
        let mut last = self.last_search.lock();
        if let Some(found) = last.recent(now.mono_ms) {
            return found;
        }
        let removed = self.removed_and_held(system);
        let mut made = Vec::new();
        let mut ended = 0;
        for part in removed.chunks(ENDED_AT_ONCE) {
            ended += self.with_state(&mut made, now.mono_ms, |state| {
                state.end_expired_holdings(part, now.mono_ms)
            });
        }
        for effect in made {
            match effect {
                // The space is free when the files are closed.
                Effect::Background(mut job) => loop {
                    match job.step(self, now) {
                        JobProgress::More | JobProgress::Ended { .. } => {}
                        JobProgress::Done(more) => {
                            effects.extend(more);
                            break;
                        }
                    }
                },
                effect => effects.push(effect),
            }
        }
        last.note(now.mono_ms, ended > 0);
        ended > 0
    }

    fn removed_and_held(&self, system: SystemId) -> Vec<Holding> {
        let tree = self.tree();
        let is_removed = |held: &Holding| {
            let site = tree.site(held.export()).filter(|_| held.file.system() == system);
            site.is_some_and(|site| {
                let attributes =
                    site.export.file_system.attributes(&held.file.file, Blocking::Allowed);
                attributes.is_ok_and(|attributes| attributes.links == 0)
            })
        };
        let mut removed = Vec::new();
        for from in (0..).step_by(HOLDINGS_AT_ONCE) {
            let Some(part) = self.state.lock().expired_holdings(from) else { break };
            removed.extend(part.into_iter().filter(is_removed));
        }
        removed
    }
}
