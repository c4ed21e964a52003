//! The principal that may manage the client without state protection.

use crate::Principal;
use crate::state::client::credential::Credential;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPrincipal {
    Unknown,
    Nobody,
    Sys,
    Proven {
        /// BLAKE3 of the name with realm.
        name: [u8; 32],
        /// Under SP4_MACH_CRED only calls with integrity protection count (RFC 8881 §2.10.8.3).
        protected: bool,
    },
}

impl ClientPrincipal {
    pub(in crate::state) fn of(principal: &Principal, protected: bool) -> Self {
        match principal {
            Principal::None => ClientPrincipal::Nobody,
            Principal::Sys { .. } => ClientPrincipal::Sys,
            Principal::Gss { name } | Principal::Certificate { name } => {
                ClientPrincipal::Proven { name: digest(name), protected }
            }
        }
    }

    pub(in crate::state) fn of_machine(certificate: &str) -> Self {
        ClientPrincipal::Proven { name: machine_digest(certificate), protected: false }
    }

    /// AUTH_SYS calls match each other, since anybody can write any user id.
    pub(in crate::state) fn admits(&self, credential: Credential<'_>) -> bool {
        match (self, credential.principal) {
            (ClientPrincipal::Unknown | ClientPrincipal::Nobody, _) => true,
            (ClientPrincipal::Sys, principal) => *principal != Principal::None,
            (
                ClientPrincipal::Proven { name, protected },
                Principal::Gss { name: other } | Principal::Certificate { name: other },
            ) => *name == digest(other) && (!protected || credential.flavour.has_integrity()),
            (ClientPrincipal::Proven { name, .. }, _) => {
                credential.machine.is_some_and(|machine| *name == machine_digest(machine))
            }
        }
    }
}

fn digest(name: &str) -> [u8; 32] {
    *blake3::hash(name.as_bytes()).as_bytes()
}

/// Differs from the digests of Kerberos principals and users' certificates.
fn machine_digest(certificate: &str) -> [u8; 32] {
    digest(&format!("x509-machine:{certificate}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flavour;

    #[test]
    fn only_same_protected_principal_matches_kerberos_client() {
        let name = |name: &str| Principal::Gss { name: name.into() };
        let sys = |uid| Principal::Sys { uid, gid: 0, gids: [].into() };
        let admits = |creator: ClientPrincipal, principal: &Principal, flavour| {
            creator.admits(Credential { flavour, ..crate::state::tests::sys(principal) })
        };
        let (host, other) = (name("host/a@R"), name("host/b@R"));
        let plain = ClientPrincipal::of(&host, false);
        assert!(admits(plain, &host, Flavour::Krb5) && !admits(plain, &other, Flavour::Krb5p));
        assert!(
            !admits(plain, &sys(0), Flavour::Sys)
                && !admits(plain, &Principal::None, Flavour::None)
        );
        let protected = ClientPrincipal::of(&host, true);
        assert!(
            admits(protected, &host, Flavour::Krb5i)
                && !admits(protected, &host, Flavour::Krb5)
                && !admits(protected, &other, Flavour::Krb5i)
        );
        let said = ClientPrincipal::of(&sys(0), false);
        assert!(
            admits(said, &sys(7), Flavour::Sys)
                && admits(said, &host, Flavour::Krb5)
                && !admits(said, &Principal::None, Flavour::None)
        );
        assert!(admits(
            ClientPrincipal::of(&Principal::None, false),
            &Principal::None,
            Flavour::None
        ));
        assert!(admits(ClientPrincipal::Unknown, &Principal::None, Flavour::None));
    }
}
