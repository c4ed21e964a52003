//! Private keys of ML-DSA in PKCS#8, in the three forms of RFC 9881 §6: the seed, the expanded key,
//! and both.

use std::fmt;
use std::sync::Arc;

use ml_dsa::{
    B32, ExpandedSigningKey, ExpandedSigningKeyBytes, MlDsa44, MlDsa65, MlDsa87, MlDsaParams,
    Signature,
};
use pkcs8::der::asn1::OctetStringRef;
use pkcs8::der::{AnyRef, Decode as _, Tag, TagNumber, Tagged as _};
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use rustls::crypto::GetRandomFailed;
use rustls::pki_types::{AlgorithmIdentifier, SubjectPublicKeyInfoDer, alg_id};
use rustls::sign::{Signer, SigningKey, public_key_to_spki};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use zeroize::{Zeroize as _, Zeroizing};

/// `None`: the key is of another algorithm.
pub(crate) fn load(pkcs8: &[u8]) -> Option<Result<Arc<dyn SigningKey>, Error>> {
    let info = PrivateKeyInfoRef::from_der(pkcs8).ok()?;
    let private_key = info.private_key.as_bytes();
    Some(match info.algorithm.oid {
        ID_ML_DSA_44 => read::<MlDsa44>(private_key, ML_DSA_44),
        ID_ML_DSA_65 => read::<MlDsa65>(private_key, ML_DSA_65),
        ID_ML_DSA_87 => read::<MlDsa87>(private_key, ML_DSA_87),
        _ => return None,
    })
}

/// RFC 9881 §2.
const ID_ML_DSA_44: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.3.17");
const ID_ML_DSA_65: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.3.18");
const ID_ML_DSA_87: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.3.19");

#[derive(Clone, Copy)]
struct Algorithm {
    scheme: SignatureScheme,
    id: AlgorithmIdentifier,
    /// Bits and largest value of a packed coefficient of s1 and s2, and their number of bytes
    /// (FIPS 204, table 1 and algorithm 24).
    small: (u32, u32, usize),
}

const ML_DSA_44: Algorithm = Algorithm {
    scheme: SignatureScheme::ML_DSA_44,
    id: alg_id::ML_DSA_44,
    small: (3, 4, (4 + 4) * 96),
};
const ML_DSA_65: Algorithm = Algorithm {
    scheme: SignatureScheme::ML_DSA_65,
    id: alg_id::ML_DSA_65,
    small: (4, 8, (5 + 6) * 128),
};
const ML_DSA_87: Algorithm = Algorithm {
    scheme: SignatureScheme::ML_DSA_87,
    id: alg_id::ML_DSA_87,
    small: (3, 4, (7 + 8) * 96),
};

fn read<P: MlDsaParams + 'static>(
    private_key: &[u8],
    algorithm: Algorithm,
) -> Result<Arc<dyn SigningKey>, Error> {
    let (seed, expanded) =
        forms(private_key).ok_or_else(|| invalid("it has none of the three forms of RFC 9881"))?;
    let key = match seed {
        Some(seed) => {
            let mut seed: B32 =
                seed.try_into().map_err(|_| invalid("its seed has not 32 bytes"))?;
            let key = ExpandedSigningKey::<P>::from_seed(&seed);
            seed.zeroize();
            if expanded.is_some_and(|expanded| encoded(&key)[..] != *expanded) {
                return Err(invalid("its seed and its expanded key differ"));
            }
            key
        }
        None => from_expanded(expanded.unwrap_or_default(), algorithm)?,
    };
    let public = key.verifying_key().encode().to_vec();
    Ok(Arc::new(MlDsaKey { key: Arc::new(key), public, algorithm }))
}

type Forms<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// RFC 9881 §6: `CHOICE { seed [0] OCTET STRING, expandedKey OCTET STRING, both SEQUENCE }`.
fn forms(private_key: &[u8]) -> Option<Forms<'_>> {
    let any = AnyRef::from_der(private_key).ok()?;
    match any.tag() {
        Tag::ContextSpecific { constructed: false, number: TagNumber(0) } => {
            Some((Some(any.value()), None))
        }
        Tag::OctetString => Some((None, Some(any.value()))),
        Tag::Sequence => {
            let (seed, rest) = <&OctetStringRef>::from_der_partial(any.value()).ok()?;
            let expanded = <&OctetStringRef>::from_der(rest).ok()?;
            Some((Some(seed.as_bytes()), Some(expanded.as_bytes())))
        }
        _ => None,
    }
}

/// The seed form needs none of these checks.
fn from_expanded<P: MlDsaParams>(
    bytes: &[u8],
    algorithm: Algorithm,
) -> Result<ExpandedSigningKey<P>, Error> {
    let bytes = ExpandedSigningKeyBytes::<P>::try_from(bytes)
        .map(Zeroizing::new)
        .map_err(|_| invalid("its expanded key has a wrong length"))?;
    // rho, K and tr come first.
    let (bits, max, len) = algorithm.small;
    if !are_small(&bytes[128..128 + len], bits, max) {
        return Err(invalid("its expanded key is damaged"));
    }
    #[allow(deprecated, reason = "the form is rare, not wrong")]
    let key = ExpandedSigningKey::<P>::from_expanded(&bytes);
    // A damaged key makes invalid signatures.
    let probe = key.sign_internal(&[b"\0\0probe"], &B32::default());
    if !key.verifying_key().verify_with_context(b"probe", &[], &probe) {
        return Err(invalid("its expanded key is damaged"));
    }
    Ok(key)
}

fn are_small(bytes: &[u8], bits: u32, max: u32) -> bool {
    // Eight coefficients fill `bits` bytes.
    bytes.chunks_exact(bits as usize).all(|chunk| {
        let packed = chunk.iter().rev().fold(0_u32, |packed, &byte| packed << 8 | u32::from(byte));
        (0..8).all(|at| packed >> (at * bits) & ((1 << bits) - 1) <= max)
    })
}

fn encoded<P: MlDsaParams>(key: &ExpandedSigningKey<P>) -> Zeroizing<ExpandedSigningKeyBytes<P>> {
    #[allow(deprecated, reason = "the form is rare, not wrong")]
    Zeroizing::new(key.to_expanded())
}

fn invalid(what: &str) -> Error {
    Error::General(format!("the ML-DSA private key cannot be used: {what}"))
}

struct MlDsaKey<P: MlDsaParams> {
    key: Arc<ExpandedSigningKey<P>>,
    public: Vec<u8>,
    algorithm: Algorithm,
}

impl<P: MlDsaParams> fmt::Debug for MlDsaKey<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MlDsaKey").field(&self.algorithm.scheme).finish()
    }
}

impl<P: MlDsaParams + 'static> SigningKey for MlDsaKey<P> {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = self.algorithm.scheme;
        offered
            .contains(&scheme)
            .then(|| Box::new(MlDsaSigner { key: self.key.clone(), scheme }) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(public_key_to_spki(&self.algorithm.id, &self.public))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        // rustls has no name for it, and asks only under TLS 1.2.
        SignatureAlgorithm::Unknown(self.algorithm.scheme.to_array()[1])
    }
}

struct MlDsaSigner<P: MlDsaParams> {
    key: Arc<ExpandedSigningKey<P>>,
    scheme: SignatureScheme,
}

impl<P: MlDsaParams> fmt::Debug for MlDsaSigner<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MlDsaSigner").field(&self.scheme).finish()
    }
}

impl<P: MlDsaParams> Signer for MlDsaSigner<P> {
    /// Hedged (FIPS 204 §3.4), with an empty context (draft-ietf-tls-mldsa).
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let mut random = B32::default();
        getrandom::fill(&mut random).map_err(|_| Error::from(GetRandomFailed))?;
        let signature: Signature<P> = self.key.sign_internal(&[&[0, 0], message], &random);
        Ok(signature.encode().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}
