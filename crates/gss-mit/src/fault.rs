//! Why Kerberos failed, in one line: what the library says, and what cures it.

use crate::ffi::{CONTEXT_EXPIRED, Gss, Status};

/// A failure of the Kerberos library, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", printable(what), cure.map(|cure| format!("; cure: {cure}")).unwrap_or_default())]
pub struct Fault {
    /// What failed, in the library's words; names in it are others'.
    pub what: String,
    /// What an administrator or a user can do, where it is known.
    pub cure: Option<&'static str>,
    /// GSS-API's status (RFC 2744, section 3.9.1).
    pub major: u32,
    /// The mechanism's own status.
    pub minor: u32,
}

impl Fault {
    /// What a call of the library came to; to be asked by the thread that called.
    pub(crate) fn of(gss: &'static Gss, doing: &str, status: Status, side: Side) -> Self {
        let what = format!("{doing}: {}", gss.explain(status));
        Self { what, cure: cure(status, side), major: status.major, minor: status.minor }
    }

    /// Kerberos' own code of the failure (RFC 4120, section 7.5.9), if it is one.
    pub(crate) fn code(&self) -> i32 {
        code(self.minor)
    }

    /// The same, with more of what is known about it.
    pub(crate) fn and(self, more: &str) -> Self {
        Self { what: format!("{} ({more})", self.what), ..self }
    }

    /// The same, of a key that is too old, whatever the library stumbled over.
    pub(crate) fn of_old_enctype(self) -> Self {
        Self { cure: Some(OLD_ENCTYPE), ..self }
    }

    /// The same, of a ticket that opens where what came with it does not: the keytab has no part in
    /// that.
    pub(crate) fn of_altered(self) -> Self {
        Self { cure: Some(ALTERED), ..self }
    }

    /// The same, of a first token in which there is no ticket: keytab and clocks have no part in
    /// that.
    pub(crate) fn of_no_ticket(self) -> Self {
        Self { what: "a first token that is no Kerberos V5 ticket".into(), cure: Some(NO_TICKET), ..self }
    }

    /// The same, where there is no key at all to open a ticket by.
    pub(crate) fn of_no_keytab(self) -> Self {
        Self { cure: Some(NO_KEYTAB), ..self }
    }

    /// Whether the keytab is to blame, as far as the library tells.
    pub(crate) fn is_of_keytab(&self) -> bool {
        self.cure == Some(LACKS_KEY)
    }

    /// The library isn't there.
    pub(crate) fn no_library(reason: &str) -> Self {
        let cure = Some("install MIT Kerberos (Debian: libgssapi-krb5-2)");
        Self { what: format!("the Kerberos library can't be loaded: {reason}"), cure, major: FAILURE, minor: 0 }
    }

    /// A refusal of our own.
    pub(crate) fn refused(what: String, cure: &'static str) -> Self {
        Self { what, cure: Some(cure), major: FAILURE, minor: 0 }
    }
}

/// Text that others wrote, for logs and terminals: neither ends a line nor is obeyed.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A principal's name as text. What is not UTF-8 is refused: two names that differ in what can't be
/// written would be one.
pub(crate) fn name_text(name: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(name).map_err(|error| {
        let what = format!("the principal \"{}\" is not written in UTF-8", error.as_bytes().escape_ascii());
        Fault::refused(what, "rename it at the KDC (kadmin: renprinc), in UTF-8")
    })
}

/// What helps where keys are of the time before AES.
const OLD_ENCTYPE: &str = "old enctypes are not taken: give the principal AES keys (kadmin: cpw -randkey -e aes256-cts-hmac-sha1-96:normal nfs/HOST, then ktadd), or allow AES in permitted_enctypes of krb5.conf";

/// What helps where the key that the ticket is for is not in the keytab, in this version or at all.
const LACKS_KEY: &str = "the keytab lacks this key: write the present keys of the service to it (kadmin: ktadd -norandkey -k KEYTAB nfs/HOST), then let clients get new tickets (kdestroy, kinit); if it is there, allow its enctype in permitted_enctypes of krb5.conf";

/// What helps where there is no keytab, or nothing in it.
const NO_KEYTAB: &str =
    "the keytab is missing, unreadable or empty: look at its path and rights, or give --keytab FILE with the keys of nfs/HOST";

/// What helps where a ticket is good and its sender has not its key.
const ALTERED: &str = "the ticket is good, and what came with it is not by its key: it was altered on its way, or somebody sent it who has only read it; look for who does that";

/// What helps where a client speaks another mechanism, or none.
const NO_TICKET: &str = "the client must use the mechanism of Kerberos V5 by itself (1.2.840.113554.1.2.2), neither SPNEGO nor another; if it is no NFS client of yours, nothing is wrong here";

/// Whose side failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// `GSS_S_FAILURE`.
pub(crate) const FAILURE: u32 = 13 << 16;
/// `GSS_S_NO_CRED`.
const NO_CRED: u32 = 7 << 16;
/// `GSS_S_CREDENTIALS_EXPIRED`.
const CREDENTIALS_EXPIRED: u32 = 11 << 16;

/// Codes of RFC 4120, section 7.5.9, that are about times.
pub(crate) const EXPIRED: i32 = 32;
pub(crate) const NOT_YET_VALID: i32 = 33;
pub(crate) const SKEW: i32 = 37;

/// A minor status as krb5.h counts them.
fn code(minor: u32) -> i32 {
    const BASE: i32 = -1_765_328_384;
    (minor as i32).wrapping_sub(BASE)
}

/// What helps, by the codes of krb5.h.
fn cure(status: Status, side: Side) -> Option<&'static str> {
    let routine = status.major & 0x00ff_0000;
    // The codes beside it are those of a key that is not found, which there can't be.
    if (routine, side) == (NO_CRED, Side::Server) {
        return Some(NO_KEYTAB);
    }
    let by_code = match code(status.minor) {
        SKEW => Some("set the clocks of client, server and KDC by NTP, or raise clockskew in krb5.conf"),
        EXPIRED => Some("the client's ticket has ended: kinit again, or have the client renew it before"),
        NOT_YET_VALID => Some("the ticket is not valid yet: set the clocks of client and KDC by NTP"),
        34 => Some(
            "the same authenticator came twice; an honest client asks again by itself. If it goes on, give each machine tickets of its own (cloned images, one cache on many nodes), or look for who records the network",
        ),
        31 | 35 | 41 | 44 | 45 | 181 | 230 => Some(LACKS_KEY),
        14 | 150 | 188 | 236 => Some(OLD_ENCTYPE),
        6 | 7 => Some(
            "the KDC doesn't know that name: create the principal (kadmin: addprinc -randkey nfs/HOST), or mount by the name that the keytab has",
        ),
        24 => Some("the key or the password is wrong: write the keytab anew"),
        23 | 1 => Some("the principal or its password has expired: ask the KDC's administrator"),
        141 | 195 => Some("there is no ticket: kinit"),
        154 | 156 | 220 => Some("the KDC doesn't answer: look at [realms] in krb5.conf, and at the network"),
        184 => Some("the keytab can't be read: look at its path and rights"),
        164..=172 => Some("the replay cache can't be written: look at rights and room of /var/tmp, or set KRB5RCACHEDIR"),
        _ => None,
    };
    by_code.or(match (routine, side) {
        (NO_CRED, Side::Client) => Some("there is no ticket: kinit, or name a keytab"),
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
    fn what_others_wrote_ends_no_line_and_is_not_obeyed() {
        let name = name_text("m\rFAKE\n\u{1b}[2J\u{9b}31mü@EXAMPLE.ORG".into()).expect("it is UTF-8");
        assert_eq!(Fault::refused(name, "none").to_string(), "m?FAKE??[2J?31mü@EXAMPLE.ORG; cure: none");
    }

    #[test]
    fn names_that_are_not_utf_8_are_refused_and_told_apart() {
        assert_eq!(name_text("jürgen@EXAMPLE.ORG".into()).as_deref(), Ok("jürgen@EXAMPLE.ORG"));
        // Of Latin-1: both would read as one name with a replacement character.
        let told = [b"j\xfcrgen@EXAMPLE.ORG", b"j\xf6rgen@EXAMPLE.ORG"]
            .map(|name| name_text(name.to_vec()).expect_err("it is not UTF-8").to_string());
        assert!(told[0].starts_with(r#"the principal "j\xfcrgen@EXAMPLE.ORG" is not written in UTF-8; cure: "#), "{}", told[0]);
        assert_ne!(told[0], told[1]);
    }
}
