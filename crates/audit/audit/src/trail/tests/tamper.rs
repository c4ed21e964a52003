use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::*;
use crate::chain::{Chain, TAG_LEN, leaf_hash};
use crate::frame::{HEAD_LEN, Kind, MAGIC, parse};

const COUNT: u64 = 60;

struct Trail {
    directory: tempfile::TempDir,
    files: Vec<(PathBuf, Vec<u8>)>,
    records: Vec<(usize, Range<usize>)>,
}

fn trail() -> Trail {
    let directory = written_trail(COUNT);
    let files: Vec<_> = segments(directory.path())
        .unwrap()
        .into_iter()
        .map(|file| (file.path.clone(), fs::read(&file.path).unwrap()))
        .collect();
    let mut records = Vec::new();
    for (index, (_, bytes)) in files.iter().enumerate() {
        for (kind, range) in frames(bytes) {
            if kind == Kind::Record {
                records.push((index, range));
            }
        }
    }
    assert_eq!(records.len() as u64, COUNT);
    Trail { directory, files, records }
}

fn frames(bytes: &[u8]) -> Vec<(Kind, Range<usize>)> {
    let mut at = MAGIC.len();
    let mut frames = Vec::new();
    while at < bytes.len() {
        let frame = parse(&bytes[at..]).unwrap();
        frames.push((frame.kind, at..at + frame.len()));
        at += frame.len();
    }
    frames
}

impl Trail {
    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn faults_with(&self, segment: usize, bytes: &[u8]) -> Vec<Fault> {
        fs::write(&self.files[segment].0, bytes).unwrap();
        let report = verified(self.path());
        fs::write(&self.files[segment].0, &self.files[segment].1).unwrap();
        report.faults
    }

    fn single_fault_with(&self, segment: usize, bytes: &[u8]) -> Fault {
        let mut faults = self.faults_with(segment, bytes);
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults.remove(0)
    }
}

fn rechain(bytes: &mut [u8]) {
    let header = crate::frame::Header::decode(parse(&bytes[MAGIC.len()..]).unwrap().body).unwrap();
    let mut chain = Chain(header.previous);
    for (_, range) in frames(bytes) {
        chain = chain.extend(&leaf_hash(&bytes[range.start..range.end - TAG_LEN]));
        bytes[range.end - TAG_LEN..range.end].copy_from_slice(&chain.tag());
    }
}

#[test]
fn altered_byte_is_found_at_its_record() {
    let trail = trail();
    for (index, (segment, range)) in trail.records.iter().enumerate() {
        for at in range.clone().step_by(5) {
            let mut bytes = trail.files[*segment].1.clone();
            bytes[at] ^= 1 << (at % 8);
            let fault = trail.single_fault_with(*segment, &bytes);
            assert_eq!(
                (fault.segment, fault.offset, fault.seq),
                (*segment as u64 + 1, range.start as u64, index as u64 + 1),
                "{fault}"
            );
        }
    }
}

#[test]
fn altered_record_with_recomputed_chain_contradicts_seal() {
    let trail = trail();
    for (index, (segment, range)) in trail.records.iter().enumerate() {
        let mut bytes = trail.files[*segment].1.clone();
        bytes[range.start + HEAD_LEN + 20] ^= 1;
        rechain(&mut bytes);
        let faults = trail.faults_with(*segment, &bytes);
        let fault = &faults[0];
        assert_eq!((fault.kind, fault.segment), (FaultKind::Rewritten, *segment as u64 + 1));
        assert!(fault.seq <= index as u64 + 1 && fault.seq + 10 > index as u64, "{fault}");
    }
}

#[test]
fn each_removed_duplicated_or_swapped_record_is_found() {
    let trail = trail();
    for (index, (segment, range)) in trail.records.iter().enumerate() {
        let original = &trail.files[*segment].1;
        let edited = |replaced: Range<usize>, by: &[u8]| {
            let mut bytes = original.clone();
            bytes.splice(replaced, by.iter().copied());
            let fault = trail.single_fault_with(*segment, &bytes);
            (fault.kind, fault.offset as usize, fault.seq)
        };
        assert_eq!(edited(range.clone(), b""), (FaultKind::Removed, range.start, index as u64 + 1));
        let (kind, offset, _) = edited(range.end..range.end, &original[range.clone()]);
        assert_eq!(
            (kind, offset),
            (FaultKind::Inserted, range.end),
            "record {index} is duplicated"
        );
        let Some((_, next)) = trail
            .records
            .get(index + 1)
            .filter(|(other, next)| other == segment && next.start == range.end)
        else {
            continue;
        };
        let swapped = [&original[next.clone()], &original[range.clone()]].concat();
        let (kind, offset, _) = edited(range.start..next.end, &swapped);
        assert_eq!(
            (kind, offset),
            (FaultKind::Reordered, range.start),
            "record {index} is swapped with the next"
        );
    }
}

#[test]
fn trail_cut_at_any_record_or_without_a_segment_is_found() {
    let trail = trail();
    for (segment, range) in &trail.records {
        for end in [range.start, range.start + 3, range.end - 1] {
            for (path, _) in &trail.files[segment + 1..] {
                fs::remove_file(path).unwrap();
            }
            let faults = trail.faults_with(*segment, &trail.files[*segment].1[..end]);
            assert!(faults.iter().any(|fault| fault.kind == FaultKind::Cut), "{faults:?}");
            assert!(faults.iter().all(|fault| fault.segment == *segment as u64 + 1), "{faults:?}");
            for (path, bytes) in &trail.files[segment + 1..] {
                fs::write(path, bytes).unwrap();
            }
        }
    }
    for (path, bytes) in &trail.files {
        fs::remove_file(path).unwrap();
        let faults = faults(trail.path());
        fs::write(path, bytes).unwrap();
        assert!(
            matches!(&faults[..], [fault] if matches!(fault.kind, FaultKind::Removed | FaultKind::Cut)),
            "{faults:?}"
        );
    }
}

#[test]
fn another_trail_and_its_checkpoint_are_reported() {
    let other = new_directory();
    create_key(
        &SystemDisk,
        &other.path().join(KEY_FILE),
        &crate::keys::Ratchet::new([8; 16], &[8; 32]),
    )
    .unwrap();
    open(other.path(), SECOND).close(SECOND).unwrap();
    let found = faults(other.path());
    assert!(matches!(&found[..], [fault] if fault.kind == FaultKind::OtherKey), "{found:?}");
    assert!(
        found[0].to_string().starts_with("the trail begins with another key than the given one"),
        "{}",
        found[0]
    );
    let own_word = verify(other.path(), &Trust::default(), |_, _| {}).unwrap();
    assert_eq!((own_word.faults.len(), own_word.notes.len()), (0, 2));
    let checkpoints = vec![read_checkpoint(&other.path().join(CHECKPOINT_FILE)).unwrap()];
    let faults =
        verify(trail().path(), &Trust { checkpoints, ..trust() }, |_, _| {}).unwrap().faults;
    let reported =
        format!("to another trail: {}, and this is {}", "08".repeat(16), "07".repeat(16));
    assert!(
        matches!(&faults[..], [fault] if fault.kind == FaultKind::Forged && fault.description.ends_with(&reported)),
        "{faults:?}"
    );
}

#[test]
fn stolen_key_cannot_cut_before_external_checkpoint() {
    let directory = new_trail();
    let mut log = open(directory.path(), SECOND);
    put(&mut log, 1, SECOND);
    log.rotate(SECOND).unwrap();
    let stolen: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    put(&mut log, 2, SECOND);
    log.rotate(SECOND).unwrap();
    let checkpoint = read_checkpoint(&directory.path().join(CHECKPOINT_FILE)).unwrap();
    log.close(SECOND).unwrap();
    let with = Trust { checkpoints: vec![checkpoint], ..trust() };
    assert_eq!(verify(directory.path(), &with, |_, _| {}).unwrap().faults, []);
    for entry in fs::read_dir(directory.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (path, bytes) in stolen {
        fs::write(path, bytes).unwrap();
    }
    let log = open(directory.path(), 2 * SECOND);
    log.close(2 * SECOND).unwrap();
    assert_eq!(faults(directory.path()), []);
    let faults = verify(directory.path(), &with, |_, _| {}).unwrap().faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
}

#[test]
fn record_text_is_quoted_in_report() {
    let directory = new_trail();
    let mut log = open(directory.path(), SECOND);
    let hostile = b"\x1b[2J\x1b[Hsound: 5 records\n\x1b[8m\xe2\x80\xae\xff\"";
    log.append_record(&Record {
        class: Class::Administrative,
        operation: crate::record::Act::Recovered as u16,
        detail: hostile,
        ..Record::default()
    });
    log.close(SECOND).unwrap();
    let report = verified(directory.path());
    let note = report.notes.iter().find(|note| note.contains("after a crash")).unwrap();
    assert!(
        note.ends_with(r#"a crash: "\u{1b}[2J\u{1b}[Hsound: 5 records\n\u{1b}[8m\u{202e}�\"""#),
        "{note:?}"
    );
}

fn cut(trail: &Trail, left: usize) -> crate::seal::Seal {
    for (path, _) in &trail.files[left..] {
        fs::remove_file(path).unwrap();
    }
    let (_, bytes) = &trail.files[left - 1];
    let (_, range) = frames(bytes).pop().unwrap();
    let seal = parse(&bytes[range]).unwrap().body.to_vec();
    fs::write(trail.path().join(CHECKPOINT_FILE), &seal).unwrap();
    crate::seal::Seal::decode(&seal).unwrap()
}

#[test]
fn forged_key_file_does_not_hide_cut() {
    let other = [3; 16];
    let forged_key = |trail: [u8; 16], epoch: u64| {
        let mut key = crate::keys::Ratchet::new(trail, &[5; 32]);
        while key.epoch() < epoch {
            key = key.next();
        }
        key.encode()
    };
    for (of_trail, epochs_back) in [(true, 0), (true, 1), (true, 2), (false, 0)] {
        let trail = trail();
        let seal = cut(&trail, trail.files.len() - 2);
        let path = trail.path().join(KEY_FILE);
        fs::write(
            &path,
            &*forged_key(if of_trail { seal.trail } else { other }, seal.epoch + 1 - epochs_back),
        )
        .unwrap();
        for trust in [trust(), Trust { key: Some(path.clone()), ..trust() }] {
            let report = verify(trail.path(), &trust, |_, _| {}).unwrap();
            assert!(
                matches!(&report.faults[..], [fault] if fault.kind == FaultKind::Forged),
                "{:?}",
                report.faults
            );
            assert!(
                report.notes.iter().any(|note| note.starts_with("nothing outside this directory")),
                "{:?}",
                report.notes
            );
        }
    }
}

#[test]
fn key_file_kept_elsewhere_reveals_cut() {
    let trail = trail();
    let elsewhere = new_directory();
    let key = elsewhere.path().join(KEY_FILE);
    fs::copy(trail.path().join(KEY_FILE), &key).unwrap();
    cut(&trail, trail.files.len() - 1);
    let report = verify(trail.path(), &Trust { key: Some(key), ..trust() }, |_, _| {}).unwrap();
    assert!(
        matches!(&report.faults[..], [fault] if fault.kind == FaultKind::Cut),
        "{:?}",
        report.faults
    );
    assert_eq!(report.notes, Vec::<String>::new());
}
