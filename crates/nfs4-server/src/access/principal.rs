//! Who calls, as the security flavour proved it, and under which flavour. What local rights that
//! gives is [`Identity`](crate::Identity)'s matter.

use std::sync::Arc;

/// Who calls. Equal values are the same principal, which is what EXCHANGE_ID compares (RFC 8881,
/// section 18.35.5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// AUTH_NONE: nobody in particular.
    None,
    /// AUTH_SYS: what the client's machine claims. The machine's name is not part of it: clients
    /// change it between mounts.
    Sys {
        /// User.
        uid: u32,
        /// Primary group.
        gid: u32,
        /// Supplementary groups as sent: at most 16.
        gids: Arc<[u32]>,
    },
    /// RPCSEC_GSS: proven by Kerberos.
    Gss {
        /// Principal with its realm: `alice@EXAMPLE.ORG`, `nfs/host.example.org@EXAMPLE.ORG`.
        name: Arc<str>,
    },
}

impl Principal {
    /// Whether `other` may act on state that this principal made: the same user, whatever its
    /// groups are now.
    pub fn same_user(&self, other: &Principal) -> bool {
        match (self, other) {
            (Principal::Sys { uid: a, .. }, Principal::Sys { uid: b, .. }) => a == b,
            (a, b) => a == b,
        }
    }
}

/// How a call is protected (RFC 5531, section 8.2; RFC 2203, section 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys,
    /// Kerberos: who calls is proven, messages are not.
    Krb5,
    /// Kerberos with integrity.
    Krb5i,
    /// Kerberos with privacy.
    Krb5p,
}

impl Flavour {
    /// Whether calls can't be altered on their way, so that the machine's credential counts for
    /// state protection (RFC 8881, section 18.35.3).
    pub fn has_integrity(self) -> bool {
        matches!(self, Flavour::Krb5i | Flavour::Krb5p)
    }

    /// Whether who calls is proven.
    pub fn is_proven(self) -> bool {
        matches!(self, Flavour::Krb5 | Flavour::Krb5i | Flavour::Krb5p)
    }

    /// Whether file data may go to the network as it is in the page cache.
    pub fn plain_data(self) -> bool {
        !matches!(self, Flavour::Krb5i | Flavour::Krb5p)
    }
}
