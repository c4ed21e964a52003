use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::hazmat;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::derive::{Purpose, derive};
use crate::digest::HmacKey;
use crate::enctype::Enctype;
use crate::token::{CONFOUNDER_LEN, TOKEN_HEADER_LEN};
use crate::wipe::wipe_stack;

/// The two sides of a context. Each uses other keys to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client.
    Initiator,
    /// The server.
    Acceptor,
}

impl Role {
    pub(crate) fn peer(self) -> Role {
        match self {
            Role::Initiator => Role::Acceptor,
            Role::Acceptor => Role::Initiator,
        }
    }
}

/// The protocol key has the wrong length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key of {got} bytes for {enctype}, which takes {}", enctype.key_len())]
pub struct KeyLengthError {
    /// The type that the key should fit.
    pub enctype: Enctype,
    /// Bytes of the key.
    pub got: usize,
}

/// AES schedules and HMAC pads of both directions of an established context. About 7 KiB; share it
/// in an `Arc`. Wiped when dropped.
pub struct ContextKeys {
    enctype: Enctype,
    role: Role,
    acceptor_subkey: bool,
    // Boxed and written in place: a move would leave a copy.
    pub(crate) send: Box<Direction>,
    pub(crate) receive: Box<Direction>,
}

impl ContextKeys {
    /// Derives the keys of RFC 4121 section 2. `key` is the acceptor's subkey if the acceptor
    /// asserted one (`acceptor_subkey`), else the initiator's, else the session key. Takes about 20
    /// µs and wipes the stack; the caller wipes `key`.
    ///
    /// # Errors
    /// The key's length does not match its enctype.
    pub fn new(enctype: Enctype, key: &[u8], role: Role, acceptor_subkey: bool) -> Result<ContextKeys, KeyLengthError> {
        if key.len() != enctype.key_len() {
            return Err(KeyLengthError { enctype, got: key.len() });
        }
        wipe_stack();
        let mut keys = ContextKeys::empty(enctype, role, acceptor_subkey);
        keys.derive(key);
        wipe_stack();
        Ok(keys)
    }

    /// A separate frame on a wiped stack: unused room in keys takes whatever lies there.
    #[inline(never)]
    fn empty(enctype: Enctype, role: Role, acceptor_subkey: bool) -> ContextKeys {
        let direction = || Box::new(Direction::empty(enctype));
        ContextKeys { enctype, role, acceptor_subkey, send: direction(), receive: direction() }
    }

    #[inline(never)]
    fn derive(&mut self, key: &[u8]) {
        self.send.derive(self.enctype, key, self.role);
        self.receive.derive(self.enctype, key, self.role.peer());
    }

    /// The type that all messages of the context use.
    pub fn enctype(&self) -> Enctype {
        self.enctype
    }

    /// Our side of the context.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Bytes before the body of a sealed message: token header and confounder, 32.
    pub fn header_len(&self) -> usize {
        TOKEN_HEADER_LEN + CONFOUNDER_LEN
    }

    /// Bytes after the body of a sealed message: header copy and checksum, 28, 32 or 40.
    pub fn trailer_len(&self) -> usize {
        TOKEN_HEADER_LEN + self.enctype.checksum_len()
    }

    /// Bytes of a MIC token: 28, 32 or 40.
    pub fn mic_len(&self) -> usize {
        TOKEN_HEADER_LEN + self.enctype.checksum_len()
    }

    pub(crate) fn flags_of(&self, sender: Role) -> u8 {
        let acceptor = if sender == Role::Acceptor { crate::token::SENT_BY_ACCEPTOR } else { 0 };
        acceptor | if self.acceptor_subkey { crate::token::ACCEPTOR_SUBKEY } else { 0 }
    }
}

pub(crate) struct Direction {
    pub(crate) cipher: AesKey,
    pub(crate) seal: HmacKey,
    /// Kc of the sealing usage: wrap tokens without confidentiality.
    pub(crate) wrap: HmacKey,
    pub(crate) mic: HmacKey,
}

impl Direction {
    fn empty(enctype: Enctype) -> Direction {
        let hmac = || HmacKey::empty(enctype);
        Direction { cipher: AesKey::empty(), seal: hmac(), wrap: hmac(), mic: hmac() }
    }

    fn derive(&mut self, enctype: Enctype, key: &[u8], sender: Role) {
        // RFC 4121 section 2: KG-USAGE-ACCEPTOR-SEAL 22, -SIGN 23, KG-USAGE-INITIATOR-SEAL 24,
        // -SIGN 25.
        let (seal, sign) = match sender {
            Role::Acceptor => (22, 23),
            Role::Initiator => (24, 25),
        };
        self.cipher.set(&derive(enctype, key, seal, Purpose::Encryption));
        self.seal.set(&derive(enctype, key, seal, Purpose::Integrity));
        self.wrap.set(&derive(enctype, key, seal, Purpose::Checksum));
        self.mic.set(&derive(enctype, key, sign, Purpose::Checksum));
    }
}

/// Round keys for both directions, as AES instructions use them. Without padding bytes: a move
/// would fill them with stack data that nothing wipes.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
pub(crate) struct AesKey {
    /// The first ones are the key itself.
    pub(crate) encrypt: [[u8; 16]; 15],
    /// Equivalent inverse cipher (FIPS 197 section 5.3.5), in order of use.
    pub(crate) decrypt: [[u8; 16]; 15],
    pub(crate) rounds: usize,
    rest: [u8; 32 - size_of::<usize>()],
}

/// RustCrypto's cipher, for CPUs without known instructions. Built on the stack for each use; the
/// caller wipes the stack.
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
            _ => PlainAes::Aes256(aes::Aes256::new_from_slice(self.encrypt[..2].as_flattened()).expect("32 bytes make an AES-256 key")),
        }
    }

    /// Expands a key of 16 or 32 bytes (FIPS 197 section 5.2); other lengths are a bug of this
    /// crate.
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

/// SubWord of FIPS 197 without a table: a cipher round on four equal columns, with its mixing
/// inverted.
fn substitute(word: [u8; 4]) -> [u8; 4] {
    let mut block = aes::Block::try_from([word; 4].as_flattened()).expect("four words are a block");
    hazmat::cipher_round(&mut block, &aes::Block::default());
    hazmat::inv_mix_columns(&mut block);
    let substituted = [block[0], block[1], block[2], block[3]];
    block.as_mut_slice().zeroize();
    substituted
}
