//! The tokens of a Kubernetes cluster, which has a key and no servers.

use std::path::PathBuf;

use data_encoding::BASE64URL_NOPAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

pub struct Cluster {
    key: EcdsaKeyPair,
    files: tempfile::TempDir,
}

impl Cluster {
    pub const ISSUER: &str = "https://cluster.example";

    /// With the users of its service accounts, as the broker reads them.
    pub fn new(users: &str) -> Self {
        let (files, random) = (tempfile::tempdir().expect("a directory"), SystemRandom::new());
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).expect("a key");
        let (x, y) = key.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (BASE64URL_NOPAD.encode(x), BASE64URL_NOPAD.encode(y));
        let keys = json!({"keys": [
            {"kty": "EC", "crv": "P-256", "kid": "other", "x": y, "y": x},
            {"kty": "EC", "crv": "P-256", "kid": "k1", "x": x, "y": y, "use": "sig", "alg": "ES256"},
        ]});
        let cluster = Self { key, files };
        std::fs::write(cluster.keys(), keys.to_string()).expect("a file");
        std::fs::write(cluster.users(), users).expect("a file");
        cluster
    }

    /// Its JSON Web Key Set.
    pub fn keys(&self) -> PathBuf {
        self.files.path().join("keys")
    }

    pub fn users(&self) -> PathBuf {
        self.files.path().join("users")
    }

    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature =
            self.key.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
    }

    pub fn header() -> Value {
        json!({"alg": "ES256", "kid": "k1"})
    }

    /// As kube-apiserver 1.32 writes them, for the pod `u1` on node `n1`.
    pub fn claims(expires_s: u64) -> Value {
        json!({
            "aud": ["vouch-jobs"],
            "exp": expires_s,
            "iat": expires_s - 3600,
            "iss": Self::ISSUER,
            "jti": "ea28ed49-2e11-4280-9ec5-bc3d1d84661a",
            "kubernetes.io": {
                "namespace": "physics",
                "node": {"name": "n1", "uid": "57bcae73"},
                "pod": {"name": "reader", "uid": "u1"},
                "serviceaccount": {"name": "simulation", "uid": "14ee3fa4"},
            },
            "nbf": expires_s - 3600,
            "sub": "system:serviceaccount:physics:simulation",
        })
    }

    pub fn token(&self, expires_s: u64) -> String {
        self.sign(&Self::header(), &Self::claims(expires_s))
    }
}
