//! Round keys as instructions use them, and the plain cipher made from them.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::hazmat;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Without padding bytes: a move would fill them with stack data that nothing wipes.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
pub(crate) struct AesKey {
    /// The first ones are the key itself.
    pub(crate) encrypt: [[u8; 16]; 15],
    /// Equivalent inverse cipher (FIPS 197 §5.3.5), in order of use.
    pub(crate) decrypt: [[u8; 16]; 15],
    pub(crate) rounds: usize,
    rest: [u8; 32 - size_of::<usize>()],
}

/// For CPUs without known instructions. Built on the stack for each use; the caller wipes the
/// stack.
#[allow(clippy::large_enum_variant, reason = "it lives for a call, on the stack")]
pub(crate) enum PlainAes {
    Aes128(aes::Aes128),
    Aes256(aes::Aes256),
}

impl PlainAes {
    pub(crate) fn encrypt_block(&self, block: &mut [u8; 16]) {
        let block = block.into();
        match self {
            PlainAes::Aes128(cipher) => cipher.encrypt_block(block),
            PlainAes::Aes256(cipher) => cipher.encrypt_block(block),
        }
    }

    pub(crate) fn decrypt_blocks(&self, blocks: &mut [[u8; 16]]) {
        let blocks = aes::Block::cast_slice_from_core_mut(blocks);
        match self {
            PlainAes::Aes128(cipher) => cipher.decrypt_blocks(blocks),
            PlainAes::Aes256(cipher) => cipher.decrypt_blocks(blocks),
        }
    }
}

impl AesKey {
    pub(crate) fn empty() -> AesKey {
        AesKey { encrypt: [[0; 16]; 15], decrypt: [[0; 16]; 15], rounds: 0, rest: [0; _] }
    }

    #[cfg(test)]
    pub(crate) fn new(key: &[u8]) -> AesKey {
        let mut expanded = AesKey::empty();
        expanded.set(key);
        expanded
    }

    pub(crate) fn plain(&self) -> PlainAes {
        match self.rounds {
            10 => PlainAes::Aes128(aes::Aes128::new(&self.encrypt[0].into())),
            _ => PlainAes::Aes256(
                aes::Aes256::new_from_slice(self.encrypt[..2].as_flattened())
                    .expect("32 bytes make an AES-256 key"),
            ),
        }
    }

    /// FIPS 197 §5.2, for a key of 16 or 32 bytes.
    pub(crate) fn set(&mut self, key: &[u8]) {
        assert!(matches!(key.len(), 16 | 32), "derived keys have 16 or 32 bytes");
        let key_words = key.len() / 4;
        let rounds = key_words + 6;
        let mut words = [[0u8; 4]; 60];
        let mut constant = 1u8;
        for at in 0..4 * (rounds + 1) {
            words[at] = if at < key_words {
                [key[4 * at], key[4 * at + 1], key[4 * at + 2], key[4 * at + 3]]
            } else {
                let mut word = words[at - 1];
                if at % key_words == 0 {
                    word.rotate_left(1);
                    word = substitute(word);
                    word[0] ^= constant;
                    constant = (constant << 1) ^ if constant & 0x80 != 0 { 0x1b } else { 0 };
                } else if key_words > 6 && at % key_words == 4 {
                    word = substitute(word);
                }
                std::array::from_fn(|byte| word[byte] ^ words[at - key_words][byte])
            };
        }
        self.rounds = rounds;
        for (round, key) in self.encrypt.iter_mut().take(rounds + 1).enumerate() {
            key.copy_from_slice(words[4 * round..4 * round + 4].as_flattened());
        }
        for round in 0..=rounds {
            let mut block = aes::Block::from(self.encrypt[rounds - round]);
            if round != 0 && round != rounds {
                hazmat::inv_mix_columns(&mut block);
            }
            self.decrypt[round] = block.into();
            block.as_mut_slice().zeroize();
        }
        words.as_flattened_mut().zeroize();
    }
}

/// SubWord of FIPS 197 without a table.
fn substitute(word: [u8; 4]) -> [u8; 4] {
    let mut block = aes::Block::try_from([word; 4].as_flattened()).expect("four words are a block");
    hazmat::cipher_round(&mut block, &aes::Block::default());
    hazmat::inv_mix_columns(&mut block);
    let substituted = [block[0], block[1], block[2], block[3]];
    block.as_mut_slice().zeroize();
    substituted
}
