//! No key stays in memory when its context is dropped: a child holds the context, and this process
//! scans the child's memory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use vouch_testkit::this_test;
use zeroize::{Zeroize, Zeroizing};

use super::bytes;
use crate::derive::{Purpose, derive};
use crate::digest::{Digest, HmacKey, HmacPads};
use crate::kernels::Kernels;
use crate::mic::verify_many_with;
use crate::*;

const CHILD: &str = "VOUCH_TEST_HOLDS_KEYS";

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
fn no_key_copy_outlives_its_context() {
    if let Ok(set) = std::env::var(CHILD) {
        return hold_keys(
            Kernels::available()
                .iter()
                .find(|kernels| kernels.name() == set)
                .expect("a set of this CPU"),
        );
    }
    let left: Vec<String> = Kernels::available().iter().flat_map(left_behind).collect();
    assert!(left.is_empty(), "left in memory:\n{}", left.join("\n"));
}

fn left_behind(kernels: &Kernels) -> Vec<String> {
    let mut left = Vec::new();
    let mut child = this_test("tests::wiped::no_key_copy_outlives_its_context")
        .env(CHILD, kernels.name())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut orders = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut wait_for = |word: &str| {
        assert!(
            lines.any(|line| line.expect("a line").ends_with(word)),
            "the child died before {word}"
        )
    };
    for (at, enctype) in Enctype::ALL.into_iter().enumerate() {
        let key = bytes(0x5eed + at as u64, enctype.key_len());
        let (kept, passing) = patterns(enctype, &key);
        orders.write_all(&[&[at as u8], key.as_slice()].concat()).expect("a child that reads");
        wait_for("held");
        let found = scan(child.id(), &kept);
        for (name, _) in &kept {
            assert!(
                found.contains_key(name.as_str()),
                "{enctype}: the scan does not find {name} while the key is in use"
            );
        }
        orders.write_all(b"d").expect("a child that reads");
        wait_for("dropped");
        let all: Vec<_> = kept.into_iter().chain(passing).collect();
        let found = scan(child.id(), &all);
        left.extend(
            found.iter().map(|(name, places)| {
                format!("{}, {enctype}: {name} at {places:x?}", kernels.name())
            }),
        );
        orders.write_all(b"n").expect("a child that reads");
    }
    drop(orders);
    assert!(child.wait().expect("our child").success());
    left
}

fn hold_keys(kernels: &Kernels) {
    let mut orders = File::open("/dev/stdin").expect("a pipe");
    let mut order = [0];
    while orders.read(&mut order).expect("a pipe") == 1 {
        let enctype = Enctype::ALL[usize::from(order[0])];
        let mut key = Zeroizing::new(vec![0; enctype.key_len()]);
        orders.read_exact(&mut key).expect("a key");
        let keys = [Role::Initiator, Role::Acceptor]
            .map(|role| ContextKeys::new(enctype, &key, role, true).expect("the enctype's length"));
        key.zeroize();
        work(kernels, &keys);
        println!("\nheld");
        orders.read_exact(&mut order).expect("a pipe");
        drop(keys);
        println!("\ndropped");
        orders.read_exact(&mut order).expect("a pipe");
    }
}

fn work(kernels: &Kernels, [initiator, acceptor]: &[ContextKeys; 2]) {
    for (count, len) in [
        (1, 70_000),
        (3, 5000),
        (7, 5000),
        (16, 5000),
        (40, 5000),
        (40, 300),
        (12, 200),
        (3, 200),
        (1, 100),
    ] {
        for (from, to) in [(initiator, acceptor), (acceptor, initiator)] {
            let mut tokens = vec![vec![7; 32 + len + from.trailer_len()]; count];
            let mut jobs: Vec<SealJob> =
                tokens.iter_mut().map(|token| SealJob::new(from, 1, [3; 16], token)).collect();
            seal_many_with(kernels, &mut jobs);
            drop(jobs);
            let mut jobs: Vec<OpenJob> =
                tokens.iter_mut().map(|token| OpenJob::new(to, token)).collect();
            open_many_with(kernels, &mut jobs);
            assert!(jobs.iter().all(|job| job.result.is_ok()));
            let body = vec![5; len];
            let parts = [body.as_slice()];
            let mut jobs: Vec<MicJob> = (0..count).map(|_| MicJob::new(from, 1, &parts)).collect();
            mic_many_with(kernels, &mut jobs);
            let tokens: Vec<Vec<u8>> = jobs.iter().map(|job| job.token.to_vec()).collect();
            let mut jobs: Vec<VerifyJob> =
                tokens.iter().map(|token| VerifyJob::new(to, &parts, token)).collect();
            verify_many_with(kernels, &mut jobs);
            assert!(jobs.iter().all(|job| job.result == Ok(1)));
        }
    }
}

type Pattern = (String, Vec<u8>);

fn patterns(enctype: Enctype, key: &[u8]) -> (Vec<Pattern>, Vec<Pattern>) {
    let keys = ContextKeys::new(enctype, key, Role::Initiator, true).expect("the enctype's length");
    let (mut kept, mut passing) = (Vec::new(), vec![("base key".into(), key.to_vec())]);
    for (direction, seal, sign) in [(&keys.send, 24, 25), (&keys.receive, 22, 23)] {
        let schedule = &direction.cipher;
        for round in 0..=schedule.rounds {
            kept.push((format!("Ke{seal}, round {round}"), schedule.encrypt[round].to_vec()));
            kept.push((
                format!("Ke{seal}, inverse round {round}"),
                schedule.decrypt[round].to_vec(),
            ));
        }
        for (name, hmac, usage, purpose) in [
            ("Ki", &direction.seal, seal, Purpose::Integrity),
            ("Kc", &direction.wrap, seal, Purpose::Checksum),
            ("Kc", &direction.mic, sign, Purpose::Checksum),
        ] {
            passing.push((format!("{name}{usage}"), derive(enctype, key, usage, purpose).to_vec()));
            let pads = match hmac {
                HmacKey::Sha1(pads) => states(pads, |word| word.to_ne_bytes()),
                HmacKey::Sha256(pads) => states(pads, |word| word.to_ne_bytes()),
                HmacKey::Sha384(pads) => states(pads, |word| word.to_ne_bytes()),
            };
            for (side, words) in ["inner", "outer"].into_iter().zip(pads) {
                let pad = format!("{name}{usage}, {side} pad");
                passing.extend(
                    as_in_registers(&words).map(|(how, bytes)| (format!("{pad}, {how}"), bytes)),
                );
                kept.push((pad, words.concat()));
            }
        }
    }
    (kept, passing)
}

fn states<D, W: Copy, const WORDS: usize, const LEN: usize>(
    pads: &HmacPads<D>,
    bytes: impl Fn(W) -> [u8; LEN],
) -> [Vec<Vec<u8>>; 2]
where
    D: Digest<State = [W; WORDS]>,
{
    [pads.inner, pads.outer]
        .map(|state| state.into_iter().map(|word| bytes(word).to_vec()).collect())
}

/// A state that a kernel may spill: a word of each lane, or words in the order of the SHA
/// instructions.
fn as_in_registers(words: &[Vec<u8>]) -> impl Iterator<Item = Pattern> {
    let lanes = words
        .iter()
        .enumerate()
        .map(|(at, word)| (format!("word {at} of all lanes"), word.repeat(16 / word.len())));
    let of = |order: [usize; 4]| {
        (format!("words {order:?}"), order.map(|at| words[at].as_slice()).concat())
    };
    let orders = match words {
        [_, _, _, _, _] => vec![of([3, 2, 1, 0])],
        [first, ..] if first.len() == 4 => vec![of([5, 4, 1, 0]), of([7, 6, 3, 2])],
        _ => Vec::new(),
    };
    lanes.chain(orders)
}

fn scan(pid: u32, patterns: &[Pattern]) -> HashMap<String, Vec<u64>> {
    let mut by_start: HashMap<[u8; 4], Vec<&Pattern>> = HashMap::new();
    let mut second_of = [false; 1 << 16];
    for pattern in patterns {
        by_start.entry(pattern.1[..4].try_into().expect("four")).or_default().push(pattern);
        second_of[usize::from(u16::from_ne_bytes([pattern.1[0], pattern.1[1]]))] = true;
    }
    let memory = File::open(format!("/proc/{pid}/mem")).expect("a child's memory");
    let mut found: HashMap<String, Vec<u64>> = HashMap::new();
    for line in
        std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a child's maps").lines()
    {
        let (range, rest) = line.split_once(' ').expect("a map");
        if !rest.starts_with("rw") {
            continue;
        }
        let (start, end) = range.split_once('-').expect("a range");
        let [start, end] =
            [start, end].map(|digits| u64::from_str_radix(digits, 16).expect("an address"));
        let mut contents = vec![0; (end - start) as usize];
        if memory.read_exact_at(&mut contents, start).is_err() {
            continue;
        }
        const PAGE: usize = 4096;
        for page in (0..contents.len()).step_by(PAGE) {
            if contents[page..page + PAGE] == [0; PAGE] {
                continue;
            }
            for at in page..(page + PAGE).min(contents.len() - 16) {
                if !second_of[usize::from(u16::from_ne_bytes([contents[at], contents[at + 1]]))] {
                    continue;
                }
                for (name, pattern) in by_start.get(&contents[at..at + 4]).into_iter().flatten() {
                    if contents[at..].starts_with(&pattern[..16]) {
                        found.entry(name.clone()).or_default().push(start + at as u64);
                    }
                }
            }
        }
    }
    found
}
