//! Key statements: what a root key says of itself. A revocation answers a compromise, a forwarding
//! pointer a planned move. Both are self-authenticating: signed by the key that they are about,
//! they are believed wherever they are met.

use data_encoding::BASE64;
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::key::{PublicKey, Purpose, SecretKey};
use crate::{HostId, TreeName};

/// Longest reason of a revocation.
pub const REASON_LEN_MAX: usize = 1024;

/// Longest encoded statement.
pub const STATEMENT_LEN_MAX: usize = 2048;

/// Statements that a replica may offer for one tree: one revocation, and forwarding pointers of a
/// few moves.
pub const STATEMENTS_MAX: usize = 16;

const HEADER: &str = "vouch key statement v1";

/// A signed statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStatement {
    root: PublicKey,
    /// When it was made, in seconds since 1970. Of two forwarding pointers the later one counts.
    time: u64,
    body: Body,
    signature: [u8; 64],
}

/// What is stated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The key is compromised: believe nothing that it signs, whenever. Overrides every forwarding
    /// pointer.
    Revocation {
        /// For those who read the log.
        reason: String,
    },
    /// The tree lives on under another name.
    Forwarding {
        /// That name.
        to: TreeName,
    },
}

impl KeyStatement {
    /// States `body` by the root key itself.
    pub fn issue(root: &SecretKey, time: u64, body: Body) -> Self {
        let mut statement = Self { root: root.public(), time, body, signature: [0; 64] };
        statement.signature = root.sign(Purpose::Statement, &statement.signed_bytes());
        statement
    }

    /// The HOSTID that it is about.
    pub fn hostid(&self) -> HostId {
        self.root.hostid()
    }

    /// When it was made, in seconds since 1970.
    pub const fn time(&self) -> u64 {
        self.time
    }

    /// What is stated, if the key it is about has signed it.
    pub fn verified(&self) -> Option<&Body> {
        self.root.verify(Purpose::Statement, &self.signed_bytes(), &self.signature).then_some(&self.body)
    }

    /// The text form of a statement file: a header line, then base64 of the XDR.
    pub fn to_text(&self) -> String {
        format!("{HEADER}\n{}\n", BASE64.encode(&self.to_xdr()))
    }

    /// Reads a statement from a file's bytes: the text form, or bare XDR. Not yet verified.
    pub fn parse(bytes: &[u8]) -> Result<Self, XdrError> {
        match bytes.strip_prefix(HEADER.as_bytes()) {
            Some(rest) if rest.len() <= STATEMENT_LEN_MAX * 2 => {
                let text: Vec<u8> = rest.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
                Self::from_xdr(&BASE64.decode(&text).map_err(|_| XdrError::Invalid("base64 of a key statement"))?)
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
        w.opaque_fixed(&self.signature);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let (root, time) = (PublicKey::decode(r)?, r.u64()?);
        let body = match r.u32()? {
            1 => Body::Revocation { reason: r.string(REASON_LEN_MAX)?.to_owned() },
            2 => Body::Forwarding { to: TreeName::decode(r)? },
            value => return Err(XdrError::Unknown { what: "key statement", value }),
        };
        Ok(Self { root, time, body, signature: r.opaque_fixed()? })
    }
}

/// The statement about `hostid` that is in force among those met: a revocation before all, else the
/// latest pointer.
pub fn effective_statement<'a>(hostid: &HostId, met: impl IntoIterator<Item = &'a KeyStatement>) -> Option<&'a KeyStatement> {
    met.into_iter()
        .filter(|s| s.hostid() == *hostid && s.verified().is_some())
        .max_by_key(|s| (matches!(s.body, Body::Revocation { .. }), s.time))
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
    fn statements_return_from_both_of_their_forms() {
        let revocation = KeyStatement::issue(&root(), 5, Body::Revocation { reason: "lost".into() });
        for statement in [revocation, forwarding(7)] {
            assert_eq!(KeyStatement::parse(statement.to_text().as_bytes()).unwrap(), statement);
            assert_eq!(KeyStatement::parse(&statement.to_xdr()).unwrap(), statement);
            assert!(statement.verified().is_some());
        }
    }

    #[test]
    fn a_revocation_outranks_every_pointer() {
        let revocation = KeyStatement::issue(&root(), 1, Body::Revocation { reason: String::new() });
        let hostid = root().public().hostid();
        let met = [forwarding(3), revocation.clone(), forwarding(9)];
        assert_eq!(effective_statement(&hostid, &met), Some(&revocation));
        assert_eq!(effective_statement(&hostid, &[forwarding(3), forwarding(9)]), Some(&forwarding(9)));
    }

    #[test]
    fn a_statement_about_somebody_else_or_altered_is_not_in_force() {
        let altered = KeyStatement { time: 8, ..forwarding(3) };
        assert_eq!(effective_statement(&root().public().hostid(), &[altered]), None);
        assert_eq!(effective_statement(&HostId::from_bytes([0; 32]), &[forwarding(3)]), None);
    }
}
