//! Opens received records in place.

use std::ops::Range;

use crate::keys::{SharedKeySource, TrafficKey};
use crate::seal::KEY_UPDATE;
use crate::{CIPHER_LEN_MAX, HEADER_LEN, PLAIN_LEN_MAX, TlsError, content};

/// The receiving direction of a session. It keeps the bytes of an incomplete record.
pub struct Opener {
    key: TrafficKey,
    source: SharedKeySource,
    side: Side,
    partial: Vec<u8>,
    idle_records: u32,
    is_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// Result of [`Opener::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// Length of the plaintext.
    pub len: usize,
    /// The peer asked for a key update: call [`Sealer::update_key`](crate::Sealer::update_key)
    /// before the next record.
    pub must_update_key: bool,
    /// The peer sent close_notify.
    pub is_ended: bool,
}

/// Messages after the handshake and empty records cost the peer nothing and us work.
const IDLE_RECORDS_MAX: u32 = 32;

impl Opener {
    pub(crate) fn new(
        key: TrafficKey,
        source: SharedKeySource,
        side: Side,
        partial: Vec<u8>,
    ) -> Self {
        Opener { key, source, side, partial, idle_records: 0, is_ended: false }
    }

    /// Bytes of an incomplete record, for [`Opener::take_partial`].
    pub fn partial_len(&self) -> usize {
        self.partial.len()
    }

    /// A complete record arrived behind the handshake.
    pub fn has_record(&self) -> bool {
        !matches!(next_record(&self.partial, 0), Ok(None))
    }

    /// Moves the incomplete record to the front of `space`, which must have room for it. Returns
    /// its length.
    pub fn take_partial(&mut self, space: &mut [u8]) -> usize {
        let len = self.partial.len();
        space[..len].copy_from_slice(&self.partial);
        self.partial.clear();
        if self.partial.capacity() > PARTIAL_KEPT_MAX {
            self.partial = Vec::new();
        }
        len
    }

    /// Undoes [`Opener::take_partial`], if no byte followed.
    pub fn put_back(&mut self, partial: &[u8]) {
        self.partial.extend_from_slice(partial);
    }

    /// Opens the complete records at the front of `bytes` and moves their plaintext to the front.
    /// Keeps an incomplete record.
    ///
    /// # Errors
    /// A record is forged, malformed or an alert. The session is then unusable, and plaintext of
    /// this call must not be used.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<Opened, TlsError> {
        let (mut at, mut opened) = (0, Opened::default());
        while !self.is_ended {
            let Some(record) = next_record(bytes, at)? else { break };
            at = record.end;
            if bytes[record.start] == content::CHANGE_CIPHER_SPEC {
                // For middleboxes; allowed only during the handshake (RFC 8446 §5).
                return Err(TlsError::Malformed("a type that is not allowed after the handshake"));
            }
            let header: [u8; HEADER_LEN] =
                *bytes[record.start..].first_chunk().expect("a record begins with its header");
            if header[0] != content::APPLICATION_DATA {
                return Err(TlsError::Malformed("clear content after the handshake"));
            }
            let space = &mut bytes[opened.len..record.end];
            let len = self.key.open(header, space, record.start + HEADER_LEN - opened.len)?;
            let inner = &space[..len];
            // RFC 8446 §5.4: zeros pad the content, whose type is its last byte.
            let kind_at = inner
                .iter()
                .rposition(|&byte| byte != 0)
                .ok_or(TlsError::Malformed("no content type"))?;
            if kind_at > PLAIN_LEN_MAX {
                return Err(TlsError::TooLong);
            }
            let (kind, start) = (inner[kind_at], opened.len);
            match kind {
                content::APPLICATION_DATA if kind_at > 0 => {
                    self.idle_records = 0;
                    opened.len += kind_at;
                    continue;
                }
                content::APPLICATION_DATA => {}
                content::ALERT => self.alert(&bytes[start..start + kind_at])?,
                content::HANDSHAKE => {
                    let message: Range<usize> = start..start + kind_at;
                    opened.must_update_key |= self.message(&bytes[message])?;
                }
                _ => return Err(TlsError::Malformed("an unknown content type")),
            }
            self.idle_records += 1;
            if self.idle_records > IDLE_RECORDS_MAX {
                return Err(TlsError::Flood { max: IDLE_RECORDS_MAX });
            }
        }
        opened.is_ended = self.is_ended;
        if !self.is_ended {
            self.partial.extend_from_slice(&bytes[at..]);
        }
        Ok(opened)
    }

    fn alert(&mut self, alert: &[u8]) -> Result<(), TlsError> {
        let &[_, description] = alert else { return Err(TlsError::Malformed("a damaged alert")) };
        match description {
            // close_notify (RFC 8446 §6.1).
            0 => {
                self.is_ended = true;
                Ok(())
            }
            // Every other alert ends the session (RFC 8446 §6).
            other => Err(TlsError::Alert(format!("{:?}", rustls::AlertDescription::from(other)))),
        }
    }

    fn message(&mut self, message: &[u8]) -> Result<bool, TlsError> {
        match message {
            [KEY_UPDATE, 0, 0, 1, request @ (0 | 1)] => {
                self.key = self.source.lock().next_to_receive()?;
                Ok(*request == 1)
            }
            // This client does not resume sessions.
            [NEW_SESSION_TICKET, ..] if self.side == Side::Client => Ok(false),
            [KEY_UPDATE, ..] => {
                Err(TlsError::Malformed("a damaged key update, or data behind one"))
            }
            _ => Err(TlsError::Malformed("a message that is not allowed after the handshake")),
        }
    }
}

/// `None` if the record is incomplete.
pub(crate) fn next_record(bytes: &[u8], at: usize) -> Result<Option<Range<usize>>, TlsError> {
    let left = &bytes[at..];
    let Some(&kind) = left.first() else { return Ok(None) };
    if !(content::CHANGE_CIPHER_SPEC..=content::APPLICATION_DATA).contains(&kind)
        || left.get(1).is_some_and(|&major| major != 3)
    {
        return Err(TlsError::NotTls);
    }
    let Some(header) = left.first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if len > CIPHER_LEN_MAX {
        return Err(TlsError::TooLong);
    }
    Ok((left.len() >= HEADER_LEN + len).then(|| at..at + HEADER_LEN + len))
}

/// RFC 8446 §4.
const NEW_SESSION_TICKET: u8 = 4;
/// An idle connection keeps no more for the next incomplete record.
const PARTIAL_KEPT_MAX: usize = 512;
