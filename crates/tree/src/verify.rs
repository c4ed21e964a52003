//! The decision whether a signed fsinfo is to be believed, now, by this client.
//!
//! Pure: the time, what the client has seen before and the statements it has met come in; a verdict
//! comes out. What was seen must be kept outside every cache, for it is what makes a rollback show.

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::fsinfo::SignatureError;
use crate::statement::{Body, KeyStatement, effective_statement};
use crate::time_text::{RelativeTime, Utc};
use crate::{Fsinfo, HostId, SignedFsinfo, TreeName};

/// How far a publisher's clock may run ahead of ours, in seconds.
pub const CLOCK_SKEW_S_MAX: u64 = 300;

/// The newest that a client has ever seen of one tree. Only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// The highest revision under the highest certificate; 0 before the first.
    pub revision: u64,
    /// BLAKE3 of that revision's signed fsinfo.
    pub fsinfo_hash: [u8; 32],
    /// The highest certificate serial.
    pub cert_serial: u64,
    /// The latest start: time can't have been earlier than that.
    pub start: u64,
}

impl Seen {
    /// The later of two memories: what neither may be rolled back behind.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let newer = if other.order() > self.order() { other } else { self };
        Self { start: self.start.max(other.start), ..newer }
    }

    /// Revisions are ordered below their certificates: whoever stole a signing key may have signed
    /// any revision number, and the next certificate must get past it.
    pub const fn order(&self) -> (u64, u64) {
        (self.cert_serial, self.revision)
    }
}

impl Xdr for Seen {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.revision);
        w.opaque_fixed(&self.fsinfo_hash);
        w.u64(self.cert_serial);
        w.u64(self.start);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self { revision: r.u64()?, fsinfo_hash: r.opaque_fixed()?, cert_serial: r.u64()?, start: r.u64()? })
    }
}

/// An fsinfo that is to be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The fsinfo.
    pub fsinfo: Fsinfo,
    /// The first second at which it is no longer valid: the end of its duration or of its
    /// certificate.
    pub expires: u64,
    /// What to remember from now on.
    pub seen: Seen,
}

/// Why an fsinfo is not to be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The root key has been revoked by itself.
    #[error("the key of this tree was revoked on {}{}{reason}; ask its publisher for the new name", Utc(*time), if reason.is_empty() { ", without a word why" } else { ": " })]
    Revoked {
        /// When, in seconds since 1970.
        time: u64,
        /// The publisher's words.
        reason: String,
    },
    /// The tree has moved.
    #[error("this tree has moved to {0}")]
    Moved(TreeName),
    /// It is not XDR at all.
    #[error("the fsinfo is malformed: {0}")]
    Malformed(#[from] XdrError),
    /// Signatures or contents do not fit the name.
    #[error(transparent)]
    Forged(#[from] SignatureError),
    /// Older than what was seen.
    #[error("revision {offered} is older than revision {seen}, which was seen before")]
    Rollback {
        /// What was offered.
        offered: u64,
        /// What was seen.
        seen: u64,
    },
    /// Signed by a key that a newer certificate has replaced.
    #[error("signed under certificate {offered}, but certificate {seen} has replaced it")]
    Superseded {
        /// The certificate's serial.
        offered: u64,
        /// The highest seen.
        seen: u64,
    },
    /// Two different fsinfos of one revision: the publisher signed both.
    #[error("another revision {revision} was seen before, also signed by the publisher; ask which one is meant")]
    Forked {
        /// The revision.
        revision: u64,
    },
    /// No longer valid.
    #[error("valid until {}, {}; the publisher must publish again, or this machine's clock ({}) is wrong", Utc(*expires), RelativeTime { at: *expires, now: *now }, Utc(*now))]
    Expired {
        /// The end of its validity.
        expires: u64,
        /// The time it was held against.
        now: u64,
    },
    /// Not valid yet.
    #[error("valid from {}, {}; is this machine's clock ({}) right?", Utc(*start), RelativeTime { at: *start, now: *now }, Utc(*now))]
    NotYetValid {
        /// The start of its validity.
        start: u64,
        /// The time it was held against.
        now: u64,
    },
    /// It starts outside its certificate's dates.
    #[error("signed on {}, outside the validity of its certificate ({} to {})", Utc(*start), Utc(*not_before), Utc(*not_after))]
    OutsideCertificate {
        /// The fsinfo's start.
        start: u64,
        /// The certificate's start.
        not_before: u64,
        /// The certificate's end.
        not_after: u64,
    },
}

impl Refusal {
    /// Whether only a forger, or somebody who alters bytes, can have made this: an honest replica
    /// that lags behind offers what is expired or older, never this.
    pub const fn is_forgery(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::Forged(_))
    }
}

/// Judges the bytes that a replica offered as the signed fsinfo of `hostid`, at `now` (seconds
/// since 1970).
///
/// The order is that of certainty: statements of the key about itself, signatures, what was seen,
/// time.
pub fn verify_fsinfo<'a>(
    hostid: &HostId,
    offered: &[u8],
    now: u64,
    seen: &Seen,
    statements: impl IntoIterator<Item = &'a KeyStatement>,
) -> Result<Verified, Refusal> {
    if let Some(statement) = effective_statement(hostid, statements) {
        return Err(match statement.verified() {
            Some(Body::Forwarding { to }) => Refusal::Moved(to.clone()),
            Some(Body::Revocation { reason }) => Refusal::Revoked { time: statement.time(), reason: reason.clone() },
            None => unreachable!("a statement in force has been verified"),
        });
    }
    let signed = SignedFsinfo::from_xdr(offered)?;
    let fsinfo = signed.open(hostid)?;
    let cert = signed.cert();
    let hash = *blake3::hash(offered).as_bytes();
    if cert.serial < seen.cert_serial {
        return Err(Refusal::Superseded { offered: cert.serial, seen: seen.cert_serial });
    }
    // Only the root key makes a higher serial, so under one nothing that was seen below it counts.
    if cert.serial == seen.cert_serial {
        if fsinfo.revision < seen.revision {
            return Err(Refusal::Rollback { offered: fsinfo.revision, seen: seen.revision });
        }
        if fsinfo.revision == seen.revision && hash != seen.fsinfo_hash {
            return Err(Refusal::Forked { revision: fsinfo.revision });
        }
    }
    if fsinfo.start < cert.not_before || fsinfo.start >= cert.not_after {
        let (not_before, not_after) = (cert.not_before, cert.not_after);
        return Err(Refusal::OutsideCertificate { start: fsinfo.start, not_before, not_after });
    }
    if fsinfo.start > now.saturating_add(CLOCK_SKEW_S_MAX) {
        return Err(Refusal::NotYetValid { start: fsinfo.start, now });
    }
    // A clock set back does not bring an expired fsinfo to life: time has been at least what was signed
    // and seen.
    let now = now.max(seen.start);
    let expires = fsinfo.end().min(cert.not_after);
    if now >= expires {
        return Err(Refusal::Expired { expires, now });
    }
    let next = Seen { revision: fsinfo.revision, fsinfo_hash: hash, cert_serial: cert.serial, start: fsinfo.start };
    Ok(Verified { expires, seen: seen.merge(next), fsinfo })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{SecretKey, SigningCert};
    use crate::{Blob, BlockHandle, Content, Counts, Inode, Iv, Timestamp};

    const NOW: u64 = 1_000_000;
    const DAY_S: u32 = 86_400;

    struct Publisher {
        root: SecretKey,
        signing: SecretKey,
        cert: SigningCert,
    }

    impl Publisher {
        fn new() -> Self {
            Self::with_serial(1, 2)
        }

        fn with_serial(serial: u64, seed: u8) -> Self {
            let (root, signing) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[seed; 32]));
            let cert = SigningCert::issue(&root, signing.public(), serial, NOW - 1000, NOW + 1_000_000);
            Self { root, signing, cert }
        }

        fn hostid(&self) -> HostId {
            self.root.public().hostid()
        }

        fn fsinfo(&self, revision: u64, start: u64) -> Fsinfo {
            let content = Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None };
            let mtime = Timestamp::default();
            let root = Inode { mode: 0o755, uid: 0, gid: 0, mtime, nlink: 2, link_group: 0, xattrs: Blob::empty(), content };
            let previous = (revision > 1).then(|| BlockHandle::from_bytes([8; 32]));
            Fsinfo {
                hostid: self.hostid(),
                revision,
                start,
                duration_s: DAY_S,
                iv: Iv::from_bytes([5; 32]),
                root,
                previous,
                counts: Counts::default(),
                tag: String::new(),
            }
        }

        fn offer(&self, revision: u64, start: u64) -> Vec<u8> {
            SignedFsinfo::sign(&self.fsinfo(revision, start), &self.signing, self.cert).to_xdr()
        }

        fn verify_fsinfo(&self, offered: &[u8], now: u64, seen: &Seen) -> Result<Verified, Refusal> {
            verify_fsinfo(&self.hostid(), offered, now, seen, [])
        }
    }

    #[test]
    fn a_fresh_fsinfo_is_believed_and_remembered() {
        let p = Publisher::new();
        let verified = p.verify_fsinfo(&p.offer(3, NOW), NOW + 5, &Seen::default()).unwrap();
        assert_eq!((verified.fsinfo.revision, verified.expires), (3, NOW + u64::from(DAY_S)));
        assert_eq!(verified.seen.revision, 3);
        assert_eq!(p.verify_fsinfo(&p.offer(3, NOW), NOW + 5, &verified.seen).unwrap(), verified, "the same again is fine");
    }

    #[test]
    fn an_older_revision_is_a_rollback_and_a_second_one_a_fork() {
        let p = Publisher::new();
        let seen = p.verify_fsinfo(&p.offer(3, NOW), NOW, &Seen::default()).unwrap().seen;
        assert_eq!(p.verify_fsinfo(&p.offer(2, NOW), NOW, &seen), Err(Refusal::Rollback { offered: 2, seen: 3 }));
        assert_eq!(p.verify_fsinfo(&p.offer(3, NOW + 1), NOW, &seen), Err(Refusal::Forked { revision: 3 }));
        assert!(p.verify_fsinfo(&p.offer(4, NOW), NOW, &seen).is_ok());
    }

    #[test]
    fn a_new_certificate_voids_the_old_one() {
        let (old, new) = (Publisher::new(), Publisher::with_serial(2, 9));
        let seen = new.verify_fsinfo(&new.offer(3, NOW), NOW, &Seen::default()).unwrap().seen;
        assert_eq!(old.verify_fsinfo(&old.offer(4, NOW), NOW, &seen), Err(Refusal::Superseded { offered: 1, seen: 2 }));
    }

    #[test]
    fn a_thief_of_a_signing_key_cannot_lock_out_the_next_one() {
        let (thief, new) = (Publisher::new(), Publisher::with_serial(2, 9));
        let seen = thief.verify_fsinfo(&thief.offer(u64::MAX, NOW), NOW, &Seen::default()).unwrap().seen;
        let seen = new.verify_fsinfo(&new.offer(4, NOW), NOW, &seen).unwrap().seen;
        assert_eq!((seen.cert_serial, seen.revision), (2, 4));
        assert!(matches!(thief.verify_fsinfo(&thief.offer(u64::MAX, NOW), NOW, &seen), Err(Refusal::Superseded { .. })));
        assert_eq!(new.verify_fsinfo(&new.offer(3, NOW), NOW, &seen), Err(Refusal::Rollback { offered: 3, seen: 4 }));
    }

    #[test]
    fn time_is_kept_on_both_sides() {
        let p = Publisher::new();
        let offer = p.offer(1, NOW);
        let end = NOW + u64::from(DAY_S);
        assert!(p.verify_fsinfo(&offer, end - 1, &Seen::default()).is_ok());
        assert_eq!(p.verify_fsinfo(&offer, end, &Seen::default()), Err(Refusal::Expired { expires: end, now: end }));
        assert!(p.verify_fsinfo(&offer, NOW - CLOCK_SKEW_S_MAX, &Seen::default()).is_ok());
        let early = NOW - CLOCK_SKEW_S_MAX - 1;
        assert_eq!(p.verify_fsinfo(&offer, early, &Seen::default()), Err(Refusal::NotYetValid { start: NOW, now: early }));
    }

    #[test]
    fn a_clock_set_back_revives_nothing() {
        let p = Publisher::new();
        let later = NOW + 2 * u64::from(DAY_S);
        let seen = Seen { start: later, ..Seen::default() };
        assert!(matches!(p.verify_fsinfo(&p.offer(1, NOW), NOW, &seen), Err(Refusal::Expired { .. })));
    }

    #[test]
    fn nothing_outlives_its_certificate() {
        let mut p = Publisher::new();
        p.cert = SigningCert::issue(&p.root, p.signing.public(), 1, NOW - 10, NOW + 10);
        assert_eq!(p.verify_fsinfo(&p.offer(1, NOW), NOW, &Seen::default()).unwrap().expires, NOW + 10);
        assert!(matches!(p.verify_fsinfo(&p.offer(1, NOW + 10), NOW + 10, &Seen::default()), Err(Refusal::OutsideCertificate { .. })));
        assert!(matches!(p.verify_fsinfo(&p.offer(1, NOW - 11), NOW, &Seen::default()), Err(Refusal::OutsideCertificate { .. })));
    }

    #[test]
    fn statements_of_the_key_come_before_all_else() {
        let p = Publisher::new();
        let revocation = KeyStatement::issue(&p.root, 7, Body::Revocation { reason: "lost laptop".into() });
        let refusal = verify_fsinfo(&p.hostid(), &p.offer(1, NOW), NOW, &Seen::default(), [&revocation]).unwrap_err();
        assert_eq!(refusal, Refusal::Revoked { time: 7, reason: "lost laptop".into() });
        let to = TreeName::new("new.example.org", HostId::from_bytes([1; 32])).unwrap();
        let forwarding = KeyStatement::issue(&p.root, 7, Body::Forwarding { to: to.clone() });
        assert_eq!(verify_fsinfo(&p.hostid(), &[], NOW, &Seen::default(), [&forwarding]), Err(Refusal::Moved(to)));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let p = Publisher::new();
        let offer = p.offer(1, NOW);
        for bit in 0..offer.len() * 8 {
            let mut bad = offer.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let refusal = p.verify_fsinfo(&bad, NOW, &Seen::default()).unwrap_err();
            assert!(refusal.is_forgery(), "bit {bit}: {refusal}");
        }
    }

    #[test]
    fn another_trees_fsinfo_is_refused_even_by_the_same_signing_key() {
        let p = Publisher::new();
        let other_root = SecretKey::from_seed(&[77; 32]);
        let cert = SigningCert::issue(&other_root, p.signing.public(), 1, NOW - 10, NOW + 10);
        let fsinfo = Fsinfo { hostid: other_root.public().hostid(), ..p.fsinfo(1, NOW) };
        let offer = SignedFsinfo::sign(&fsinfo, &p.signing, cert).to_xdr();
        assert_eq!(p.verify_fsinfo(&offer, NOW, &Seen::default()), Err(Refusal::Forged(SignatureError::Certificate)));
    }

    proptest::proptest! {
        #[test]
        fn seen_never_moves_backward(a: [u64; 3], b: [u64; 3]) {
            let seen = |[revision, cert_serial, start]: [u64; 3]| Seen { revision, fsinfo_hash: [revision as u8; 32], cert_serial, start };
            let (a, b) = (seen(a), seen(b));
            let m = a.merge(b);
            for s in [a, b] {
                proptest::prop_assert!(m.order() >= s.order() && m.start >= s.start);
            }
            proptest::prop_assert!(m.fsinfo_hash == a.fsinfo_hash || m.fsinfo_hash == b.fsinfo_hash);
        }
    }
}
