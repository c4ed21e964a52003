//! Decides whether enough witnesses have seen a revision.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use vouch_log::evidence::{LogEvidence, Witnessing};
use vouch_log::policy::{POLICY_LEN_MAX, Policy};
use vouch_tree::key::SigningCert;
use vouch_tree::{HostId, SignedFsinfo};
use vouch_xdr::{Error as XdrError, Xdr as _};

use super::seen_store::SeenRecord;
use crate::{Error, Result};

/// Holds for all trees that this machine reads.
const MACHINE_POLICY: &str = "/etc/vouch/policy";

/// Reads these policies, and /etc/vouch/policy if it exists.
pub fn read_policies(given: &[PathBuf]) -> Result<Vec<Policy>> {
    let machine = Path::new(MACHINE_POLICY);
    // One that is there and can't be read is an error.
    let is_absent = std::fs::symlink_metadata(machine)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    let machine = (!is_absent).then_some(machine);
    given.iter().map(PathBuf::as_path).chain(machine).map(read_policy).collect()
}

/// Reads one policy.
pub fn read_policy(path: &Path) -> Result<Policy> {
    let invalid = |what: String| Error::Policy { path: path.to_owned(), what };
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(POLICY_LEN_MAX as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| invalid(error.to_string()))?;
    Policy::parse(&bytes).map_err(|error| invalid(error.to_string()))
}

/// Evidence that a reader keeps with a revision.
#[derive(Debug)]
pub(crate) struct Believed {
    /// Of the log's certificate.
    pub(crate) log_serial: u64,
    /// XDR of a [`LogEvidence`].
    pub(crate) evidence: Vec<u8>,
    /// `None` if nothing is demanded, so that no cosignature was verified.
    pub(crate) witnessing: Option<Witnessing>,
}

/// A revision and the evidence beside it, which nobody has verified.
pub(crate) struct Offered<'a> {
    pub(crate) signed: &'a [u8],
    cert: Option<SigningCert>,
    pub(crate) evidence: Option<std::result::Result<LogEvidence, XdrError>>,
}

impl<'a> Offered<'a> {
    pub(crate) fn read(signed: &'a [u8], evidence: Option<&[u8]>) -> Self {
        let cert = SignedFsinfo::from_xdr(signed).ok().map(SignedFsinfo::into_cert);
        Self::with_cert(signed, cert, evidence)
    }

    /// `cert`: the signing key's certificate in `signed`.
    pub(crate) fn with_cert(
        signed: &'a [u8],
        cert: Option<SigningCert>,
        evidence: Option<&[u8]>,
    ) -> Self {
        let evidence = evidence
            .filter(|bytes| !bytes.is_empty())
            .map(|bytes| LogEvidence::from_statement_beside(bytes, cert.as_ref()));
        Self { signed, cert, evidence }
    }
}

/// Conditions beside those of [`vouch_tree::verify`].
pub(crate) struct BeliefRules {
    pub(crate) hostid: HostId,
    /// The reader's own.
    pub(crate) policies: Vec<Policy>,
}

impl BeliefRules {
    /// `Ok(None)` if nothing is demanded and nothing usable is offered. Costs no signature check if
    /// neither the tree nor the reader demands anything, except that of a certificate. `offered`: its
    /// revision has been verified. `demand`: the serial number of the revision's certificate, if that
    /// demands witnesses.
    pub(crate) fn judge(
        &self,
        record: &SeenRecord,
        offered: &Offered<'_>,
        demand: Option<u64>,
        now: u64,
    ) -> std::result::Result<Option<Believed>, String> {
        let known = offered.cert.as_ref();
        let problem = match &offered.evidence {
            None => "no proof comes with it that witnesses have seen it".to_owned(),
            Some(Err(error)) => format!("its proof cannot be read: {error}"),
            Some(Ok(evidence)) if !evidence.cert.is_certified(&self.hostid, known) => {
                "the root key of this tree has not certified the log of its proof".to_owned()
            }
            Some(Ok(evidence)) if evidence.cert.serial() < record.log_serial => format!(
                "certificate {} of the log's key has replaced certificate {} of its proof",
                record.log_serial,
                evidence.cert.serial()
            ),
            // Root keys certify both keys in one step: an earlier certificate has another demand.
            Some(Ok(evidence))
                if demand.is_some_and(|serial| {
                    evidence.cert.serial() < serial || evidence.cert.policy().is_none()
                }) =>
            {
                format!(
                    "the signing key's certificate demands witnesses, and certificate {} of the log's key in its proof names none or is older",
                    evidence.cert.serial()
                )
            }
            Some(Ok(evidence)) => {
                let is_demanded = evidence.cert.policy().is_some() || !self.policies.is_empty();
                let verify = || evidence.verify_certified(offered.signed, &self.policies, now);
                let witnessing = is_demanded.then(verify).transpose();
                return Ok(Some(Believed {
                    log_serial: evidence.cert.serial(),
                    evidence: evidence.to_xdr(),
                    witnessing: witnessing.map_err(|error| error.to_string())?,
                }));
            }
        };
        let is_demanded = demand.is_some() || !self.policies.is_empty() || tree_demands(record);
        if !is_demanded { Ok(None) } else { Err(problem) }
    }
}

/// The certificate has been verified when it was stored.
fn tree_demands(record: &SeenRecord) -> bool {
    // A record that cannot be read must not end the demand.
    record.log_serial > 0
        && LogEvidence::from_xdr(&record.evidence)
            .map_or(true, |evidence| evidence.cert.policy().is_some())
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod tests {
    use vouch_log::append::Appender;
    use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
    use vouch_log::key::{Algorithm, Signer};
    use vouch_log::proof::TlogProof;
    use vouch_log::revision::{CertPolicy, LogCert, LogSigners, origin, revision_entry};
    use vouch_tree::key::SecretKey;

    use super::*;

    pub(super) const NOW: u64 = 1_800_000_000;
    const SIGNED: &[u8] = b"a signed fsinfo";

    pub(super) fn witness(seed: u8) -> Signer {
        let name = format!("w{seed}.example");
        Signer::from_seed(&name, Algorithm::CosignatureEd25519, &[seed; 32]).unwrap()
    }

    /// Two of the witnesses 1, 2 and 3.
    pub(super) fn two_of_three() -> Vec<u8> {
        let key = |seed| format!("witness w{seed} {}\n", witness(seed).verifier().to_text());
        let witnesses: String = (1..=3).map(key).collect();
        format!("{witnesses}group g 2 w1 w2 w3\nquorum g\n").into_bytes()
    }

    fn hostid() -> HostId {
        SecretKey::from_seed(&[7; 32]).public().hostid()
    }

    fn evidence(serial: u64, demand: Option<&[u8]>, cosigned: &[(u8, u64)]) -> Vec<u8> {
        let (root, hostid) = (SecretKey::from_seed(&[7; 32]), hostid());
        let signers = LogSigners::from_seeds(&hostid, &[8; 32], None).unwrap();
        let demand = demand.map(|text| CertPolicy::parse(text).unwrap());
        let signing = SigningCert::issue(&root, root.public(), serial, 0, u64::MAX);
        let (cert, _) = LogCert::issue(&root, signing, hostid, signers.keys(), demand);
        let mut log = Appender::new();
        log.push(&revision_entry(SIGNED)).unwrap();
        let head = Checkpoint::new(&origin(&hostid), log.size(), log.root());
        let mut checkpoint = SignedCheckpoint::unsigned(&head).unwrap();
        signers.all().for_each(|signer| checkpoint.note_mut().sign(signer, NOW).unwrap());
        for (seed, time) in cosigned {
            checkpoint.note_mut().sign(&witness(*seed), *time).unwrap();
        }
        let proof = TlogProof { extra: None, index: 0, hashes: Vec::new(), checkpoint };
        LogEvidence { cert, proof }.to_xdr()
    }

    fn rules(policy: Option<&[u8]>) -> BeliefRules {
        let policies = policy.map(|text| Policy::parse(text).unwrap()).into_iter().collect();
        BeliefRules { hostid: hostid(), policies }
    }

    #[test]
    fn quorum_of_reader_is_demanded() {
        let (rules, none) = (rules(Some(&two_of_three())), SeenRecord::default());
        let judge =
            |offered: Option<&[u8]>| rules.judge(&none, &Offered::read(SIGNED, offered), None, NOW);
        assert!(judge(Some(&evidence(1, None, &[(1, NOW), (3, NOW)]))).is_ok());
        // None, too few, an unknown one, two times the same, a time in the future, no evidence.
        for cosigned in [
            &[][..],
            &[(1, NOW)],
            &[(1, NOW), (4, NOW)],
            &[(2, NOW), (2, NOW + 1)],
            &[(1, NOW), (2, NOW + 1000)],
        ] {
            judge(Some(&evidence(1, None, cosigned))).unwrap_err();
        }
        judge(None).unwrap_err();
        judge(Some(b"vouch log proof v2\n\0")).unwrap_err();
        // Evidence about another revision.
        let good = evidence(1, None, &[(1, NOW), (3, NOW)]);
        rules.judge(&none, &Offered::read(b"of a thief", Some(&good)), None, NOW).unwrap_err();
    }

    #[test]
    fn demand_of_tree_is_remembered_until_its_root_key_ends_it() {
        let (rules, demand) = (rules(None), two_of_three());
        let none = SeenRecord::default();
        let few = evidence(2, Some(&demand), &[(1, NOW)]);
        rules.judge(&none, &Offered::read(SIGNED, Some(&few)), None, NOW).unwrap_err();
        let good = evidence(2, Some(&demand), &[(1, NOW), (2, NOW)]);
        let found =
            rules.judge(&none, &Offered::read(SIGNED, Some(&good)), None, NOW).unwrap().unwrap();
        let Believed { log_serial, evidence: kept, .. } = found;
        let seen = SeenRecord { log_serial, evidence: kept, ..SeenRecord::default() };
        // A thief leaves the evidence out, or brings an earlier certificate.
        rules.judge(&seen, &Offered::read(b"of a thief", None), None, NOW).unwrap_err();
        let earlier = evidence(1, None, &[]);
        rules.judge(&seen, &Offered::read(SIGNED, Some(&earlier)), None, NOW).unwrap_err();
        let ended = evidence(3, None, &[]);
        assert!(rules.judge(&seen, &Offered::read(SIGNED, Some(&ended)), None, NOW).is_ok());
        assert!(
            rules
                .judge(&none, &Offered::read(b"of a tree without a log", None), None, NOW)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn reader_can_demand_more_and_not_less() {
        let strict = two_of_three();
        let lax = rules(Some(b"quorum none\n"));
        let few = evidence(1, Some(&strict), &[(1, NOW)]);
        lax.judge(&SeenRecord::default(), &Offered::read(SIGNED, Some(&few)), None, NOW)
            .unwrap_err();
    }

    #[test]
    fn times_of_all_counted_cosignatures_are_told() {
        // The reader wants the witness 4 beside those of the tree.
        let own = format!("witness w {}\nquorum w\n", witness(4).verifier().to_text());
        let (rules, tree) = (rules(Some(own.as_bytes())), two_of_three());
        let cosigned = [(1, NOW - 9), (3, NOW - 5), (4, NOW - 20), (5, NOW - 99)];
        let offered = evidence(1, Some(&tree), &cosigned);
        let found =
            rules.judge(&SeenRecord::default(), &Offered::read(SIGNED, Some(&offered)), None, NOW);
        assert_eq!(
            found.unwrap().unwrap().witnessing,
            Some(Witnessing {
                witnesses: 4,
                cosigned: 3,
                oldest: Some(NOW - 20),
                newest: Some(NOW - 5),
                quorum_time: Some(NOW - 20),
            })
        );
    }

    #[test]
    fn signing_certificate_demands_witnesses_of_readers_that_come_first() {
        let (rules, none, demand) = (rules(None), SeenRecord::default(), two_of_three());
        let judge = |offered: Option<&[u8]>| {
            rules.judge(&none, &Offered::read(SIGNED, offered), Some(5), NOW)
        };
        let cosigned = [(1, NOW), (2, NOW)];
        assert!(judge(Some(&evidence(5, Some(&demand), &cosigned))).is_ok());
        // A mirror drops the evidence, or a thief brings another certificate of the root key.
        for offered in [
            None,
            Some(evidence(5, Some(&demand), &[(1, NOW)])),
            Some(evidence(5, None, &cosigned)),
            Some(evidence(4, Some(b"quorum none\n"), &cosigned)),
        ] {
            judge(offered.as_deref()).unwrap_err();
        }
    }
}
