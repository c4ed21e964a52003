//! Stateids of layouts (RFC 8881, section 12.5.2). Layouts allow only reading and are never
//! recalled, so no state is kept: the stateid follows from client and file.

use vouch_nfs4::{StateSeq, Stateid, Status};

use crate::state::id::{ClientKey, FileKey};
use crate::state::stateid::lookup::{Io, IoGrant};
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// Of a new or further layout. `stateid`: of the client's open, lock, delegation or earlier
    /// layout of the file.
    pub(crate) fn layout_stateid(
        &mut self,
        client: ClientKey,
        stateid: &Stateid,
        file: &FileKey,
        now: u64,
    ) -> Result<Stateid, Status> {
        let other = self.boot.layout(self.client(client)?.id, file);
        if stateid.other == other {
            // The layout was returned by the last close (section 12.5.5.1).
            return if self.has_file_open(client, file) {
                Ok(Stateid { seq: stateid.seq.next(), other })
            } else {
                Err(Status::BAD_STATEID)
            };
        }
        match self.io(Some(client), stateid, file, Io::Read, now)? {
            IoGrant::Open(_) | IoGrant::Delegated(_) => Ok(Stateid { seq: StateSeq(1), other }),
            // Section 18.43.3.
            IoGrant::Anonymous => Err(Status::BAD_STATEID),
        }
    }

    /// The stateid of the layouts that are left.
    pub(crate) fn returned_layout(
        &mut self,
        client: ClientKey,
        stateid: &Stateid,
        file: &FileKey,
    ) -> Result<Stateid, Status> {
        match self.boot.layout(self.client(client)?.id, file) == stateid.other {
            true => Ok(Stateid { seq: stateid.seq.next(), ..*stateid }),
            false => Err(Status::BAD_STATEID),
        }
    }

    fn has_file_open(&self, client: ClientKey, file: &FileKey) -> bool {
        let Some(found) = self.files.find(file) else { return false };
        self.files[found].opens.of(client, file.export, |_| true).next().is_some()
            || self.has_delegation(client, found)
    }
}
