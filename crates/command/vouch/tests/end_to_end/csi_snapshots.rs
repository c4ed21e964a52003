//! Snapshots and clones of `vouch csi`, on file systems in files of the test.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use vouch_csi::csi_v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use vouch_csi::csi_v1::*;

use crate::csi::{
    Cleared, CsiDriver, FAILED_PRECONDITION, NOT_FOUND, capability, mount_processes, run_sanity,
};
use crate::csi_exports::{NODE, request, served, start};
use crate::prelude::*;

const ALREADY_EXISTS: i32 = 6;
const OUT_OF_RANGE: i32 = 11;

/// The directory of volumes is a file system of this kind.
fn on(site: &TestSite, kind: &str) {
    site.write("disk", "");
    let disk = fs::File::options().write(true).open(site.path("disk")).expect("a file");
    disk.set_len(400 << 20).expect("room");
    site.run_tool(&format!("mkfs.{kind}"), &["-q", "disk"]);
    fs::create_dir(site.path("volumes")).expect("a directory");
    site.run_tool("mount", &["-o", "loop", "disk", "volumes"]);
}

fn from(source: Type, name: &str, bytes: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
        ..request(name, bytes, &[])
    }
}

fn snapshot(driver: &CsiDriver, volume: &str, name: &str) -> Result<Snapshot, (i32, String)> {
    let request = CreateSnapshotRequest {
        source_volume_id: volume.into(),
        name: name.into(),
        ..Default::default()
    };
    driver
        .call::<CreateSnapshotResponse>("Controller/CreateSnapshot", &request)
        .map(|made| made.snapshot.expect("required"))
}

fn create(driver: &CsiDriver, request: &CreateVolumeRequest) -> Result<Volume, (i32, String)> {
    driver
        .call::<CreateVolumeResponse>("Controller/CreateVolume", request)
        .map(|created| created.volume.expect("required"))
}

fn delete(driver: &CsiDriver, volume: &str) {
    let request = DeleteVolumeRequest { volume_id: volume.into(), ..Default::default() };
    driver.call::<DeleteVolumeResponse>("Controller/DeleteVolume", &request).expect("deleted");
}

fn delete_snapshot(driver: &CsiDriver, id: &str) {
    let request = DeleteSnapshotRequest { snapshot_id: id.into(), ..Default::default() };
    driver.call::<DeleteSnapshotResponse>("Controller/DeleteSnapshot", &request).expect("deleted");
}

/// As in the chart's container.
fn start_controller(site: &TestSite, options: &[String]) -> CsiDriver {
    let starter = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
    CsiDriver::start_by(site, &starter, &options.iter().map(String::as_str).collect::<Vec<_>>())
}

fn check(kind: &str) {
    require("root", is_root());
    require_program("setpriv");
    require_program(&format!("mkfs.{kind}"));
    let site = TestSite::new();
    let _cleared = Cleared(site.path(""));
    on(&site, kind);
    let (_export, options) = served(&site);
    let driver = start_controller(&site, &options);
    create(&driver, &request("pvc-1", 1 << 20, &[])).expect("created");
    let volume = site.path("volumes/pvc-1");
    fs::create_dir(volume.join("dir")).expect("a directory");
    fs::write(volume.join("dir/file"), "before").expect("written");
    fs::set_permissions(volume.join("dir/file"), fs::Permissions::from_mode(0o640)).expect("own");
    chown(volume.join("dir/file"), Some(1000), Some(1001)).expect("changed");

    assert_eq!(snapshot(&driver, "pvc-9", "s1").expect_err("no volume").0, NOT_FOUND);
    let made = snapshot(&driver, "pvc-1", "s1").expect("a snapshot");
    assert!(made.ready_to_use && made.size_bytes == 1 << 20, "{made:?}");
    fs::write(volume.join("dir/file"), "after").expect("written");
    // Another controller knows it.
    driver.kill();
    let driver = start_controller(&site, &options);
    assert_eq!(snapshot(&driver, "pvc-1", "s1").expect("the same"), made);
    create(&driver, &request("pvc-2", 1 << 20, &[])).expect("created");
    assert_eq!(snapshot(&driver, "pvc-2", "s1").expect_err("taken").0, ALREADY_EXISTS);

    let of_snapshot = || Type::Snapshot(SnapshotSource { snapshot_id: "s1".into() });
    let of_volume = Type::Volume(VolumeSource { volume_id: "pvc-1".into() });
    let small = create(&driver, &from(of_snapshot(), "small", 1000)).expect_err("too small");
    assert_eq!(small.0, OUT_OF_RANGE);
    let restored = from(of_snapshot(), "restored", 2 << 20);
    create(&driver, &restored).expect("created");
    let again = create(&driver, &restored).expect("the same");
    assert_eq!(again.content_source, restored.volume_content_source);
    create(&driver, &from(of_volume, "cloned", 0)).expect("created");
    for (name, text) in [("restored", "before"), ("cloned", "after")] {
        let file = site.path("volumes").join(name).join("dir/file");
        assert_eq!(fs::read_to_string(&file).expect("copied"), text);
        let metadata = fs::metadata(&file).expect("it");
        let seen = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
        assert_eq!(seen, (1000, 1001, 0o640));
        fs::write(&file, "own").expect("a volume of its own");
    }
    assert_eq!(fs::read_to_string(volume.join("dir/file")).expect("it"), "after");

    let attach = ControllerPublishVolumeRequest {
        volume_id: "pvc-2".into(),
        node_id: NODE.into(),
        volume_capability: Some(capability()),
        ..Default::default()
    };
    driver
        .call::<ControllerPublishVolumeResponse>("Controller/ControllerPublishVolume", &attach)
        .expect("exported");
    let of_used = from(Type::Volume(VolumeSource { volume_id: "pvc-2".into() }), "of-used", 0);
    let (taken, cloned) = (snapshot(&driver, "pvc-2", "s2"), create(&driver, &of_used));
    if kind == "xfs" {
        assert_eq!(taken.expect_err("in use").0, FAILED_PRECONDITION);
        assert_eq!(cloned.expect_err("in use").0, FAILED_PRECONDITION);
    } else {
        taken.expect("a snapshot");
        cloned.expect("created");
        delete(&driver, "of-used");
        delete_snapshot(&driver, "s2");
    }
    let detach = ControllerUnpublishVolumeRequest {
        volume_id: "pvc-2".into(),
        node_id: NODE.into(),
        ..Default::default()
    };
    driver
        .call::<ControllerUnpublishVolumeResponse>("Controller/ControllerUnpublishVolume", &detach)
        .expect("no longer exported");

    // A snapshot outlives its volume.
    delete(&driver, "pvc-1");
    let listed: ListSnapshotsResponse =
        driver.call("Controller/ListSnapshots", &ListSnapshotsRequest::default()).expect("a list");
    assert_eq!(listed.entries[0].snapshot.as_ref(), Some(&made));
    create(&driver, &from(of_snapshot(), "later", 0)).expect("created");
    delete_snapshot(&driver, "s1");
    delete_snapshot(&driver, "s1");
    ["pvc-2", "restored", "cloned", "later"].iter().for_each(|volume| delete(&driver, volume));
    assert_eq!((site.count("volumes"), site.count("volumes/.snapshots")), (2, 0));
}

#[test]
#[ignore = "needs root and mkfs.xfs"]
fn xfs_copies_volumes_by_reflinks() {
    check("xfs");
}

#[test]
#[ignore = "needs root and mkfs.btrfs"]
fn btrfs_copies_volumes_as_subvolumes() {
    check("btrfs");
}

#[test]
#[ignore = "needs root and mkfs.ext4"]
fn ext4_refuses_snapshots() {
    require("root", is_root());
    let site = TestSite::new();
    let _cleared = Cleared(site.path(""));
    on(&site, "ext4");
    let (_export, options) = served(&site);
    let driver = start(&site, &options);
    create(&driver, &request("pvc-1", 1 << 20, &[])).expect("created");
    let (code, text) = snapshot(&driver, "pvc-1", "s1").expect_err("no reflinks");
    assert!(code == FAILED_PRECONDITION && text.contains("reflinks"), "{code} {text}");
}

/// Both services, with mounts: `client: fuse` needs no NFS client of the kernel.
#[test]
#[ignore = "needs root, FUSE, mkfs.xfs and Go"]
fn csi_sanity_finds_no_fault_in_exports_with_snapshots() {
    require("root", is_root());
    let site = TestSite::new();
    let _cleared = Cleared(site.path(""));
    on(&site, "xfs");
    let (export, options) = served(&site);
    let _driver = start(&site, &options);
    let port = export.address.port();
    let class = format!("client: fuse\nserver: 127.0.0.1\nport: \"{port}\"\n");
    site.write("parameters.yaml", class);
    run_sanity(&site, &["--csi.testvolumesize=1048576", "--csi.testvolumeexpandsize=2097152"]);
    within(60, "a process stays", || mount_processes(&site).is_empty());
}
