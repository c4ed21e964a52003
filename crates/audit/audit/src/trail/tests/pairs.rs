//! Trails whose seals have Ed25519 keys alone, as earlier versions made, and forged seals of pairs.

use ed25519_dalek::{Signer as _, SigningKey};

use super::maintenance::record_removal;
use super::*;
use crate::chain::Chain;
use crate::frame::{Header, Kind, MAGIC, append};
use crate::merkle::Frontier;
use crate::proof::{Anchor, Proof};
use crate::seal::Seal;

const TRAIL: [u8; 16] = [7; 16];

fn classic_key(epoch: u64, seed: [u8; 32]) -> Ratchet {
    let public = SigningKey::from_bytes(&seed).verifying_key().to_bytes();
    let file = [&b"VOUCHAK1"[..], &TRAIL, &epoch.to_le_bytes(), &seed, &public].concat();
    Ratchet::decode(&file).unwrap()
}

fn seed_of(key: &Ratchet) -> [u8; 32] {
    key.encode()[32..64].try_into().unwrap()
}

/// As an earlier version wrote it: closed segments of three records, each with two seals.
fn write_classic(directory: &Path, segment_count: u64) -> [u8; 32] {
    let first = classic_key(0, [9; 32]);
    let (mut key, mut chain, mut next_seq) = (classic_key(0, [9; 32]), Chain::START, 1);
    for segment in 1..=segment_count {
        let (mut bytes, mut tree) = (MAGIC.to_vec(), Frontier::default());
        let header = Header {
            segment,
            first_seq: next_seq,
            time_ns: segment * SECOND,
            boot: [1; 16],
            trail: TRAIL,
            previous: chain.0,
            epoch: key.epoch(),
            public: key.public(),
        };
        tree.push(append(&mut bytes, Kind::Header, &header.encode(), &mut chain));
        for number in 0..3 {
            let mut body = Vec::new();
            let path = format!("/srv/data/file-{next_seq}");
            let record = Record {
                seq: next_seq,
                time_ns: segment * SECOND,
                class: Class::Operation,
                operation: 9,
                path: path.as_bytes(),
                ..Record::default()
            };
            record.encode(&mut body);
            tree.push(append(&mut bytes, Kind::Record, &body, &mut chain));
            next_seq += 1;
            if number == 0 {
                continue;
            }
            let next = classic_key(key.epoch() + 1, seed_of(&key.next()));
            let mut seal = Seal {
                trail: TRAIL,
                segment,
                epoch: key.epoch(),
                next_seq,
                leaves: tree.count(),
                time_ns: segment * SECOND,
                chain: chain.0,
                root: tree.root(),
                public: key.public(),
                next: next.public(),
                signature: [0; 64],
                pair: None,
            };
            let signer = SigningKey::from_bytes(&seed_of(&key));
            seal.signature = signer.sign(&seal.signed()).to_bytes();
            let kind = if number == 1 { Kind::Checkpoint } else { Kind::Close };
            append(&mut bytes, kind, &seal.encode(), &mut chain);
            key = next;
        }
        std::fs::write(directory.join(format!("{segment:012}.trail")), bytes).unwrap();
    }
    create_key(&SystemDisk, &directory.join(KEY_FILE), &key).unwrap();
    first.public()
}

fn faults_of(directory: &Path, public: [u8; 32]) -> Vec<Fault> {
    let trust = Trust { public: Some(public), ..Trust::default() };
    verify(directory, &trust, |_, _| {}).unwrap().faults
}

#[test]
fn trail_of_ed25519_keys_verifies_and_goes_on_with_pairs() {
    let directory = new_directory();
    let directory = directory.path();
    let public = write_classic(directory, 6);
    assert_eq!(faults_of(directory, public), []);
    let before = prove(directory, 5, None).unwrap().unwrap();
    assert_eq!(&before.encode()[..8], b"VOUCHPF1");

    let mut log = open(directory, 10 * SECOND);
    for number in 19..=60 {
        assert_eq!(put(&mut log, number, number * SECOND), number);
        log.maintain(number * SECOND).unwrap();
    }
    log.close(60 * SECOND).unwrap();
    assert_eq!(faults_of(directory, public), []);
    let proof = prove(directory, 60, None).unwrap().unwrap();
    let (classic, pairs): (Vec<&Seal>, Vec<&Seal>) =
        proof.seals.iter().partition(|seal| seal.pair.is_none());
    assert_eq!(classic.len(), 13, "the key that was there, and those before it");
    assert!(pairs.len() > 5 && pairs[0].epoch == 13);
    for proof in [before, proof] {
        let decoded = Proof::decode(&proof.encode()).unwrap();
        assert_eq!(decoded, proof);
        decoded.check(&Anchor::Key(public)).unwrap();
    }

    // Retention keeps seals of both kinds, in steps, and after a crash within one.
    let seals_file = directory.join(REMOVED_SEALS_FILE);
    for age_s in [57, 40] {
        let retention = Retention { age_ns_max: Some(age_s * SECOND), ..Retention::default() };
        let now_ns = 61 * SECOND;
        let record = |last| record_removal(directory, last, now_ns);
        let removed = prune(&SystemDisk, directory, &retention, now_ns, |_| true, record).unwrap();
        assert!(removed > 0, "{age_s}");
        assert_eq!(faults_of(directory, public), []);
        let whole = std::fs::read(&seals_file).unwrap();
        let torn = &whole[whole.len().saturating_sub(4024)..][..200];
        std::fs::write(&seals_file, [&whole[..], torn].concat()).unwrap();
    }
}

#[test]
fn seal_of_pair_needs_both_signatures_of_its_keys() {
    let directory = written_trail(8);
    let good = prove(directory.path(), 8, None).unwrap().unwrap();
    good.check(&Anchor::Key(key().public())).unwrap();
    let other = Ratchet::new(TRAIL, &[8; 32]);
    type Forgery<'a> = (&'a str, &'a dyn Fn(&mut Seal, &Seal));
    let forgeries: [Forgery<'_>; 5] = [
        ("signature by another Ed25519 key", &|seal, theirs| seal.signature = theirs.signature),
        ("signature by another ML-DSA-44 key", &|seal, theirs| {
            seal.pair.as_mut().unwrap().signature = theirs.pair.as_ref().unwrap().signature;
        }),
        ("other pair", &|seal, theirs| {
            (seal.signature, seal.pair) = (theirs.signature, theirs.pair.clone());
        }),
        ("Ed25519 alone under the hash of the pair", &|seal, _| seal.pair = None),
        ("Ed25519 alone, after its algorithm was broken", &|seal, _| {
            let broken = SigningKey::from_bytes(&[9; 32]);
            (seal.public, seal.pair) = (broken.verifying_key().to_bytes(), None);
            seal.signature = broken.sign(&seal.signed()).to_bytes();
        }),
    ];
    for (name, forge) in forgeries {
        let mut proof = good.clone();
        let mut theirs = proof.seals[0].clone();
        other.seal(&mut theirs);
        let ours = &mut proof.seals[0];
        forge(ours, &theirs);
        assert!(proof.check(&Anchor::Key(key().public())).is_err(), "{name}");
    }
}

#[test]
fn hash_of_pair_is_no_ed25519_key() {
    let mut key = key();
    for _ in 0..50 {
        assert!(ed25519_dalek::VerifyingKey::from_bytes(&key.public()).is_err());
        key = key.next();
    }
}
