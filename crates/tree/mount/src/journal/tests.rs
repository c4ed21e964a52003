use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_xdr::Xdr as _;

use super::image::{JournalError, MountImage};
use super::record::{
    BackingRecord, HandleRecord, MountRecord, NodeRecord, OpenRecord, Record, VolumeRecord,
};
use super::{HEADER_LEN, Journal};
use crate::attributes::tests::file;
use crate::attributes::without_inline;

fn node(id: u64, lookups: u64) -> NodeRecord {
    NodeRecord {
        id: NodeId(id),
        volume: Some(3),
        parent: NodeId::ROOT,
        name: format!("file {id}").into_bytes().into(),
        other_paths: vec![(NodeId::ROOT, (*b"link").into())],
        link_group: 9,
        lookups,
        is_removed: false,
        inode: Arc::new(without_inline(&file(700, 9))),
    }
}

fn volume() -> VolumeRecord {
    VolumeRecord {
        number: 3,
        label: "@host,id".into(),
        root: NodeId::ROOT,
        signed: vec![1, 2, 3],
        is_updating: true,
    }
}

fn begun() -> (std::fs::File, Journal) {
    let file = Journal::create().unwrap();
    let journal = Journal::open(file.try_clone().unwrap(), HEADER_LEN).unwrap();
    let snapshot = journal.begin_snapshot();
    journal.append([
        Record::Mount(MountRecord::default()),
        Record::Volume(volume()),
        Record::Node(node(1, 1)),
    ]);
    journal.finish_snapshot(&snapshot);
    (file, journal)
}

#[test]
fn replay_gives_the_last_state() {
    let (file, journal) = begun();
    journal.append([Record::Node(node(5, 1)), Record::Node(node(6, 1))]);
    journal.append([Record::Lookups { id: NodeId(5), lookups: 7 }, Record::Gone(NodeId(6))]);
    let missing = |name: &[u8], is_cached| Record::Missing {
        volume: 3,
        directory: NodeId::ROOT,
        name: name.into(),
        is_cached,
    };
    journal.append([missing(b"a", true), missing(b"b", true), missing(b"a", false)]);
    let backing = BackingRecord { id: 4, blob: vouch_tree::Blob::empty(), inode: 8 };
    journal.append([Record::Open(OpenRecord {
        id: NodeId(5),
        count: 2,
        backing: Some(backing.clone()),
    })]);
    journal.append_later([Record::HandleClosed(1)]);
    journal.freeze().unwrap();
    let image = MountImage::read(&file).unwrap();
    assert_eq!(image.nodes.get(&NodeId(5)), Some(&node(5, 7)));
    assert_eq!(
        (image.node_count(), image.missing.len(), image.open_files[&NodeId(5)].backing.as_ref()),
        (2, 1, Some(&backing))
    );
    assert_eq!(image.volumes[&3], volume());
}

#[test]
fn snapshot_replaces_earlier_records() {
    let (file, journal) = begun();
    for lookups in 0..50_000 {
        journal.append([Record::Lookups { id: NodeId::ROOT, lookups }]);
    }
    assert!(journal.wants_snapshot());
    let snapshot = journal.begin_snapshot();
    journal.append([
        Record::Mount(MountRecord::default()),
        Record::Volume(volume()),
        Record::Node(node(1, 3)),
    ]);
    journal.finish_snapshot(&snapshot);
    assert!(!journal.wants_snapshot());
    let image = MountImage::read(&file).unwrap();
    assert_eq!(image.nodes[&NodeId::ROOT].lookups, 3);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
    assert!(blocks * 512 < 64 << 10, "the earlier records still take {blocks} blocks");
}

#[test]
fn half_written_frame_is_left_out() {
    let (file, journal) = begun();
    journal.append([Record::Node(node(5, 1))]);
    let len = file.metadata().unwrap().len();
    file.set_len(len - 3).unwrap();
    let image = MountImage::read(&file).unwrap();
    assert_eq!(image.node_count(), 1);
    let journal = Journal::open(file.try_clone().unwrap(), image.end).unwrap();
    journal.append([Record::Node(node(6, 1))]);
    assert!(MountImage::read(&file).unwrap().nodes.contains_key(&NodeId(6)));
}

#[test]
fn other_versions_and_damage_are_refused() {
    let (file, journal) = begun();
    let write = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).unwrap();
    journal.append([Record::Node(NodeRecord { parent: NodeId(77), ..node(5, 1) })]);
    assert!(matches!(MountImage::read(&file), Err(JournalError::Damaged(_))));
    journal.append([Record::Gone(NodeId(5))]);
    assert!(MountImage::read(&file).is_ok());
    write(8, &2u32.to_be_bytes());
    assert!(matches!(MountImage::read(&file), Err(JournalError::Version { found: 2 })));
    write(8, &1u32.to_be_bytes());
    write(16, &0u64.to_be_bytes());
    assert!(matches!(MountImage::read(&file), Err(JournalError::Incomplete)));
    assert!(MountImage::decode(b"").is_err());
}

#[test]
fn records_round_trip() {
    let handle = HandleRecord {
        handle: 1,
        id: NodeId(2),
        uid: 3,
        gid: 4,
        pid: Some(5),
        login: None,
        opened_ms: 6,
        read: 7,
        failed: 8,
        passes_through: true,
    };
    let mount = MountRecord {
        point: b"/mnt".to_vec(),
        only_user: Some(7),
        observed: true,
        ..MountRecord::default()
    };
    let older = Record::OlderDirectory {
        volume: 1,
        id: NodeId(2),
        inode: Arc::new(without_inline(&file(0, 0))),
    };
    for record in [
        Record::Mount(mount),
        Record::Volume(volume()),
        Record::Node(node(5, 2)),
        Record::Handle(handle),
        older,
    ] {
        assert_eq!(Record::from_xdr(&record.to_xdr()).unwrap(), record);
    }
}
