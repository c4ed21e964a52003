//! Share reservations (RFC 8881 §9.7).

use vouch_nfs4::Status;
use vouch_nfs4::op::{ShareAccess, ShareDeny};

pub(in crate::state) const READ: u8 = 1;
pub(in crate::state) const WRITE: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(in crate::state) access: u8,
    pub(in crate::state) deny: u8,
}

impl Share {
    /// Without delegation wants. INVAL for no access or undefined bits (§18.16.3).
    pub(crate) fn new(access: ShareAccess, deny: ShareDeny) -> Result<Self, Status> {
        let bits = access.0 & ShareAccess::MASK.0;
        if !(1..=3).contains(&bits) || deny.0 > 3 {
            return Err(Status::INVAL);
        }
        Ok(Share { access: bits as u8, deny: deny.0 as u8 })
    }

    pub(crate) fn reads(self) -> bool {
        self.access & READ != 0
    }

    pub(crate) fn writes(self) -> bool {
        self.access & WRITE != 0
    }

    pub(in crate::state) fn code(self) -> u8 {
        (self.access - 1) * 4 + self.deny
    }

    pub(in crate::state) fn bit(self) -> u16 {
        1 << self.code()
    }

    pub(in crate::state) fn all() -> impl Iterator<Item = Share> {
        (1..=3).flat_map(|access| (0..=3).map(move |deny| Share { access, deny }))
    }

    pub(in crate::state) fn conflicts(self, other: Share) -> bool {
        self.access & other.deny != 0
            || self.deny & other.access != 0 && !vouch_vfs::mutant("deny-ignores-earlier-opens")
    }

    pub(in crate::state) fn or(self, other: Share) -> Share {
        Share { access: self.access | other.access, deny: self.deny | other.deny }
    }
}

/// OPEN_DOWNGRADE must name the union of a subset of the owner's opens (§18.18.3).
pub(in crate::state) fn reachable(history: u16, share: Share) -> Option<u16> {
    let mut union = Share { access: 0, deny: 0 };
    let mut kept = 0;
    for access in 1..=3u8 {
        for deny in 0..=3u8 {
            let one = Share { access, deny };
            if history & one.bit() != 0 && share.or(one) == share {
                union = union.or(one);
                kept |= one.bit();
            }
        }
    }
    (union == share).then_some(kept)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct ShareCounts {
    access: [u32; 2],
    deny: [u32; 2],
}

impl ShareCounts {
    pub(in crate::state) fn add(&mut self, share: Share) {
        self.each(share, |count| *count += 1);
    }

    pub(in crate::state) fn remove(&mut self, share: Share) {
        self.each(share, |count| {
            *count = count.checked_sub(1).expect("every removed entry was added")
        });
    }

    fn each(&mut self, share: Share, act: impl Fn(&mut u32)) {
        for (bit, at) in [(READ, 0), (WRITE, 1)] {
            if share.access & bit != 0 {
                act(&mut self.access[at]);
            }
            if share.deny & bit != 0 {
                act(&mut self.deny[at]);
            }
        }
    }

    pub(in crate::state) fn writes(&self) -> bool {
        self.access[1] > 0
    }

    pub(in crate::state) fn conflicts(&self, wanted: Share) -> bool {
        if vouch_vfs::mutant("share-reservations-are-ignored") {
            return false;
        }
        let bits = |counts: [u32; 2]| u8::from(counts[0] > 0) | u8::from(counts[1] > 0) << 1;
        wanted.access & bits(self.deny) != 0 || wanted.deny & bits(self.access) != 0
    }

    pub(in crate::state) fn writers(&self) -> u32 {
        self.access[1]
    }

    pub(in crate::state) fn denies(&self, access: u8) -> bool {
        if vouch_vfs::mutant("anonymous-io-ignores-deny") {
            return false;
        }
        access & READ != 0 && self.deny[0] > 0 || access & WRITE != 0 && self.deny[1] > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn share(access: u8, deny: u8) -> Share {
        Share { access, deny }
    }

    #[test]
    fn undefined_shares_are_rejected() {
        assert!(Share::new(ShareAccess(0), ShareDeny(0)).is_err());
        assert!(Share::new(ShareAccess(4), ShareDeny(0)).is_err());
        assert!(Share::new(ShareAccess(1), ShareDeny(4)).is_err());
        assert_eq!(Share::new(ShareAccess(0x103), ShareDeny(2)), Ok(share(3, 2)));
    }

    #[test]
    fn downgrade_reaches_only_unions_of_earlier_opens() {
        let history = share(1, 0).bit() | share(2, 2).bit();
        assert!(reachable(history, share(1, 0)).is_some());
        assert!(reachable(history, share(2, 2)).is_some());
        assert!(reachable(history, share(3, 2)).is_some());
        assert!(reachable(history, share(2, 0)).is_none());
        assert!(reachable(history, share(1, 2)).is_none());
    }
}
