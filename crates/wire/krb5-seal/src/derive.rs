//! RFC 3961 §5.1 (n-fold and DK) for the enctypes of RFC 3962, RFC 8009 §3 (KDF-HMAC-SHA2) for the
//! others.

use zeroize::{Zeroize, Zeroizing};

use crate::aes_key::AesKey;
use crate::digest::{Digest, HmacPads, Sha256, Sha384};
use crate::enctype::Enctype;

/// Last byte of the constant (RFC 3961 §5.3, RFC 8009 §5).
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Checksum = 0x99,
    Encryption = 0xaa,
    Integrity = 0x55,
}

pub(crate) fn derive(
    enctype: Enctype,
    key: &[u8],
    usage: u32,
    purpose: Purpose,
) -> Zeroizing<Vec<u8>> {
    let mut constant = [0; 5];
    constant[..4].copy_from_slice(&usage.to_be_bytes());
    constant[4] = purpose as u8;
    let len = match purpose {
        Purpose::Encryption => enctype.key_len(),
        Purpose::Checksum | Purpose::Integrity => enctype.mac_key_len(),
    };
    match enctype {
        Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha1_96 => dk(key, &constant, len),
        Enctype::Aes128CtsHmacSha256_128 => kdf_hmac_sha2::<Sha256>(key, &constant, len),
        Enctype::Aes256CtsHmacSha384_192 => kdf_hmac_sha2::<Sha384>(key, &constant, len),
    }
}

/// RFC 3961 §5.1: K1 = E(Key, n-fold(Constant)), K2 = E(Key, K1), and so on, cut to `len`.
fn dk(key: &[u8], constant: &[u8], len: usize) -> Zeroizing<Vec<u8>> {
    let mut cipher = Box::new(AesKey::empty());
    cipher.set(key);
    let plain = cipher.plain();
    let mut block = [0; 16];
    n_fold(constant, &mut block);
    let mut derived = Zeroizing::new(Vec::with_capacity(len.next_multiple_of(16)));
    while derived.len() < len {
        plain.encrypt_block(&mut block);
        derived.extend_from_slice(&block);
    }
    block.zeroize();
    derived.truncate(len);
    derived
}

/// RFC 8009 §3: HMAC(key, 0x00000001 | label | 0x00 | k), cut to k bits.
fn kdf_hmac_sha2<D: Digest>(key: &[u8], label: &[u8], len: usize) -> Zeroizing<Vec<u8>> {
    let mut message = vec![0, 0, 0, 1];
    message.extend_from_slice(label);
    message.push(0);
    message.extend_from_slice(&(8 * len as u32).to_be_bytes());
    let mut pads = HmacPads::<D>::empty();
    pads.set(key);
    let mut mac = pads.mac(&message);
    let derived = Zeroizing::new(mac[..len].to_vec());
    mac.zeroize();
    derived
}

/// RFC 3961 §5.1: copies of the input, each rotated 13 further bits to the right, added as
/// ones'-complement numbers.
pub(crate) fn n_fold(input: &[u8], output: &mut [u8]) {
    let (input_len, output_len) = (input.len(), output.len());
    let total_len = input_len * output_len / gcd(input_len, output_len);
    let mut sums = vec![0u32; output_len];
    for position in 0..total_len {
        // Bit 0 of this byte is bit `start` of its copy before rotation.
        let (copy, byte) = (position / input_len, position % input_len);
        let bits = 8 * input_len;
        let start = (8 * byte + bits - (13 * copy) % bits) % bits;
        let (at, shift) = (start / 8, start % 8);
        let pair = u16::from_be_bytes([input[at], input[(at + 1) % input_len]]);
        sums[position % output_len] += u32::from((pair >> (8 - shift)) as u8);
    }
    // Carries run from the last byte to the first and wrap around.
    let mut carry = 0;
    loop {
        for sum in sums.iter_mut().rev() {
            *sum += carry;
            carry = *sum >> 8;
            *sum &= 0xff;
        }
        if carry == 0 {
            break;
        }
    }
    for (byte, sum) in output.iter_mut().zip(&sums) {
        *byte = *sum as u8;
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
