//! Extended attributes of a file, sorted by name.

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

/// Includes the namespace (XATTR_NAME_MAX of Linux).
pub const NAME_LEN_MAX: usize = 255;

/// XATTR_SIZE_MAX of Linux.
pub const VALUE_LEN_MAX: usize = 64 * 1024;

/// Length in XDR. Linux lists at most 64 KiB of names, without the values.
pub const SET_LEN_MAX: u64 = 64 * 1024 * 1024;

/// Sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Xattrs(Vec<(Vec<u8>, Vec<u8>)>);

impl Xattrs {
    /// Sorts `pairs`.
    pub fn new(mut pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        pairs.sort();
        pairs.dedup_by(|a, b| a.0 == b.0);
        Self(pairs)
    }

    /// Names and values, sorted by name.
    pub fn pairs(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.0
    }

    /// The value of `name`.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0
            .binary_search_by(|(n, _)| n.as_slice().cmp(name))
            .ok()
            .map(|i| self.0[i].1.as_slice())
    }

    /// True without attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Xdr for Xattrs {
    fn encode(&self, w: &mut Writer) {
        w.count(self.0.len());
        for (name, value) in &self.0 {
            w.opaque(name);
            w.opaque(value);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let count = r.count(r.remaining() / 12 + 1)?;
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for _ in 0..count {
            let (name, value) = (r.opaque(NAME_LEN_MAX)?, r.opaque(VALUE_LEN_MAX)?);
            if name.is_empty()
                || name.contains(&0)
                || pairs.last().is_some_and(|(last, _)| last.as_slice() >= name)
            {
                return Err(XdrError::Invalid("xattr name"));
            }
            pairs.push((name.to_vec(), value.to_vec()));
        }
        Ok(Self(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_sorted_set() {
        let set = Xattrs::new(vec![(b"user.b".to_vec(), vec![1]), (b"user.a".to_vec(), vec![])]);
        let back = Xattrs::from_xdr(&set.to_xdr()).unwrap();
        assert_eq!(back.get(b"user.b"), Some(&[1u8][..]));
        assert_eq!(back.get(b"user.c"), None);
        assert_eq!(back.pairs()[0].0, b"user.a");
    }

    #[test]
    fn refuses_unsorted_set() {
        let mut w = Writer::new();
        w.count(2);
        for name in [b"b", b"a"] {
            w.opaque(name);
            w.opaque(&[]);
        }
        assert!(Xattrs::from_xdr(w.as_bytes()).is_err());
    }
}
