//! Questions that change nothing but leases and silent clients.

use vouch_nfs4::Status;

use super::State;
use super::entry::Kind;
use super::id::{ClientKey, FileKey};

impl<F: Clone> State<F> {
    /// Whether a client may open or make files now, other than to reclaim them: before a file is made (RFC 8881, section 8.4.2).
    pub fn admits(&mut self, client: ClientKey, _now: u64) -> Result<(), Status> {
        self.client(client)?;
        self.admit_new(client)
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
