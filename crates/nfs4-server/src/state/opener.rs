//! Who acts for a client of 4.0, which has no sessions: where it was proven who introduced it or who opened what it holds, a name alone serves nobody else.

use std::sync::Arc;

use super::client::{Client, Dialect};
use crate::Principal;

impl Client {
    /// It has one more open, of this principal where that is proven.
    pub(super) fn has_opened(&mut self, opener: Option<&Arc<str>>) {
        if let (Dialect::V40(v40), Some(opener)) = (&mut self.dialect, opener) {
            *v40.openers.entry(opener.clone()).or_default() += 1;
        }
    }

    /// It has one less.
    pub(super) fn has_closed(&mut self, opener: Option<&Arc<str>>) {
        let (Dialect::V40(v40), Some(opener)) = (&mut self.dialect, opener) else { return };
        if let Some(count) = v40.openers.get_mut(opener) {
            *count -= 1;
            if *count == 0 {
                v40.openers.remove(opener);
            }
        }
    }

    /// Whether a RENEW is of who introduced the client or of one who has a file open (RFC 7530, section 16.27.4). What nobody has proven, nobody can be held to.
    /// O(n) in principals, and only where the client was proven and the caller was not.
    pub(super) fn is_renewed_by(&self, caller: Option<&Arc<str>>) -> bool {
        let (Principal::Gss { name }, Dialect::V40(v40)) = (&self.principal, &self.dialect) else { return true };
        match caller {
            Some(caller) => caller == name || v40.openers.contains_key(caller),
            None => self.opens > v40.openers.values().sum(),
        }
    }
}
