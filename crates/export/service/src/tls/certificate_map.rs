//! Maps client certificates to local users: the file of `--certificate-map`.

use std::collections::HashMap;
use std::sync::Arc;

use vouch_rpc_tls::{PeerCertificate, SubjectKey};

/// A fingerprint precedes a subject, and both precede the user in the certificate.
#[derive(Debug, Default)]
pub(crate) struct CertificateMap {
    fingerprints: HashMap<String, Holder>,
    subjects: HashMap<SubjectKey, Holder>,
    others: Option<Holder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    User(Arc<str>),
    /// AUTH_SYS calls of this machine are believed.
    Machine,
    Refused,
}

impl CertificateMap {
    /// One line each: `sha256:FINGERPRINT HOLDER`, `subject:NAME HOLDER` or `* HOLDER`. An error
    /// names the line, its fault and the text to write.
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
            "needs a certificate and a user; write sha256:FINGERPRINT USER or subject:NAME USER",
        )?;
        let holder = match holder {
            "!machine" => Holder::Machine,
            "!refuse" => Holder::Refused,
            word if word.starts_with('!') => {
                return Err(format!(
                    "{word} is no holder; write a user's name, !machine or !refuse"
                ));
            }
            name if name.len() > NAME_LEN_MAX || name.contains([':', '/', '@']) => {
                return Err(format!(
                    "{name} is not a user name; write the name that getent passwd shows"
                ));
            }
            name => Holder::User(name.into()),
        };
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
        } else {
            return Err(format!(
                "{} names no certificate; write sha256:FINGERPRINT, subject:NAME or *",
                who.trim_end()
            ));
        };
        if is_new {
            Ok(())
        } else {
            Err(format!("{} has an earlier line; remove one of them", who.trim_end()))
        }
    }

    /// `domain`: of users in certificates.
    pub(crate) fn holder(
        &self,
        certificate: &PeerCertificate,
        domain: &str,
    ) -> Result<Holder, String> {
        let listed = self
            .fingerprints
            .get(&certificate.fingerprint_text())
            .or_else(|| self.of_subject(&certificate.subject));
        match (listed, &certificate.user) {
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

impl CertificateMap {
    fn of_subject(&self, subject: &str) -> Option<&Holder> {
        if self.subjects.is_empty() {
            return None;
        }
        self.subjects.get(&SubjectKey::parse(subject).ok()?)
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
            valid: 0..1,
        }
    }

    #[test]
    fn fingerprint_precedes_subject_and_user_in_certificate() {
        let upper = vec!["AA"; 32].join(":");
        let text = format!(
            "# ours\nsha256:{upper} alice\nsubject:O=Example Corp, CN=n7  !machine\nsubject:CN=old !refuse\n* guest\n"
        );
        let map = CertificateMap::parse(&text).unwrap();
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
    fn subject_in_another_form_is_still_refused() {
        let subject = "O=Example\\, Inc., CN=n7\\ ";
        for line in [
            subject,
            "CN=n7\\ ,O=Example\\, Inc.",
            "cn = n7\\20, o = \"Example, Inc.\"",
            "2.5.4.10=Example\\2C Inc.,2.5.4.3=n7\\ ",
        ] {
            let map = CertificateMap::parse(&format!("subject:{line} !refuse\n")).unwrap();
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
            let found = CertificateMap::parse(text).unwrap_err();
            assert!(found.contains(error), "{text}: {found}");
        }
    }
}
