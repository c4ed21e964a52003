//! Signatures of ML-DSA (FIPS 204) in certificates (RFC 9881) and handshakes.

use std::fmt;
use std::marker::PhantomData;

use ml_dsa::VerifyingKey;
use ml_dsa::{EncodedVerifyingKey, MlDsa44, MlDsa65, MlDsa87, MlDsaParams, Signature};
use rustls::SignatureScheme;
use rustls::pki_types::{
    AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id,
};

type Algorithms = &'static [&'static dyn SignatureVerificationAlgorithm];

pub(crate) static ALGORITHMS: [(SignatureScheme, Algorithms); 3] = [
    (SignatureScheme::ML_DSA_44, &[&MlDsaVerifier::<MlDsa44>(alg_id::ML_DSA_44, PhantomData)]),
    (SignatureScheme::ML_DSA_65, &[&MlDsaVerifier::<MlDsa65>(alg_id::ML_DSA_65, PhantomData)]),
    (SignatureScheme::ML_DSA_87, &[&MlDsaVerifier::<MlDsa87>(alg_id::ML_DSA_87, PhantomData)]),
];

struct MlDsaVerifier<P>(AlgorithmIdentifier, PhantomData<fn() -> P>);

impl<P> fmt::Debug for MlDsaVerifier<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MlDsaVerifier").field(&self.0).finish()
    }
}

impl<P: MlDsaParams> SignatureVerificationAlgorithm for MlDsaVerifier<P> {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let key = EncodedVerifyingKey::<P>::try_from(public_key).map_err(|_| InvalidSignature)?;
        let signature = Signature::<P>::try_from(signature).map_err(|_| InvalidSignature)?;
        let is_valid =
            VerifyingKey::<P>::decode(&key).verify_with_context(message, &[], &signature);
        is_valid.then_some(()).ok_or(InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.0
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0
    }
}
