//! Who made a client's record, and who else may speak for it: what a recovery record keeps over a
//! restart, and what manages a client that did not ask for state protection.

use crate::Principal;
use crate::state::client::credential::Credential;

/// Who introduced a client. What a call proves counts, and nothing that it only says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPrincipal {
    /// Not known: the record is of a version that did not keep it.
    Unknown,
    /// AUTH_NONE.
    Nobody,
    /// AUTH_SYS. The user is not kept: it is the machine's word, and machines change it.
    Sys,
    /// Kerberos.
    Proven {
        /// BLAKE3 of the principal's name with its realm.
        name: [u8; 32],
        /// Under SP4_MACH_CRED, so that only calls that can't be altered on their way count (RFC
        /// 8881, section 2.10.8.3).
        protected: bool,
    },
}

impl ClientPrincipal {
    /// The one who calls.
    pub(in crate::state) fn of(principal: &Principal, protected: bool) -> Self {
        match principal {
            Principal::None => ClientPrincipal::Nobody,
            Principal::Sys { .. } => ClientPrincipal::Sys,
            Principal::Gss { name } => ClientPrincipal::Proven { name: digest(name), protected },
        }
    }

    /// Whether a call is the maker's, as far as it can be told. What is proven is claimed by the
    /// same name alone; what the network believed is claimed by who claims to be somebody,
    /// since to compare what anybody can write would keep nobody out.
    pub(in crate::state) fn admits(&self, credential: Credential<'_>) -> bool {
        match (self, credential.principal) {
            (ClientPrincipal::Unknown | ClientPrincipal::Nobody, _) => true,
            (ClientPrincipal::Sys, principal) => *principal != Principal::None,
            (ClientPrincipal::Proven { name, protected }, Principal::Gss { name: other }) => {
                *name == digest(other) && (!protected || credential.flavour.has_integrity())
            }
            (ClientPrincipal::Proven { .. }, _) => false,
        }
    }
}

fn digest(name: &str) -> [u8; 32] {
    *blake3::hash(name.as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flavour;

    #[test]
    fn what_was_proven_is_claimed_by_the_same_name_as_well_protected() {
        let name = |name: &str| Principal::Gss { name: name.into() };
        let sys = |uid| Principal::Sys { uid, gid: 0, gids: [].into() };
        let admits = |maker: ClientPrincipal, principal: &Principal, flavour| {
            maker.admits(Credential { flavour, ..crate::state::tests::sys(principal) })
        };
        let (host, other) = (name("host/a@R"), name("host/b@R"));
        let plain = ClientPrincipal::of(&host, false);
        assert!(admits(plain, &host, Flavour::Krb5) && !admits(plain, &other, Flavour::Krb5p));
        assert!(!admits(plain, &sys(0), Flavour::Sys) && !admits(plain, &Principal::None, Flavour::None));
        let protected = ClientPrincipal::of(&host, true);
        assert!(
            admits(protected, &host, Flavour::Krb5i)
                && !admits(protected, &host, Flavour::Krb5)
                && !admits(protected, &other, Flavour::Krb5i)
        );
        // What only says who it is may say it otherwise the next time, or prove it.
        let said = ClientPrincipal::of(&sys(0), false);
        assert!(
            admits(said, &sys(7), Flavour::Sys) && admits(said, &host, Flavour::Krb5) && !admits(said, &Principal::None, Flavour::None)
        );
        assert!(admits(ClientPrincipal::of(&Principal::None, false), &Principal::None, Flavour::None));
        assert!(admits(ClientPrincipal::Unknown, &Principal::None, Flavour::None));
    }
}
