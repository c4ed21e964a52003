use super::*;

fn record(revision: u64) -> SeenRecord {
    let seen = NewestSeen {
        revision,
        fsinfo_hash: [revision as u8; 32],
        cert_serial: revision,
        start: revision * 10,
    };
    SeenRecord {
        seen,
        time_seen: revision * 10 + 1,
        signed: vec![revision as u8; 8],
        statements: Vec::new(),
        log_serial: 0,
        evidence: Vec::new(),
    }
}

fn hostid() -> HostId {
    HostId::from_bytes([6; 32])
}

fn store(dir: &tempfile::TempDir, is_required: bool) -> SeenStore {
    SeenStore::new(Some(dir.path().into()), is_required)
}

#[test]
fn record_survives_restart_and_never_moves_back() {
    let dir = tempfile::tempdir().unwrap();
    let open = || SeenStore::new(Some(dir.path().join("deep/state")), true);
    assert_eq!(open().load(&hostid()).unwrap(), SeenRecord::default());
    open().advance(&hostid(), record(7)).unwrap();
    assert_eq!(open().load(&hostid()).unwrap(), record(7));
    assert_eq!(open().advance(&hostid(), record(3)).unwrap(), record(7));
    assert_eq!(open().load(&hostid()).unwrap(), record(7));
    let (slow, fast) = (open(), open());
    slow.load(&hostid()).unwrap();
    fast.advance(&hostid(), record(9)).unwrap();
    assert_eq!(
        slow.advance(&hostid(), record(8)).unwrap(),
        record(9),
        "the slow process merges the newer record"
    );
    assert_eq!(open().load(&hostid()).unwrap(), record(9));
}

#[test]
fn concurrent_writers_leave_newest_record() {
    let dir = tempfile::tempdir().unwrap();
    let next = std::sync::atomic::AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = store(&dir, true);
                for _ in 0..10 {
                    store
                        .advance(
                            &hostid(),
                            record(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
                        )
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(store(&dir, true).load(&hostid()).unwrap(), record(40));
}

#[test]
fn full_disk_keeps_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let open = |required| store(&dir, required);
    open(true).advance(&hostid(), record(2)).unwrap();
    let full: WriteFile =
        |_, _| Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
    assert!(matches!(
        open(true).with_writer(full).advance(&hostid(), record(5)),
        Err(Error::Local { .. })
    ));
    let lenient = open(false).with_writer(full);
    assert_eq!(lenient.advance(&hostid(), record(5)).unwrap(), record(5));
    assert_eq!(lenient.load(&hostid()).unwrap(), record(5), "this process does not move back");
    assert_eq!(open(true).load(&hostid()).unwrap(), record(2));
}

#[test]
fn damaged_file_is_an_error_and_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(hostid().to_string());
    store(&dir, true).advance(&hostid(), record(2)).unwrap();
    let whole = fs::read(&path).unwrap();
    for damaged in [&whole[..whole.len() - 1], &[&whole[..], b"x"].concat(), b""] {
        fs::write(&path, damaged).unwrap();
        for required in [true, false] {
            let store = store(&dir, required);
            let error = store.load(&hostid()).unwrap_err();
            assert!(
                matches!(error, Error::StateUnreadable { .. })
                    && error.to_string().contains("move it away"),
                "{error}"
            );
            assert!(matches!(
                store.advance(&hostid(), record(1)),
                Err(Error::StateUnreadable { .. })
            ));
        }
        assert_eq!(fs::read(&path).unwrap(), damaged, "the damaged file is kept");
    }
    fs::remove_file(&path).unwrap();
    store(&dir, false).advance(&hostid(), record(4)).unwrap();
    assert_eq!(store(&dir, true).load(&hostid()).unwrap(), record(4));
}

#[test]
fn file_matches_documented_format_and_earlier_versions_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(hostid().to_string());
    store(&dir, true).advance(&hostid(), record(2)).unwrap();
    let bytes = fs::read(&path).unwrap();
    let number = |value: u8| [[0; 7].as_slice(), &[value]].concat();
    let second = [
        &b"VOUCHSEE\0\0\0\x02"[..],
        &number(2),
        &[2; 32],
        &number(2),
        &number(20),
        &number(21),
        &[0, 0, 0, 8],
        &[2; 8],
        &[0, 0, 0, 0],
    ]
    .concat();
    let mut body = second.clone();
    body[11] = 3;
    // No certificate of a log, no evidence.
    body.extend([0; 12]);
    assert_eq!(bytes[..body.len()], body);
    assert_eq!(bytes[body.len()..], *blake3::hash(&body).as_bytes());
    let mut first = b"VOUCHSEE\0\0\0\x01".to_vec();
    first.extend(record(2).seen.to_xdr());
    first.extend([&[0, 0, 0, 8][..], &[2; 8], &[0, 0, 0, 0]].concat());
    first.extend_from_slice(blake3::hash(&first).as_bytes());
    fs::write(&path, first).unwrap();
    assert_eq!(
        store(&dir, true).load(&hostid()).unwrap(),
        SeenRecord { time_seen: 0, ..record(2) }
    );
    fs::write(path, [&second[..], blake3::hash(&second).as_bytes()].concat()).unwrap();
    assert_eq!(store(&dir, true).load(&hostid()).unwrap(), record(2));
}

#[test]
fn held_lock_does_not_block_readers() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let lock = state.join(hostid().to_string()).with_extension("lock");
    SeenStore::new(Some(state.clone()), true).advance(&hostid(), record(2)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state), mode(&lock)), (0o700, 0o600));
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o644)).unwrap();
    let held = File::open(&lock).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let begun = Instant::now();
    assert_eq!(SeenStore::new(Some(state.clone()), false).load(&hostid()).unwrap(), record(2));
    assert!(begun.elapsed() < LOCK_WAIT_MAX, "reading takes no lock");
    drop(held);
    SeenStore::new(Some(state), false).advance(&hostid(), record(3)).unwrap();
    assert_eq!(mode(&lock), 0o600, "the mode is corrected");
}

#[test]
fn refuses_state_directory_writable_by_others_and_requires_one() {
    let dir = tempfile::tempdir().unwrap();
    for open in [0o777, 0o770, 0o720, 0o702] {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(open)).unwrap();
        let refused = store(&dir, false).load(&hostid());
        assert!(
            matches!(refused, Err(Error::StateExposed(ref found)) if found.mode == Some(open)),
            "{refused:?}"
        );
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(store(&dir, false).load(&hostid()).is_ok());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(dir.path(), Some(4242), None).unwrap();
        let refused = store(&dir, false).load(&hostid());
        assert!(matches!(refused, Err(Error::StateExposed(_))), "{refused:?}");
    }
    assert!(matches!(SeenStore::new(None, true).load(&hostid()), Err(Error::NoState)));
    assert_eq!(SeenStore::new(None, false).load(&hostid()).unwrap(), SeenRecord::default());
}
