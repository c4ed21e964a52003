//! Ciphers of records: ring, and graviola for long AES-GCM records on CPUs with AVX-512.

use ring::aead::{Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::{HEADER_LEN, TlsError};

/// One traffic key. Its owner uses each nonce once.
pub(crate) struct RecordCipher {
    algorithm: &'static Algorithm,
    short: LessSafeKey,
    long: LongRecords,
}

/// Shorter records are faster by ring.
const LONG_LEN_MIN: usize = 2048;

const TAG_LEN: usize = 16;

impl RecordCipher {
    pub(crate) fn new(algorithm: &'static Algorithm, key: &[u8]) -> Result<Self, TlsError> {
        let key = UnboundKey::new(algorithm, key)
            .map_err(|_| TlsError::Ours("a traffic key has a wrong length"))?;
        Ok(Self { algorithm, short: LessSafeKey::new(key), long: LongRecords::default() })
    }

    /// `key` as in [`RecordCipher::new`]: it is stored once.
    pub(crate) fn seal(
        &mut self,
        key: &[u8],
        nonce: [u8; 12],
        header: [u8; HEADER_LEN],
        inner: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), TlsError> {
        if let Some(cipher) = self.long_cipher(key, inner.len()) {
            cipher.encrypt(&nonce, &header, inner, tag);
            return Ok(());
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let made = self.short.seal_in_place_separate_tag(nonce, Aad::from(header), inner);
        tag.copy_from_slice(made.map_err(|_| TlsError::Ours("sealing failed"))?.as_ref());
        Ok(())
    }

    pub(crate) fn open(
        &mut self,
        key: &[u8],
        nonce: [u8; 12],
        header: [u8; HEADER_LEN],
        space: &mut [u8],
        cipher_at: usize,
    ) -> Result<usize, TlsError> {
        let len = (space.len() - cipher_at).checked_sub(TAG_LEN).ok_or(TlsError::Forged)?;
        if let Some(cipher) = self.long_cipher(key, len) {
            let (inner, tag) = space[cipher_at..].split_at_mut(len);
            cipher.decrypt(&nonce, &header, inner, tag).map_err(|_| TlsError::Forged)?;
            space.copy_within(cipher_at..cipher_at + len, 0);
            return Ok(len);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.short
            .open_within(nonce, Aad::from(header), space, cipher_at..)
            .map(|inner| inner.len())
            .map_err(|_| TlsError::Forged)
    }

    fn long_cipher(&mut self, key: &[u8], len: usize) -> Option<&LongCipher> {
        let may_be_long = len >= LONG_LEN_MIN && *self.algorithm != CHACHA20_POLY1305;
        may_be_long.then(|| self.long.cipher(key)).flatten()
    }
}

#[cfg(target_arch = "x86_64")]
use by_avx_512::{LongCipher, LongRecords};
#[cfg(not(target_arch = "x86_64"))]
use elsewhere::{LongCipher, LongRecords};

#[cfg(target_arch = "x86_64")]
mod by_avx_512 {
    pub(super) use graviola::aead::AesGcm as LongCipher;

    /// The cipher is made for the first long record: many connections never have one.
    #[derive(Default)]
    pub(super) struct LongRecords(Option<Box<LongCipher>>);

    impl LongRecords {
        pub(super) fn cipher(&mut self, key: &[u8]) -> Option<&LongCipher> {
            if self.0.is_none() && is_faster() {
                self.0 = Some(Box::new(LongCipher::new(key)));
            }
            self.0.as_deref()
        }
    }

    /// Without these, graviola has no AVX-512 code for AES-GCM.
    fn is_faster() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("vpclmulqdq")
            && graviola::util::is_cpu_supported()
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    #[derive(Default)]
    pub(super) struct LongRecords;

    /// Never made.
    pub(super) enum LongCipher {}

    impl LongRecords {
        pub(super) fn cipher(&mut self, _: &[u8]) -> Option<&LongCipher> {
            None
        }
    }

    impl LongCipher {
        pub(super) fn encrypt(&self, _: &[u8; 12], _: &[u8], _: &mut [u8], _: &mut [u8; 16]) {
            match *self {}
        }

        pub(super) fn decrypt(
            &self,
            _: &[u8; 12],
            _: &[u8],
            _: &mut [u8],
            _: &[u8],
        ) -> Result<(), ()> {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use ring::aead::{AES_128_GCM, AES_256_GCM};

    use super::*;

    /// Fails if the two libraries differ at the limit, in either direction.
    #[test]
    fn long_records_are_those_of_ring() {
        for algorithm in [&AES_128_GCM, &AES_256_GCM, &CHACHA20_POLY1305] {
            let key = &[7; 32][..algorithm.key_len()];
            for len in [0, 1, 15, 16, 255, LONG_LEN_MIN - 1, LONG_LEN_MIN, 5000, 16_385] {
                let (nonce, header) = ([len as u8; 12], [23, 3, 3, 1, 2]);
                let plain: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
                let mut cipher = RecordCipher::new(algorithm, key).unwrap();
                let (mut ours, mut tag) = (plain.clone(), [0; TAG_LEN]);
                cipher.seal(key, nonce, header, &mut ours, &mut tag).unwrap();
                let mut rings = plain.clone();
                let nonce_of_ring = Nonce::assume_unique_for_key(nonce);
                cipher
                    .short
                    .seal_in_place_append_tag(nonce_of_ring, Aad::from(header), &mut rings)
                    .unwrap();
                assert_eq!([&ours[..], &tag].concat(), rings, "{len}");
                let mut space = [&[9; 11][..], &rings].concat();
                assert_eq!(cipher.open(key, nonce, header, &mut space, 11).unwrap(), len);
                assert_eq!(space[..len], plain, "{len}");
                for at in [0, rings.len() / 2, rings.len() - 1] {
                    let mut space = [&[9; 11][..], &rings].concat();
                    space[11 + at] ^= 1;
                    assert!(cipher.open(key, nonce, header, &mut space, 11).is_err());
                }
            }
            let mut cipher = RecordCipher::new(algorithm, key).unwrap();
            assert!(cipher.open(key, [0; 12], [0; 5], &mut [0; 20], 5).is_err());
        }
    }
}
