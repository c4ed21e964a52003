//! A way into a private decoder, for a fuzz target alone: the stat cache is a file of this machine,
//! and is not believed either.
//!
//! No part of the interface; may change at any time.

use vouch_xdr::Xdr as _;

use crate::record::Record;

/// What the stat cache says of a directory. Panics where what was read is not written and read as
/// the same.
pub fn stat_record(bytes: &[u8]) {
    let Ok(record) = Record::from_xdr(bytes) else { return };
    assert!(record.prints.len() <= bytes.len(), "more entries than bytes");
    assert!(Record::from_xdr(&record.to_xdr()).is_ok_and(|again| again == record));
}
