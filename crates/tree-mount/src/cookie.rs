//! Positions within a directory, as readdir(2) hands them out: an entry's number and the revision
//! it counts in.
//!
//! The kernel never says when a listing begins or ends, because it never opens a directory (see
//! [`crate::filesystem`]); so a cookie carries all that is needed to go on, and stays good as long as
//! somebody keeps it.

/// Where to go on in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cookie {
    /// The beginning: ".", "..", then entries.
    Start,
    /// After ".".
    AfterSelf,
    /// At entry `number`, 0-based, of the directory as of a revision with this tag.
    Entry {
        /// [`tag_of`] the revision.
        tag: u32,
        /// The entry's number.
        number: u64,
    },
}

impl Cookie {
    /// The cookie of a FUSE offset, which comes from the kernel and may be made up by lseek(2).
    pub(crate) const fn from_offset(offset: u64) -> Self {
        match offset {
            0 => Self::Start,
            1 => Self::AfterSelf,
            _ => Self::Entry {
                tag: ((offset >> NUMBER_BITS) & TAG_MASK as u64) as u32,
                number: (offset & NUMBER_MASK).saturating_sub(FIRST_ENTRY),
            },
        }
    }

    /// The FUSE offset; fits a signed 64-bit off_t.
    pub(crate) const fn offset(self) -> u64 {
        match self {
            Self::Start => 0,
            Self::AfterSelf => 1,
            Self::Entry { tag, number } => ((tag & TAG_MASK) as u64) << NUMBER_BITS | (number + FIRST_ENTRY) & NUMBER_MASK,
        }
    }
}

/// The part of a revision's number that fits a cookie.
pub(crate) const fn tag_of(revision: u64) -> u32 {
    (revision & TAG_MASK as u64) as u32
}

const NUMBER_BITS: u32 = 40;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
const TAG_MASK: u32 = (1 << 23) - 1;
const FIRST_ENTRY: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_return_and_ascend_within_a_revision() {
        let mut last = 1;
        for number in [0, 1, 999_999, 1 << 33] {
            let cookie = Cookie::Entry { tag: tag_of(12), number };
            assert!(cookie.offset() > last && cookie.offset() < 1 << 63);
            assert_eq!(Cookie::from_offset(cookie.offset()), cookie);
            last = cookie.offset();
        }
        for cookie in [Cookie::Start, Cookie::AfterSelf, Cookie::Entry { tag: tag_of(u64::MAX), number: 5 }] {
            assert_eq!(Cookie::from_offset(cookie.offset()), cookie);
        }
    }
}
