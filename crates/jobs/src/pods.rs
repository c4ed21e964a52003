//! Pods of Kubernetes: a cluster signs a token for a pod's service account, which says who the pod is and
//! on which node it runs (RFC 7515, RFC 7519; bound service account tokens).

use std::fmt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

use crate::limits::POD_FILE_LEN_MAX;
use crate::names::{JobId, NodeName, UserName};

/// Jobs of pods begin with it. The uid of the pod follows, and then the volume after a dot.
pub const POD_PREFIX: &str = "pod-";

/// Whoever has it is the pod.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodToken(String);

impl PodToken {
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for PodToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PodToken(..)")
    }
}

impl Drop for PodToken {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A cluster whose pods get tickets.
#[derive(Clone, Debug)]
pub struct PodCluster {
    /// `iss` of its tokens.
    pub issuer: String,
    /// `aud` of its tokens: no other use of a service account makes them.
    pub audience: String,
    /// Its public keys, a JSON Web Key Set (RFC 7517): `kubectl get --raw /openid/v1/jwks`.
    pub keys: PathBuf,
    /// Lines `NAMESPACE/SERVICEACCOUNT USER`, or `NAMESPACE/* USER`.
    pub users: PathBuf,
}

/// Who a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodIdentity {
    pub(crate) user: UserName,
    /// `NAMESPACE/SERVICEACCOUNT`.
    pub(crate) account: String,
    pub(crate) expires_s: u64,
}

/// Why a token is not believed.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    #[error("the token is not signed by a key of {}", .0.display())]
    Signature(PathBuf),
    #[error("the token has ended, or begins later; are the clocks right?")]
    Time,
    #[error(
        "the token is valid for more than {} s, and cannot be taken back; let tokenRequests ask for less",
        LIFE_S_MAX
    )]
    Life,
    #[error("the token is of issuer {found:?}; the broker believes {expected:?} (--pod-issuer)")]
    Issuer { found: String, expected: String },
    #[error("the token is not for audience {0:?}; set tokenRequests of the CSIDriver object")]
    Audience(String),
    #[error("the token names no pod and node; Kubernetes 1.32 and newer write them")]
    Unbound,
    #[error(
        "the token's pod runs on node {found}, and {asked} asks; start its agent with --node {found}"
    )]
    OtherNode { found: String, asked: NodeName },
    #[error("the token is of pod {found}, and job {asked} is another's")]
    OtherPod { found: String, asked: JobId },
    #[error("{} has no line for {account}", path.display())]
    NoUser { account: String, path: PathBuf },
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: OneOrMany,
    exp: u64,
    iat: u64,
    #[serde(default)]
    nbf: u64,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Option<Bound>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Bound {
    namespace: String,
    serviceaccount: Named,
    pod: Option<Named>,
    node: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    uid: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Key>,
}

/// A public key (RFC 7518, section 6).
#[derive(Deserialize)]
struct Key {
    kty: String,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl PodCluster {
    /// The identity that a token proves for a job on a node. The files are read each time, because
    /// clusters change their keys.
    ///
    /// # Errors
    /// Why the token is not believed; [`PodError::File`] if that can't be told.
    pub(crate) fn identify(
        &self,
        token: &PodToken,
        (job, node): (&JobId, &NodeName),
        now_s: u64,
    ) -> Result<PodIdentity, PodError> {
        let claims = self.verified(&token.0)?;
        if claims.iss != self.issuer {
            return Err(PodError::Issuer {
                found: short(claims.iss),
                expected: self.issuer.clone(),
            });
        }
        let is_for_us = match &claims.aud {
            OneOrMany::One(audience) => *audience == self.audience,
            OneOrMany::Many(audiences) => audiences.contains(&self.audience),
        };
        if !is_for_us {
            return Err(PodError::Audience(self.audience.clone()));
        }
        if now_s >= claims.exp || now_s.saturating_add(CLOCK_SKEW_S) < claims.nbf {
            return Err(PodError::Time);
        }
        // The requester of a token chooses its end.
        if claims.exp.saturating_sub(claims.iat) > LIFE_S_MAX {
            return Err(PodError::Life);
        }
        let bound = claims.kubernetes.ok_or(PodError::Unbound)?;
        let (Some(pod), Some(place)) = (bound.pod, bound.node) else {
            return Err(PodError::Unbound);
        };
        if place.name != node.as_str() {
            return Err(PodError::OtherNode { found: short(place.name), asked: node.clone() });
        }
        let of_pod = job.as_str().strip_prefix(POD_PREFIX).and_then(|rest| rest.split('.').next());
        if pod.uid.is_empty() || of_pod != Some(&pod.uid) {
            return Err(PodError::OtherPod { found: short(pod.uid), asked: job.clone() });
        }
        let account = format!("{}/{}", bound.namespace, bound.serviceaccount.name);
        let user = self.user(&bound.namespace, &account)?;
        Ok(PodIdentity { user, account: short(account), expires_s: claims.exp })
    }

    /// # Errors
    /// If a file cannot be read or is none of its kind.
    pub fn check(&self) -> Result<(), PodError> {
        self.key_set()?;
        self.user("", "").map_or_else(
            |error| if matches!(error, PodError::NoUser { .. }) { Ok(()) } else { Err(error) },
            |_| Ok(()),
        )
    }

    /// The claims of a token that a key of the cluster has signed.
    fn verified(&self, token: &str) -> Result<Claims, PodError> {
        let parts: Vec<&str> = token.split('.').collect();
        let [header, _, signature] = parts[..] else {
            return Err(PodError::Malformed("it is no JSON Web Signature of three parts"));
        };
        let header: Header = json(header)?;
        let signature = base64(signature)?;
        let signed = &token.as_bytes()[..token.rfind('.').unwrap_or_default()];
        let keys = self.key_set()?.keys;
        let is_named = |key: &&Key| header.kid.is_none() || key.kid == header.kid;
        let verifies = |key: &Key| key.verifies(&header.alg, signed, &signature);
        match keys.iter().filter(is_named).any(verifies) {
            true => json(parts[1]),
            false => Err(PodError::Signature(self.keys.clone())),
        }
    }

    fn key_set(&self) -> Result<KeySet, PodError> {
        let text = read(&self.keys)?;
        serde_json::from_str(&text).map_err(|error| file(&self.keys)(error.to_string()))
    }

    fn user(&self, namespace: &str, account: &str) -> Result<UserName, PodError> {
        let text = read(&self.users)?;
        let whole = format!("{namespace}/*");
        let (mut exact, mut of_all) = (None, None);
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |why: &str| file(&self.users)(format!("line {}: {why}", number + 1));
            let words: Vec<&str> = line.split_whitespace().collect();
            let [who, user] = words[..] else {
                return Err(wrong("write NAMESPACE/SERVICEACCOUNT USER"));
            };
            if who.split('/').filter(|part| !part.is_empty()).count() != 2 {
                return Err(wrong("write NAMESPACE/SERVICEACCOUNT, or NAMESPACE/*"));
            }
            let user = UserName::parse(user).map_err(|error| wrong(&error.to_string()))?;
            let place = match who {
                _ if who == account => &mut exact,
                _ if who == whole => &mut of_all,
                _ => continue,
            };
            place.get_or_insert(user);
        }
        exact.or(of_all).ok_or_else(|| PodError::NoUser {
            account: short(account.to_owned()),
            path: self.users.clone(),
        })
    }
}

impl Key {
    /// The algorithm must be one of the key's type, so that no key serves as another kind.
    fn verifies(&self, algorithm: &str, signed: &[u8], signature: &[u8]) -> bool {
        let part = |text: &Option<String>| {
            text.as_deref().and_then(|text| base64(text).ok()).unwrap_or_default()
        };
        let on_curve = |algorithm: &'static dyn VerificationAlgorithm| {
            let point = [&[4], &*part(&self.x), &*part(&self.y)].concat();
            UnparsedPublicKey::new(algorithm, point).verify(signed, signature).is_ok()
        };
        match (algorithm, &*self.kty, self.crv.as_deref()) {
            ("RS256", "RSA", _) => {
                let key = RsaPublicKeyComponents { n: part(&self.n), e: part(&self.e) };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok()
            }
            ("ES256", "EC", Some("P-256")) => on_curve(&ECDSA_P256_SHA256_FIXED),
            ("ES384", "EC", Some("P-384")) => on_curve(&ECDSA_P384_SHA384_FIXED),
            _ => false,
        }
    }
}

fn base64(text: &str) -> Result<Vec<u8>, PodError> {
    BASE64URL_NOPAD
        .decode(text.as_bytes())
        .map_err(|_| PodError::Malformed("a part is no base64url without padding"))
}

fn json<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, PodError> {
    serde_json::from_slice(&base64(part)?)
        .map_err(|_| PodError::Malformed("a part has not the members of a token"))
}

fn read(path: &Path) -> Result<String, PodError> {
    use std::io::Read as _;
    let mut text = String::new();
    let opened = std::fs::File::open(path).map_err(|error| file(path)(error.to_string()))?;
    opened
        .take(POD_FILE_LEN_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| file(path)(error.to_string()))?;
    match text.len() as u64 > POD_FILE_LEN_MAX {
        true => Err(file(path)(format!("longer than {POD_FILE_LEN_MAX} bytes"))),
        false => Ok(text),
    }
}

fn file(path: &Path) -> impl Fn(String) -> PodError + '_ {
    |why| PodError::File { path: path.to_owned(), why }
}

/// For one line of a log.
fn short(text: String) -> String {
    text.chars().filter(|c| !c.is_control()).take(128).collect()
}

/// Twice what the driver asks for.
const LIFE_S_MAX: u64 = 7200;

/// Of the broker and the cluster.
const CLOCK_SKEW_S: u64 = 30;

#[cfg(test)]
pub(crate) mod tests;
