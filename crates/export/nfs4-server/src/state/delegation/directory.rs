//! GET_DIR_DELEGATION (RFC 8881 §10.9 and 18.39): the holder caches the names and attributes of a
//! directory. Recalled like a delegation of a file; the holder's own changes recall nothing (as in
//! Linux). No notifications: no client takes CB_NOTIFY.

use std::sync::Arc;

use vouch_nfs4::{StateSeq, Stateid};

use crate::state::client::credential::Family;
use crate::state::delegation::record::Delegation;
use crate::state::id::{ClientKey, FileKey};
use crate::state::limits::{DELEGATIONS_PER_FILE_MAX, SHARE_FACTOR};
use crate::state::slab::Ended;
use crate::state::stateid::entry::{Entry, Kind, Terms};
use crate::state::tables::State;

pub(crate) struct DirectoryCall<'a> {
    pub client: ClientKey,
    pub directory: FileKey,
    pub terms: Terms,
    pub opener: Option<&'a Arc<str>>,
}

impl<F: Clone> State<F> {
    pub(in crate::state) fn file_delegation_count(&self) -> usize {
        self.delegation_count - self.directory_delegation_count
    }

    /// Not while others change the directory, nor soon after a recall. A client may have a multiple
    /// of the free room, so that one that walks large trees leaves room to others.
    pub(crate) fn may_delegate_directory(
        &self,
        client: ClientKey,
        directory: &FileKey,
        now: u64,
    ) -> bool {
        let max = self.config.limits.directory_delegations_max;
        let free = max.saturating_sub(self.directory_delegation_count);
        let held = match self.files.find(directory) {
            Some(file) => {
                self.files[file].delegations.len() >= DELEGATIONS_PER_FILE_MAX
                    || self.has_delegation(client, file)
            }
            None => false,
        };
        !held
            && self.clients[client].directory_delegations < SHARE_FACTOR * free
            && self.clients[client].family() == Family::V41
            && self.may_hold_another(client)
            && !self.files.contended(directory, now)
            && !self.files.changed_by_others(directory, client, now)
    }

    /// `watch` lives as long as the delegation.
    pub(crate) fn delegate_directory(
        &mut self,
        call: &DirectoryCall<'_>,
        watch: F,
        now: u64,
    ) -> Option<Stateid> {
        if !self.may_delegate_directory(call.client, &call.directory, now) {
            return None;
        }
        let file = self.files.enter(&call.directory);
        let delegation = Delegation {
            key: call.directory,
            write: false,
            is_directory: true,
            file: watch,
            times: false,
            recalled_ms: None,
            is_overdue: false,
            answer: None,
            question: None,
            shown_change: 0,
        };
        let key = self.states.insert(Entry {
            client: call.client,
            file,
            export: call.directory.export,
            terms: call.terms,
            opener: call.opener.cloned(),
            seq: StateSeq(1),
            kind: Kind::Delegation(delegation),
        });
        self.clients[call.client].directory_delegations += 1;
        self.directory_delegation_count += 1;
        let stateid = self.link_delegation(key);
        self.keep_room_for_delegations(now);
        Some(stateid)
    }

    pub(crate) fn is_delegated(&self, key: &FileKey) -> bool {
        self.delegation_count > 0
            && self.files.find(key).is_some_and(|file| !self.files[file].delegations.is_empty())
    }

    /// The handle of a removed directory is stale, so its holder could not return the delegation.
    pub(crate) fn end_delegations_of_removed(&mut self, directory: &FileKey) {
        let Some(file) = self.files.find(directory) else { return };
        for key in self.files[file].delegations.clone() {
            if self.delegation_of(key).is_directory {
                self.drop_delegation(key, Ended::Freed, None);
            }
        }
    }
}
