//! Seals outgoing records in place.

use zeroize::Zeroizing;

use crate::keys::{SharedKeySource, TrafficKey};
use crate::{HEADER_LEN, PLAIN_LEN_MAX, TAIL_LEN, TlsError, content};

/// The sending direction of a session.
pub struct Sealer {
    key: TrafficKey,
    source: SharedKeySource,
    records_max: u64,
}

/// Records under one key: AES-GCM allows 2^24.5 full ones (RFC 8446 §5.5).
const RECORDS_MAX: u64 = 1 << 24;

impl Sealer {
    pub(crate) fn new(key: TrafficKey, source: SharedKeySource) -> Self {
        Sealer { key, source, records_max: RECORDS_MAX }
    }

    /// Seals application data: `len` bytes at `record[HEADER_LEN..]`. Returns the length of the
    /// record. Fails if the key is used up: call [`Sealer::update_key`] in time.
    ///
    /// # Panics `record` is shorter than `HEADER_LEN + len + TAIL_LEN`, or `len` exceeds
    /// [`PLAIN_LEN_MAX`].
    pub fn seal(&mut self, record: &mut [u8], len: usize) -> Result<usize, TlsError> {
        self.seal_as(content::APPLICATION_DATA, record, len)
    }

    fn seal_as(&mut self, kind: u8, record: &mut [u8], len: usize) -> Result<usize, TlsError> {
        assert!(len <= PLAIN_LEN_MAX, "the caller cuts data into records");
        if self.key.sequence >= self.records_max + SPARE_RECORDS {
            return Err(TlsError::Ours("a traffic key is used up"));
        }
        let (header, rest) = record[..HEADER_LEN + len + TAIL_LEN].split_at_mut(HEADER_LEN);
        let cipher_len =
            u16::try_from(len + TAIL_LEN).expect("a record is shorter than 65,536 bytes");
        header.copy_from_slice(&header_of(cipher_len));
        let (inner, tag_place) = rest.split_at_mut(len + 1);
        inner[len] = kind;
        let tag_place = tag_place.first_chunk_mut().expect("TAIL_LEN has room for the tag");
        self.key.seal(header_of(cipher_len), inner, tag_place)?;
        Ok(HEADER_LEN + len + TAIL_LEN)
    }

    /// Records that the key may still seal.
    pub fn records_left(&self) -> u64 {
        self.records_max.saturating_sub(self.key.sequence)
    }

    /// [`Sealer::update_key`] is due.
    pub fn is_key_used_up(&self) -> bool {
        self.records_left() == 0
    }

    /// Appends a KeyUpdate message to `out` and changes to the next key (RFC 8446 §4.6.3).
    pub fn update_key(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.append(content::HANDSHAKE, &KEY_UPDATE_MESSAGE, out)?;
        self.change_key()
    }

    /// For a kernel that seals the records: the present key, as setsockopt(2) takes it with SOL_TLS
    /// and TLS_TX. From then on this sealer must not seal.
    pub fn kernel_key(&self) -> Zeroizing<Vec<u8>> {
        self.key.crypto_info()
    }

    /// After the kernel has sent [`KEY_UPDATE_MESSAGE`].
    pub fn change_key(&mut self) -> Result<(), TlsError> {
        self.key = self.source.lock().next_to_send()?;
        Ok(())
    }

    /// Appends close_notify.
    pub fn close(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.append(content::ALERT, &[1, 0], out)
    }

    fn append(&mut self, kind: u8, message: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        let start = out.len();
        out.resize(start + HEADER_LEN, 0);
        out.extend_from_slice(message);
        out.resize(out.len() + TAIL_LEN, 0);
        self.seal_as(kind, &mut out[start..], message.len()).map(drop)
    }

    #[cfg(test)]
    pub(crate) fn limit_records(&mut self, records_max: u64) {
        self.records_max = records_max;
    }
}

fn header_of(cipher_len: u16) -> [u8; HEADER_LEN] {
    let [high, low] = cipher_len.to_be_bytes();
    [content::APPLICATION_DATA, 3, 3, high, low]
}

/// RFC 8446 §4.
pub(crate) const KEY_UPDATE: u8 = 24;
/// Asks for no update: a request could go back and forth for ever.
pub const KEY_UPDATE_MESSAGE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];
/// For the messages that change the key or end the session.
const SPARE_RECORDS: u64 = 16;
