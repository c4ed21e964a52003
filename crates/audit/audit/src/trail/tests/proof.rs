use super::*;
use crate::proof::{Anchor, Proof, ProofError};

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
fn proof_above_seal_limit_is_refused() {
    let directory = written_trail(60);
    let proof = prove(directory.path(), 60, None).unwrap().unwrap();
    let count = proof.seals.len();
    assert!(count > 2);
    let limit_seals = crate::trail::prove::limit_seals;
    assert_eq!(limit_seals(Some(proof.clone()), count).unwrap(), Some(proof.clone()));
    let error = limit_seals(Some(proof), count - 1).unwrap_err();
    assert!(
        error.kind() == std::io::ErrorKind::InvalidInput
            && error.to_string().contains("later checkpoint"),
        "{error}"
    );
}
