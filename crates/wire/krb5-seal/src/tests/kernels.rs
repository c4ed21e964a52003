//! Every kernel of this CPU against the plain one: random keys, lengths of every class, any number
//! of messages.

use proptest::prelude::*;

use super::bytes;
use crate::aes_key::AesKey;
use crate::digest::{Digest, Sha1, Sha256, Sha384};
use crate::kernels::{CbcItem, HashItem, Kernels, STITCHED_MAX, Segment, Stitched};
use crate::mic::verify_many_with;
use crate::*;

fn lens() -> impl Strategy<Value = usize> {
    let near = |block: usize| {
        (0..=4usize, 0..3usize)
            .prop_map(move |(count, off)| (count * block + off).saturating_sub(1))
    };
    prop_oneof![
        near(16),
        near(64),
        near(128),
        0..700usize,
        3900..4400usize,
        8100..9000usize,
        Just(65_536),
        Just(40_001)
    ]
}

fn hash_items<D: Digest>(counts: &[(u8, u8)], data: &mut [Vec<u8>]) -> Vec<HashItem<D::State>> {
    counts
        .iter()
        .zip(data)
        .map(|((first, second), data)| {
            let start = data[1..].as_mut_ptr();
            let first = Segment { start, blocks: usize::from(*first) };
            let second = Segment {
                start: start.wrapping_add(first.blocks * D::BLOCK_LEN),
                blocks: usize::from(*second),
            };
            HashItem { state: D::INITIAL, segments: [first, second] }
        })
        .collect()
}

fn check_hash<D: Digest>(counts: &[(u8, u8)], seed: u64) {
    let mut data: Vec<Vec<u8>> = counts
        .iter()
        .enumerate()
        .map(|(at, (first, second))| {
            bytes(seed + at as u64, 1 + (usize::from(*first) + usize::from(*second)) * D::BLOCK_LEN)
        })
        .collect();
    let expected: Vec<D::State> = data
        .iter()
        .map(|data| {
            let mut state = D::INITIAL;
            D::compress(&mut state, &data[1..]);
            state
        })
        .collect();
    for kernels in Kernels::available() {
        let mut items = hash_items::<D>(counts, &mut data);
        // SAFETY: the segments lie in `data`.
        unsafe { D::run(kernels, &mut items) };
        let states: Vec<D::State> = items.iter().map(|item| item.state).collect();
        assert!(states == expected, "{} {counts:?}", kernels.name());
    }
}

fn check_cbc(key_len: usize, one_key: bool, counts: &[(u8, u8)], seed: u64) {
    let keys: Vec<AesKey> = (0..counts.len())
        .map(|at| AesKey::new(&bytes(if one_key { seed } else { seed + at as u64 / 2 }, key_len)))
        .collect();
    let messages: Vec<Vec<u8>> = counts
        .iter()
        .enumerate()
        .map(|(at, (first, second))| {
            bytes(seed ^ at as u64, 16 * (usize::from(*first) + usize::from(*second)))
        })
        .collect();
    let run = |kernels: &Kernels| {
        let mut messages = messages.clone();
        let mut items: Vec<CbcItem> = counts
            .iter()
            .zip(&mut messages)
            .enumerate()
            .map(|(at, ((first, second), message))| {
                let start = message.as_mut_ptr();
                let first = Segment { start, blocks: usize::from(*first) };
                let second = Segment {
                    start: start.wrapping_add(16 * first.blocks),
                    blocks: usize::from(*second),
                };
                CbcItem {
                    key: &keys[if one_key { 0 } else { at }],
                    chain: [at as u8; 16],
                    segments: [first, second],
                }
            })
            .collect();
        // SAFETY: each item has a message of its own, and keys of one length.
        unsafe { (kernels.encrypt.many)(&mut items) };
        let chains: Vec<[u8; 16]> = items.iter().map(|item| item.chain).collect();
        (messages, chains)
    };
    let expected = run(&Kernels::available()[0]);
    for kernels in Kernels::available() {
        assert!(run(kernels) == expected, "{} encrypt {counts:?}", kernels.name());
        for (at, message) in expected.0.iter().enumerate() {
            let mut blocks = message.clone();
            let mut chain = [at as u8; 16];
            (kernels.decrypt.one)(
                &keys[if one_key { 0 } else { at }],
                &mut chain,
                blocks.as_chunks_mut().0,
            );
            assert!(
                blocks == messages[at] && chain == expected.1[at],
                "{} decrypt {} blocks",
                kernels.name(),
                blocks.len() / 16
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn hashes_agree_with_plain_kernel(counts in prop::collection::vec((0..6u8, 0..3u8), 0..40), seed: u64) {
        check_hash::<Sha1>(&counts, seed >> 1);
        check_hash::<Sha256>(&counts, seed >> 1);
        check_hash::<Sha384>(&counts, seed >> 1);
    }

    #[test]
    fn long_messages_hash_like_plain_kernel(counts in prop::collection::vec((0..=255u8, 0..=255u8), 0..20), seed: u64) {
        check_hash::<Sha1>(&counts, seed >> 1);
        check_hash::<Sha256>(&counts, seed >> 1);
        check_hash::<Sha384>(&counts, seed >> 1);
    }

    #[test]
    fn cbc_agrees_with_plain_kernel(wide: bool, one_key: bool, counts in prop::collection::vec((0..70u8, 0..3u8), 0..70), seed: u64) {
        check_cbc(if wide { 32 } else { 16 }, one_key, &counts, seed >> 1);
    }

    #[test]
    fn stitched_equals_hash_then_cipher(wide: bool, blocks in 0..300usize, count in 1..=STITCHED_MAX, seed: u64) {
        let keys: Vec<AesKey> = (0..count).map(|at| AesKey::new(&bytes(seed ^ at as u64, if wide { 32 } else { 16 }))).collect();
        let messages: Vec<Vec<u8>> = (0..count).map(|at| bytes(seed ^ (100 + at as u64), 64 * blocks)).collect();
        let expected = |at: usize| {
            let mut state = Sha1::INITIAL;
            Sha1::compress(&mut state, &messages[at]);
            let mut ciphertext = messages[at].clone();
            let first = Segment { start: ciphertext.as_mut_ptr(), blocks: 4 * blocks };
            let mut items = [CbcItem { key: &keys[at], chain: [at as u8; 16], segments: [first, Segment::NONE] }];
            // SAFETY: there is one message only.
            unsafe { (Kernels::available()[0].encrypt.many)(&mut items) };
            (ciphertext, items[0].chain, state)
        };
        for kernels in Kernels::available() {
            let Some(stitched) = kernels.stitched else { continue };
            let mut data = messages.clone();
            let mut items: Vec<Stitched> = data
                .iter_mut()
                .enumerate()
                .map(|(at, data)| Stitched { key: &keys[at], chain: [at as u8; 16], state: Sha1::INITIAL, data: data.as_mut_ptr() })
                .collect();
            // SAFETY: each message has that many blocks, and the keys are of one length.
            unsafe { (stitched.seal)(&mut items, blocks) };
            let sealed: Vec<_> = items.iter().map(|item| (item.chain, item.state)).collect();
            drop(items);
            for (at, (data, (chain, state))) in data.into_iter().zip(sealed).enumerate() {
                prop_assert!((data, chain, state) == expected(at), "{} {at} of {count}", kernels.name());
            }
        }
    }

    #[test]
    fn one_and_two_messages_agree_with_plain_kernel(enctype in 0..4usize, first in lens(), second in prop::option::of(lens()), damage: bool, seed: u64) {
        let enctype = Enctype::ALL[enctype];
        let context = |role| ContextKeys::new(enctype, &bytes(seed, enctype.key_len()), role, true).expect("the enctype's length");
        let (initiator, acceptor) = (context(Role::Initiator), context(Role::Acceptor));
        let seal = |kernels: &Kernels| {
            let room = |len: usize| bytes(seed ^ 1, initiator.header_len() + len + initiator.trailer_len());
            let mut tokens: Vec<Vec<u8>> = [Some(first), second].into_iter().flatten().map(room).collect();
            let mut jobs: Vec<SealJob> = tokens.iter_mut().map(|token| SealJob::new(&initiator, 7, [3; 16], token)).collect();
            seal_many_with(kernels, &mut jobs);
            assert!(jobs.iter().all(|job| job.result == Ok(())));
            drop(jobs);
            tokens
        };
        let expected = seal(&Kernels::available()[0]);
        for kernels in Kernels::available() {
            let mut tokens = seal(kernels);
            prop_assert!(tokens == expected, "{} {enctype} {first} {second:?}", kernels.name());
            let middle = tokens[0].len() / 2;
            tokens[0][middle.max(16)] ^= u8::from(damage);
            let mut jobs: Vec<OpenJob> = tokens.iter_mut().map(|token| OpenJob::new(&acceptor, token)).collect();
            open_many_with(kernels, &mut jobs);
            for (at, job) in jobs.iter().enumerate() {
                prop_assert_eq!(job.result.is_ok(), at > 0 || !damage, "{} {} {} {:?}", kernels.name(), enctype, first, second);
            }
        }
    }

    #[test]
    fn batches_equal_single_messages(messages in prop::collection::vec((0..4usize, 0..3u64, lens(), any::<bool>()), 1..50), seed: u64) {
        let context = |enctype: usize, key: u64, role| {
            let enctype = Enctype::ALL[enctype];
            ContextKeys::new(enctype, &bytes(key, enctype.key_len()), role, true).expect("the enctype's length")
        };
        let initiators: Vec<ContextKeys> = (0..12).map(|at| context(at / 3, at as u64 % 3, Role::Initiator)).collect();
        let acceptors: Vec<ContextKeys> = (0..12).map(|at| context(at / 3, at as u64 % 3, Role::Acceptor)).collect();
        let at = |(enctype, key, _, _): &(usize, u64, usize, bool)| 3 * enctype + *key as usize;
        let confounder = |at: usize| bytes(seed ^ at as u64, 16).try_into().expect("16");
        let plain = &Kernels::available()[0];
        let buffers: Vec<Vec<u8>> = messages
            .iter()
            .map(|message| bytes(seed, 32 + message.2 + initiators[at(message)].trailer_len()))
            .collect();
        let expected: Vec<Vec<u8>> = messages
            .iter()
            .zip(&buffers)
            .enumerate()
            .map(|(seq, (message, buffer))| {
                let mut token = buffer.clone();
                let mut jobs = [SealJob::new(&initiators[at(message)], seq as u64, confounder(seq), &mut token)];
                seal_many_with(plain, &mut jobs);
                assert_eq!(jobs[0].result, Ok(()));
                token
            })
            .collect();
        for kernels in Kernels::available() {
            let mut tokens = buffers.clone();
            let mut jobs: Vec<SealJob> = messages
                .iter()
                .zip(&mut tokens)
                .enumerate()
                .map(|(seq, (message, token))| SealJob::new(&initiators[at(message)], seq as u64, confounder(seq), token))
                .collect();
            seal_many_with(kernels, &mut jobs);
            prop_assert!(jobs.iter().all(|job| job.result == Ok(())));
            drop(jobs);
            prop_assert!(tokens == expected, "{}", kernels.name());
            for (token, message) in tokens.iter_mut().zip(&messages) {
                if message.3 {
                    let last = token.len() - 1 - message.2 / 2;
                    token[last] ^= 0x10;
                }
            }
            let mut jobs: Vec<OpenJob> =
                messages.iter().zip(&mut tokens).map(|(message, token)| OpenJob::new(&acceptors[at(message)], token)).collect();
            open_many_with(kernels, &mut jobs);
            for (seq, (job, message)) in jobs.iter().zip(&messages).enumerate() {
                if message.3 {
                    prop_assert_eq!(&job.result, &Err(TokenError::Checksum));
                } else {
                    let opened = job.result.as_ref().expect("a good token");
                    prop_assert_eq!(opened.seq, seq as u64);
                    prop_assert!(job.token[opened.range.clone()] == buffers[seq][32..32 + message.2], "{}", kernels.name());
                }
            }
        }
    }

    #[test]
    fn mic_batches_equal_single_mics(messages in prop::collection::vec((0..4usize, lens(), 0..5usize, any::<bool>()), 1..50)) {
        let context = |enctype: usize, role| {
            let enctype = Enctype::ALL[enctype];
            ContextKeys::new(enctype, &bytes(7, enctype.key_len()), role, false).expect("the enctype's length")
        };
        let initiators: Vec<ContextKeys> = (0..4).map(|at| context(at, Role::Initiator)).collect();
        let acceptors: Vec<ContextKeys> = (0..4).map(|at| context(at, Role::Acceptor)).collect();
        let bodies: Vec<Vec<u8>> = messages.iter().map(|message| bytes(3, message.1)).collect();
        let parts: Vec<Vec<&[u8]>> = bodies
            .iter()
            .zip(&messages)
            .map(|(body, message)| body.chunks((body.len() / (message.2 + 1)).max(1)).collect())
            .collect();
        let plain = &Kernels::available()[0];
        let expected: Vec<MicToken> = messages
            .iter()
            .zip(&bodies)
            .map(|(message, body)| {
                let parts = [body.as_slice()];
                let mut jobs = [MicJob::new(&initiators[message.0], 5, &parts)];
                mic_many_with(plain, &mut jobs);
                jobs[0].token
            })
            .collect();
        for kernels in Kernels::available() {
            let mut jobs: Vec<MicJob> =
                messages.iter().zip(&parts).map(|(message, parts)| MicJob::new(&initiators[message.0], 5, parts)).collect();
            mic_many_with(kernels, &mut jobs);
            let mut tokens: Vec<Vec<u8>> = jobs.iter().map(|job| job.token.to_vec()).collect();
            prop_assert!(tokens.iter().zip(&expected).all(|(token, expected)| token == expected.as_bytes()), "{}", kernels.name());
            for (token, message) in tokens.iter_mut().zip(&messages) {
                token[20] ^= u8::from(message.3);
            }
            let mut jobs: Vec<VerifyJob> = messages
                .iter()
                .zip(&parts)
                .zip(&tokens)
                .map(|((message, parts), token)| VerifyJob::new(&acceptors[message.0], parts, token))
                .collect();
            verify_many_with(kernels, &mut jobs);
            for (job, message) in jobs.iter().zip(&messages) {
                prop_assert_eq!(job.result, if message.3 { Err(TokenError::Checksum) } else { Ok(5) });
            }
        }
    }
}

#[test]
fn last_set_is_the_best_and_missing_ones_are_printed() {
    let best = Kernels::best();
    assert!(std::ptr::eq(best, Kernels::available().last().expect("the plain variant exists")));
    assert!(Kernels::available()[0].name().starts_with("RustCrypto"));
    assert!(best.describe().contains(best.encrypt.name));
    let here: Vec<&str> = Kernels::available().iter().map(Kernels::name).collect();
    let lacking: Vec<&&str> =
        crate::kernels::ALL_NAMES.iter().filter(|name| !here.contains(name)).collect();
    for name in &lacking {
        println!("not on this CPU: {name}");
    }
    assert_eq!(
        here.len() + lacking.len(),
        crate::kernels::ALL_NAMES.len(),
        "a set without a name in the list: {here:?}"
    );
}
