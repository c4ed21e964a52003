//! Revocations and forwarding pointers, signed by the root key and valid wherever a client finds
//! them.

use data_encoding::BASE64;
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::key::{PublicKey, Purpose, SecretKey, Signature};
use crate::{HostId, TreeName};

/// Longest reason of a revocation, in bytes.
pub const REASON_LEN_MAX: usize = 1024;

/// Longest statement in XDR, in bytes. The key and the signature of a pair take 3,860.
pub const STATEMENT_LEN_MAX: usize = 5 << 10;

/// Longest statement that a replica offers beside a revision, in bytes: evidence of a transparency
/// log is longer than a [`KeyStatement`].
pub const OFFERED_LEN_MAX: usize = 32 << 10;

/// Offered for one tree: a revocation and several forwarding pointers.
pub const STATEMENTS_MAX: usize = 16;

const HEADER: &str = "vouch key statement v1";

/// Signed by the root key that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStatement {
    root: PublicKey,
    /// Time of signing, seconds since 1970. The latest forwarding pointer is in force.
    time: u64,
    body: Body,
    signature: Signature,
}

/// What a statement says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The key is compromised: nothing that it signed is valid. Overrides forwarding pointers.
    Revocation {
        /// Text for logs and error messages.
        reason: String,
    },
    /// The tree has moved to another name.
    Forwarding {
        /// The new name.
        to: TreeName,
    },
}

impl KeyStatement {
    /// Signs a statement. `time`: seconds since 1970.
    pub fn issue(root: &SecretKey, time: u64, body: Body) -> Self {
        let mut statement = Self { root: root.public(), time, body, signature: Signature::MISSING };
        statement.signature = root.sign(Purpose::Statement, &statement.signed_bytes());
        statement
    }

    /// The tree that it is about.
    pub fn hostid(&self) -> HostId {
        self.root.hostid()
    }

    /// Time of signing, seconds since 1970. Not verified.
    pub const fn time(&self) -> u64 {
        self.time
    }

    /// `None` if the signature is invalid.
    pub fn verified(&self) -> Option<&Body> {
        self.root
            .verify(Purpose::Statement, &self.signed_bytes(), &self.signature)
            .then_some(&self.body)
    }

    /// Does not verify the signature.
    pub const fn is_revocation(&self) -> bool {
        matches!(self.body, Body::Revocation { .. })
    }

    /// A header line, then XDR in base64.
    pub fn to_text(&self) -> String {
        format!("{HEADER}\n{}\n", BASE64.encode(&self.to_xdr()))
    }

    /// Takes the text form or XDR. Does not verify the signature.
    pub fn parse(bytes: &[u8]) -> Result<Self, XdrError> {
        match bytes.strip_prefix(HEADER.as_bytes()) {
            Some(rest) if rest.len() <= STATEMENT_LEN_MAX * 2 => {
                let text: Vec<u8> =
                    rest.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
                Self::from_xdr(
                    &BASE64
                        .decode(&text)
                        .map_err(|_| XdrError::Invalid("base64 of a key statement"))?,
                )
            }
            _ => Self::from_xdr(bytes),
        }
    }

    fn signed_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode_unsigned(&mut w);
        w.into_bytes()
    }

    fn encode_unsigned(&self, w: &mut Writer) {
        self.root.encode(w);
        w.u64(self.time);
        match &self.body {
            Body::Revocation { reason } => {
                w.u32(1);
                w.opaque(reason.as_bytes());
            }
            Body::Forwarding { to } => {
                w.u32(2);
                to.encode(w);
            }
        }
    }
}

impl Xdr for KeyStatement {
    fn encode(&self, w: &mut Writer) {
        self.encode_unsigned(w);
        self.signature.encode(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let (root, time) = (PublicKey::decode(r)?, r.u64()?);
        let body = match r.u32()? {
            1 => Body::Revocation { reason: r.string(REASON_LEN_MAX)?.to_owned() },
            2 => Body::Forwarding { to: TreeName::decode(r)? },
            value => return Err(XdrError::Unknown { what: "key statement", value }),
        };
        let signature = Signature::decode(r, &root)?;
        Ok(Self { root, time, body, signature })
    }
}

/// A revocation, else the latest forwarding pointer. Ignores invalid signatures.
pub fn effective_statement<'a>(
    hostid: &HostId,
    met: impl IntoIterator<Item = &'a KeyStatement>,
) -> Option<&'a KeyStatement> {
    met.into_iter()
        .filter(|s| s.hostid() == *hostid && s.verified().is_some())
        .max_by_key(|s| (s.is_revocation(), s.time))
}

/// The reason, never empty, if one of the statements in XDR revokes the key. Ignores what is no valid statement.
pub fn revocation_reason<'a>(
    hostid: &HostId,
    statements: impl IntoIterator<Item = &'a Vec<u8>>,
) -> Option<String> {
    let statements: Vec<KeyStatement> =
        statements.into_iter().filter_map(|bytes| KeyStatement::from_xdr(bytes).ok()).collect();
    match effective_statement(hostid, &statements)?.verified()? {
        Body::Revocation { reason } if reason.is_empty() => Some("no reason given".into()),
        Body::Revocation { reason } => Some(reason.clone()),
        Body::Forwarding { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> SecretKey {
        SecretKey::from_seed(&[1; 32])
    }

    fn forwarding(time: u64) -> KeyStatement {
        let to = TreeName::new("new.example.org", HostId::from_bytes([9; 32])).unwrap();
        KeyStatement::issue(&root(), time, Body::Forwarding { to })
    }

    #[test]
    fn round_trips_text_and_xdr() {
        let revocation =
            KeyStatement::issue(&root(), 5, Body::Revocation { reason: "lost".into() });
        for statement in [revocation, forwarding(7)] {
            assert_eq!(KeyStatement::parse(statement.to_text().as_bytes()).unwrap(), statement);
            assert_eq!(KeyStatement::parse(&statement.to_xdr()).unwrap(), statement);
            assert!(statement.verified().is_some());
        }
    }

    #[test]
    fn revocation_overrides_forwarding() {
        let revocation =
            KeyStatement::issue(&root(), 1, Body::Revocation { reason: String::new() });
        let hostid = root().public().hostid();
        let met = [forwarding(3), revocation.clone(), forwarding(9)];
        assert_eq!(effective_statement(&hostid, &met), Some(&revocation));
        assert_eq!(
            effective_statement(&hostid, &[forwarding(3), forwarding(9)]),
            Some(&forwarding(9))
        );
    }

    #[test]
    fn ignores_altered_and_foreign_statements() {
        let altered = KeyStatement { time: 8, ..forwarding(3) };
        assert_eq!(effective_statement(&root().public().hostid(), &[altered]), None);
        assert_eq!(effective_statement(&HostId::from_bytes([0; 32]), &[forwarding(3)]), None);
    }
}
