//! Power cuts after every step: the old or the new revision is intact, nothing acknowledged is
//! lost.

mod fixtures;
mod power_cut;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fixtures::{HOSTID, leaf, logged, try_revision};
use power_cut::{Note, QuietDisk, RecordingDisk, Step, cut, durable_manifests, visible_manifest};
use vouch_log::checkpoint::SignedCheckpoint;
use vouch_log::evidence::{LogEvidence, is_evidence};
use vouch_tree_store::conformance::IV;
use vouch_tree_store::disk::Disk;
use vouch_tree_store::{
    CollectOptions, Database, FrameSink, FrameSource, Pending, RemoteView, Result, WriteOptions,
    Writer, open_log,
};
use vouch_xdr::Xdr as _;

fn leaves(number: u64) -> std::ops::Range<u64> {
    number * 7..number * 7 + 15 + number
}

fn run_writer_life(disk: &Arc<dyn Disk>, path: &Path, note: &dyn Fn(Note)) -> Result<()> {
    Database::create_on(&**disk, path, HOSTID, IV)?;
    note(Note::Created);
    let open_with = |fresh_count_max| {
        let pack_len = Some(12_000);
        Database::open_write(
            path,
            WriteOptions { disk: disk.clone(), pack_len, fresh_count_max, ..Default::default() },
        )
    };
    let open = || open_with(10);
    let collect = |grace| {
        let pack_len = Some(12_000);
        Database::collect(
            path,
            CollectOptions { disk: disk.clone(), pack_len, grace, ..Default::default() },
        )
        .map(drop)
    };
    let commit = |writer: &Writer, number| {
        let mut new = try_revision(writer, number, leaves(number))?;
        new.keep = Some(2);
        let new = logged(writer, new)?;
        note(Note::Asked(number));
        if number % 2 == 0 {
            let pending = Pending { revision: new, earlier: None };
            writer.hold(&pending)?;
            note(Note::Shown(number));
            writer.commit_pending(pending)?;
        } else {
            writer.commit(new)?;
        }
        note(Note::Acknowledged(number));
        Ok(())
    };
    let writer = open()?;
    commit(&writer, 1)?;
    try_revision(&writer, 2, leaves(2))?;
    writer.checkpoint()?;
    commit(&writer, 2)?;
    try_revision(&writer, 3, leaves(3))?;
    drop(writer);
    let writer = open()?;
    commit(&writer, 3)?;
    commit(&writer, 4)?;
    drop(writer);
    collect(None)?;
    // Each record goes to a segment at once.
    let writer = open_with(1)?;
    commit(&writer, 5)?;
    writer.set_statements(vec![b"statement".to_vec()])?;
    commit(&writer, 6)?;
    commit(&writer, 7)?;
    drop(writer);
    collect(None)?;
    note(Note::FreesAtOnce);
    collect(Some(Duration::ZERO))
}

fn acknowledged_revisions(steps: &[Step]) -> (bool, u64, u64) {
    let notes = steps
        .iter()
        .filter_map(|step| if let Step::Note(note) = step { Some(*note) } else { None });
    notes.fold((false, 0, 0), |(created, acknowledged, asked), note| match note {
        Note::Created => (true, acknowledged, asked),
        Note::Asked(number) => (created, acknowledged, number),
        Note::Acknowledged(number) => (created, number, asked),
        Note::FreesAtOnce | Note::Shown(_) => (created, acknowledged, asked),
    })
}

/// The newest revision whose checkpoint witnesses may have seen.
fn shown(steps: &[Step]) -> u64 {
    let shown = |step: &Step| match step {
        Step::Note(Note::Shown(number)) => Some(*number),
        _ => None,
    };
    steps.iter().filter_map(shown).next_back().unwrap_or(0)
}

/// Complete until the end of their grace period.
fn earlier_manifests(steps: &[Step], root: &Path) -> Vec<Vec<u8>> {
    if steps.iter().any(|step| matches!(step, Step::Note(Note::FreesAtOnce))) {
        return Vec::new();
    }
    let manifests = durable_manifests(steps, root);
    manifests.into_iter().rev().take(3).collect()
}

fn assert_complete(path: &Path, earlier: &[Vec<u8>], what: &str) {
    let newest = std::fs::read(path.join("manifest")).unwrap();
    for manifest in earlier {
        std::fs::write(path.join("manifest"), manifest).unwrap();
        assert_sound(path, &format!("{what}: a reader of an earlier manifest"));
    }
    std::fs::write(path.join("manifest"), newest).unwrap();
}

fn assert_no_unused_file(path: &Path, what: &str) {
    let newest = Database::open_read(path).unwrap();
    for dir in ["packs", "index"] {
        for entry in std::fs::read_dir(path.join(dir)).unwrap() {
            let name = format!("{dir}/{}", entry.unwrap().file_name().to_str().unwrap());
            assert!(newest.file(&name).unwrap().is_some(), "{what}: no manifest names {name}");
        }
    }
}

/// True if `log/checkpoint` was older than the manifest.
fn check(
    path: &Path,
    (created, acknowledged, asked): (bool, u64, u64),
    earlier: &[Vec<u8>],
    (visible, shown): (Option<Vec<u8>>, u64),
    what: &str,
) -> bool {
    if !Database::exists(path) {
        assert!(!created, "{what}: a created database is missing");
        std::fs::create_dir_all(path).unwrap();
        Database::create_on(&QuietDisk, path, HOSTID, IV).unwrap();
        return false;
    }
    let reader = Database::open_read(path).unwrap_or_else(|error| panic!("{what}: {error}"));
    let revisions = reader.revisions();
    let head = revisions.last().map_or(0, |revision| revision.number);
    assert!(
        (acknowledged..=asked).contains(&head),
        "{what}: revision {head}, {acknowledged} acknowledged, {asked} asked for"
    );
    for revision in &revisions {
        for (handle, frame) in leaves(revision.number).map(leaf) {
            assert_eq!(
                reader.get(&handle).unwrap(),
                Some(frame),
                "{what}: a leaf of revision {}",
                revision.number
            );
        }
    }
    assert_sound(path, what);
    let wanted = reader.evidence().map(|evidence| evidence.proof.checkpoint.to_text());
    let written = std::fs::read(path.join("log/checkpoint")).unwrap_or_default();
    let is_behind = wanted.is_some_and(|wanted| wanted.into_bytes() != written);
    let notes = Database::verify(path, None).unwrap().notes;
    assert_eq!(notes.len(), usize::from(is_behind), "{what}: log/checkpoint: {notes:?}");
    let writer = Database::open_write(path, options_without_sync())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    if let Some(pending) = writer.pending().unwrap() {
        writer.commit_pending(pending).unwrap();
    }
    let shown_head = writer.revisions().last().map_or(0, |revision| revision.number);
    assert!(shown_head >= shown, "{what}: witnesses have seen revision {shown}");
    check_log(path, &writer, visible, what);
    for (handle, frame) in revisions.iter().flat_map(|revision| leaves(revision.number)).map(leaf) {
        assert!(
            !writer.put(&handle, &frame).unwrap(),
            "{what}: the writer lacks a frame that the reader has"
        );
    }
    let head = writer.revisions().last().map_or(0, |revision| revision.number);
    let mut next = try_revision(&writer, head + 1, 5..60).unwrap();
    next.keep = Some(1);
    let next = logged(&writer, next).unwrap();
    writer.commit(next).unwrap();
    assert_eq!(log_size(&writer), head + 1, "{what}: entries of the log");
    drop(writer);
    assert_sound(path, what);
    let collect = |grace| {
        Database::collect(
            path,
            CollectOptions { disk: options_without_sync().disk, grace, ..Default::default() },
        )
    };
    collect(None).unwrap();
    assert_complete(path, earlier, what);
    assert_sound(path, what);
    collect(Some(Duration::ZERO)).unwrap();
    assert_sound(path, what);
    assert_no_unused_file(path, what);
    let reader = Database::open_read(path).unwrap();
    (5..60).map(leaf).for_each(|(handle, frame)| {
        assert_eq!(reader.get(&handle).unwrap(), Some(frame), "{what}: after continuing")
    });
    is_behind
}

fn log_size(writer: &Writer) -> u64 {
    writer.evidence().unwrap().map_or(0, |found| found.proof.checkpoint.checkpoint().size)
}

/// The log has each revision once, continues the head that a reader has seen, and its checkpoint
/// file is that of the manifest.
fn check_log(path: &Path, writer: &Writer, visible: Option<Vec<u8>>, what: &str) {
    let head = writer.revisions().last().map_or(0, |revision| revision.number);
    assert_eq!(log_size(writer), head, "{what}: entries of the log");
    if head > 0 {
        let checkpoint = writer.evidence().unwrap().unwrap().proof.checkpoint;
        let mut log = open_log(writer.log_files(), &checkpoint)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let written = std::fs::read(path.join("log/checkpoint")).unwrap();
        assert_eq!(written, checkpoint.to_text().into_bytes(), "{what}");
        if let Some(seen) = visible.and_then(checkpoint_of) {
            let seen = seen.checkpoint();
            assert_eq!(log.root_at(seen.size).unwrap(), seen.root, "{what}: two logs");
        }
    }
}

fn checkpoint_of(manifest: Vec<u8>) -> Option<SignedCheckpoint> {
    let view = RemoteView::parse(&manifest).unwrap();
    let evidence = view.statements().iter().find(|found| is_evidence(found))?;
    Some(LogEvidence::from_xdr(evidence).unwrap().proof.checkpoint)
}

fn options_without_sync() -> WriteOptions {
    WriteOptions { disk: Arc::new(QuietDisk), ..Default::default() }
}

fn assert_sound(path: &Path, what: &str) {
    let verified = Database::verify(path, None).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(verified.is_sound(), "{what}: {:?}", verified.problems);
}

#[test]
fn power_cut_leaves_old_or_new_revision_intact() {
    let dir = fixtures::fast_dir();
    let (from, recording) = (dir.path().join("live"), RecordingDisk::default());
    std::fs::create_dir(&from).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(recording.clone());
    run_writer_life(&disk, &from.join("db"), &|note| recording.note(note)).unwrap();
    let steps = recording.steps();
    assert!(steps.len() > 200, "only {} steps were recorded", steps.len());
    let mut behind = 0;
    for at in 0..=steps.len() {
        for seed in 0..SEEDS {
            let to = dir.path().join("cut");
            std::fs::create_dir(&to).unwrap();
            cut(&steps[..at], seed * 1_000_003 + at as u64, &from, &to);
            let is_behind = check(
                &to.join("db"),
                acknowledged_revisions(&steps[..at]),
                &earlier_manifests(&steps[..at], &from.join("db")),
                (visible_manifest(&steps[..at], &from.join("db")), shown(&steps[..at])),
                &format!(
                    "after step {at} ({:?}), seed {seed}",
                    at.checked_sub(1).map(|i| describe(&steps[i]))
                ),
            );
            behind += u64::from(is_behind);
            std::fs::remove_dir_all(&to).unwrap();
        }
    }
    assert!(behind > 0, "no cut left log/checkpoint behind the manifest");
}

/// Without a log, too: another revision of the same number would accuse the publisher.
#[test]
fn power_cut_takes_back_no_revision_that_a_reader_saw() {
    let dir = fixtures::fast_dir();
    let (from, recording) = (dir.path().join("live"), RecordingDisk::default());
    std::fs::create_dir(&from).unwrap();
    let db = from.join("db");
    Database::create_on(&recording, &db, HOSTID, IV).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(recording.clone());
    let writer =
        Database::open_write(&db, WriteOptions { disk, ..WriteOptions::default() }).unwrap();
    let mut heads = Vec::new();
    for number in 1..4 {
        let new = try_revision(&writer, number, leaves(number)).unwrap();
        heads.push(new.signed.clone());
        writer.commit(new).unwrap();
    }
    let (steps, to) = (recording.steps(), dir.path().join("cut"));
    for (at, seed) in (0..=steps.len()).flat_map(|at| (0..SEEDS).map(move |seed| (at, seed))) {
        let Some(seen) = visible_manifest(&steps[..at], &db) else { continue };
        let Some(seen) = RemoteView::parse(&seen).unwrap().head().map(<[u8]>::to_vec) else {
            continue;
        };
        let number = 1 + heads.iter().position(|head| *head == seen).unwrap() as u64;
        std::fs::create_dir(&to).unwrap();
        cut(&steps[..at], seed, &from, &to);
        let writer = Database::open_write(&to.join("db"), options_without_sync()).unwrap();
        let newest = writer.revisions().last().map_or(0, |revision| revision.number);
        assert!(newest >= number, "after step {at}, seed {seed}: {number} was seen, not {newest}");
        drop(writer);
        std::fs::remove_dir_all(&to).unwrap();
    }
}

#[test]
fn power_cut_during_creation_leaves_none_or_usable_database() {
    let dir = fixtures::fast_dir();
    let (from, recording) = (dir.path().join("live"), RecordingDisk::default());
    std::fs::create_dir(&from).unwrap();
    Database::create_on(&recording, &from.join("db"), HOSTID, IV).unwrap();
    let (steps, to) = (recording.steps(), dir.path().join("cut"));
    for (at, seed) in (0..=steps.len()).flat_map(|at| (0..64).map(move |seed| (at, seed))) {
        std::fs::create_dir(&to).unwrap();
        cut(&steps[..at], seed, &from, &to);
        let what = format!("after step {at}, seed {seed}");
        Database::ensure(&QuietDisk, &to.join("db"), HOSTID, IV, Duration::ZERO)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        Database::open_write(&to.join("db"), options_without_sync())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        std::fs::remove_dir_all(&to).unwrap();
    }
}

/// The first creator was killed before its last syncs, so the next writer makes them up. Else a power
/// cut leaves its packs without a manifest, which nobody may overwrite.
#[test]
fn power_cut_after_killed_creation_leaves_none_or_usable_database() {
    let dir = fixtures::fast_dir();
    let (from, recording) = (dir.path().join("live"), RecordingDisk::default());
    std::fs::create_dir(&from).unwrap();
    let db = from.join("db");
    Database::create_on(&recording, &db, HOSTID, IV).unwrap();
    let created = recording.steps().len();
    let disk: Arc<dyn Disk> = Arc::new(recording.clone());
    let writer =
        Database::open_write(&db, WriteOptions { disk, ..WriteOptions::default() }).unwrap();
    writer.commit(try_revision(&writer, 1, leaves(1)).unwrap()).unwrap();
    let mut steps = recording.steps();
    let is_rename = |step: &Step| matches!(step, Step::Rename(..));
    let killed = 1 + steps[..created].iter().position(is_rename).unwrap();
    assert!(killed < created, "the creation syncs after its rename");
    steps.drain(killed..created);
    let to = dir.path().join("cut");
    for (at, seed) in (0..=steps.len()).flat_map(|at| (0..16).map(move |seed| (at, seed))) {
        std::fs::create_dir(&to).unwrap();
        cut(&steps[..at], seed, &from, &to);
        let what = format!("after step {at}, seed {seed}");
        Database::ensure(&QuietDisk, &to.join("db"), HOSTID, IV, Duration::ZERO)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let writer = Database::open_write(&to.join("db"), options_without_sync())
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(at < steps.len() || writer.revisions().len() == 1, "{what}: a revision is lost");
        drop(writer);
        std::fs::remove_dir_all(&to).unwrap();
    }
}

fn describe(step: &Step) -> String {
    match step {
        Step::Append(id, bytes) => format!("append {} bytes to file {id}", bytes.len()),
        other => format!("{other:?}"),
    }
}

const SEEDS: u64 = 4;
