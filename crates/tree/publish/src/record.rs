//! Record of a directory: its content, and a fingerprint for each entry.

use std::sync::OnceLock;

use vouch_tree::{Content, Counts, PageRef};
use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::attributes::Fingerprint;

/// State in the previous revision. 16 bytes for each entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Record {
    pub(crate) top: Option<PageRef>,
    pub(crate) subdirs: u32,
    pub(crate) opaque: bool,
    /// Its own entries, without subdirectories' contents.
    pub(crate) counts: Counts,
    pub(crate) prints: Vec<Fingerprint>,
}

impl Record {
    pub(crate) fn content(&self) -> Content {
        Content::Directory {
            entries: self.prints.len() as u64,
            subdirs: self.subdirs,
            opaque: self.opaque,
            top: self.top,
        }
    }

    pub(crate) fn content_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode_content(&mut w);
        w.into_bytes()
    }

    fn encode_content(&self, w: &mut Writer) {
        w.u64(self.prints.len() as u64);
        w.u32(self.subdirs);
        w.bool(self.opaque);
        w.optional(self.top.as_ref(), |w, top| top.encode(w));
    }
}

impl Xdr for Record {
    fn encode(&self, w: &mut Writer) {
        self.encode_content(w);
        self.counts.encode(w);
        let bytes: Vec<u8> = self.prints.iter().flat_map(|print| *print.as_bytes()).collect();
        w.raw(&bytes);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let entries = r.u64()?;
        let (subdirs, opaque) = (r.u32()?, r.bool()?);
        let top = r.optional(PageRef::decode)?;
        let counts = Counts::decode(r)?;
        let len = usize::try_from(entries)
            .ok()
            .and_then(|n| n.checked_mul(Fingerprint::LEN))
            .ok_or(XdrError::Invalid("entries"))?;
        let mut prints = Vec::with_capacity(r.remaining() / Fingerprint::LEN);
        for chunk in r.take(len)?.as_chunks::<{ Fingerprint::LEN }>().0 {
            prints.push(Fingerprint::from_bytes(*chunk));
        }
        Ok(Self { top, subdirs, opaque, counts, prints })
    }
}

#[derive(Debug)]
pub(crate) struct Earlier {
    pub(crate) record: Record,
    sorted: OnceLock<Vec<Fingerprint>>,
}

impl Earlier {
    pub(crate) const fn new(record: Record) -> Self {
        Self { record, sorted: OnceLock::new() }
    }

    pub(crate) fn is_at(&self, index: usize, print: &Fingerprint) -> bool {
        *print != Fingerprint::UNTRUSTED && self.record.prints.get(index) == Some(print)
    }

    pub(crate) fn contains(&self, index: usize, print: &Fingerprint) -> bool {
        if *print == Fingerprint::UNTRUSTED {
            return false;
        }
        self.is_at(index, print) || {
            let sorted = self.sorted.get_or_init(|| {
                let mut prints = self.record.prints.clone();
                prints.sort_unstable();
                prints
            });
            sorted.binary_search(print).is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(n: u8) -> Fingerprint {
        Fingerprint::from_bytes([n; 16])
    }

    #[test]
    fn records_round_trip_and_truncated_ones_are_refused() {
        let record =
            Record { subdirs: 3, prints: (1..9).map(print).collect(), ..Record::default() };
        let bytes = record.to_xdr();
        assert_eq!(Record::from_xdr(&bytes).unwrap(), record);
        assert!(Record::from_xdr(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn moved_entries_are_found_and_untrusted_ones_never() {
        let record = Record {
            prints: vec![print(5), Fingerprint::UNTRUSTED, print(1)],
            ..Record::default()
        };
        let earlier = Earlier::new(record);
        assert!(
            earlier.contains(0, &print(5))
                && earlier.contains(0, &print(1))
                && !earlier.contains(2, &print(2))
        );
        assert!(!earlier.contains(1, &Fingerprint::UNTRUSTED));
    }
}
