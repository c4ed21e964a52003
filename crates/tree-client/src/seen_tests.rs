//! Tests of the memory of what was seen.

use super::*;

fn memory(revision: u64) -> Memory {
    let seen = Seen { revision, fsinfo_hash: [revision as u8; 32], cert_serial: revision, start: revision * 10 };
    Memory { seen, signed: vec![revision as u8; 8], statements: Vec::new() }
}

fn hostid() -> HostId {
    HostId::from_bytes([6; 32])
}

#[test]
fn what_was_seen_survives_a_restart_and_never_moves_back() {
    let dir = tempfile::tempdir().unwrap();
    let open = || SeenStore::new(Some(dir.path().join("deep/state")), true);
    assert_eq!(open().load(&hostid()).unwrap(), Memory::default());
    open().advance(&hostid(), memory(7)).unwrap();
    assert_eq!(open().load(&hostid()).unwrap(), memory(7));
    assert_eq!(open().advance(&hostid(), memory(3)).unwrap(), memory(7));
    assert_eq!(open().load(&hostid()).unwrap(), memory(7));
}

#[test]
fn two_processes_never_take_each_other_back() {
    let dir = tempfile::tempdir().unwrap();
    let open = || SeenStore::new(Some(dir.path().into()), true);
    let (slow, fast) = (open(), open());
    slow.load(&hostid()).unwrap();
    fast.advance(&hostid(), memory(9)).unwrap();
    assert_eq!(slow.advance(&hostid(), memory(8)).unwrap(), memory(9), "the slow one learns what the other saw");
    assert_eq!(open().load(&hostid()).unwrap(), memory(9));
}

#[test]
fn many_threads_leave_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let next = std::sync::atomic::AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = SeenStore::new(Some(dir.path().into()), true);
                for _ in 0..10 {
                    store.advance(&hostid(), memory(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))).unwrap();
                }
            });
        }
    });
    assert_eq!(SeenStore::new(Some(dir.path().into()), true).load(&hostid()).unwrap(), memory(40));
}

#[test]
fn a_full_disk_is_a_warning_or_an_error_as_asked_and_leaves_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let open = |required| SeenStore::new(Some(dir.path().into()), required);
    open(true).advance(&hostid(), memory(2)).unwrap();
    let full: WriteFile = |_, _| Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
    assert!(matches!(open(true).with_writer(full).advance(&hostid(), memory(5)), Err(Error::Local { .. })));
    let lenient = open(false).with_writer(full);
    assert_eq!(lenient.advance(&hostid(), memory(5)).unwrap(), memory(5));
    assert_eq!(lenient.load(&hostid()).unwrap(), memory(5), "this process still does not go back");
    assert_eq!(open(true).load(&hostid()).unwrap(), memory(2));
}

#[test]
fn a_damaged_file_is_a_warning_or_an_error_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(hostid().to_string());
    SeenStore::new(Some(dir.path().into()), true).advance(&hostid(), memory(2)).unwrap();
    let whole = fs::read(&path).unwrap();
    for damaged in [&whole[..whole.len() - 1], &[&whole[..], b"x"].concat(), b""] {
        fs::write(&path, damaged).unwrap();
        assert!(SeenStore::new(Some(dir.path().into()), true).load(&hostid()).is_err());
        assert_eq!(SeenStore::new(Some(dir.path().into()), false).load(&hostid()).unwrap(), Memory::default());
    }
    SeenStore::new(Some(dir.path().into()), false).advance(&hostid(), memory(4)).unwrap();
    assert_eq!(SeenStore::new(Some(dir.path().into()), true).load(&hostid()).unwrap(), memory(4));
}

#[test]
fn the_file_is_what_its_format_says() {
    let dir = tempfile::tempdir().unwrap();
    SeenStore::new(Some(dir.path().into()), true).advance(&hostid(), memory(2)).unwrap();
    let bytes = fs::read(dir.path().join(hostid().to_string())).unwrap();
    let body = [
        &b"VOUCHSEE"[..],
        &[0, 0, 0, 1],
        &[0, 0, 0, 0, 0, 0, 0, 2],
        &[2; 32],
        &[0, 0, 0, 0, 0, 0, 0, 2],
        &[0, 0, 0, 0, 0, 0, 0, 20],
        &[0, 0, 0, 8],
        &[2; 8],
        &[0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(bytes[..body.len()], body);
    assert_eq!(bytes[body.len()..], *blake3::hash(&body).as_bytes());
}
