use std::sync::Arc;

use vouch_nfs4::{Stateid, Status};

use super::file::FileState;
use super::id::FileRef;
use super::id::{ClientKey, FileKey};
use super::limits::OPENER_SCAN_MAX;
use super::slab::Ended;
use super::tables::State;
use crate::state::open::share::Share;
use crate::state::owner::sequence::table_full_status;
use crate::state::stateid::entry::{Entry, Kind, OwnerKind};

impl<F: Clone> State<F> {
    /// Checked before a file is created (RFC 8881 §8.4.2).
    pub(crate) fn admits(&mut self, client: ClientKey, _now: u64) -> Result<(), Status> {
        self.client(client)?;
        self.admit_new(client)
    }

    pub(crate) fn has_room_to_open(
        &mut self,
        client: ClientKey,
        owner: &[u8],
        opener: Option<&Arc<str>>,
        now: u64,
    ) -> Result<(), Status> {
        self.latest_ms = self.latest_ms.max(now);
        let family = self.client(client)?.family();
        let room = self.room_for_one_open(client, opener)
            && (self.find_owner(client, OwnerKind::Open, owner).is_some()
                || self.room_for_owner(client)?);
        if room { Ok(()) } else { Err(table_full_status(family, OwnerKind::Open)) }
    }

    pub(crate) fn has_state(&self, file: &FileKey) -> bool {
        self.files.find(file).is_some()
    }

    pub(crate) fn holds(&self, client: ClientKey, stateid: &Stateid, file: &FileKey) -> bool {
        let entry = self
            .boot
            .key(stateid)
            .filter(|_| !stateid.is_special())
            .and_then(|key| self.states.get(key));
        entry.is_some_and(|entry| {
            entry.client == client
                && entry.export == file.export
                && self.files.find(file) == Some(entry.file)
        })
    }

    pub(crate) fn writes_to(&self, client: ClientKey, file: &FileKey) -> bool {
        let Some(state) = self.files.find(file) else { return false };
        let mut opens = self.files[state].opens.of(client, file.export, Share::writes);
        opens.next().is_some()
            || self.write_delegation(state).is_some_and(|key| self.is_of(key, Some(client), file))
    }

    /// In 4.0 any client's open counts. Checks a bounded number.
    pub(crate) fn open_to_write(
        &self,
        client: Option<ClientKey>,
        file: &FileKey,
        mut fits: impl FnMut(&F) -> bool,
    ) -> Option<F> {
        let state = self.files.find(file)?;
        let opens = &self.files[state].opens;
        let own =
            client.into_iter().flat_map(|client| opens.of(client, file.export, Share::writes));
        let any = opens.with(|share| client.is_none() && share.writes());
        let mut opens = own
            .chain(any)
            .take(OPENER_SCAN_MAX)
            .filter(|&key| self.states[key].export == file.export)
            .map(|key| &self.open_of(key).file);
        let delegated = || {
            let key = self
                .write_delegation(state)
                .filter(|&key| self.states[key].export == file.export)?;
            match &self.states[key] {
                Entry { client: holder, kind: Kind::Delegation(delegation), .. }
                    if client.is_none_or(|client| client == *holder) =>
                {
                    Some(&delegation.file)
                }
                _ => None,
            }
        };
        opens.find(|file| fits(file)).or_else(|| delegated().filter(|file| fits(file))).cloned()
    }

    pub(crate) fn any_open(&self, file: &FileKey) -> Option<F> {
        let opens = &self.files[self.files.find(file)?].opens;
        let wanted = opens.shares().writes();
        opens
            .with(|share| !wanted || share.writes())
            .next()
            .map(|key| self.open_of(key).file.clone())
    }
}

impl<F: Clone> State<F> {
    pub(super) fn remove_file_if_idle(&mut self, file: FileRef) {
        if self.files.table.get(file).is_some_and(FileState::is_idle) {
            let state =
                self.files.table.remove(file, Ended::Freed).expect("the entry was just checked");
            self.files.names.remove(&state.key);
        }
    }
}
