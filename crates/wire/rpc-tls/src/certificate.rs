use rustls::pki_types::CertificateDer;

use crate::TlsError;
use crate::der::{self, Der, OID, UTF8_STRING};

/// Read only from a verified certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    /// As in `O=Example, CN=node7.example.org`.
    pub subject: String,
    /// For people: the first DNS name, else the common name, else the subject.
    pub name: String,
    /// `user@domain` in a subjectAltName of the type otherName with FreeBSD's identifier.
    pub user: Option<String>,
    /// All subjectAltNames of these kinds, each as [`alternative_name`] writes it.
    pub names: Vec<String>,
    /// Start and end, in seconds since 1970.
    pub valid: std::ops::Range<i64>,
}

/// The certificate's authority is trusted, so this only keeps records short.
const NAME_LEN_MAX: usize = 512;

/// 1.3.6.1.4.1.2238.1.1.1: `user@domain` of FreeBSD's rpc.tlsservd(8).
const USER: &[u8] = &[0x2b, 6, 1, 4, 1, 0x91, 0x3e, 1, 1, 1];

impl PeerCertificate {
    /// Fails without an X.509 certificate, or if its user name is invalid.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, TlsError> {
        let parsed = der::certificate(certificate)
            .ok_or(TlsError::Certificate("it is no X.509 certificate"))?;
        let (subject, common) =
            der::name(parsed.subject).ok_or(TlsError::Certificate("its subject is malformed"))?;
        let (mut dns, mut user, mut names) = (None, None, Vec::new());
        let mut alternatives = parsed.alternative_names.unwrap_or(Der(&[]));
        while let Some((tag, content)) = alternatives.next() {
            if let Some((_, kind)) = KINDS.iter().find(|(of, _)| *of == tag)
                && let Some(value) = der::string(IA5_STRING, content)
            {
                names.extend(alternative_name(&format!("{kind}:{value}")));
                if tag == DNS_NAME {
                    dns.get_or_insert(value);
                }
                continue;
            }
            match tag {
                // otherName. With two users, the holder would be in doubt.
                0xa0 if Der(content).take(OID).is_some_and(|id| id.0 == USER) => {
                    let before =
                        user.replace(user_name(content).ok_or(TlsError::Certificate(USER_FAULT))?);
                    before.map_or(Ok(()), |_| Err(TlsError::Certificate("it names two users")))?;
                }
                _ => {}
            }
        }
        names.extend(user.iter().filter_map(|user| alternative_name(&format!("user:{user}"))));
        let name =
            cut(dns.or(common).filter(|name| !name.is_empty()).unwrap_or_else(|| subject.clone()));
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let fingerprint = digest.as_ref().try_into().expect("SHA-256 has 32 bytes");
        Ok(PeerCertificate { fingerprint, subject, name, user, names, valid: parsed.valid })
    }

    /// In lower-case hexadecimal digits.
    pub fn fingerprint_text(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.fingerprint)
    }
}

/// The one text of a name that is written as `dns:HOST`, `email:USER@DOMAIN`, `uri:URI` or
/// `user:USER@DOMAIN` (FreeBSD's otherName): case of hosts and domains does not count. `None` for
/// other kinds.
pub fn alternative_name(text: &str) -> Option<String> {
    let (kind, value) = text.split_once(':').filter(|(_, value)| !value.is_empty())?;
    match kind {
        "dns" => Some(text.to_ascii_lowercase()),
        "uri" => Some(text.to_owned()),
        "email" | "user" => {
            let (local, domain) = value.rsplit_once('@')?;
            Some(format!("{kind}:{local}@{}", domain.to_ascii_lowercase()))
        }
        _ => None,
    }
}

/// Tags of GeneralName (RFC 5280, section 4.2.1.6) whose value is an IA5String.
const KINDS: [(u8, &str); 3] = [(0x81, "email"), (DNS_NAME, "dns"), (0x86, "uri")];

const DNS_NAME: u8 = 0x82;

const IA5_STRING: u8 = 0x16;

const USER_FAULT: &str = "its otherName for a user is no UTF-8 string user@domain";

fn user_name(other_name: &[u8]) -> Option<String> {
    let mut other_name = Der(other_name);
    let _id = other_name.take(OID)?;
    let mut value = other_name.take(0xa0)?;
    let text = value.take(UTF8_STRING)?;
    let name = der::string(UTF8_STRING, text.0)?;
    let (user, domain) = name.split_once('@')?;
    let is_plain = |text: &str| {
        !text.is_empty()
            && !text.contains(['@', '/', ':', '\0'])
            && !text.contains(char::is_whitespace)
    };
    (value.0.is_empty()
        && other_name.0.is_empty()
        && name.len() <= NAME_LEN_MAX
        && is_plain(user)
        && is_plain(domain))
    .then_some(name)
}

fn cut(mut text: String) -> String {
    if text.len() > NAME_LEN_MAX {
        text.truncate((0..=NAME_LEN_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0));
    }
    text
}
