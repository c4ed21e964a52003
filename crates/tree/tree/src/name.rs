//! Names of files and of trees.

use core::fmt;
use core::str::FromStr;
use std::sync::LazyLock;

use data_encoding::{Encoding, Specification};
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::key::ML_DSA_44_PUBLIC_LEN;

/// If the name has none.
pub const PORT_DEFAULT: u16 = 4340;

/// A DNS name (RFC 1035 §2.3.4) or an address.
pub const HOST_LEN_MAX: usize = 255;

/// Limit of Linux.
pub const FILE_NAME_LEN_MAX: usize = 255;

const HOSTID_CONTEXT: &str = "vouch 2026 hostid of a root public key v1";

const PAIR_CONTEXT: &str = "vouch 2026 hostid of a pair of root public keys v1";

/// The hash of a root public key, or of a pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId([u8; 32]);

impl HostId {
    /// Of an Ed25519 key alone. BLAKE3 in key-derivation mode.
    pub fn of_root_key(public: &[u8; 32]) -> Self {
        Self(blake3::derive_key(HOSTID_CONTEXT, public))
    }

    /// Of a pair. The context differs, so half of a pair has another name.
    pub fn of_root_pair(ed25519: &[u8; 32], ml_dsa_44: &[u8; ML_DSA_44_PUBLIC_LEN]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(PAIR_CONTEXT);
        Self(*hasher.update(ed25519).update(ml_dsa_44).finalize().as_bytes())
    }

    /// Any 32 bytes are a HOSTID.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// As on the wire; the text has 52 characters.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut spec = Specification::new();
    spec.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    spec.translate.from.push_str("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    spec.translate.to.push_str("abcdefghijklmnopqrstuvwxyz");
    spec.encoding().expect("the specification is a constant")
});

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32.encode(&self.0))
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({self})")
    }
}

impl FromStr for HostId {
    type Err = NameError;

    fn from_str(s: &str) -> Result<Self, NameError> {
        let bytes = BASE32.decode(s.as_bytes()).map_err(|_| NameError::HostId(s.to_owned()))?;
        bytes.try_into().map(Self).map_err(|_| NameError::HostId(s.to_owned()))
    }
}

impl Xdr for HostId {
    fn encode(&self, w: &mut Writer) {
        w.opaque_fixed(&self.0);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        r.opaque_fixed().map(Self)
    }
}

/// `@HOST[:PORT],HOSTID`. The client asks HOST; the HOSTID decides which answers are valid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TreeName {
    host: String,
    port: Option<u16>,
    hostid: HostId,
}

impl TreeName {
    /// `location`: `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
    pub fn new(location: &str, hostid: HostId) -> Result<Self, NameError> {
        let (host, port) = parse_location(location)?;
        Ok(Self { host, port, hostid })
    }

    /// A DNS name, an IPv4 address, or an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// That of the name, or [`PORT_DEFAULT`].
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(PORT_DEFAULT)
    }

    /// The hash of the tree's root key.
    pub const fn hostid(&self) -> &HostId {
        &self.hostid
    }

    /// `HOST[:PORT]`, with brackets around an IPv6 address.
    pub fn location(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        self.port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
    }
}

fn parse_location(location: &str) -> Result<(String, Option<u16>), NameError> {
    let bad = || NameError::Location(location.to_owned());
    let (host, port) = match location.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(bad)?;
            host.parse::<core::net::Ipv6Addr>().map_err(|_| bad())?;
            (
                host,
                if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(bad)?) },
            )
        }
        None => match location.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (location, None),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.is_empty()
        || host.len() > HOST_LEN_MAX
        || (!location.starts_with('[') && !host.chars().all(plain))
        || host.starts_with('.')
    {
        return Err(bad());
    }
    let port = match port {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            Some(digits.parse::<u16>().ok().filter(|&p| p != 0).ok_or_else(bad)?)
        }
        Some(_) => return Err(bad()),
        None => None,
    };
    Ok((host.to_ascii_lowercase(), port))
}

impl fmt::Display for TreeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{},{}", self.location(), self.hostid)
    }
}

impl FromStr for TreeName {
    type Err = NameError;

    fn from_str(s: &str) -> Result<Self, NameError> {
        let rest = s.strip_prefix('@').ok_or_else(|| NameError::Shape(s.to_owned()))?;
        let (location, hostid) =
            rest.rsplit_once(',').ok_or_else(|| NameError::Shape(s.to_owned()))?;
        Self::new(location, hostid.parse()?)
    }
}

impl Xdr for TreeName {
    fn encode(&self, w: &mut Writer) {
        w.opaque(self.location().as_bytes());
        self.hostid.encode(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        // Brackets, a colon and five digits.
        let location = r.string(HOST_LEN_MAX + 8)?;
        let hostid = HostId::decode(r)?;
        Self::new(location, hostid).map_err(|_| XdrError::Invalid("location"))
    }
}

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum NameError {
    #[error("'{0}' is not a self-certifying name; it should look like @HOST[:PORT],HOSTID")]
    Shape(String),
    #[error("'{0}' is not a location; it should be HOST, HOST:PORT or [IPV6]:PORT")]
    Location(String),
    #[error("'{0}' is not a HOSTID; it should be 52 characters of a-z and 2-7, copied whole")]
    HostId(String),
    #[error("a file name must have 1 to 255 bytes, no '/' and no NUL, and not be '.' or '..'")]
    FileName,
}

/// 1 to 255 bytes without `/` and NUL, neither `.` nor `..`. Not necessarily UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(Box<[u8]>);

impl FileName {
    /// # Errors
    /// [`NameError::FileName`].
    pub fn parse(bytes: &[u8]) -> Result<Self, NameError> {
        let bad = bytes.is_empty()
            || bytes.len() > FILE_NAME_LEN_MAX
            || bytes == b"."
            || bytes == b".."
            || bytes.iter().any(|&b| b == b'/' || b == 0);
        if bad { Err(NameError::FileName) } else { Ok(Self(bytes.into())) }
    }

    /// Without a NUL at the end.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for FileName {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Plain bytes find a name in a map.
impl core::borrow::Borrow<[u8]> for FileName {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl Xdr for FileName {
    fn encode(&self, w: &mut Writer) {
        w.opaque(&self.0);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Self::parse(r.opaque(FILE_NAME_LEN_MAX)?).map_err(|_| XdrError::Invalid("file name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hostid() -> HostId {
        HostId::of_root_key(&[3; 32])
    }

    #[test]
    fn round_trips_names() {
        for location in
            ["localhost", "a-b.example.org:4999", "127.0.0.1:1", "[::1]:4340", "[fe80::1]"]
        {
            let name = TreeName::new(location, hostid()).unwrap();
            assert_eq!(name.to_string(), format!("@{location},{}", hostid()));
            assert_eq!(name.to_string().parse::<TreeName>().unwrap(), name);
            assert_eq!(TreeName::from_xdr(&name.to_xdr()).unwrap(), name);
        }
    }

    #[test]
    fn hostid_has_52_characters_in_any_case() {
        let text = hostid().to_string();
        assert_eq!(text.len(), 52);
        assert_eq!(text.to_ascii_uppercase().parse::<HostId>().unwrap(), hostid());
        assert!(text[1..].parse::<HostId>().is_err());
    }

    #[test]
    fn refuses_malformed_names() {
        let id = hostid();
        for bad in [
            "",
            "@",
            "host,x",
            &format!("host,{id}"),
            &format!("@,{id}"),
            &format!("@h:0,{id}"),
            &format!("@h:99999,{id}"),
            &format!("@h:+1,{id}"),
            &format!("@h/../x,{id}"),
            &format!("@[::1,{id}"),
            &format!("@.,{id}"),
            "@h,abc",
        ] {
            assert!(bad.parse::<TreeName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn file_name_is_one_component() {
        assert!(FileName::parse(&[0xff; 255]).is_ok());
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert_eq!(FileName::parse(bad), Err(NameError::FileName));
        }
    }
}
