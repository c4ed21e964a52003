use std::sync::Arc;

/// EXCHANGE_ID compares these values (RFC 8881 §18.35.5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    None,
    /// Clients change the machine name between mounts, so it is left out.
    Sys {
        uid: u32,
        gid: u32,
        gids: Arc<[u32]>,
    },
    Gss {
        /// With realm: `alice@EXAMPLE.ORG`.
        name: Arc<str>,
    },
    Certificate {
        /// `x509:` and the local user's name. The prefix keeps it apart from Kerberos principals.
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

/// RFC 5531 §8.2; RFC 2203 §5.2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    None,
    Sys,
    Krb5,
    Krb5i,
    Krb5p,
}

impl Flavour {
    /// The machine credential needs integrity for state protection (RFC 8881 §18.35.3).
    pub(crate) fn has_integrity(self) -> bool {
        matches!(self, Flavour::Krb5i | Flavour::Krb5p)
    }

    pub fn is_proven(self) -> bool {
        matches!(self, Flavour::Krb5 | Flavour::Krb5i | Flavour::Krb5p)
    }

    pub fn plain_data(self) -> bool {
        !matches!(self, Flavour::Krb5i | Flavour::Krb5p)
    }
}
