//! Decides whether enough witnesses have seen a revision.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use vouch_log::evidence::LogEvidence;
use vouch_log::policy::{POLICY_LEN_MAX, Policy};
use vouch_tree::HostId;
use vouch_xdr::Xdr as _;

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

fn read_policy(path: &Path) -> Result<Policy> {
    let invalid = |what: String| Error::Policy { path: path.to_owned(), what };
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(POLICY_LEN_MAX as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| invalid(error.to_string()))?;
    Policy::parse(&bytes).map_err(|error| invalid(error.to_string()))
}

/// Conditions beside those of [`vouch_tree::verify`].
pub(crate) struct BeliefRules {
    pub(crate) hostid: HostId,
    /// The reader's own.
    pub(crate) policies: Vec<Policy>,
}

impl BeliefRules {
    /// `Ok`: the evidence to keep with the revision, and the serial number of its certificate.
    /// `None` if nothing is demanded and nothing usable is offered. Costs no signature check if
    /// neither the tree nor the reader demands anything, except that of a certificate.
    pub(crate) fn judge(
        &self,
        record: &SeenRecord,
        signed: &[u8],
        offered: Option<&[u8]>,
        now: u64,
    ) -> std::result::Result<Option<(u64, Vec<u8>)>, String> {
        let offered = offered.filter(|bytes| !bytes.is_empty());
        let problem = match offered.map(|bytes| (bytes, LogEvidence::from_xdr(bytes))) {
            None => "no proof comes with it that witnesses have seen it".to_owned(),
            Some((_, Err(error))) => format!("its proof cannot be read: {error}"),
            Some((_, Ok(evidence))) if !evidence.cert.is_signed_by(&self.hostid) => {
                "the root key of this tree has not certified the log of its proof".to_owned()
            }
            Some((_, Ok(evidence))) if evidence.cert.serial() < record.log_serial => format!(
                "certificate {} of the log's key has replaced certificate {} of its proof",
                record.log_serial,
                evidence.cert.serial()
            ),
            Some((bytes, Ok(evidence))) => {
                if evidence.cert.policy().is_some() || !self.policies.is_empty() {
                    evidence
                        .verify(&self.hostid, signed, &self.policies, now)
                        .map_err(|error| error.to_string())?;
                }
                return Ok(Some((evidence.cert.serial(), bytes.to_vec())));
            }
        };
        if self.policies.is_empty() && !tree_demands(record) { Ok(None) } else { Err(problem) }
    }
}

/// The certificate has been verified when it was stored.
fn tree_demands(record: &SeenRecord) -> bool {
    // A record that cannot be read must not end the demand.
    record.log_serial > 0
        && LogEvidence::from_xdr(&record.evidence)
            .map_or(true, |evidence| evidence.cert.policy().is_some())
}
