use super::maintenance::record_removal;
use super::*;

#[test]
fn retention_removes_oldest_segments_and_rest_verifies() {
    let directory = written_trail(100);
    let files = segments(directory.path()).unwrap();
    let none = Retention { len_max: Some(1), age_ns_min: 1 << 62, ..Retention::default() };
    let remove = |retention: &Retention, may_remove: &dyn Fn(u64) -> bool, is_recorded: bool| {
        let record = |last| is_recorded && record_removal(directory.path(), last, 200 * SECOND);
        prune(&SystemDisk, directory.path(), retention, 200 * SECOND, may_remove, record).unwrap()
    };
    assert_eq!(remove(&none, &|_| true, true), 0);
    let half = Retention { age_ns_max: Some(150 * SECOND), ..Retention::default() };
    assert_eq!(remove(&half, &|_| true, false), 0, "nothing is removed without a record");
    let first = files[0].number;
    assert_eq!(
        remove(&half, &|number| number != first, true),
        0,
        "a segment in progress and newer ones stay"
    );
    let removed = remove(&half, &|_| true, true);
    assert!(removed > 1 && removed < files.len() as u64 - 2, "{removed} of {}", files.len());
    let report = verified(directory.path());
    assert_eq!(report.faults, []);
    let all = Retention { len_max: Some(1), ..Retention::default() };
    remove(&all, &|_| true, true);
    assert_eq!(segments(directory.path()).unwrap().len(), 3);
    assert_eq!(faults(directory.path()), []);
    open(directory.path(), 300 * SECOND).close(300 * SECOND).unwrap();
    assert_eq!(faults(directory.path()), []);
    std::fs::remove_file(&segments(directory.path()).unwrap()[0].path).unwrap();
    assert_eq!(faults(directory.path()).len(), 1);
}

#[test]
fn removed_segments_without_retention_record_are_a_fault() {
    let directory = written_trail(100);
    let files = segments(directory.path()).unwrap();
    let mut seals = Vec::new();
    for file in &files[..2] {
        let bytes = std::fs::read(&file.path).unwrap();
        let mut at = crate::frame::MAGIC.len();
        while let Ok(frame) = crate::frame::parse(&bytes[at..]) {
            if matches!(frame.kind, crate::frame::Kind::Checkpoint | crate::frame::Kind::Close) {
                seals.extend_from_slice(&bytes[at..at + frame.len()]);
            }
            at += frame.len();
        }
    }
    std::fs::write(directory.path().join(REMOVED_SEALS_FILE), &seals).unwrap();
    let report = verified(directory.path());
    assert_eq!((report.faults, report.records), (vec![], 100));
    let whole = std::fs::read(&files[0].path).unwrap();
    let mut edited = whole.clone();
    let at = edited.windows(6).position(|window| window == b"file-1").unwrap();
    edited[at] = b'F';
    std::fs::write(&files[0].path, &edited).unwrap();
    assert_eq!(faults(directory.path())[0].kind, FaultKind::Altered);
    files[..2].iter().for_each(|file| std::fs::remove_file(&file.path).unwrap());
    let report = verified(directory.path());
    assert_eq!(
        report.faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(),
        [FaultKind::Removed]
    );
}
