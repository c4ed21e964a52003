//! READDIR (RFC 8881 §18.23). The server writes entries in place, the client reads them one by one.

use vouch_xdr::{Error, Reader, Writer};

use super::Op;
use crate::macros::wire_copy;
use crate::{Attributes, Bitmap, Cookie, Fattr, Name, Status, Verifier, Wire};

wire_copy! {
    pub struct ReaddirArgs {
        /// Of the last entry already read; zero means the start.
        pub cookie: Cookie,
        pub verifier: Verifier,
        /// A hint: bytes of names and cookies.
        pub dir_count: u32,
        /// Of the result's body, bytes.
        pub max_count: u32,
        pub wanted: Bitmap,
    }

    /// `entry4`, without the flag before it.
    pub struct DirEntry<'a> {
        pub cookie: Cookie,
        pub name: Name<'a>,
        pub attrs: Fattr<'a>,
    }
}

/// Packed, already checked by the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntries<'a> {
    packed: &'a [u8],
}

impl<'a> DirEntries<'a> {
    pub fn iter(&self) -> impl Iterator<Item = DirEntry<'a>> + use<'a> {
        let mut r = Reader::new(self.packed);
        std::iter::from_fn(move || match r.bool() {
            Ok(true) => DirEntry::decode(&mut r).ok(),
            _ => None,
        })
    }
}

/// `READDIR4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaddirOk<'a> {
    pub verifier: Verifier,
    pub entries: DirEntries<'a>,
    pub eof: bool,
}

impl<'a> Wire<'a> for ReaddirOk<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        let verifier = Verifier::decode(r)?;
        let start = r.rest();
        while r.bool()? {
            DirEntry::decode(r)?;
        }
        let packed = &start[..start.len() - r.remaining() - 4];
        Ok(Self { verifier, entries: DirEntries { packed }, eof: r.bool()? })
    }

    fn encode(&self, w: &mut Writer) {
        self.verifier.encode(w);
        w.raw(self.entries.packed);
        w.bool(false);
        w.bool(self.eof);
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        let mut w = Writer::new();
        for _ in 0..s.below(4) {
            w.bool(true);
            DirEntry::sample(s).encode(&mut w);
        }
        Self {
            verifier: Verifier::sample(s),
            entries: DirEntries { packed: w.into_bytes().leak() },
            eof: bool::sample(s),
        }
    }
}

#[derive(Debug)]
#[must_use = "the result is complete only after `finish`"]
pub struct ReaddirWriter {
    result_start: usize,
    end_max: usize,
    entries: usize,
}

/// The flags after the last entry: end of list and of directory.
const TAIL_LEN: usize = 8;

impl ReaddirWriter {
    /// `None` if an empty body (`READDIR4resok`) does not fit into `body_len_max` bytes.
    pub fn begin(w: &mut Writer, verifier: Verifier, body_len_max: usize) -> Option<Self> {
        let result_start = w.len();
        let end_max = (result_start + 8).saturating_add(body_len_max);
        (body_len_max >= 8 + TAIL_LEN).then(|| {
            w.u32(Op::READDIR.0);
            w.u32(Status::OK.0);
            verifier.encode(w);
            Self { result_start, end_max, entries: 0 }
        })
    }

    /// Truncate the writer to this position on failure, such as TOOSMALL.
    pub const fn result_start(&self) -> usize {
        self.result_start
    }

    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// With the attributes of `wanted` that have a value. False, without change, if the entry does
    /// not fit.
    pub fn push(
        &mut self,
        w: &mut Writer,
        cookie: Cookie,
        name: Name<'_>,
        wanted: Bitmap,
        attributes: &Attributes<'_>,
    ) -> bool {
        let start = w.len();
        w.bool(true);
        cookie.encode(w);
        name.encode(w);
        attributes.encode(wanted, w);
        if w.len() + TAIL_LEN > self.end_max {
            w.truncate(start);
            return false;
        }
        self.entries += 1;
        true
    }

    pub fn finish(self, w: &mut Writer, eof: bool) {
        w.bool(false);
        w.bool(eof);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Results;

    fn attributes(fileid: u64) -> Attributes<'static> {
        Attributes { fileid: Some(fileid), ..Attributes::default() }
    }

    #[test]
    fn reads_back_entries_written_in_place() {
        let mut w = Writer::new();
        let mut list = ReaddirWriter::begin(&mut w, Verifier([3; 8]), 4096).unwrap();
        let wanted = Bitmap::of(&[20, 33]);
        for (at, name) in [(1, &b"a"[..]), (2, b"bcde")] {
            assert!(list.push(&mut w, Cookie(at), Name(name), wanted, &attributes(at + 100)));
        }
        list.finish(&mut w, true);
        let mut r = Reader::new(w.as_bytes());
        let Ok(Results::Readdir(Ok(ok))) = Results::decode(&mut r) else { panic!("READDIR") };
        assert_eq!((ok.verifier, ok.eof, r.remaining()), (Verifier([3; 8]), true, 0));
        let read: Vec<_> = ok
            .entries
            .iter()
            .map(|e| (e.cookie.0, e.name.0, e.attrs.attributes().unwrap().fileid))
            .collect();
        assert_eq!(read, [(1, &b"a"[..], Some(101)), (2, b"bcde", Some(102))]);
    }

    #[test]
    fn appends_nothing_when_entry_does_not_fit() {
        // An entry has 4 + 8 + 8 + 12 + 4 + 8 = 36 bytes, an empty body 16.
        for (limit, fits) in
            [(15, None), (16, Some(0)), (51, Some(0)), (52, Some(1)), (87, Some(1)), (88, Some(2))]
        {
            let mut w = Writer::new();
            w.u32(9);
            let list = ReaddirWriter::begin(&mut w, Verifier::default(), limit);
            let pushed = list.map(|mut list| {
                while list.entries() < 5
                    && list.push(
                        &mut w,
                        Cookie(1),
                        Name(b"abcd"),
                        Bitmap::of(&[1]),
                        &Attributes {
                            file_type: Some(crate::attr::FileType::Regular),
                            ..Attributes::default()
                        },
                    )
                {}
                let pushed = list.entries();
                list.finish(&mut w, false);
                assert!(w.len() - 12 <= limit);
                pushed
            });
            assert_eq!(pushed, fits, "{limit}");
        }
    }
}
