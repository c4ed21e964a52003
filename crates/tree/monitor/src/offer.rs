//! The newest state of one replica, verified as far as one replica alone allows.

use std::time::Duration;

use vouch_log::evidence::{LogEvidence, is_evidence};
use vouch_log::merkle::{Hash, verify_inclusion};
use vouch_log::revision::revision_entry;
use vouch_tree::{Fsinfo, HostId, SignedFsinfo};
use vouch_tree_client::{DatabaseFiles, check_log_head};
use vouch_xdr::Xdr as _;

pub(crate) struct Offer {
    /// Without a password.
    pub(crate) url: String,
    pub(crate) files: DatabaseFiles,
    /// XDR of the signed fsinfo.
    pub(crate) signed: Vec<u8>,
    pub(crate) parsed: SignedFsinfo,
    pub(crate) fsinfo: Fsinfo,
    /// Its head is signed by the log's keys, which the root key has certified.
    pub(crate) evidence: Option<LogEvidence>,
}

impl Offer {
    pub(crate) async fn ask(
        files: DatabaseFiles,
        hostid: HostId,
        time_max: Duration,
    ) -> Result<Self, String> {
        let asked = tokio::time::timeout(time_max, files.manifest()).await;
        let (_, view) = asked
            .map_err(|_| "no answer in time".to_owned())?
            .map_err(|error| error.to_string())?;
        let signed = view.head().ok_or("the replica has no revision")?.to_vec();
        let parsed = SignedFsinfo::from_xdr(&signed).map_err(|error| error.to_string())?;
        let fsinfo = parsed.open(&hostid).map_err(|error| error.to_string())?;
        let found = view.statements().iter().find(|found| is_evidence(found));
        let evidence = found.map(|bytes| {
            let evidence =
                LogEvidence::from_statement(bytes, &signed).map_err(|error| error.to_string())?;
            check_log_head(&evidence, &hostid).map_err(str::to_owned)?;
            Ok::<_, String>(evidence)
        });
        Ok(Self {
            url: files.url(),
            files,
            signed,
            parsed,
            fsinfo,
            evidence: evidence.transpose()?,
        })
    }

    pub(crate) fn leaf(&self) -> Hash {
        Hash::leaf(&revision_entry(&self.signed))
    }

    /// The evidence, if it proves that the log has the newest revision.
    pub(crate) fn proof(&self) -> Option<&LogEvidence> {
        self.evidence.as_ref().filter(|evidence| {
            let (proof, head) = (&evidence.proof, evidence.proof.checkpoint.checkpoint());
            verify_inclusion(self.leaf(), proof.index, head.size, &proof.hashes, head.root).is_ok()
        })
    }
}
