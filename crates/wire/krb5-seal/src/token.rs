//! Headers of RFC 4121 §4.2.6, and why a token is refused.
//!
//! ```text
//! MIC    04 04 | flags | FF FF FF FF FF         | sequence, 8 bytes | checksum
//! Wrap   05 04 | flags | FF | EC, 2 | RRC, 2    | sequence, 8 bytes | data, rotated right by RRC bytes
//!        with confidentiality:    data = E(confounder, 16 | body | EC bytes | header with RRC 0) | checksum
//!        without:                 data = body | checksum over body and header with EC and RRC 0; EC is the checksum's length
//! ```

use crate::keys::ContextKeys;

pub(crate) const TOKEN_HEADER_LEN: usize = 16;
/// Random data before the plaintext.
pub const CONFOUNDER_LEN: usize = 16;
pub(crate) const MIC_LEN_MAX: usize = TOKEN_HEADER_LEN + CHECKSUM_LEN_MAX;
pub(crate) const CHECKSUM_LEN_MAX: usize = 24;

pub(crate) const SENT_BY_ACCEPTOR: u8 = 1;
pub(crate) const SEALED: u8 = 2;
pub(crate) const ACCEPTOR_SUBKEY: u8 = 4;

const MIC_ID: [u8; 2] = [4, 4];
const WRAP_ID: [u8; 2] = [5, 4];

/// All but [`TokenError::Room`] are faults of the sender or the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Shorter than its header and checksum.
    #[error("the token is cut short")]
    Truncated,
    /// Not a token of this kind, or filler bytes other than FF.
    #[error("not a token of RFC 4121")]
    Malformed,
    /// SentByAcceptor names our side: a reflected token.
    #[error("the token was sent by our own side")]
    Reflected,
    /// AcceptorSubkey differs from the context.
    #[error("the token is under another key than the context's")]
    Subkey,
    /// Unencrypted, although confidentiality is required.
    #[error("the token is not encrypted")]
    NotSealed,
    /// Altered, or of another context.
    #[error("the token's checksum is wrong")]
    Checksum,
    /// The buffer has no room for header and trailer.
    #[error("the buffer is shorter than header and trailer")]
    Room,
    /// The job has not run.
    #[error("not processed yet")]
    Waiting,
}

/// A MIC token on the stack: 28, 32 or 40 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MicToken {
    pub(crate) bytes: [u8; MIC_LEN_MAX],
    pub(crate) len: usize,
}

impl MicToken {
    /// The token as it is sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::ops::Deref for MicToken {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for MicToken {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl std::fmt::Debug for MicToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("MicToken").field(&self.as_bytes()).finish()
    }
}

pub(crate) fn mic_header(keys: &ContextKeys, seq: u64) -> [u8; TOKEN_HEADER_LEN] {
    let mut header = [0xff; TOKEN_HEADER_LEN];
    header[..2].copy_from_slice(&MIC_ID);
    header[2] = keys.flags_of(keys.role());
    header[8..].copy_from_slice(&seq.to_be_bytes());
    header
}

pub(crate) fn wrap_header(
    keys: &ContextKeys,
    seq: u64,
    sealed: bool,
    extra_count: u16,
) -> [u8; TOKEN_HEADER_LEN] {
    let mut header = [0; TOKEN_HEADER_LEN];
    header[..2].copy_from_slice(&WRAP_ID);
    header[2] = keys.flags_of(keys.role()) | if sealed { SEALED } else { 0 };
    header[3] = 0xff;
    header[4..6].copy_from_slice(&extra_count.to_be_bytes());
    header[8..].copy_from_slice(&seq.to_be_bytes());
    header
}

#[derive(Clone, Copy)]
pub(crate) struct WrapHeader {
    pub(crate) bytes: [u8; TOKEN_HEADER_LEN],
    pub(crate) sealed: bool,
    pub(crate) extra_count: usize,
    pub(crate) rotation: usize,
    pub(crate) seq: u64,
}

impl WrapHeader {
    pub(crate) fn parse(keys: &ContextKeys, token: &[u8]) -> Result<WrapHeader, TokenError> {
        let bytes = *token.first_chunk::<TOKEN_HEADER_LEN>().ok_or(TokenError::Truncated)?;
        if bytes[..2] != WRAP_ID || bytes[3] != 0xff {
            return Err(TokenError::Malformed);
        }
        check_flags(keys, bytes[2])?;
        let number = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        Ok(WrapHeader {
            bytes,
            sealed: bytes[2] & SEALED != 0,
            extra_count: number(4),
            rotation: number(6),
            seq: sequence_of(&bytes),
        })
    }

    /// RFC 4121 §4.2.4: the encrypted copy has RRC 0, so RRC is not compared.
    pub(crate) fn equals_copy(&self, copy: &[u8]) -> bool {
        copy[..6] == self.bytes[..6] && copy[8..] == self.bytes[8..]
    }
}

pub(crate) fn parse_mic(keys: &ContextKeys, token: &[u8]) -> Result<u64, TokenError> {
    let header = token.first_chunk::<TOKEN_HEADER_LEN>().ok_or(TokenError::Truncated)?;
    if header[..2] != MIC_ID || header[3..8] != [0xff; 5] {
        return Err(TokenError::Malformed);
    }
    check_flags(keys, header[2])?;
    if token.len() != keys.mic_len() {
        return Err(if token.len() < keys.mic_len() {
            TokenError::Truncated
        } else {
            TokenError::Malformed
        });
    }
    Ok(sequence_of(header))
}

/// RFC 4121 §4.2.2: unknown flags are ignored; the checksum covers them.
fn check_flags(keys: &ContextKeys, flags: u8) -> Result<(), TokenError> {
    let expected = keys.flags_of(keys.role().peer());
    if (flags ^ expected) & SENT_BY_ACCEPTOR != 0 {
        return Err(TokenError::Reflected);
    }
    if (flags ^ expected) & ACCEPTOR_SUBKEY != 0 {
        return Err(TokenError::Subkey);
    }
    Ok(())
}

fn sequence_of(header: &[u8; TOKEN_HEADER_LEN]) -> u64 {
    u64::from_be_bytes(*header.last_chunk().expect("a header has 16 bytes"))
}
