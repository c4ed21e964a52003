//! Fuzz access to the decoder of the stat cache, an untrusted local file.

use vouch_xdr::Xdr as _;

use crate::record::Record;

pub fn stat_record(bytes: &[u8]) {
    let Ok(record) = Record::from_xdr(bytes) else { return };
    assert!(record.prints.len() <= bytes.len(), "more entries than bytes");
    assert!(Record::from_xdr(&record.to_xdr()).is_ok_and(|again| again == record));
}
