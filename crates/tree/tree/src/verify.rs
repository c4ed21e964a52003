//! Verifies a signed fsinfo: signatures, revocation, rollback and expiry. The time, the newest
//! revision seen and the statements are parameters. Callers keep [`NewestSeen`] outside every cache.

use std::path::PathBuf;

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::fsinfo::{CertCache, SignatureError};
use crate::key::SigningCert;
use crate::statement::{Body, KeyStatement, effective_statement};
use crate::time_text::{RelativeTime, Utc};
use crate::{Fsinfo, HostId, SignedFsinfo, TreeName};

/// Tolerated lead of a publisher's clock.
pub const CLOCK_SKEW_S_MAX: u64 = 300;

/// The newest revision seen of one tree. Never moves backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewestSeen {
    /// Highest under the highest certificate; 0 before the first.
    pub revision: u64,
    /// BLAKE3 of that signed fsinfo.
    pub fsinfo_hash: [u8; 32],
    /// Serial number of the highest certificate.
    pub cert_serial: u64,
    /// Latest start of an fsinfo: a lower bound of the time.
    pub start: u64,
}

impl NewestSeen {
    /// The newer of both records, with the later start.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let newer = if other.order() > self.order() { other } else { self };
        Self { start: self.start.max(other.start), ..newer }
    }

    /// Certificate serial, then revision: the next certificate overrides any number that a thief
    /// signed.
    pub const fn order(&self) -> (u64, u64) {
        (self.cert_serial, self.revision)
    }
}

impl Xdr for NewestSeen {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.revision);
        w.opaque_fixed(&self.fsinfo_hash);
        w.u64(self.cert_serial);
        w.u64(self.start);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            revision: r.u64()?,
            fsinfo_hash: r.opaque_fixed()?,
            cert_serial: r.u64()?,
            start: r.u64()?,
        })
    }
}

/// A revision that may be used until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Its root.
    pub fsinfo: Fsinfo,
    /// First end of the fsinfo or its certificate, seconds since 1970.
    pub expires: u64,
    /// The record to store from now on.
    pub seen: NewestSeen,
    /// Of the signing key.
    pub cert: SigningCert,
}

/// Why a revision must not be used. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Refusal {
    #[error("the key of this tree was revoked on {}{}{reason}; ask its publisher for the new name", Utc(*time), if reason.is_empty() { ", without a reason" } else { ": " })]
    Revoked { time: u64, reason: String },
    #[error("this tree has moved to {0}")]
    Moved(TreeName),
    #[error("the fsinfo is malformed: {0}")]
    Malformed(#[from] XdrError),
    /// The signatures do not belong to this name.
    #[error(transparent)]
    Forged(#[from] SignatureError),
    #[error("revision {offered} is older than revision {seen}, which was seen before")]
    Rollback { offered: u64, seen: u64 },
    #[error("signed under certificate {offered}, but certificate {seen} has replaced it")]
    Superseded { offered: u64, seen: u64 },
    #[error(
        "another revision {revision} was seen before, also signed by the publisher; ask the publisher which one is right{}",
        evidence_in(.kept)
    )]
    Forked { revision: u64, kept: Option<PathBuf> },
    #[error(
        "the log's keys have signed another head of {size} entries, which was seen before: they are stolen, or the publisher has lost its database; ask the publisher{}",
        evidence_in(.kept)
    )]
    ForkedLog { size: u64, kept: Option<PathBuf> },
    /// Signed by the publisher, and not seen by the witnesses that a policy demands.
    #[error("revision {revision} is not believed: {why}")]
    Unwitnessed { revision: u64, why: String },
    #[error("valid until {}, {}; the publisher must publish again, or this machine's clock ({}) is wrong", Utc(*expires), RelativeTime { at: *expires, now: *now }, Utc(*now))]
    Expired { expires: u64, now: u64 },
    #[error("valid from {}, {}; is this machine's clock ({}) right?", Utc(*start), RelativeTime { at: *start, now: *now }, Utc(*now))]
    NotYetValid { start: u64, now: u64 },
    #[error("signed on {}, outside the validity of its certificate ({} to {})", Utc(*start), Utc(*not_before), Utc(*not_after))]
    OutsideCertificate { start: u64, not_before: u64, not_after: u64 },
}

fn evidence_in(dir: &Option<PathBuf>) -> String {
    let text = |dir: &PathBuf| format!(", and show the evidence in {}", dir.display());
    dir.as_ref().map(text).unwrap_or_default()
}

impl Refusal {
    /// Provably forged or altered, which no honest replica offers.
    pub const fn is_forgery(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::Forged(_))
    }
}

/// `now`: seconds since 1970.
pub fn verify_fsinfo<'a>(
    hostid: &HostId,
    offered: &[u8],
    now: u64,
    seen: &NewestSeen,
    statements: impl IntoIterator<Item = &'a KeyStatement>,
) -> Result<Verified, Refusal> {
    verify_fsinfo_with(hostid, offered, now, seen, statements, &mut CertCache::default())
}

/// [`verify_fsinfo`] for revisions that follow each other: a certificate that `cache` knows is not
/// verified again.
pub fn verify_fsinfo_with<'a>(
    hostid: &HostId,
    offered: &[u8],
    now: u64,
    seen: &NewestSeen,
    statements: impl IntoIterator<Item = &'a KeyStatement>,
    cache: &mut CertCache,
) -> Result<Verified, Refusal> {
    if let Some(statement) = effective_statement(hostid, statements) {
        return Err(match statement.verified() {
            Some(Body::Forwarding { to }) => Refusal::Moved(to.clone()),
            Some(Body::Revocation { reason }) => {
                Refusal::Revoked { time: statement.time(), reason: reason.clone() }
            }
            None => unreachable!("a statement in force has been verified"),
        });
    }
    let signed = SignedFsinfo::from_xdr(offered)?;
    let fsinfo = signed.open_with(hostid, cache)?;
    let cert = signed.cert();
    let hash = *blake3::hash(offered).as_bytes();
    if cert.serial < seen.cert_serial {
        return Err(Refusal::Superseded { offered: cert.serial, seen: seen.cert_serial });
    }
    // Only the root key raises the serial: a higher one resets the revision check.
    if cert.serial == seen.cert_serial {
        if fsinfo.revision < seen.revision {
            return Err(Refusal::Rollback { offered: fsinfo.revision, seen: seen.revision });
        }
        if fsinfo.revision == seen.revision && hash != seen.fsinfo_hash {
            return Err(Refusal::Forked { revision: fsinfo.revision, kept: None });
        }
    }
    if fsinfo.start < cert.not_before || fsinfo.start >= cert.not_after {
        let (not_before, not_after) = (cert.not_before, cert.not_after);
        return Err(Refusal::OutsideCertificate { start: fsinfo.start, not_before, not_after });
    }
    if fsinfo.start > now.saturating_add(CLOCK_SKEW_S_MAX) {
        return Err(Refusal::NotYetValid { start: fsinfo.start, now });
    }
    // A clock set back does not revive an expired fsinfo.
    let now = now.max(seen.start);
    let expires = fsinfo.end().min(cert.not_after);
    if now >= expires {
        return Err(Refusal::Expired { expires, now });
    }
    let next = NewestSeen {
        revision: fsinfo.revision,
        fsinfo_hash: hash,
        cert_serial: cert.serial,
        start: fsinfo.start,
    };
    Ok(Verified { expires, seen: seen.merge(next), fsinfo, cert: signed.into_cert() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{SecretKey, SigningCert};
    use crate::{BlockHandle, Content, Counts, Inode, Iv};

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
            let (root, signing) =
                (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[seed; 32]));
            let cert =
                SigningCert::issue(&root, signing.public(), serial, NOW - 1000, NOW + 1_000_000);
            Self { root, signing, cert }
        }

        fn hostid(&self) -> HostId {
            self.root.public().hostid()
        }

        fn fsinfo(&self, revision: u64, start: u64) -> Fsinfo {
            let content = Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None };
            let root = Inode::new(0o755, content);
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
            SignedFsinfo::sign(&self.fsinfo(revision, start), &self.signing, self.cert.clone())
                .to_xdr()
        }

        fn verify_fsinfo(
            &self,
            offered: &[u8],
            now: u64,
            seen: &NewestSeen,
        ) -> Result<Verified, Refusal> {
            verify_fsinfo(&self.hostid(), offered, now, seen, [])
        }
    }

    #[test]
    fn accepts_fresh_fsinfo_and_refuses_rollback_and_fork() {
        let p = Publisher::new();
        let verified = p.verify_fsinfo(&p.offer(3, NOW), NOW + 5, &NewestSeen::default()).unwrap();
        assert_eq!((verified.fsinfo.revision, verified.expires), (3, NOW + u64::from(DAY_S)));
        let seen = verified.seen;
        assert_eq!(seen.revision, 3);
        assert_eq!(
            p.verify_fsinfo(&p.offer(3, NOW), NOW + 5, &seen).unwrap(),
            verified,
            "a repeated call succeeds"
        );
        assert_eq!(
            p.verify_fsinfo(&p.offer(2, NOW), NOW, &seen),
            Err(Refusal::Rollback { offered: 2, seen: 3 })
        );
        assert_eq!(
            p.verify_fsinfo(&p.offer(3, NOW + 1), NOW, &seen),
            Err(Refusal::Forked { revision: 3, kept: None })
        );
        assert!(p.verify_fsinfo(&p.offer(4, NOW), NOW, &seen).is_ok());
    }

    #[test]
    fn new_certificate_overrides_stolen_key() {
        let (thief, new) = (Publisher::new(), Publisher::with_serial(2, 9));
        let seen = thief
            .verify_fsinfo(&thief.offer(u64::MAX, NOW), NOW, &NewestSeen::default())
            .unwrap()
            .seen;
        let seen = new.verify_fsinfo(&new.offer(4, NOW), NOW, &seen).unwrap().seen;
        assert_eq!((seen.cert_serial, seen.revision), (2, 4));
        for revision in [5, u64::MAX] {
            assert_eq!(
                thief.verify_fsinfo(&thief.offer(revision, NOW), NOW, &seen),
                Err(Refusal::Superseded { offered: 1, seen: 2 })
            );
        }
        assert_eq!(
            new.verify_fsinfo(&new.offer(3, NOW), NOW, &seen),
            Err(Refusal::Rollback { offered: 3, seen: 4 })
        );
    }

    #[test]
    fn refuses_fsinfo_outside_its_validity() {
        let mut p = Publisher::new();
        let offer = p.offer(1, NOW);
        let end = NOW + u64::from(DAY_S);
        assert!(p.verify_fsinfo(&offer, end - 1, &NewestSeen::default()).is_ok());
        assert_eq!(
            p.verify_fsinfo(&offer, end, &NewestSeen::default()),
            Err(Refusal::Expired { expires: end, now: end })
        );
        assert!(p.verify_fsinfo(&offer, NOW - CLOCK_SKEW_S_MAX, &NewestSeen::default()).is_ok());
        let early = NOW - CLOCK_SKEW_S_MAX - 1;
        assert_eq!(
            p.verify_fsinfo(&offer, early, &NewestSeen::default()),
            Err(Refusal::NotYetValid { start: NOW, now: early })
        );
        let seen = NewestSeen { start: end + 1, ..NewestSeen::default() };
        assert!(
            matches!(p.verify_fsinfo(&offer, NOW, &seen), Err(Refusal::Expired { .. })),
            "the clock was set back"
        );
        p.cert = SigningCert::issue(&p.root, p.signing.public(), 1, NOW - 10, NOW + 10);
        assert_eq!(
            p.verify_fsinfo(&p.offer(1, NOW), NOW, &NewestSeen::default()).unwrap().expires,
            NOW + 10
        );
        for (start, now) in [(NOW + 10, NOW + 10), (NOW - 11, NOW)] {
            assert!(matches!(
                p.verify_fsinfo(&p.offer(1, start), now, &NewestSeen::default()),
                Err(Refusal::OutsideCertificate { .. })
            ));
        }
    }

    #[test]
    fn pair_refuses_flipped_bits_in_each_part() {
        let mut p = Publisher::new();
        p.root = SecretKey::from_seeds(&[1; 32], &[3; 32]);
        p.signing = SecretKey::from_seeds(&[2; 32], &[4; 32]);
        p.cert = SigningCert::issue(&p.root, p.signing.public(), 1, NOW - 1000, NOW + 1_000_000);
        let offer = p.offer(1, NOW);
        assert!(offer.len() <= crate::fsinfo::SIGNED_LEN_MAX - 7800);
        p.verify_fsinfo(&offer, NOW, &NewestSeen::default()).unwrap();
        for bit in (0..offer.len() * 8).step_by(61) {
            let mut bad = offer.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let refusal = p.verify_fsinfo(&bad, NOW, &NewestSeen::default()).unwrap_err();
            assert!(refusal.is_forgery(), "bit {bit}: {refusal}");
        }
    }

    #[test]
    fn known_certificate_opens_no_other_tree_and_no_forgery() {
        let p = Publisher::new();
        let mut cache = CertCache::default();
        let mut verify = |hostid: &HostId, offer: &[u8]| {
            verify_fsinfo_with(hostid, offer, NOW, &NewestSeen::default(), [], &mut cache)
        };
        verify(&p.hostid(), &p.offer(1, NOW)).unwrap();
        verify(&p.hostid(), &p.offer(2, NOW)).unwrap();
        let forged = SigningCert { serial: 9, ..p.cert.clone() };
        let forged = SignedFsinfo::sign(&p.fsinfo(3, NOW), &p.signing, forged).to_xdr();
        let other = HostId::from_bytes([1; 32]);
        for (hostid, offer) in [(p.hostid(), forged), (other, p.offer(3, NOW))] {
            assert_eq!(verify(&hostid, &offer), Err(Refusal::Forged(SignatureError::Certificate)));
        }
    }

    #[test]
    fn statements_override_valid_fsinfo() {
        let p = Publisher::new();
        let revocation =
            KeyStatement::issue(&p.root, 7, Body::Revocation { reason: "lost laptop".into() });
        let refusal = verify_fsinfo(
            &p.hostid(),
            &p.offer(1, NOW),
            NOW,
            &NewestSeen::default(),
            [&revocation],
        )
        .unwrap_err();
        assert_eq!(refusal, Refusal::Revoked { time: 7, reason: "lost laptop".into() });
        let to = TreeName::new("new.example.org", HostId::from_bytes([1; 32])).unwrap();
        let forwarding = KeyStatement::issue(&p.root, 7, Body::Forwarding { to: to.clone() });
        assert_eq!(
            verify_fsinfo(&p.hostid(), &[], NOW, &NewestSeen::default(), [&forwarding]),
            Err(Refusal::Moved(to))
        );
    }

    #[test]
    fn refuses_every_flipped_bit() {
        let p = Publisher::new();
        let offer = p.offer(1, NOW);
        for bit in 0..offer.len() * 8 {
            let mut bad = offer.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let refusal = p.verify_fsinfo(&bad, NOW, &NewestSeen::default()).unwrap_err();
            assert!(refusal.is_forgery(), "bit {bit}: {refusal}");
        }
    }

    #[test]
    fn refuses_fsinfo_of_another_tree() {
        let p = Publisher::new();
        let other_root = SecretKey::from_seed(&[77; 32]);
        let cert = SigningCert::issue(&other_root, p.signing.public(), 1, NOW - 10, NOW + 10);
        let fsinfo = Fsinfo { hostid: other_root.public().hostid(), ..p.fsinfo(1, NOW) };
        let offer = SignedFsinfo::sign(&fsinfo, &p.signing, cert).to_xdr();
        assert_eq!(
            p.verify_fsinfo(&offer, NOW, &NewestSeen::default()),
            Err(Refusal::Forged(SignatureError::Certificate))
        );
    }

    proptest::proptest! {
        #[test]
        fn seen_never_moves_backward(a: [u64; 3], b: [u64; 3]) {
            let seen = |[revision, cert_serial, start]: [u64; 3]| NewestSeen { revision, fsinfo_hash: [revision as u8; 32], cert_serial, start };
            let (a, b) = (seen(a), seen(b));
            let m = a.merge(b);
            for s in [a, b] {
                proptest::prop_assert!(m.order() >= s.order() && m.start >= s.start);
            }
            proptest::prop_assert!(m.fsinfo_hash == a.fsinfo_hash || m.fsinfo_hash == b.fsinfo_hash);
        }
    }
}
