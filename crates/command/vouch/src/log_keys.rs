//! Key files of a tree's log: `log.key` has secret keys in the form of Go's `note`, `log.pub` the
//! keys for witnesses, `log.cert` the root key's certificate.

use std::path::Path;

use vouch_log::key::{Algorithm, Signer};
use vouch_log::revision::{
    CERT_POLICY_LEN_MAX, CertPolicy, LOG_CERT_LEN_MAX, LogCert, LogKeys, LogSigners,
};
use vouch_tree::HostId;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree_publish::LogPublisher;
use vouch_xdr::Xdr as _;
use zeroize::Zeroizing;

use crate::exit::{Failure, Outcome};
use crate::key_directory as keys;

pub(crate) const LOG_KEY: &str = "log.key";
pub(crate) const LOG_PUBLIC: &str = "log.pub";
pub(crate) const LOG_CERT: &str = "log.cert";

const CERT_HEADER: &str = "vouch log certificate v1";

/// The texts of both key files.
pub(crate) struct NewLogKeys {
    pub(crate) secret: Zeroizing<String>,
    pub(crate) public: String,
    pub(crate) keys: LogKeys,
}

/// Draws both keys of the log of a root key's tree.
pub(crate) fn generate(hostid: &HostId) -> Outcome<NewLogKeys> {
    let (ed25519, ml_dsa_44) = (keys::random()?, keys::random()?);
    let signers = LogSigners::from_seeds(hostid, &ed25519, Some(&*ml_dsa_44))
        .expect("an origin of ours is a name, and a random seed makes a key");
    let mut secret = Zeroizing::new(String::new());
    for signer in signers.all() {
        secret.push_str(&signer.to_text());
        secret.push('\n');
    }
    let keys = signers.keys();
    let public = keys.all().iter().map(|key| key.to_text() + "\n").collect();
    Ok(NewLogKeys { secret, public, keys })
}

/// The text of log.cert, and the signing key's certificate, which names it.
pub(crate) fn certify(
    root: &SecretKey,
    signing: SigningCert,
    log: LogKeys,
    policy: Option<CertPolicy>,
) -> (String, SigningCert) {
    let (cert, signing) = LogCert::issue(root, signing, root.public().hostid(), log, policy);
    let text = format!("{CERT_HEADER}\n{}\n", data_encoding::BASE64.encode(&cert.to_xdr()));
    (text, signing)
}

pub(crate) fn read_cert_policy(path: &Path) -> Outcome<CertPolicy> {
    let bytes = keys::read_limited(path, CERT_POLICY_LEN_MAX)?;
    CertPolicy::parse(&bytes).map_err(|error| Failure::input(path.display(), error))
}

pub(crate) fn read_cert(path: &Path) -> Outcome<LogCert> {
    let text = keys::read_limited(path, 2 * LOG_CERT_LEN_MAX)?;
    let parse = || {
        let body = std::str::from_utf8(&text).ok()?.strip_prefix(CERT_HEADER)?;
        let bytes = data_encoding::BASE64.decode(body.trim().as_bytes()).ok()?;
        LogCert::from_xdr(&bytes).ok()
    };
    parse().ok_or_else(|| {
        Failure::input(path.display(), "is no certificate of a log's key")
            .cure("make a new one with `vouch certify`")
    })
}

/// `None` if the directory has no key of a log: the tree goes on without one.
pub(crate) fn read(dir: &Path) -> Outcome<Option<LogPublisher>> {
    let (key_path, cert_path) = (dir.join(LOG_KEY), dir.join(LOG_CERT));
    if is_absent(&key_path) && is_absent(&cert_path) {
        return Ok(None);
    }
    let cert = read_cert(&cert_path)?;
    let signers = read_signers(&key_path, cert.log())?;
    if signers.keys() != *cert.keys() {
        return Err(Failure::input(
            key_path.display(),
            format_args!("is not the key of {}", cert_path.display()),
        )
        .cure("use files from one run of `vouch certify`"));
    }
    Ok(Some(LogPublisher { cert, signers, cosign: None }))
}

/// Units of systemd give files with the word "none" in place of missing ones.
fn is_absent(path: &Path) -> bool {
    !path.exists() || std::fs::read(path).is_ok_and(|bytes| bytes.trim_ascii() == b"none")
}

fn read_signers(path: &Path, log: &HostId) -> Outcome<LogSigners> {
    keys::refuse_exposed(path)?;
    let text = keys::read_small(path)?;
    let parse = || {
        let (mut ed25519, mut ml_dsa_44) = (None, None);
        for line in std::str::from_utf8(&text).ok()?.lines() {
            let signer = Signer::parse(line).ok()?;
            match signer.verifier().algorithm() {
                Algorithm::Ed25519 => ed25519 = Some(signer),
                Algorithm::CosignatureMlDsa44 => ml_dsa_44 = Some(signer),
                Algorithm::CosignatureEd25519 => return None,
            }
        }
        LogSigners::from_signers(log, ed25519?, ml_dsa_44)
    };
    parse().ok_or_else(|| {
        Failure::input(path.display(), "is no key of this tree's log")
            .cure("restore it, or make a new one with `vouch certify`")
    })
}
