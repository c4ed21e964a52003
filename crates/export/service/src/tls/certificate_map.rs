//! Maps client certificates to holders: to local users in the file of `--certificate-map`, and to roles
//! in that of `--management-roles`.

use std::collections::HashMap;
use std::sync::Arc;

use vouch_rpc_tls::{PeerCertificate, SubjectKey, alternative_name};

/// A fingerprint precedes a subject, a subject precedes an alternative name, and all precede the user in
/// the certificate.
#[derive(Debug)]
pub(crate) struct CertificateMap<H> {
    fingerprints: HashMap<String, H>,
    subjects: HashMap<SubjectKey, H>,
    names: HashMap<String, H>,
    others: Option<H>,
}

/// A word at the end of a line. An error has the cure.
pub(crate) trait ParseHolder: Clone + PartialEq + Sized {
    fn parse(word: &str) -> Result<Self, String>;
}

impl<H> Default for CertificateMap<H> {
    fn default() -> Self {
        CertificateMap {
            fingerprints: HashMap::new(),
            subjects: HashMap::new(),
            names: HashMap::new(),
            others: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    User(Arc<str>),
    /// AUTH_SYS calls of this machine are believed.
    Machine,
    Refused,
}

impl ParseHolder for Holder {
    fn parse(word: &str) -> Result<Self, String> {
        match word {
            "!machine" => Ok(Holder::Machine),
            "!refuse" => Ok(Holder::Refused),
            word if word.starts_with('!') => {
                Err(format!("{word} is no holder; write a user's name, !machine or !refuse"))
            }
            name if name.len() > NAME_LEN_MAX || name.contains([':', '/', '@']) => {
                Err(format!("{name} is not a user name; write the name that getent passwd shows"))
            }
            name => Ok(Holder::User(name.into())),
        }
    }
}

impl<H: ParseHolder> CertificateMap<H> {
    /// One line each: `sha256:FINGERPRINT HOLDER`, `subject:NAME HOLDER`, `KIND:NAME HOLDER` of an
    /// alternative name, or `* HOLDER`. An error names the line, its fault and the text to write.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut map = CertificateMap::default();
        for (at, line) in text.lines().enumerate().take(LINES_MAX + 1) {
            map.take(line, at).map_err(|error| format!("line {}: {error}", at + 1))?;
        }
        Ok(map)
    }

    fn take(&mut self, line: &str, at: usize) -> Result<(), String> {
        if at >= LINES_MAX {
            return Err(format!(
                "more than {LINES_MAX} lines; put the user into the certificate instead"
            ));
        }
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (who, holder) = line.rsplit_once(char::is_whitespace).ok_or(
            "needs a certificate and its holder; write sha256:FINGERPRINT HOLDER or subject:NAME HOLDER",
        )?;
        let holder = H::parse(holder)?;
        // A blank at the end may be escaped.
        let who = who.trim_start();
        let is_new = if who.trim_end() == "*" {
            self.others.replace(holder).is_none()
        } else if let Some(digits) = who.strip_prefix("sha256:") {
            let digits: String = digits
                .trim_end()
                .chars()
                .filter(|c| *c != ':')
                .map(|c| c.to_ascii_lowercase())
                .collect();
            if digits.len() != 64 || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
                return Err(format!(
                    "{} is no SHA-256 fingerprint; write the 64 digits of openssl x509 -fingerprint -sha256",
                    who.trim_end()
                ));
            }
            self.fingerprints.insert(digits, holder).is_none()
        } else if let Some(subject) = who.strip_prefix("subject:") {
            let key = SubjectKey::parse(subject).map_err(|why| {
                format!(
                    "{} is no subject: {why}; write it as in subject:O=Example, CN=n7.example.org",
                    who.trim_end()
                )
            })?;
            self.subjects.insert(key, holder).is_none()
        } else if let Some(name) = alternative_name(who.trim_end()) {
            self.names.insert(name, holder).is_none()
        } else {
            return Err(format!(
                "{} names no certificate; write sha256:FINGERPRINT, subject:NAME, dns:HOST, \
                 email:USER@DOMAIN, uri:URI, user:USER@DOMAIN or *",
                who.trim_end()
            ));
        };
        if is_new {
            Ok(())
        } else {
            Err(format!("{} has an earlier line; remove one of them", who.trim_end()))
        }
    }

    /// By a line of its own, without that of others.
    fn listed(&self, certificate: &PeerCertificate) -> Result<Option<&H>, String> {
        let first = self
            .fingerprints
            .get(&certificate.fingerprint_text())
            .or_else(|| self.of_subject(&certificate.subject));
        if first.is_some() || self.names.is_empty() {
            return Ok(first);
        }
        let mut named =
            certificate.names.iter().filter_map(|name| Some((name, self.names.get(name)?)));
        let Some((name, holder)) = named.next() else { return Ok(None) };
        match named.find(|(_, other)| *other != holder) {
            None => Ok(Some(holder)),
            Some((other, _)) => Err(format!("its names {name} and {other} have different lines")),
        }
    }

    /// The holder of a certificate that is listed, or that of all others.
    pub(crate) fn find(&self, certificate: &PeerCertificate) -> Result<Option<&H>, String> {
        Ok(self.listed(certificate)?.or(self.others.as_ref()))
    }

    fn of_subject(&self, subject: &str) -> Option<&H> {
        if self.subjects.is_empty() {
            return None;
        }
        self.subjects.get(&SubjectKey::parse(subject).ok()?)
    }
}

impl CertificateMap<Holder> {
    /// `domain`: of users in certificates.
    pub(crate) fn holder(
        &self,
        certificate: &PeerCertificate,
        domain: &str,
    ) -> Result<Holder, String> {
        match (self.listed(certificate)?, &certificate.user) {
            (Some(Holder::Refused), _) => Err("the certificate map refuses the certificate".into()),
            (Some(holder), _) => Ok(holder.clone()),
            (None, Some(user)) => match user.split_once('@') {
                Some((name, of)) if of.eq_ignore_ascii_case(domain) => {
                    Ok(Holder::User(name.into()))
                }
                _ => Err(format!(
                    "the certificate's user {user} is not of the domain {domain}; see --domain"
                )),
            },
            (None, None) => match &self.others {
                Some(Holder::Refused) => {
                    Err("the certificate map refuses certificates that it does not list".into())
                }
                Some(holder) => Ok(holder.clone()),
                None => Ok(Holder::Machine),
            },
        }
    }
}

const LINES_MAX: usize = 1_000_000;
const NAME_LEN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(digit: char, subject: &str, user: Option<&str>) -> PeerCertificate {
        PeerCertificate {
            fingerprint: [u8::from_str_radix(&digit.to_string().repeat(2), 16).unwrap(); 32],
            subject: subject.into(),
            name: "n7".into(),
            user: user.map(str::to_owned),
            names: ["dns:n7.example.org", "uri:spiffe://example.org/n7"].map(str::to_owned).into(),
            valid: 0..1,
        }
    }

    #[test]
    fn fingerprint_precedes_subject_and_user_in_certificate() {
        let upper = vec!["AA"; 32].join(":");
        let text = format!(
            "# ours\nsha256:{upper} alice\nsubject:O=Example Corp, CN=n7  !machine\nsubject:CN=old !refuse\n* guest\n"
        );
        let map = CertificateMap::<Holder>::parse(&text).unwrap();
        let holder =
            |digit, subject, user| map.holder(&certificate(digit, subject, user), "example.org");
        assert_eq!(holder('a', "O=Example Corp, CN=n7", None), Ok(Holder::User("alice".into())));
        assert_eq!(
            holder('b', "O=Example Corp, CN=n7", Some("bob@example.org")),
            Ok(Holder::Machine)
        );
        assert_eq!(holder('b', "CN=x", Some("bob@EXAMPLE.org")), Ok(Holder::User("bob".into())));
        assert!(holder('b', "CN=x", Some("bob@elsewhere.org")).unwrap_err().contains("elsewhere"));
        assert!(holder('b', "CN=old", None).is_err());
        assert_eq!(holder('b', "CN=x", None), Ok(Holder::User("guest".into())));
        assert_eq!(
            CertificateMap::default().holder(&certificate('b', "CN=x", None), "d"),
            Ok(Holder::Machine)
        );
    }

    #[test]
    fn alternative_names_must_agree() {
        let of = |text: &str| {
            let map = CertificateMap::<Holder>::parse(text).unwrap();
            map.holder(&certificate('b', "CN=n7", None), "d")
        };
        let (alice, bob) = (Holder::User("alice".into()), Holder::User("bob".into()));
        assert_eq!(of("dns:N7.Example.org alice\n* bob"), Ok(alice.clone()));
        assert_eq!(of("uri:spiffe://example.org/N7 alice\n* bob"), Ok(bob.clone()));
        assert_eq!(of("dns:n7.example.org alice\nsubject:CN=n7 bob"), Ok(bob));
        let both = "dns:n7.example.org alice\nuri:spiffe://example.org/n7";
        assert_eq!(of(&format!("{both} alice")), Ok(alice));
        assert!(of(&format!("{both} bob")).unwrap_err().contains("have different lines"));
    }

    #[test]
    fn subject_in_another_form_is_still_refused() {
        let subject = "O=Example\\, Inc., CN=n7\\ ";
        for line in [
            subject,
            "CN=n7\\ ,O=Example\\, Inc.",
            "cn = n7\\20, o = \"Example, Inc.\"",
            "2.5.4.10=Example\\2C Inc.,2.5.4.3=n7\\ ",
        ] {
            let map =
                CertificateMap::<Holder>::parse(&format!("subject:{line} !refuse\n")).unwrap();
            assert!(map.holder(&certificate('b', subject, None), "d").is_err(), "{line}");
            assert_eq!(map.holder(&certificate('b', "CN=n8", None), "d"), Ok(Holder::Machine));
        }
    }

    #[test]
    fn errors_name_line_and_remedy() {
        for (text, error) in [
            ("\nalice", "line 2: needs a certificate"),
            ("sha256:abc alice", "line 1: sha256:abc is no SHA-256"),
            ("subject:CN=x !root", "!root is no holder"),
            ("CN=x alice", "names no certificate"),
            ("* a\n* b", "line 2: * has an earlier line"),
            ("* a@b", "is not a user name"),
            (
                "subject:/O=Example/CN=n7 !refuse",
                "no subject: a part names no known attribute type; write an unusual one by its numbers",
            ),
            (
                "subject:O=a, CN=b c\nsubject:cn=B,o=a !refuse",
                "line 2: subject:cn=B,o=a has an earlier line",
            ),
        ] {
            let found = CertificateMap::<Holder>::parse(text).unwrap_err();
            assert!(found.contains(error), "{text}: {found}");
        }
    }
}
