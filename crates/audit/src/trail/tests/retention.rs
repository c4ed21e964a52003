use super::*;

#[test]
fn retention_removes_oldest_segments_and_rest_verifies() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 100);
    let files = segments(directory.path()).unwrap();
    let none = Retention { len_max: Some(1), age_ns_min: 1 << 62, ..Retention::default() };
    let record_removal_in_log = |last: u64| {
        let mut log = open(directory.path(), 200 * SECOND);
        let detail = format!("{PRUNED_PREFIX}{last}; their seals are kept");
        log.append_record(&Record {
            time_ns: 200 * SECOND,
            class: Class::Administrative,
            operation: crate::record::Act::Pruned as u16,
            detail: detail.as_bytes(),
            ..Record::default()
        });
        log.close(200 * SECOND).is_ok()
    };
    assert_eq!(prune(&SystemDisk, directory.path(), &none, 200 * SECOND, |_| true, record_removal_in_log).unwrap(), 0);
    let half = Retention { age_ns_max: Some(150 * SECOND), ..Retention::default() };
    assert_eq!(
        prune(&SystemDisk, directory.path(), &half, 200 * SECOND, |_| true, |_| false).unwrap(),
        0,
        "nothing is removed without a record"
    );
    let first = files[0].number;
    let may_remove = |number| number != first;
    assert_eq!(
        prune(&SystemDisk, directory.path(), &half, 200 * SECOND, may_remove, |_| true).unwrap(),
        0,
        "a segment in progress and newer ones stay"
    );
    let removed = prune(&SystemDisk, directory.path(), &half, 200 * SECOND, |_| true, record_removal_in_log).unwrap();
    assert!(removed > 1 && removed < files.len() as u64 - 2, "{removed} of {}", files.len());
    let report = verify(directory.path(), &trust(), |_, _| {}).unwrap();
    assert_eq!(report.faults, []);
    let all = Retention { len_max: Some(1), ..Retention::default() };
    prune(&SystemDisk, directory.path(), &all, 200 * SECOND, |_| true, record_removal_in_log).unwrap();
    assert_eq!(segments(directory.path()).unwrap().len(), 3);
    assert_eq!(verify(directory.path(), &trust(), |_, _| {}).unwrap().faults, []);
    open(directory.path(), 300 * SECOND).close(300 * SECOND).unwrap();
    assert_eq!(verify(directory.path(), &trust(), |_, _| {}).unwrap().faults, []);
    std::fs::remove_file(&segments(directory.path()).unwrap()[0].path).unwrap();
    assert_eq!(verify(directory.path(), &trust(), |_, _| {}).unwrap().faults.len(), 1);
}

/// An attacker without the key can copy seals into this file.
#[test]
fn removed_segments_without_retention_record_are_a_fault() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 100);
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
    let report = verify(directory.path(), &trust(), |_, _| {}).unwrap();
    assert_eq!((report.faults, report.records), (vec![], 100));
    let whole = std::fs::read(&files[0].path).unwrap();
    let mut edited = whole.clone();
    let at = edited.windows(6).position(|window| window == b"file-1").unwrap();
    edited[at] = b'F';
    std::fs::write(&files[0].path, &edited).unwrap();
    assert_eq!(verify(directory.path(), &trust(), |_, _| {}).unwrap().faults[0].kind, FaultKind::Altered);
    files[..2].iter().for_each(|file| std::fs::remove_file(&file.path).unwrap());
    let report = verify(directory.path(), &trust(), |_, _| {}).unwrap();
    assert_eq!(report.faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(), [FaultKind::Removed]);
}
