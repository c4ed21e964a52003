use std::time::Duration;

use vouch_nfs4::Time;

/// Bytes of a reply's body, in the machine's byte order.
#[derive(Debug, Default)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Seconds first, nanoseconds after the other's seconds, as in `fuse_entry_out`.
    fn durations(self, first: Duration, second: Duration) -> Self {
        self.u64(first.as_secs())
            .u64(second.as_secs())
            .u32(first.subsec_nanos())
            .u32(second.subsec_nanos())
    }
}

/// `fuse_attr`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attr {
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    /// With the type.
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) blksize: u32,
}

impl Attr {
    fn encode(&self, to: Record) -> Record {
        let times = [self.atime, self.mtime, self.ctime];
        let mut to = to.u64(self.ino).u64(self.size).u64(self.blocks);
        for time in times {
            to = to.u64(time.seconds.cast_unsigned());
        }
        for time in times {
            to = to.u32(time.nanoseconds.min(999_999_999));
        }
        [self.mode, self.nlink, self.uid, self.gid, self.rdev, self.blksize, 0]
            .into_iter()
            .fold(to, Record::u32)
    }

    /// `fuse_attr_out`.
    pub(crate) fn reply(&self, valid: Duration) -> Record {
        let head = Record::default().u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0);
        self.encode(head)
    }
}

/// `fuse_entry_out`. Node zero is a name that does not exist.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Entry {
    pub(crate) node: u64,
    pub(crate) name_valid: Duration,
    pub(crate) attr_valid: Duration,
    pub(crate) attr: Attr,
}

impl Entry {
    pub(crate) fn encode(&self, to: Record) -> Record {
        self.attr.encode(to.u64(self.node).u64(0).durations(self.name_valid, self.attr_valid))
    }

    pub(crate) fn reply(&self) -> Record {
        self.encode(Record::default())
    }
}

/// Entries of a directory, up to the length that the kernel accepts.
#[derive(Debug)]
pub(crate) struct Listing {
    record: Record,
    len_max: usize,
}

impl Listing {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { record: Record::default(), len_max }
    }

    /// False, without change, if the entry does not fit. `entry`: for READDIRPLUS.
    pub(crate) fn push(
        &mut self,
        name: &[u8],
        (ino, kind): (u64, u32),
        next: u64,
        entry: Option<&Entry>,
    ) -> bool {
        let len = entry.map_or(0, |_| ENTRY_LEN) + (DIRENT_LEN + name.len()).next_multiple_of(8);
        if self.record.as_bytes().len() + len > self.len_max {
            return false;
        }
        let mut record = std::mem::take(&mut self.record);
        if let Some(entry) = entry {
            record = entry.encode(record);
        }
        record = record.u64(ino).u64(next).u32(name.len() as u32).u32(kind).raw(name);
        let padding = name.len().next_multiple_of(8) - name.len();
        self.record = record.zeros(padding);
        true
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.record.as_bytes()
    }
}

const ENTRY_LEN: usize = 128;
const DIRENT_LEN: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_kernel() {
        assert_eq!(Entry::default().reply().as_bytes().len(), ENTRY_LEN);
        assert_eq!(Attr::default().reply(Duration::ZERO).as_bytes().len(), 104);
    }

    #[test]
    fn listing_refuses_entry_that_does_not_fit() {
        let mut listing = Listing::new(DIRENT_LEN + 8 + ENTRY_LEN + DIRENT_LEN + 8);
        assert!(listing.push(b"12345678", (1, 8), 3, None));
        assert!(listing.push(b"a", (2, 4), 4, Some(&Entry::default())));
        assert!(!listing.push(b"b", (3, 4), 5, None));
        assert_eq!(listing.as_bytes().len(), 2 * (DIRENT_LEN + 8) + ENTRY_LEN);
    }
}
