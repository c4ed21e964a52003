//! Errors of the Kerberos library in one line, with a remedy.

use crate::ffi::{CONTEXT_EXPIRED, Gss, Status};

/// A failed call of the library, with its own words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", printable(what), cure.map(|cure| format!("; cure: {cure}")).unwrap_or_default())]
pub struct KerberosError {
    /// The library's message. Names in it are untrusted.
    pub what: String,
    /// The cure for an administrator, for known causes.
    pub cure: Option<&'static str>,
    /// GSS-API status (RFC 2744 §3.9.1).
    pub major: u32,
    /// The mechanism's code, as `krb5.h` lists it.
    pub minor: u32,
}

impl KerberosError {
    pub(crate) fn of(gss: &'static Gss, doing: &str, status: Status, side: Side) -> Self {
        let what = format!("{doing}: {}", gss.explain(status));
        Self { what, cure: cure(status, side), major: status.major, minor: status.minor }
    }

    /// A decision of the KDC or of this crate, not a passing failure.
    pub fn is_refusal(&self) -> bool {
        // Names that the KDC doesn't know, accounts that it locked or let expire, policy.
        self.minor == 0 || matches!(self.code(), 1 | 6 | 7 | 9 | BAD_OPTION | POLICY | REVOKED)
    }

    /// Name of the fault in docs/troubleshooting.md.
    pub fn fault(&self) -> &'static str {
        fault_of(self.minor)
    }

    /// Kerberos error code (RFC 4120, section 7.5.9), if any.
    pub(crate) fn code(&self) -> i32 {
        code(self.minor)
    }

    pub(crate) fn and(self, more: &str) -> Self {
        Self { what: format!("{} ({more})", self.what), ..self }
    }

    pub(crate) fn of_old_enctype(self) -> Self {
        Self { cure: Some(OLD_ENCTYPE), ..self }
    }

    /// For a valid ticket with an invalid authenticator: the keytab is not the cause.
    pub(crate) fn of_altered(self) -> Self {
        Self { cure: Some(ALTERED), ..self }
    }

    /// For a token without a ticket: keytab and clocks are not the cause.
    pub(crate) fn of_no_ticket(self) -> Self {
        Self {
            what: "the first token is not a Kerberos V5 ticket".into(),
            cure: Some(NO_TICKET),
            ..self
        }
    }

    pub(crate) fn of_no_keytab(self) -> Self {
        Self { cure: Some(NO_KEYTAB), ..self }
    }

    /// For a request in a user's name (S4U2Self).
    pub(crate) fn of_user(self) -> Self {
        let cure = if matches!(self.code(), 6 | 7) {
            Some("create the user's principal at the KDC, or correct the realm")
        } else {
            self.cure
        };
        Self { cure, ..self }
    }

    /// For a request to another service in a user's name (S4U2Proxy).
    pub(crate) fn of_delegation(self) -> Self {
        let cure = if self.code() == BAD_OPTION { Some(NOT_DELEGATED) } else { self.cure };
        Self { cure, ..self }
    }

    pub(crate) fn is_of_keytab(&self) -> bool {
        self.cure == Some(LACKS_KEY)
    }

    pub(crate) fn no_library(reason: &str) -> Self {
        let cure = Some("install MIT Kerberos (Debian: libgssapi-krb5-2)");
        Self {
            what: format!("the Kerberos library can't be loaded: {reason}"),
            cure,
            major: FAILURE,
            minor: 0,
        }
    }

    pub(crate) fn refused(what: String, cure: &'static str) -> Self {
        Self { what, cure: Some(cure), major: FAILURE, minor: 0 }
    }
}

/// Name of the fault with this status of the mechanism, as docs/troubleshooting.md lists it.
pub fn fault_of(minor: u32) -> &'static str {
    match code(minor) {
        NOT_YET_VALID | SKEW => "clock-skew",
        // The key, its version or its entry in the keytab is missing or another one.
        // As client, this host gets code 24 for it.
        24 | 31 | 35 | 41 | 44 | 45 | 181 | 230 => "keytab-stale-key",
        _ => TICKET_REFUSED,
    }
}

/// A fault without a name of its own.
pub const TICKET_REFUSED: &str = "ticket-refused";

/// For logs and terminals.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Refuses names that are not UTF-8, since two of them could look equal.
pub(crate) fn name_text(name: Vec<u8>) -> Result<String, KerberosError> {
    String::from_utf8(name).map_err(|error| {
        let what = format!(
            "the principal \"{}\" is not written in UTF-8",
            error.as_bytes().escape_ascii()
        );
        KerberosError::refused(what, "rename it at the KDC (kadmin: renprinc), in UTF-8")
    })
}

const OLD_ENCTYPE: &str = "old enctypes are refused: give the principal AES keys (kadmin: cpw -randkey -e aes256-cts-hmac-sha1-96:normal nfs/HOST, then ktadd), or allow AES in permitted_enctypes of krb5.conf";

const NOT_DELEGATED: &str = "allow the delegation at the KDC: add the service to krbAllowedToDelegateTo of the broker's principal (LDAP back end)";

const LACKS_KEY: &str = "the keytab lacks this key: write the present keys of the service to it (kadmin: ktadd -norandkey -k KEYTAB nfs/HOST), then let clients get new tickets (kdestroy, kinit); if it is there, allow its enctype in permitted_enctypes of krb5.conf";

const NO_KEYTAB: &str = "the keytab is missing, unreadable or empty: look at its path and rights, or give --keytab FILE with the keys of nfs/HOST";

const ALTERED: &str = "the ticket is valid but the authenticator is not: the message was altered, or an eavesdropper sent it; find its source";

const NO_TICKET: &str = "the client must use the Kerberos V5 mechanism (1.2.840.113554.1.2.2), not SPNEGO or another; if it is not your NFS client, ignore this";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

pub(crate) const FAILURE: u32 = 13 << 16;
const NO_CRED: u32 = 7 << 16;
const CREDENTIALS_EXPIRED: u32 = 11 << 16;

/// RFC 4120 §7.5.9.
pub(crate) const EXPIRED: i32 = 32;
const POLICY: i32 = 12;
const BAD_OPTION: i32 = 13;
const REVOKED: i32 = 18;
pub(crate) const NOT_YET_VALID: i32 = 33;
pub(crate) const SKEW: i32 = 37;

fn code(minor: u32) -> i32 {
    const BASE: i32 = -1_765_328_384;
    (minor as i32).wrapping_sub(BASE)
}

fn cure(status: Status, side: Side) -> Option<&'static str> {
    let routine = status.major & 0x00ff_0000;
    // The other code means a missing key, which is impossible here.
    if (routine, side) == (NO_CRED, Side::Server) {
        return Some(NO_KEYTAB);
    }
    let by_code = match code(status.minor) {
        SKEW => {
            Some("set the clocks of client, server and KDC by NTP, or raise clockskew in krb5.conf")
        }
        EXPIRED => {
            Some("the client's ticket has ended: kinit again, or have the client renew it before")
        }
        NOT_YET_VALID => {
            Some("the ticket is not valid yet: set the clocks of client and KDC by NTP")
        }
        34 => Some(
            "the same authenticator came twice; an honest client retries. If this continues, give each machine its own tickets (not cloned images or a shared cache), or look for an eavesdropper",
        ),
        31 | 35 | 41 | 44 | 45 | 181 | 230 => Some(LACKS_KEY),
        14 | 150 | 188 | 236 => Some(OLD_ENCTYPE),
        6 | 7 => Some(
            "the KDC doesn't know that name: create the principal (kadmin: addprinc -randkey nfs/HOST), or mount by the name that the keytab has",
        ),
        24 => Some("wrong key or password: write the keytab again"),
        23 | 1 => Some("the principal or its password has expired: ask the KDC's administrator"),
        REVOKED => {
            Some("the principal is locked: unlock it at the KDC (kadmin: modprinc +allow_tix NAME)")
        }
        141 | 195 => Some("no ticket: run kinit"),
        154 | 156 | 220 => {
            Some("the KDC doesn't answer: look at [realms] in krb5.conf, and at the network")
        }
        184 => Some("the keytab can't be read: look at its path and rights"),
        164..=172 => Some(
            "the replay cache can't be written: look at rights and room of /var/tmp, or set KRB5RCACHEDIR",
        ),
        _ => None,
    };
    by_code.or(match (routine, side) {
        (NO_CRED, Side::Client) => Some("no ticket: run kinit, or give a keytab"),
        (CREDENTIALS_EXPIRED | CONTEXT_EXPIRED, _) => {
            Some("the client's ticket has ended: kinit again, or have the client renew it before")
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_is_escaped() {
        let name = name_text("m\rFAKE\n\u{1b}[2J\u{9b}31mü@EXAMPLE.ORG".into())
            .expect("the text is UTF-8");
        assert_eq!(
            KerberosError::refused(name, "none").to_string(),
            "m?FAKE??[2J?31mü@EXAMPLE.ORG; cure: none"
        );
    }

    #[test]
    fn names_that_are_not_utf_8_are_refused_distinctly() {
        assert_eq!(name_text("jürgen@EXAMPLE.ORG".into()).as_deref(), Ok("jürgen@EXAMPLE.ORG"));
        let messages = [b"j\xfcrgen@EXAMPLE.ORG", b"j\xf6rgen@EXAMPLE.ORG"]
            .map(|name| name_text(name.to_vec()).expect_err("the text is not UTF-8").to_string());
        assert!(
            messages[0].starts_with(
                r#"the principal "j\xfcrgen@EXAMPLE.ORG" is not written in UTF-8; cure: "#
            ),
            "{}",
            messages[0]
        );
        assert_ne!(messages[0], messages[1]);
    }
}
