//! Questions that change nothing but leases and silent clients.

use vouch_nfs4::{Stateid, Status};

use super::State;
use super::entry::Kind;
use super::id::{ClientKey, FileKey};

impl<F: Clone> State<F> {
    /// Whether a client may open or make files now, other than to reclaim them: before a file is made (RFC 8881, section 8.4.2).
    pub fn admits(&mut self, client: ClientKey, _now: u64) -> Result<(), Status> {
        self.client(client)?;
        self.admit_new(client)
    }

    /// Whether a stateid names something that this client has of this file, whether it still serves or not.
    pub fn holds(&self, client: ClientKey, stateid: &Stateid, file: &FileKey) -> bool {
        let entry = self.boot.key(stateid).filter(|_| !stateid.is_special()).and_then(|key| self.states.get(key));
        entry.is_some_and(|entry| entry.client == client && entry.export == file.export && self.files.find(file) == Some(entry.file))
    }

    /// Whether this client has the file open for writing, or may write to it by a delegation. O(opens of the file).
    pub fn writes_to(&self, client: ClientKey, file: &FileKey) -> bool {
        let Some(state) = self.files.find(file).map(|state| &self.files[state]) else { return false };
        let mut held = state
            .opens
            .iter()
            .chain(&state.delegations)
            .map(|&key| &self.states[key])
            .filter(|entry| entry.client == client && entry.export == file.export);
        held.any(|entry| match &entry.kind {
            Kind::Open(open) => open.share().writes(),
            Kind::Delegation(delegation) => delegation.write,
            _ => false,
        })
    }

    /// What this export has open of this file for writing, or by a delegation to write, and that `fits`. O(opens of the file).
    pub fn open_to_write(&self, file: &FileKey, fits: impl Fn(&F) -> bool) -> Option<F> {
        let state = &self.files[self.files.find(file)?];
        let all = state.opens.iter().chain(&state.delegations).map(|&key| &self.states[key]).filter(|entry| entry.export == file.export);
        let mut held = all.filter_map(|entry| match &entry.kind {
            Kind::Open(open) if open.share().writes() => Some(&open.file),
            Kind::Delegation(delegation) if delegation.write => Some(&delegation.file),
            _ => None,
        });
        held.find(|file| fits(file)).cloned()
    }

    /// An open file of this file, if there is one; one that may be written to, if there is.
    pub fn any_open(&self, file: &FileKey) -> Option<F> {
        let state = &self.files[self.files.find(file)?];
        let mut opens = state.opens.iter().filter_map(|&key| match &self.states[key].kind {
            Kind::Open(open) => Some(open),
            _ => None,
        });
        // Without a writer any of them serves, and none is looked for.
        let wanted = state.shares.writes();
        opens.find(|open| !wanted || open.share().writes()).map(|open| open.file.clone())
    }
}
