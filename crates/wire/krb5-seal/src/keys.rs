use crate::aes_key::AesKey;
use crate::derive::{Purpose, derive};
use crate::digest::HmacKey;
use crate::enctype::Enctype;
use crate::token::{CONFOUNDER_LEN, TOKEN_HEADER_LEN};
use crate::wipe::wipe_stack;

/// Each side uses other keys to send.
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

/// AES schedules and HMAC pads of both directions. About 7 KiB; share it in an `Arc`. Wiped when
/// dropped.
pub struct ContextKeys {
    enctype: Enctype,
    role: Role,
    acceptor_subkey: bool,
    // Boxed and written in place: a move would leave a copy.
    pub(crate) send: Box<Direction>,
    pub(crate) receive: Box<Direction>,
}

impl ContextKeys {
    /// Derives the keys of RFC 4121 §2, in about 20 µs. `key` is the acceptor's subkey if the
    /// acceptor asserted one (`acceptor_subkey`), else the initiator's, else the session key; the
    /// caller wipes it. Fails if its length does not match the enctype.
    pub fn new(
        enctype: Enctype,
        key: &[u8],
        role: Role,
        acceptor_subkey: bool,
    ) -> Result<ContextKeys, KeyLengthError> {
        if key.len() != enctype.key_len() {
            return Err(KeyLengthError { enctype, got: key.len() });
        }
        wipe_stack();
        let mut keys = ContextKeys::empty(enctype, role, acceptor_subkey);
        keys.derive(key);
        wipe_stack();
        Ok(keys)
    }

    /// A separate frame on a wiped stack: padding takes whatever lies there.
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
        // RFC 4121 §2: KG-USAGE-ACCEPTOR-SEAL 22, -SIGN 23, KG-USAGE-INITIATOR-SEAL 24, -SIGN 25.
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
