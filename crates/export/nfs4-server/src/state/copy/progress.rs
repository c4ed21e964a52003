//! RFC 7862 §4.8, 15.2, 15.8, 15.9 and 16.1.

use super::record::{Copy, CopyProgress};
use vouch_nfs4::cb::OffloadInfo;
use vouch_nfs4::{StateSeq, Stateid, Status};

use crate::state::callback::record::Subject;
use crate::state::effect::CallbackOp;
use crate::state::id::{ClientKey, FileKey, StateKey};
use crate::state::lease::timers::Timer;
use crate::state::limits::COPY_MEMORY_MS;
use crate::state::slab::Ended;
use crate::state::stateid::entry::{Entry, Kind, Terms};
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// Errors: DELAY at the client's limit of copies.
    pub(crate) fn copy_begin(
        &mut self,
        client: ClientKey,
        destination: &FileKey,
        terms: Terms,
    ) -> Result<(StateKey, Stateid), Status> {
        let most = self.config.limits.copies_per_client_max;
        if self.client(client)?.copies.len() >= most {
            return Err(Status::DELAY);
        }
        let file = self.files.enter(destination);
        self.files[file].copies += 1;
        let copy = Copy { file: *destination, copied: 0, end: None };
        let key = self.states.insert(Entry {
            client,
            file,
            export: destination.export,
            terms,
            opener: None,
            seq: StateSeq(1),
            kind: Kind::Copy(copy),
        });
        self.clients[client].copies.push(key);
        self.copy_count += 1;
        Ok((key, self.states[key].stateid(self.boot, key)))
    }

    pub(crate) fn note_copied(&mut self, key: StateKey, copied: u64) -> bool {
        match self.states.get_mut(key).map(|entry| &mut entry.kind) {
            Some(Kind::Copy(copy)) => {
                copy.copied = copied;
                true
            }
            _ => false,
        }
    }

    /// The result stays until the client acknowledges or frees it, or for a limited time.
    pub(crate) fn copy_done(&mut self, key: StateKey, info: OffloadInfo, now: u64) {
        let Some(entry) = self.states.get_mut(key) else { return };
        let Kind::Copy(copy) = &mut entry.kind else { return };
        copy.copied = match info {
            OffloadInfo::Done(response) => response.count,
            OffloadInfo::Failed(_, copied) => copied,
        };
        copy.end = Some(info);
        let file = copy.file;
        let stateid = entry.stateid(self.boot, key);
        let client = entry.client;
        self.timers.set(now + COPY_MEMORY_MS, Timer::Copy(key));
        self.queue_callback(
            client,
            CallbackOp::Offload { file, stateid, info },
            Subject::Copy(key),
        );
    }

    pub(crate) fn copy_status(
        &mut self,
        client: ClientKey,
        stateid: &Stateid,
        file: &FileKey,
        now: u64,
    ) -> Result<CopyProgress, Status> {
        let key = self.resolve(Some(client), stateid, file, now)?;
        match &self.states[key].kind {
            Kind::Copy(copy) => {
                let end = copy.end.map(|end| match end {
                    OffloadInfo::Done(_) => Status::OK,
                    OffloadInfo::Failed(status, _) => status,
                });
                Ok(CopyProgress { copied: copy.copied, end })
            }
            _ => Err(Status::BAD_STATEID),
        }
    }

    /// The copy stops at its next step (§15.8).
    pub(crate) fn copy_cancel(
        &mut self,
        client: ClientKey,
        stateid: &Stateid,
        file: &FileKey,
        now: u64,
    ) -> Result<(), Status> {
        let key = self.resolve(Some(client), stateid, file, now)?;
        match &self.states[key].kind {
            Kind::Copy(_) => {
                self.forget_copy(key);
                Ok(())
            }
            _ => Err(Status::BAD_STATEID),
        }
    }

    pub(in crate::state) fn copy_due(&mut self, key: StateKey) {
        self.forget_copy(key);
    }

    pub(in crate::state) fn forget_copy(&mut self, key: StateKey) {
        self.drop_copy(key, Ended::Freed);
    }

    pub(in crate::state) fn drop_copy(&mut self, key: StateKey, ended: Ended) {
        let Some(entry) = self.states.remove(key, ended) else { return };
        debug_assert!(matches!(entry.kind, Kind::Copy(_)), "the entry is a copy");
        self.files[entry.file].copies -= 1;
        self.copy_count -= 1;
        if let Some(client) = self.clients.get_mut(entry.client) {
            client.copies.retain(|&other| other != key);
        }
        self.remove_file_if_idle(entry.file);
    }
}
