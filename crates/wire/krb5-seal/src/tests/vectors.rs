//! RFC 3961 appendix A.1, RFC 3962 appendix B, RFC 8009 appendix A, FIPS 197 appendix C, and MIT's
//! tests for cases that the RFCs omit.

use super::hex;
use crate::aes_key::AesKey;
use crate::cts::{self, Decryption, Encryption};
use crate::derive::{Purpose, derive, n_fold};
use crate::digest::{Digest, HmacPads, Sha1, Sha256, Sha384};
use crate::enctype::Enctype;
use crate::kernels::Kernels;

fn encrypt(kernels: &Kernels, key: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let key = AesKey::new(key);
    let mut message = plaintext.to_vec();
    // SAFETY: key and message outlive the encryption.
    let mut lanes = [unsafe { Encryption::new(&key, message.as_mut_ptr(), message.len()) }];
    lanes[0].ready = plaintext.len();
    while !lanes[0].is_done() {
        // SAFETY: there is one message only.
        unsafe { cts::step(kernels, &mut lanes, |lane| lane) };
    }
    message
}

fn decrypt(kernels: &Kernels, key: &[u8], ciphertext: &[u8]) -> Vec<u8> {
    let key = AesKey::new(key);
    let mut message = ciphertext.to_vec();
    Decryption::new().step(kernels, &key, &mut message, usize::MAX);
    message
}

#[test]
fn aes_of_fips_197() {
    for (key_len, ciphertext) in
        [(16, "69c4e0d86a7b0430d8cdb78070b4c55a"), (32, "8ea2b7ca516745bfeafc49904b496089")]
    {
        let key: Vec<u8> = (0..key_len).collect();
        for kernels in Kernels::available() {
            let plaintext = hex("00112233445566778899aabbccddeeff");
            assert_eq!(encrypt(kernels, &key, &plaintext), hex(ciphertext), "{}", kernels.name());
            assert_eq!(decrypt(kernels, &key, &hex(ciphertext)), plaintext, "{}", kernels.name());
        }
    }
}

#[test]
fn key_schedule_of_fips_197() {
    let key = AesKey::new(&hex("2b7e151628aed2a6abf7158809cf4f3c"));
    assert_eq!(key.encrypt[10].to_vec(), hex("d014f9a8c9ee2589e13f0cc8b6630ca6"));
    let key = AesKey::new(&hex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"));
    assert_eq!(key.encrypt[14].to_vec(), hex("fe4890d1e6188d0b046df344706c631e"));
}

#[test]
fn n_fold_of_rfc_3961() {
    for (input, output) in [
        ("012345", "be072631276b1955"),
        ("password", "78a07b6caf85fa"),
        ("Rough Consensus, and Running Code", "bb6ed30870b7f0e0"),
        ("password", "59e4a8ca7c0385c3c37b3f6d2000247cb6e6bd5b3e"),
        (
            "MASSACHVSETTS INSTITVTE OF TECHNOLOGY",
            "db3b0d8f0b061e603282b308a50841229ad798fab9540c1b",
        ),
        ("Q", "518a54a215a8452a518a54a215a8452a518a54a215"),
        ("ba", "fb25d531ae8974499f52fd92ea9857c4ba24cf297e"),
        ("kerberos", "6b65726265726f73"),
        ("kerberos", "6b65726265726f737b9b5b2b93132b93"),
        ("kerberos", "6b65726265726f737b9b5b2b93132b935c9bdcdad95c9899c4cae4dee6d6cae4"),
    ] {
        let mut folded = vec![0; output.len() / 2];
        n_fold(input.as_bytes(), &mut folded);
        assert_eq!(folded, hex(output), "{input}");
    }
}

#[test]
fn cts_of_rfc_3962() {
    let key = b"chicken teriyaki";
    let plaintext = b"I would like the General Gau's Chicken, please, and wonton soup.";
    for (len, ciphertext) in [
        (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
        (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
        (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
        (
            47,
            "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e39312523a78662d5be7fcbcc98ebf5",
        ),
        (
            48,
            "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd839312523a78662d5be7fcbcc98ebf5a8",
        ),
        (
            64,
            "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a84807efe836ee89a526730dbc2f7bc8409dad8bbb96c4cdc03bc103e1a194bbd8",
        ),
    ] {
        for kernels in Kernels::available() {
            assert_eq!(
                encrypt(kernels, key, &plaintext[..len]),
                hex(ciphertext),
                "{len} {}",
                kernels.name()
            );
            assert_eq!(
                decrypt(kernels, key, &hex(ciphertext)),
                &plaintext[..len],
                "{len} {}",
                kernels.name()
            );
        }
    }
}

#[test]
fn derivation_of_mit_and_rfc_8009() {
    use Purpose::{Checksum, Encryption, Integrity};
    for (enctype, key, results) in [
        (
            Enctype::Aes128CtsHmacSha1_96,
            "42263c6e89f4fc28b8df68ee09799f15",
            [
                "34280a382bc92769b2da2f9ef066854b",
                "5b14fc4e250e14ddf9dccf1af6674f53",
                "4ed31063621684f09ae8d89991af3e8f",
            ],
        ),
        (
            Enctype::Aes256CtsHmacSha1_96,
            "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161",
            [
                "bfab388bdcb238e9f9c98d6a878304f04d30c82556375ac507a7a852790f4674",
                "c7cfd9cd75fe793a586a542d87e0d1396f1134a104bb1a9190b8c90ada3ddf37",
                "97151b4c76945063e2eb0529dc067d97d7bba90776d8126d91f34f3101aea8ba",
            ],
        ),
        (
            Enctype::Aes128CtsHmacSha256_128,
            "3705d96080c17728a0e800eab6e0d23c",
            [
                "b31a018a48f54776f403e9a396325dc3",
                "9b197dd1e8c5609d6e67c3e37c62c72e",
                "9fda0e56ab2d85e1569a688696c26a6c",
            ],
        ),
        (
            Enctype::Aes256CtsHmacSha384_192,
            "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
            [
                "ef5718be86cc84963d8bbb5031e9f5c4ba41f28faf69e73d",
                "56ab22bee63d82d7bc5227f6773f8ea7a5eb1c825160c38312980c442e5c7e49",
                "69b16514e3cd8e56b82010d5c73012b622c4d00ffc23ed1f",
            ],
        ),
    ] {
        for (purpose, result) in [Checksum, Encryption, Integrity].into_iter().zip(results) {
            assert_eq!(
                derive(enctype, &hex(key), 2, purpose).to_vec(),
                hex(result),
                "{enctype} {:x}",
                purpose as u8
            );
        }
    }
}

/// RFC 3961 §5.3 and RFC 8009 §5.
fn message(
    kernels: &Kernels,
    enctype: Enctype,
    key: &[u8],
    usage: u32,
    plaintext: &[u8],
) -> Vec<u8> {
    let integrity = derive(enctype, key, usage, Purpose::Integrity);
    let mut message =
        encrypt(kernels, &derive(enctype, key, usage, Purpose::Encryption), plaintext);
    let hashed = [&[0; 16], message.as_slice()].concat();
    let mac = match enctype {
        Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha1_96 => {
            HmacPads::<Sha1>::new(&integrity).mac(plaintext)
        }
        Enctype::Aes128CtsHmacSha256_128 => HmacPads::<Sha256>::new(&integrity).mac(&hashed),
        Enctype::Aes256CtsHmacSha384_192 => HmacPads::<Sha384>::new(&integrity).mac(&hashed),
    };
    message.extend_from_slice(&mac[..enctype.checksum_len()]);
    message
}

#[test]
fn encryption_of_rfc_8009() {
    let aes128 = (Enctype::Aes128CtsHmacSha256_128, "3705d96080c17728a0e800eab6e0d23c");
    let aes256 = (
        Enctype::Aes256CtsHmacSha384_192,
        "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
    );
    for ((enctype, key), confounder, len, expected) in [
        (
            aes128,
            "7e5895eaf2672435bad817f545a37148",
            0,
            "ef85fb890bb8472f4dab20394dca781dad877eda39d50c870c0d5a0a8e48c718",
        ),
        (
            aes128,
            "7bca285e2fd4130fb55b1a5c83bc5b24",
            6,
            "84d7f30754ed987bab0bf3506beb09cfb55402cef7e6877ce99e247e52d16ed4421dfdf8976c",
        ),
        (
            aes128,
            "56ab21713ff62c0a1457200f6fa9948f",
            16,
            "3517d640f50ddc8ad3628722b3569d2ae07493fa8263254080ea65c1008e8fc295fb4852e7d83e1e7c48c37eebe6b0d3",
        ),
        (
            aes128,
            "a7a4e29a4728ce10664fb64e49ad3fac",
            21,
            "720f73b18d9859cd6ccb4346115cd336c70f58edc0c4437c5573544c31c813bce1e6d072c186b39a413c2f92ca9b8334a287ffcbfc",
        ),
        (
            aes256,
            "f764e9fa15c276478b2c7d0c4e5f58e4",
            0,
            "41f53fa5bfe7026d91faf9be959195a058707273a96a40f0a01960621ac612748b9bbfbe7eb4ce3c",
        ),
        (
            aes256,
            "b80d3251c1f6471494256ffe712d0b9a",
            6,
            "4ed7b37c2bcac8f74f23c1cf07e62bc7b75fb3f637b9f559c7f664f69eab7b6092237526ea0d1f61cb20d69d10f2",
        ),
        (
            aes256,
            "53bf8a0d105265d4e276428624ce5e63",
            16,
            "bc47ffec7998eb91e8115cf8d19dac4bbbe2e163e87dd37f49beca92027764f68cf51f14d798c2273f35df574d1f932e40c4ff255b36a266",
        ),
        (
            aes256,
            "763e65367e864f02f55153c7e3b58af1",
            21,
            "40013e2df58e8751957d2878bcd2d6fe101ccfd556cb1eae79db3c3ee86429f2b2a602ac86fef6ecb647d6295fae077a1feb517508d2c16b4192e01f62",
        ),
    ] {
        let plaintext = [hex(confounder), (0..len).collect()].concat();
        for kernels in Kernels::available() {
            assert_eq!(
                message(kernels, enctype, &hex(key), 2, &plaintext),
                hex(expected),
                "{enctype} {len} {}",
                kernels.name()
            );
        }
    }
}

#[test]
fn decryption_of_mit() {
    for (enctype, key, usage, plaintext, ciphertext) in [
        (
            Enctype::Aes128CtsHmacSha1_96,
            "90624 30c8cda3388922e6d6a509f5b7a",
            2,
            "9 bytesss",
            "68fb9679601f45c78857b2bf820fd6e53eca8d42fd4b1d7024a09205abb7cd2ec26c355d2f",
        ),
        (
            Enctype::Aes128CtsHmacSha1_96,
            "dceeb70b3de76562e689226c76429148",
            4,
            "30 bytes bytes bytes bytes byt",
            "c96081032d5d8eeb7e32b4089f789d0faa481dea74c0f97cbf3146ddfcf8e800156ecb532fc203e30ff600b63b350939fece510f02d7ff1e7bac",
        ),
        (
            Enctype::Aes256CtsHmacSha1_96,
            "17f275f2954f2ed1f90c377ba7f4d6a369aa0136e0bf0c927ad6133c693759a9",
            0,
            "",
            "e5094c55ee7b38262e2b044280b069379a95bf95bd8376fb3281b435",
        ),
        (
            Enctype::Aes256CtsHmacSha1_96,
            "b9477e1ff0329c0050e20ce6c72d2dff27e8fe541ab0954429a9cb5b4f7b1e2a",
            1,
            "1",
            "406150b97aeb76d43b36b62cc1ecdfbe6f40e95755e0beb5c27825f3a4",
        ),
    ] {
        let (key, ciphertext) = (hex(key), hex(ciphertext));
        for kernels in Kernels::available() {
            let len = ciphertext.len() - enctype.checksum_len();
            let decrypted = decrypt(
                kernels,
                &derive(enctype, &key, usage, Purpose::Encryption),
                &ciphertext[..len],
            );
            assert_eq!(&decrypted[16..], plaintext.as_bytes(), "{}", kernels.name());
            assert_eq!(
                message(kernels, enctype, &key, usage, &decrypted),
                ciphertext,
                "{}",
                kernels.name()
            );
        }
    }
}

#[test]
fn checksums_of_mit_and_rfc_8009() {
    let counted: Vec<u8> = (0..21).collect();
    for (enctype, key, usage, text, expected) in [
        (
            Enctype::Aes128CtsHmacSha1_96,
            "9062430c8cda3388922e6d6a509f5b7a",
            3,
            b"eight nine ten eleven twelve thirteen".as_slice(),
            "01a4b088d45628f6946614e3",
        ),
        (
            Enctype::Aes256CtsHmacSha1_96,
            "b1ae4cd8462aff1677053cc9279aac30b796fb81ce21474dd3ddbcfea4ec76d7",
            4,
            b"fourteen",
            "e08739e3279e2903ec8e3836",
        ),
        (
            Enctype::Aes128CtsHmacSha256_128,
            "3705d96080c17728a0e800eab6e0d23c",
            2,
            &counted,
            "d78367186643d67b411cba9139fc1dee",
        ),
        (
            Enctype::Aes256CtsHmacSha384_192,
            "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
            2,
            &counted,
            "45ee791567eefca37f4ac1e0222de80d43c3bfa06699672a",
        ),
    ] {
        let key = derive(enctype, &hex(key), usage, Purpose::Checksum);
        let mac = match enctype {
            Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha1_96 => {
                HmacPads::<Sha1>::new(&key).mac(text)
            }
            Enctype::Aes128CtsHmacSha256_128 => HmacPads::<Sha256>::new(&key).mac(text),
            Enctype::Aes256CtsHmacSha384_192 => HmacPads::<Sha384>::new(&key).mac(text),
        };
        assert_eq!(mac[..enctype.checksum_len()].to_vec(), hex(expected), "{enctype}");
    }
}

#[test]
fn digests_of_fips_180() {
    fn digest<D: Digest>(message: &[u8]) -> Vec<u8> {
        let mut state = D::INITIAL;
        let whole = message.len() / D::BLOCK_LEN * D::BLOCK_LEN;
        D::compress(&mut state, &message[..whole]);
        let mut tail = [0; 2 * crate::digest::BLOCK_LEN_MAX];
        tail[..message.len() - whole].copy_from_slice(&message[whole..]);
        let blocks =
            crate::digest::pad::<D>(&mut tail, message.len() - whole, message.len() as u64);
        D::compress(&mut state, &tail[..blocks * D::BLOCK_LEN]);
        D::output(&state)[..D::LEN].to_vec()
    }
    assert_eq!(digest::<Sha1>(b"abc"), hex("a9993e364706816aba3e25717850c26c9cd0d89d"));
    assert_eq!(
        digest::<Sha256>(b"abc"),
        hex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    );
    assert_eq!(
        digest::<Sha384>(b"abc"),
        hex(
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7"
        )
    );
    let message = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_eq!(digest::<Sha1>(message), hex("84983e441c3bd26ebaae4aa1f95129e5e54670f1"));
}
