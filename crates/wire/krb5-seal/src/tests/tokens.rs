//! Every flag, rotation and filler, against a literal reading of RFC 4121.

use super::{bytes, hex};
use crate::digest::{HmacPads, Sha1, Sha256, Sha384};
use crate::*;

const BODY_LENS: [usize; 24] = [
    0, 1, 5, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 128, 1000, 4096, 4097,
    8193, 65_537,
];

fn context(enctype: Enctype, acceptor_subkey: bool) -> (ContextKeys, ContextKeys) {
    let key = bytes(enctype as u64, enctype.key_len());
    let side = |role| {
        ContextKeys::new(enctype, &key, role, acceptor_subkey).expect("the enctype's length")
    };
    (side(Role::Initiator), side(Role::Acceptor))
}

fn seal(keys: &ContextKeys, seq: u64, body: &[u8]) -> Vec<u8> {
    let mut token = vec![0xee; keys.header_len()];
    token.extend_from_slice(body);
    token.resize(token.len() + keys.trailer_len(), 0xdd);
    keys.seal(seq, bytes(seq, 16).try_into().expect("16"), &mut token).expect("room");
    token
}

/// RFC 4121 §4.2.4.
fn make_wrap(
    keys: &ContextKeys,
    flags: u8,
    seq: u64,
    body: &[u8],
    filler_len: u16,
    rotation: u16,
) -> Vec<u8> {
    use crate::derive::{Purpose, derive};
    let enctype = keys.enctype();
    let key = bytes(enctype as u64, enctype.key_len());
    let usage = if flags & 1 != 0 { 22 } else { 24 };
    let sealed = flags & 2 != 0;
    let mac = |purpose, data: &[u8]| {
        let key = derive(enctype, &key, usage, purpose);
        let mac = match enctype {
            Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha1_96 => {
                HmacPads::<Sha1>::new(&key).mac(data)
            }
            Enctype::Aes128CtsHmacSha256_128 => HmacPads::<Sha256>::new(&key).mac(data),
            Enctype::Aes256CtsHmacSha384_192 => HmacPads::<Sha384>::new(&key).mac(data),
        };
        mac[..enctype.checksum_len()].to_vec()
    };
    let mut header = vec![5, 4, flags, 0xff];
    header.extend_from_slice(&filler_len.to_be_bytes());
    header.extend_from_slice(&[0, 0]);
    header.extend_from_slice(&seq.to_be_bytes());
    let mut data;
    if sealed {
        let plaintext =
            [&bytes(seq ^ 77, 16), body, &bytes(1, usize::from(filler_len)), &header].concat();
        data = encrypt(&derive(enctype, &key, usage, Purpose::Encryption), &plaintext);
        data.extend(match enctype {
            Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha1_96 => {
                mac(Purpose::Integrity, &plaintext)
            }
            _ => mac(Purpose::Integrity, &[&[0; 16], data.as_slice()].concat()),
        });
    } else {
        header[4..6].fill(0);
        data = body.to_vec();
        data.extend(mac(Purpose::Checksum, &[body, &header].concat()));
        header[4..6].copy_from_slice(&filler_len.to_be_bytes());
    }
    let by = usize::from(rotation) % data.len();
    data.rotate_right(by);
    header[6..8].copy_from_slice(&rotation.to_be_bytes());
    header.extend(data);
    header
}

fn encrypt(key: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let key = crate::aes_key::AesKey::new(key).plain();
    let mut padded = plaintext.to_vec();
    padded.resize(plaintext.len().next_multiple_of(16), 0);
    let mut chain = [0; 16];
    for block in padded.as_chunks_mut::<16>().0 {
        for (byte, chain) in block.iter_mut().zip(chain) {
            *byte ^= chain;
        }
        key.encrypt_block(block);
        chain = *block;
    }
    let count = padded.len() / 16;
    padded.as_chunks_mut::<16>().0.swap(count - 2, count - 1);
    padded.truncate(plaintext.len());
    padded
}

#[test]
fn sealed_tokens_open_on_the_other_side() {
    for enctype in Enctype::ALL {
        for subkey in [false, true] {
            let (initiator, acceptor) = context(enctype, subkey);
            for (from, to) in [(&initiator, &acceptor), (&acceptor, &initiator)] {
                for len in BODY_LENS {
                    let body = bytes(len as u64, len);
                    let mut token = seal(from, 7 + len as u64, &body);
                    assert_eq!(token.len(), len + from.header_len() + from.trailer_len());
                    let opened = to.open_any(&mut token.clone()).expect("a good token");
                    assert_eq!((opened.seq, opened.sealed), (7 + len as u64, true));
                    let range = to.open(&mut token).expect("a good token");
                    assert_eq!(range, from.header_len()..from.header_len() + len);
                    assert_eq!(&token[range], body);
                }
            }
        }
    }
}

#[test]
fn seal_matches_rfc_4121() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = context(enctype, true);
        for len in BODY_LENS {
            let body = bytes(3, len);
            for (keys, flags) in [(&initiator, 6), (&acceptor, 7)] {
                let reference = make_wrap(keys, flags, 9, &body, 0, 0);
                let mut token = vec![0; reference.len()];
                token[32..32 + len].copy_from_slice(&body);
                keys.seal(9, bytes(9 ^ 77, 16).try_into().expect("16"), &mut token).expect("room");
                assert!(token == reference, "{enctype} {len}");
            }
        }
    }
}

#[test]
fn any_rotation_and_filler_is_accepted() {
    for enctype in Enctype::ALL {
        let (_, acceptor) = context(enctype, true);
        for len in [0, 1, 16, 37, 64, 300] {
            let body = bytes(5, len);
            for filler_len in [0, 1, 15, 16, 40, 1000] {
                for rotation in [0, 1, 12, 16, 28, 32, 44, 60, 299, 4096, 65_535] {
                    let mut token = make_wrap(&acceptor, 6, 3, &body, filler_len, rotation);
                    let range = acceptor.open(&mut token).expect("a good token");
                    assert_eq!(&token[range], body, "{enctype} {len} {filler_len} {rotation}");
                }
            }
        }
    }
}

#[test]
fn unencrypted_tokens_are_distinguished() {
    for enctype in Enctype::ALL {
        let (_, acceptor) = context(enctype, true);
        for len in [0, 1, 16, 37, 64, 300, 5000] {
            let body = bytes(5, len);
            for rotation in [0, 1, 12, 28, 300] {
                let token =
                    make_wrap(&acceptor, 4, 3, &body, enctype.checksum_len() as u16, rotation);
                assert_eq!(acceptor.open(&mut token.clone()), Err(TokenError::NotSealed));
                let mut copy = token.clone();
                let opened = acceptor.open_any(&mut copy).expect("a good token");
                assert_eq!(
                    (opened.seq, opened.sealed, &copy[opened.range]),
                    (3, false, body.as_slice())
                );
                let mut short = make_wrap(&acceptor, 4, 3, &body, 11, rotation);
                assert_eq!(acceptor.open_any(&mut short), Err(TokenError::Malformed));
            }
        }
    }
}

#[test]
fn one_flipped_bit_is_refused() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = context(enctype, true);
        for len in [5, 101] {
            let body = bytes(4, len);
            let sealed = seal(&initiator, 11, &body);
            let plain = make_wrap(&acceptor, 4, 11, &body, enctype.checksum_len() as u16, 0);
            let mic = initiator.mic(11, &[&body]);
            for bit in 0..8 * sealed.len() {
                let mut token = sealed.clone();
                token[bit / 8] ^= 1 << (bit % 8);
                assert!(acceptor.open(&mut token).is_err(), "{enctype} {len} bit {bit}");
            }
            for bit in 0..8 * plain.len() {
                let mut token = plain.clone();
                token[bit / 8] ^= 1 << (bit % 8);
                assert!(acceptor.open_any(&mut token).is_err(), "{enctype} {len} bit {bit}");
            }
            for bit in 0..8 * mic.len() {
                let mut token = mic.to_vec();
                token[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    acceptor.verify_mic(&[&body], &token).is_err(),
                    "{enctype} {len} bit {bit}"
                );
            }
            for bit in 0..8 * len {
                let mut body = body.clone();
                body[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(
                    acceptor.verify_mic(&[&body], &mic),
                    Err(TokenError::Checksum),
                    "{enctype} {len} bit {bit}"
                );
            }
        }
    }
}

#[test]
fn truncated_or_extended_token_is_refused() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = context(enctype, false);
        let sealed = seal(&initiator, 1, b"some body");
        let mic = initiator.mic(1, &[b"some body"]);
        for len in 0..sealed.len() {
            assert!(acceptor.open(&mut sealed[..len].to_vec()).is_err());
            assert!(acceptor.open_any(&mut sealed[..len].to_vec()).is_err());
        }
        for len in 0..mic.len() {
            assert_eq!(
                acceptor.verify_mic(&[b"some body"], &mic[..len]),
                Err(TokenError::Truncated)
            );
        }
        let longer = [sealed.as_slice(), &[0]].concat();
        assert_eq!(acceptor.open(&mut longer.clone()), Err(TokenError::Checksum));
        assert_eq!(
            acceptor.verify_mic(&[b"some body"], &[&mic, [0].as_slice()].concat()),
            Err(TokenError::Malformed)
        );
        let mut filled = make_wrap(&acceptor, 2, 3, b"body", 8, 0);
        filled[5] = 0xff;
        assert_eq!(acceptor.open(&mut filled), Err(TokenError::Truncated));
    }
}

#[test]
fn refused_token_leaves_no_plaintext() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = context(enctype, false);
        let body = [0x5a; 200];
        let mut token = seal(&initiator, 1, &body);
        let last = token.len() - 1;
        token[last] ^= 1;
        assert_eq!(acceptor.open(&mut token), Err(TokenError::Checksum));
        assert!(!token.windows(8).any(|window| window == [0x5a; 8]));
    }
}

#[test]
fn direction_and_subkey_must_match_context() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = context(enctype, true);
        let (other, _) = context(enctype, false);
        let mut own = seal(&acceptor, 1, b"reflected");
        assert_eq!(acceptor.open(&mut own), Err(TokenError::Reflected));
        assert_eq!(
            acceptor.verify_mic(&[b"x"], &acceptor.mic(1, &[b"x"])),
            Err(TokenError::Reflected)
        );
        let mut without = seal(&other, 1, b"without subkey");
        assert_eq!(acceptor.open(&mut without), Err(TokenError::Subkey));
        assert_eq!(acceptor.verify_mic(&[b"x"], &other.mic(1, &[b"x"])), Err(TokenError::Subkey));
        let mut reserved = make_wrap(&acceptor, 0xfe, 3, b"body", 0, 0);
        assert!(acceptor.open(&mut reserved).is_ok());
        assert_eq!(
            initiator.open(&mut make_wrap(&acceptor, 6, 3, b"body", 0, 0)),
            Err(TokenError::Reflected)
        );
    }
}

#[test]
fn encrypted_header_must_equal_clear_header() {
    // The clear sequence number is altered: only the copy reveals it.
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = context(enctype, true);
        let mut token = seal(&initiator, 1, b"body");
        token[15] = 2;
        assert_eq!(acceptor.open(&mut token), Err(TokenError::Checksum));
    }
}

#[test]
fn mic_is_independent_of_parts() {
    for enctype in Enctype::ALL {
        let (initiator, acceptor) = context(enctype, true);
        for len in BODY_LENS {
            let body = bytes(len as u64, len);
            let whole = initiator.mic(5, &[&body]);
            assert_eq!(whole.len(), initiator.mic_len());
            for cut in [1, 7, 63, 64, 65, 128, 4096, 5000] {
                let parts: Vec<&[u8]> = body.chunks(cut).flat_map(|part| [part, &[]]).collect();
                assert_eq!(initiator.mic(5, &parts), whole, "{enctype} {len} {cut}");
                assert_eq!(acceptor.verify_mic(&parts, &whole), Ok(5));
            }
        }
    }
}

#[test]
fn mic_matches_rfc_4121() {
    // RFC 4121 §4.2.4: HMAC(Kc, body | header); the key's usage is 25 for the initiator, 23 for the
    // acceptor.
    use crate::derive::{Purpose, derive};
    for (role, flags, usage) in [(Role::Initiator, 4, 25), (Role::Acceptor, 5, 23)] {
        let enctype = Enctype::Aes256CtsHmacSha1_96;
        let key = bytes(18, 32);
        let keys = ContextKeys::new(enctype, &key, role, true).expect("32 bytes");
        let header = [hex("0404"), vec![flags], hex("ffffffffff 0000000000000102")].concat();
        let checksum = HmacPads::<Sha1>::new(&derive(enctype, &key, usage, Purpose::Checksum))
            .mac(&[b"body", header.as_slice()].concat());
        assert_eq!(
            keys.mic(0x102, &[b"body"]).to_vec(),
            [header, checksum[..12].to_vec()].concat()
        );
    }
}

#[test]
fn short_buffer_is_left_unchanged() {
    let (initiator, _) = context(Enctype::Aes256CtsHmacSha1_96, true);
    let mut token = vec![7; initiator.header_len() + initiator.trailer_len() - 1];
    assert_eq!(initiator.seal(1, [0; 16], &mut token), Err(TokenError::Room));
    assert!(token.iter().all(|byte| *byte == 7));
}

#[test]
fn keys_of_wrong_length_are_refused() {
    for enctype in Enctype::ALL {
        for len in [0, 15, 17, 24, 31, 33, 48 - enctype.key_len()] {
            assert!(ContextKeys::new(enctype, &vec![1; len], Role::Acceptor, true).is_err());
        }
    }
    assert_eq!(Enctype::try_from(23), Err(UnknownEnctype(23)));
    assert_eq!(Enctype::try_from(20), Ok(Enctype::Aes256CtsHmacSha384_192));
}
