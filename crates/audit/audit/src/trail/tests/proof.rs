use super::*;
use crate::proof::{Anchor, PROOF_LEN_MAX, Proof, ProofError};

#[test]
fn each_record_is_proven_by_first_key() {
    let directory = written_trail(60);
    let anchor = Anchor::Key(key().public());
    for seq in 1..=60 {
        let proof = prove(directory.path(), seq, None).unwrap().unwrap();
        let proof = Proof::decode(&proof.encode()).unwrap();
        let body = proof.check(&anchor).unwrap();
        assert_eq!(
            Record::decode(body, &mut Vec::new()).unwrap().path,
            format!("/srv/data/file-{seq}").as_bytes()
        );
        assert_eq!(proof.check(&Anchor::Key([5; 32])), Err(ProofError::Anchor));
    }
    assert!(prove(directory.path(), 61, None).unwrap().is_none());
}

#[test]
fn any_altered_byte_invalidates_proof() {
    let directory = written_trail(8);
    let bytes = prove(directory.path(), 6, None).unwrap().unwrap().encode();
    let anchor = Anchor::Key(key().public());
    for at in (0..bytes.len()).step_by(11) {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        let checked =
            Proof::decode(&bad).and_then(|proof| proof.check(&anchor).map(<[u8]>::to_vec));
        assert!(checked.is_err(), "byte {at}");
    }
    for len in (0..bytes.len()).step_by(11) {
        assert!(
            Proof::decode(&bytes[..len])
                .and_then(|proof| proof.check(&anchor).map(<[u8]>::to_vec))
                .is_err()
        );
    }
}

#[test]
fn checkpoint_shortens_proof() {
    let directory = written_trail(40);
    let long = prove(directory.path(), 39, None).unwrap().unwrap();
    let checkpoint = long.seals[long.seals.len() / 2].clone();
    let short = prove(directory.path(), 39, Some(&checkpoint)).unwrap().unwrap();
    assert!(short.seals.len() < long.seals.len());
    let anchor = Anchor::Checkpoint(Box::new(checkpoint.clone()));
    assert_eq!(short.check(&anchor), long.check(&Anchor::Key(key().public())));
    assert_eq!(short.check(&Anchor::Key(key().public())), Err(ProofError::Anchor));
    assert!(prove(directory.path(), 1, Some(&checkpoint)).unwrap().is_none());
    let other = new_directory();
    create_key(&SystemDisk, &other.path().join(KEY_FILE), &Ratchet::new([1; 16], &[2; 32]))
        .unwrap();
    let mut log = open(other.path(), SECOND);
    put(&mut log, 1, SECOND);
    log.close(SECOND).unwrap();
    let theirs = read_checkpoint(&other.path().join(CHECKPOINT_FILE)).unwrap();
    assert_eq!(short.check(&Anchor::Checkpoint(Box::new(theirs))), Err(ProofError::Anchor));
}

#[test]
fn proof_without_one_seal_is_invalid() {
    let directory = written_trail(40);
    let whole = prove(directory.path(), 39, None).unwrap().unwrap();
    for at in 1..whole.seals.len() - 1 {
        let mut proof = whole.clone();
        proof.seals.remove(at);
        assert_eq!(proof.check(&Anchor::Key(key().public())), Err(ProofError::Seal(at as u64 + 1)));
    }
}

#[test]
fn proof_reads_only_seals_and_own_segment() {
    let directory = written_trail(60);
    let plain: Vec<_> =
        (1..=60).map(|seq| prove(directory.path(), seq, None).unwrap().unwrap()).collect();
    let files = segments(directory.path()).unwrap();
    let files: Vec<SegmentFile> = files
        .iter()
        .map(|file| {
            build_index(file).unwrap();
            compress(&SystemDisk, file, &|| true).unwrap()
        })
        .collect();
    for (seq, plain) in (1..).zip(&plain) {
        assert_eq!(
            prove(directory.path(), seq, None).unwrap().unwrap().encode(),
            plain.encode(),
            "record {seq}"
        );
    }
    let other = &files[files.len() - 3];
    let last = &plain[59];
    let (first, count) = Index::open(other, &Segment::open(other).unwrap()).unwrap().span;
    assert!(first > 1 && first + count < 60, "{first} {count}");
    let index = other.path.with_file_name(format!("{:012}.{INDEX_EXTENSION}", other.number));
    let good = std::fs::read(&index).unwrap();
    for at in 64..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&index, bad).unwrap();
        assert_eq!(
            prove(directory.path(), 60, None).unwrap().unwrap().encode(),
            last.encode(),
            "byte {at} of the index"
        );
    }
    std::fs::write(&index, good).unwrap();
    let mut plain = Segment::open(other).unwrap().load().unwrap();
    let at = plain.windows(6).position(|window| window == b"/file-").unwrap();
    plain[at] ^= 1;
    let unpacked =
        SegmentFile { is_compressed: false, path: other.path.with_extension(""), ..other.clone() };
    std::fs::write(&unpacked.path, plain).unwrap();
    std::fs::remove_file(&other.path).unwrap();
    assert_eq!(prove(directory.path(), 60, None).unwrap().unwrap().encode(), last.encode());
    assert!(!faults(directory.path()).is_empty());
}

#[test]
fn proof_with_too_long_seals_is_refused() {
    let directory = written_trail(60);
    let proof = prove(directory.path(), 60, None).unwrap().unwrap();
    assert!(proof.seals.len() > 2);
    let len = proof.seals.iter().map(|seal| 4 + seal.encode().len()).sum();
    let within = |len_max| crate::trail::prove::prove_within(directory.path(), 60, None, len_max);
    assert_eq!(within(len).unwrap(), Some(proof));
    let error = within(len - 1).unwrap_err();
    assert!(
        error.kind() == std::io::ErrorKind::InvalidInput
            && error.to_string().contains("later checkpoint"),
        "{error}"
    );
}

#[test]
fn proof_under_one_seal_needs_that_seal() {
    let directory = written_trail(60);
    let whole = prove(directory.path(), 60, None).unwrap().unwrap();
    let short = prove_under_seal(directory.path(), 60).unwrap().unwrap();
    assert_eq!(short.seals, whole.seals[whole.seals.len() - 1..]);
    let anchor = Anchor::Checkpoint(Box::new(short.seals[0].clone()));
    assert_eq!(short.check(&anchor), whole.check(&Anchor::Key(key().public())));
}

#[test]
fn too_long_proof_and_false_seal_count_are_refused() {
    let directory = written_trail(8);
    let proof = prove(directory.path(), 8, None).unwrap().unwrap();
    let mut bytes = proof.encode();
    // A claim of more seals than the file has room for reserves no memory.
    bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Proof::decode(&bytes), Err(ProofError::Malformed));
    bytes.resize(PROOF_LEN_MAX + 1, 0);
    assert_eq!(Proof::decode(&bytes), Err(ProofError::Length));
}

#[test]
fn proof_has_one_encoding() {
    let directory = written_trail(8);
    let mut proof = prove(directory.path(), 8, None).unwrap().unwrap();
    assert_eq!(Proof::decode(&proof.encode()).as_ref(), Ok(&proof));
    proof.seals.iter_mut().for_each(|seal| seal.pair = None);
    let classic = proof.encode();
    assert_eq!(Proof::decode(&classic).as_ref(), Ok(&proof));
    // The same seals in the form for pairs, of which there is none.
    let mut second_form = [b"VOUCHPF2", &classic[8..24]].concat();
    for seal in proof.seals.iter().map(crate::seal::Seal::encode) {
        second_form.extend_from_slice(&(seal.len() as u32).to_le_bytes());
        second_form.extend_from_slice(&seal);
    }
    let seals_len: usize = proof.seals.iter().map(|seal| seal.encode().len()).sum();
    second_form.extend_from_slice(&classic[24 + seals_len..]);
    assert_eq!(Proof::decode(&second_form), Err(ProofError::Malformed));
}
