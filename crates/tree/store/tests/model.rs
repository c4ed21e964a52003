//! Random operations compared with a model.

mod fixtures;
mod power_cut;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fixtures::{HOSTID, leaf, revision};
use power_cut::QuietDisk;
use proptest::prelude::*;
use vouch_tree_store::conformance::IV;
use vouch_tree_store::{
    CollectOptions, Database, FrameSink, FrameSource, Snapshot, WriteOptions, Writer,
};

#[derive(Debug, Clone)]
enum Action {
    Put(Range<u64>),
    Commit { leaves: Range<u64>, keep: Option<usize>, tagged: bool },
    Checkpoint,
    DropTag,
    Reopen,
    Collect { grace: Option<Duration> },
}

fn action() -> impl Strategy<Value = Action> {
    let range = || (0..400_u64, 1..80_u64).prop_map(|(from, len)| from..from + len);
    prop_oneof![
        4 => range().prop_map(Action::Put),
        4 => (range(), proptest::option::of(1..4_usize), any::<bool>())
            .prop_map(|(leaves, keep, tagged)| Action::Commit { leaves, keep, tagged }),
        1 => Just(Action::Checkpoint),
        1 => Just(Action::DropTag),
        2 => Just(Action::Reopen),
        2 => any::<bool>().prop_map(|at_once| Action::Collect { grace: at_once.then_some(Duration::ZERO) }),
    ]
}

struct Run {
    path: PathBuf,
    options: WriteOptions,
    writer: Option<Writer>,
    reader: Snapshot,
    stored: BTreeSet<u64>,
    kept: BTreeMap<u64, (Range<u64>, bool)>,
    number: u64,
    /// Complete until a collection without a grace period.
    manifests: BTreeSet<Vec<u8>>,
}

impl Run {
    fn new(dir: &tempfile::TempDir, fresh_count_max: usize, pack_len: u32) -> Self {
        let path = dir.path().join("db");
        Database::create_on(&QuietDisk, &path, HOSTID, IV).unwrap();
        let options = WriteOptions {
            fresh_count_max,
            pack_len: Some(pack_len),
            disk: Arc::new(QuietDisk),
            ..Default::default()
        };
        let writer = Some(Database::open_write(&path, options.clone()).unwrap());
        let reader = Database::open_read(&path).unwrap();
        Self {
            path,
            options,
            writer,
            reader,
            stored: BTreeSet::new(),
            kept: BTreeMap::new(),
            number: 0,
            manifests: BTreeSet::new(),
        }
    }

    fn writer(&self) -> &Writer {
        self.writer.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.writer = None;
        self.writer = Some(Database::open_write(&self.path, self.options.clone()).unwrap());
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Put(leaves) => {
                for seed in leaves {
                    let (handle, frame) = leaf(seed);
                    let new = self.writer().put(&handle, &frame).unwrap();
                    assert_eq!(new, self.stored.insert(seed), "leaf {seed} is new or not");
                }
            }
            Action::Commit { leaves, keep, tagged } => {
                self.number += 1;
                let mut new = revision(self.writer(), self.number, leaves.clone());
                new.keep = keep;
                new.tag = tagged.then(|| "tag".to_owned());
                self.writer().commit(new).unwrap();
                self.stored.extend(leaves.clone());
                if tagged {
                    self.kept.values_mut().for_each(|(_, has)| *has = false);
                }
                self.kept.insert(self.number, (leaves, tagged));
                if let Some(keep) = keep {
                    let newest: Vec<u64> = self.kept.keys().rev().take(keep).copied().collect();
                    self.kept.retain(|number, (_, tagged)| *tagged || newest.contains(number));
                }
            }
            Action::Checkpoint => self.writer().checkpoint().unwrap(),
            Action::DropTag => {
                let had = self.writer().drop_tag("tag").unwrap();
                let tagged: Vec<_> = self.kept.values_mut().filter(|(_, tagged)| *tagged).collect();
                assert_eq!(had, !tagged.is_empty());
                tagged.into_iter().for_each(|(_, tagged)| *tagged = false);
            }
            Action::Reopen => self.reopen(),
            Action::Collect { grace } => {
                self.writer = None;
                let (disk, pack_len) = (self.options.disk.clone(), self.options.pack_len);
                Database::collect(
                    &self.path,
                    CollectOptions { disk, pack_len, grace, ..Default::default() },
                )
                .unwrap();
                if grace.is_some() {
                    self.manifests.clear();
                }
                self.stored = self.kept.values().flat_map(|(leaves, _)| leaves.clone()).collect();
                self.reopen();
            }
        }
    }

    fn check(&mut self) {
        self.manifests.insert(std::fs::read(self.path.join("manifest")).unwrap());
        self.reader.refresh().unwrap();
        let numbers: Vec<u64> = self.reader.revisions().iter().map(|r| r.number).collect();
        assert!(numbers.iter().eq(self.kept.keys()), "{numbers:?}");
        for seed in self.kept.values().flat_map(|(leaves, _)| leaves.clone()) {
            let (handle, frame) = leaf(seed);
            assert_eq!(self.reader.get(&handle).unwrap(), Some(frame), "leaf {seed}");
        }
        for seed in 0..480 {
            assert_eq!(
                self.writer().contains(&leaf(seed).0).unwrap(),
                self.stored.contains(&seed),
                "leaf {seed} is stored or not"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_agree_with_model(
        actions in proptest::collection::vec(action(), 1..25),
        fresh_count_max in 1..60_usize,
        pack_len in 4_000..60_000_u32,
    ) {
        let dir = fixtures::fast_dir();
        let mut run = Run::new(&dir, fresh_count_max, pack_len);
        for action in actions {
            run.act(action);
            run.check();
        }
        let verified = Database::verify(&run.path, None).unwrap();
        prop_assert!(verified.is_sound(), "{:?}", verified.problems);
        drop(run.writer.take());
        for manifest in &run.manifests {
            std::fs::write(run.path.join("manifest"), manifest).unwrap();
            let verified = Database::verify(&run.path, None).unwrap();
            prop_assert!(verified.is_sound(), "an earlier manifest: {:?}", verified.problems);
        }
    }
}
