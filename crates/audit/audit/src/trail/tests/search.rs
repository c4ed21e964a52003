use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use super::*;
use crate::operations::number::{ACCESS, CREATE, GETATTR, LINK, OPEN, READ, REMOVE, RENAME, WRITE};

fn write_random(directory: &Path, count: u64) {
    create_trail(directory);
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut pick = |below: u32| rng.next_u32() % below;
    let mut log = open(directory, SECOND);
    for number in 1..=count {
        let now = number * SECOND;
        let user = pick(5);
        let path = format!("/srv/data/dir-{}/file-{}", pick(3), pick(10));
        let path2 = format!("{path}.new");
        let principal = format!("user{user}@EXAMPLE.ORG");
        let file = [pick(20) as u8, 1, 2];
        let operation = [GETATTR, OPEN, READ, WRITE, RENAME][pick(5) as usize];
        log.append_record(&Record {
            time_ns: now,
            operation,
            result: if pick(6) == 0 { 13 } else { 0 },
            principal: if user == 0 { b"" } else { principal.as_bytes() },
            uid: Some(1000 + user),
            address: Some(std::net::IpAddr::from([10, 0, 0, pick(4) as u8])),
            client: if pick(2) == 0 { b"node.example.org" } else { b"" },
            export: b"/srv/data",
            path: path.as_bytes(),
            path2: if operation == RENAME { path2.as_bytes() } else { b"" },
            file: &file,
            key: [&b"watched"[..], b"", b"secret\x01watched"][pick(3) as usize],
            ..Record::default()
        });
        log.maintain(now).unwrap();
    }
    log.sync().unwrap();
}

fn search_seqs(
    directory: &Path,
    query: &Query,
    newest_first: bool,
    reading: SearchMode,
) -> (Vec<u64>, SearchCost) {
    let mut seqs = Vec::new();
    let searched = search(directory, query, newest_first, reading, |hit| {
        let mut scratch = Vec::new();
        let record = hit.record(&mut scratch).unwrap();
        assert!(query.matches(&record));
        seqs.push(record.seq);
        true
    })
    .unwrap();
    (seqs, searched)
}

fn queries() -> Vec<Query> {
    let all = Query::default;
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        all(),
        Query { principal: vec![text("user3@EXAMPLE.ORG")], ..all() },
        Query { uid: Some(1000), ..all() },
        Query { path: vec![text("/srv/data/dir-1/file-4")], ..all() },
        Query { path: vec![text("/srv/data/dir-1/file-4.new")], ..all() },
        Query { below: vec![text("/srv/data/dir-2")], ..all() },
        Query { below: vec![text("/srv/data/dir-2/")], uid: Some(1001), ..all() },
        Query { file: vec![7, 1, 2], ..all() },
        Query { client: vec![text("10.0.0.2")], ..all() },
        Query { client: vec![text("node.example.org")], key: vec![text("watched")], ..all() },
        Query {
            outcome: Some(Outcome::Is(13)),
            principal: vec![text("user1@EXAMPLE.ORG")],
            ..all()
        },
        Query { outcome: Some(Outcome::Failure), ..all() },
        Query { outcome: Some(Outcome::Success), uid: Some(1002), ..all() },
        Query { operations: Some(crate::operations::single(RENAME)), uid: Some(1004), ..all() },
        Query {
            from_ns: Some(100 * SECOND),
            until_ns: Some(200 * SECOND),
            uid: Some(1004),
            ..all()
        },
        Query { moved: text("/srv/data/dir-0/file-0"), ..all() },
        Query { principal: vec![text("nobody@EXAMPLE.ORG")], ..all() },
        Query { export: vec![text("/elsewhere")], uid: Some(1000), ..all() },
        Query { class: Some(Class::Refusal), key: vec![text("watched")], ..all() },
    ]
}

#[test]
fn index_finds_same_records_as_scan() {
    let directory = new_directory();
    write_random(directory.path(), 600);
    let files = segments(directory.path()).unwrap();
    for file in files.iter().take(files.len() / 2) {
        compress(&SystemDisk, file, &|| true).unwrap();
    }
    for query in queries() {
        let (wanted, scanned) = search_seqs(directory.path(), &query, false, SearchMode::Scan);
        assert_eq!((scanned.scanned, scanned.built), (files.len() as u64, 0));
        let (found, _) = search_seqs(directory.path(), &query, false, SearchMode::Index);
        assert_eq!(found, wanted, "{query:?}");
        let (mut newest, searched) = search_seqs(directory.path(), &query, true, SearchMode::Index);
        newest.reverse();
        assert_eq!((newest, searched.built), (wanted, 0), "{query:?}");
    }
    let (found, searched) = search_seqs(directory.path(), &queries()[7], false, SearchMode::Index);
    assert!(
        !found.is_empty() && searched.scanned == 1 && searched.decoded <= found.len() as u64,
        "{searched:?}"
    );
}

#[test]
fn access_granting_nothing_is_found_among_failures() {
    let directory = new_trail();
    let mut log = open(directory.path(), SECOND);
    for number in 1..=60 {
        let granted = Some(number as u32 % 3);
        log.append_record(&Record {
            time_ns: number * SECOND,
            operation: ACCESS,
            requested: Some(0x1f),
            granted,
            ..Record::default()
        });
        log.maintain(number * SECOND).unwrap();
    }
    log.sync().unwrap();
    assert!(segments(directory.path()).unwrap().len() > 1);
    let denied: Vec<u64> = (1..=60).filter(|number| number % 3 == 0).collect();
    for outcome in [Outcome::Failure, Outcome::Is(13)] {
        let query = Query { outcome: Some(outcome), ..Query::default() };
        for reading in [SearchMode::Scan, SearchMode::Index] {
            assert_eq!(
                search_seqs(directory.path(), &query, false, reading).0,
                denied,
                "{outcome:?} {reading:?}"
            );
        }
    }
    let query = Query { outcome: Some(Outcome::Success), ..Query::default() };
    assert_eq!(search_seqs(directory.path(), &query, false, SearchMode::Index).0.len(), 40);
}

#[test]
fn damaged_or_wrong_index_changes_no_result() {
    let directory = new_directory();
    write_random(directory.path(), 300);
    let query = Query { uid: Some(1003), ..Query::default() };
    let (wanted, _) = search_seqs(directory.path(), &query, false, SearchMode::Scan);
    search_seqs(directory.path(), &query, false, SearchMode::Index);
    let index = directory.path().join("000000000002.index");
    let good = std::fs::read(&index).unwrap();
    std::fs::copy(directory.path().join("000000000001.index"), &index).unwrap();
    assert_eq!(
        search_seqs(directory.path(), &query, false, SearchMode::Index),
        (
            wanted.clone(),
            SearchCost {
                built: 1,
                ..search_seqs(directory.path(), &query, false, SearchMode::Index).1
            }
        )
    );
    for damaged in [&b""[..], &good[..40], &good[..80]] {
        std::fs::write(&index, damaged).unwrap();
        assert_eq!(search_seqs(directory.path(), &query, false, SearchMode::Index).0, wanted);
    }
    assert_eq!(std::fs::read(&index).unwrap(), good);
    for at in (64..good.len()).step_by(3) {
        let mut bad = good.clone();
        bad[at] ^= 0x41;
        std::fs::write(&index, bad).unwrap();
        let (found, _) = search_seqs(directory.path(), &query, false, SearchMode::Index);
        assert!(found.iter().all(|seq| wanted.contains(seq)));
    }
}

#[test]
fn search_stops_when_callback_returns_false() {
    let directory = new_directory();
    write_random(directory.path(), 300);
    for (newest_first, wanted) in [(false, vec![1, 2, 3]), (true, vec![300, 299, 298])] {
        let mut found = Vec::new();
        search(directory.path(), &Query::default(), newest_first, SearchMode::Index, |hit| {
            found.push(hit.record(&mut Vec::new()).unwrap().seq);
            found.len() < 3
        })
        .unwrap();
        assert_eq!(found, wanted);
    }
}

fn append_operation(log: &mut Log, operation: u16, path: &str, path2: &str, file: &[u8]) -> u64 {
    let now_ns = log.next_seq() * SECOND;
    let record = Record {
        time_ns: now_ns,
        operation,
        path: path.as_bytes(),
        path2: path2.as_bytes(),
        file,
        ..Record::default()
    };
    let seq = log.append_record(&record);
    log.maintain(now_ns).unwrap();
    seq
}

#[test]
fn file_history_follows_renames_of_file_and_directories() {
    let directory = new_trail();
    let mut log = open(directory.path(), SECOND);
    let mut wanted = Vec::new();
    append_operation(&mut log, OPEN, "/e/a/plan", "", b"old");
    append_operation(&mut log, REMOVE, "/e/a/plan", "", b"");
    wanted.push(append_operation(&mut log, OPEN, "/e/a/plan", "", b"one"));
    wanted.push(append_operation(&mut log, WRITE, "/e/a/plan", "", b"one"));
    wanted.push(append_operation(&mut log, RENAME, "/e/a/plan", "/e/a/final", b""));
    append_operation(&mut log, OPEN, "/e/a/plan", "", b"two");
    append_operation(&mut log, CREATE, "/e/b", "", b"dir");
    append_operation(&mut log, RENAME, "/e/a", "/e/c", b"");
    wanted.push(append_operation(&mut log, READ, "/e/c/final", "", b"one"));
    wanted.push(append_operation(&mut log, OPEN, "/e/c/final", "", b""));
    wanted.push(append_operation(&mut log, LINK, "/e/c/final", "/e/b/link", b""));
    wanted.push(append_operation(&mut log, READ, "/e/b/link", "", b"one"));
    wanted.push(append_operation(&mut log, RENAME, "/e/c/final", "/e/c/last", b""));
    append_operation(&mut log, OPEN, "/e/c/final", "", b"three");
    wanted.push(append_operation(&mut log, REMOVE, "/e/c/last", "", b""));
    append_operation(&mut log, OPEN, "/e/c/last", "", b"four");
    log.sync().unwrap();
    drop(log);
    for reading in [SearchMode::Index, SearchMode::Scan] {
        for seed in
            [FileSeed::File(b"one"), FileSeed::Path(b"/e/c/last"), FileSeed::Path(b"/e/a/final")]
        {
            let names = file_history(directory.path(), reading, seed).unwrap();
            let query = Query { names: Some(names), ..Query::default() };
            let (mut found, _) = search_seqs(directory.path(), &query, false, reading);
            if let FileSeed::Path(b"/e/c/last") = seed {
                assert_eq!(found.pop(), Some(16));
            }
            assert_eq!(found, wanted, "{seed:?}");
        }
    }
}

#[test]
fn file_history_follows_time_not_sequence_number() {
    let directory = new_trail();
    let mut log = open(directory.path(), SECOND);
    let mut at = |time: u64, operation, path: &str, path2: &str, file: &[u8]| {
        let (path, path2) = (path.as_bytes(), path2.as_bytes());
        log.append_record(&Record {
            time_ns: time * SECOND,
            operation,
            path,
            path2,
            file,
            ..Record::default()
        })
    };
    let read = at(4, READ, "/e/q", "", b"one");
    let second = at(5, RENAME, "/e/q", "/e/r", b"one");
    let last = at(6, READ, "/e/r", "", b"one");
    let first = at(3, RENAME, "/e/p", "/e/q", b"one");
    let before = at(2, READ, "/e/p", "", b"one");
    at(1, READ, "/e/q", "", b"other");
    at(7, READ, "/e/q", "", b"other");
    log.sync().unwrap();
    drop(log);
    for seed in [FileSeed::File(b"one"), FileSeed::Path(b"/e/r"), FileSeed::Path(b"/e/p")] {
        let names = file_history(directory.path(), SearchMode::Scan, seed).unwrap();
        let query = Query { names: Some(names), ..Query::default() };
        assert_eq!(
            search_seqs(directory.path(), &query, false, SearchMode::Scan).0,
            [read, second, last, first, before],
            "{seed:?}"
        );
    }
}

#[test]
fn follower_survives_rotation_and_compression_and_resumes() {
    let directory = new_trail();
    let mut log = open(directory.path(), SECOND);
    let mut follower = Follower::from_position(directory.path(), Position::default());
    let (mut seen, mut place) = (Vec::new(), Position::default());
    for number in 1..=200u64 {
        put(&mut log, number, number * SECOND);
        log.maintain(number * SECOND).unwrap();
        log.write().unwrap();
        if number.is_multiple_of(7) {
            if number.is_multiple_of(3) {
                follower = Follower::from_position(directory.path(), place);
            }
            follower
                .read(|body, after, _| {
                    seen.push(crate::record::seq_and_time(body).unwrap().0);
                    place = after;
                    !seen.len().is_multiple_of(5)
                })
                .unwrap();
            if number.is_multiple_of(21) {
                log.sync().unwrap();
                for file in log.take_closed() {
                    compress(&SystemDisk, &file, &|| true).unwrap();
                }
            }
        }
    }
    log.close(201 * SECOND).unwrap();
    while follower
        .read(|body, _, _| {
            seen.push(crate::record::seq_and_time(body).unwrap().0);
            true
        })
        .unwrap()
    {}
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
    assert_eq!(follower.skipped_segments(), 0);
    assert!(!Follower::from_end(directory.path()).unwrap().read(|_, _, _| true).unwrap());
    let mut late =
        Follower::from_position(directory.path(), Position { segment: 1, offset: 0, next_seq: 1 });
    for file in segments(directory.path()).unwrap().iter().take(3) {
        std::fs::remove_file(&file.path).unwrap();
    }
    late.read(|_, _, _| false).unwrap();
    assert_eq!(late.skipped_segments(), 3);
}

#[test]
fn records_replaced_after_crash_are_read_again() {
    let directory = new_trail();
    let wide = Options { rotation: Rotation::default(), ..options() };
    let mut log =
        Log::open(Arc::new(SystemDisk), directory.path(), wide.clone(), SECOND).unwrap().0;
    (1..=4).for_each(|number| assert!(put(&mut log, number, SECOND) > 0));
    log.sync().unwrap();
    let file = segments(directory.path()).unwrap().remove(0).path;
    let durable = std::fs::metadata(&file).unwrap().len();
    (5..=6).for_each(|number| assert!(put(&mut log, number * 100_000, SECOND) > 0));
    log.write().unwrap();
    drop(log);
    let mut follower = Follower::from_position(directory.path(), Position::default());
    follower.read(|_, _, _| true).unwrap();
    let place = follower.position();
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(durable).unwrap();
    let mut log = Log::open(Arc::new(SystemDisk), directory.path(), wide, 2 * SECOND).unwrap().0;
    (6..=40).for_each(|number| assert!(put(&mut log, number, 2 * SECOND) > 0));
    log.sync().unwrap();
    let mut seen = Vec::new();
    let mut follower = Follower::from_position(directory.path(), place);
    follower
        .read(|body, _, _| {
            seen.push(crate::record::seq_and_time(body).unwrap().0);
            true
        })
        .unwrap();
    assert!((5..=40).all(|seq| seen.contains(&seq)), "{seen:?}");
}

#[test]
fn auid_query_matches_login_user() {
    let query = Query { auid: Some(1000), ..Query::default() };
    let record = |uid, login| Record { uid: Some(uid), login, ..Record::default() };
    assert!(query.matches(&record(1000, None)) && query.matches(&record(0, Some(1000))));
    assert!(!query.matches(&record(1000, Some(0))) && !query.matches(&record(0, None)));
}

#[test]
fn follower_withholds_records_from_limit_on() {
    let directory = written_trail(40);
    let mut follower = Follower::from_position(directory.path(), Position::default());
    let read = |follower: &mut Follower| {
        let mut seen = Vec::new();
        follower
            .read(|body, _, boot| {
                assert_eq!(boot, Some(options().boot));
                seen.extend(crate::record::seq_and_time(body).map(|(seq, _)| seq));
                true
            })
            .unwrap();
        seen
    };
    follower.set_limit(0);
    assert_eq!(read(&mut follower), Vec::<u64>::new());
    follower.set_limit(18);
    assert_eq!(read(&mut follower), (1..18).collect::<Vec<_>>());
    assert_eq!(read(&mut follower), Vec::<u64>::new());
    let mut again = Follower::from_position(directory.path(), follower.position());
    again.set_limit(20);
    assert_eq!(read(&mut again), [18, 19]);
    follower.set_limit(u64::MAX);
    assert_eq!(read(&mut follower).first(), Some(&18));
}
