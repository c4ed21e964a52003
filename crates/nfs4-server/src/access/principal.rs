//! The caller, as the security flavour proves it. [`Identity`](crate::Identity) maps it to local
//! rights.

use std::sync::Arc;

/// The caller. EXCHANGE_ID compares these values (RFC 8881, section 18.35.5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    None,
    /// AUTH_SYS: the claim of the client's machine. The machine name is left out, because clients
    /// change it between mounts.
    Sys {
        uid: u32,
        gid: u32,
        gids: Arc<[u32]>,
    },
    Gss {
        /// Principal with realm: `alice@EXAMPLE.ORG`, `nfs/host.example.org@EXAMPLE.ORG`.
        name: Arc<str>,
    },
}

impl Principal {
    pub(crate) fn same_user(&self, other: &Principal) -> bool {
        match (self, other) {
            (Principal::Sys { uid: a, .. }, Principal::Sys { uid: b, .. }) => a == b,
            (a, b) => a == b,
        }
    }
}

/// Security flavour of a call (RFC 5531, section 8.2; RFC 2203, section 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    None,
    Sys,
    Krb5,
    Krb5i,
    Krb5p,
}

impl Flavour {
    /// Whether calls are protected against alteration, so that the machine credential counts for
    /// state protection (RFC 8881, section 18.35.3).
    pub fn has_integrity(self) -> bool {
        matches!(self, Flavour::Krb5i | Flavour::Krb5p)
    }

    pub fn is_proven(self) -> bool {
        matches!(self, Flavour::Krb5 | Flavour::Krb5i | Flavour::Krb5p)
    }

    /// Whether file data may go to the network unencrypted from the page cache.
    pub fn plain_data(self) -> bool {
        !matches!(self, Flavour::Krb5i | Flavour::Krb5p)
    }
}
