//! ML-KEM-768 (FIPS 203): graviola's vector code where the CPU has it, else RustCrypto's.

use rustls::crypto::GetRandomFailed;
use rustls::{Error, PeerMisbehaved};
use zeroize::Zeroizing;

/// Encapsulation key, which a client sends.
pub(crate) const KEY_LEN: usize = 1184;
/// Ciphertext, which a server sends.
pub(crate) const CIPHERTEXT_LEN: usize = 1088;

type Key = [u8; KEY_LEN];
type Ciphertext = [u8; CIPHERTEXT_LEN];
type Generated = (Decapsulate, Key);
type Encapsulated = (Secret, Ciphertext);

pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// The client's secret keys, until the server's ciphertext arrives.
pub(crate) type Decapsulate = Box<dyn FnOnce(&Ciphertext) -> Secret + Send + Sync>;

pub(crate) struct MlKem768 {
    pub(crate) generate: fn() -> Result<Generated, Error>,
    /// Refuses a key that fails the modulus check (FIPS 203 §7.2).
    pub(crate) encapsulate: fn(&Key) -> Result<Encapsulated, Error>,
}

fn invalid_key<E>(_: E) -> Error {
    PeerMisbehaved::InvalidKeyShare.into()
}

fn no_randomness<E>(_: E) -> Error {
    GetRandomFailed.into()
}

/// For all CPUs. It takes three times as long as graviola's.
pub(crate) static PORTABLE: MlKem768 = MlKem768 {
    generate: || {
        use ml_kem::kem::{Decapsulate as _, KeyExport as _};
        let mut seed = Zeroizing::new([0; 64]);
        getrandom::fill(&mut *seed).map_err(no_randomness)?;
        let key = ml_kem::DecapsulationKey768::from_seed((*seed).into());
        let public = key.encapsulation_key().to_bytes().into();
        let decapsulate = move |ciphertext: &Ciphertext| {
            Zeroizing::new(key.decapsulate(ciphertext.into()).into())
        };
        Ok((Box::new(decapsulate), public))
    },
    encapsulate: |key| {
        let key = ml_kem::EncapsulationKey768::new(key.into()).map_err(invalid_key)?;
        let mut message = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *message).map_err(no_randomness)?;
        let (ciphertext, secret) = key.encapsulate_deterministic(&(*message).into());
        Ok((Zeroizing::new(secret.into()), ciphertext.into()))
    },
};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static VECTORS: MlKem768 = MlKem768 {
    generate: || {
        let key = graviola::key_agreement::mlkem768::DecapKey::generate().map_err(no_randomness)?;
        let public = key.encapsulation_key().as_bytes();
        let key = Box::new(key);
        let decapsulate = move |ciphertext: &Ciphertext| {
            Zeroizing::new(*key.decaps(&(*ciphertext).into()).as_ref())
        };
        Ok((Box::new(decapsulate), public))
    },
    encapsulate: |key| {
        let key = graviola::key_agreement::mlkem768::EncapKey::from_bytes(key);
        let (secret, ciphertext) = key.map_err(invalid_key)?.encaps().map_err(no_randomness)?;
        Ok((Zeroizing::new(*secret.as_ref()), *ciphertext.as_ref()))
    },
};
