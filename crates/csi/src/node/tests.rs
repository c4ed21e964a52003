use std::fs::File;
use std::os::fd::AsRawFd as _;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tonic::Code;

use super::*;
use crate::csi_v1::volume_capability::MountVolume;
use crate::launcher::{Launch, Launcher};

fn service(directory: &Path) -> NodeService {
    let records = Arc::new(Records::open(directory.join("published")).unwrap());
    let launcher = Launcher::new(Launch::Process, directory, Vec::new()).unwrap();
    let trees = directory.join("trees");
    let trees = Trees::open(trees, launcher, records.clone(), Duration::ZERO).unwrap();
    NodeService {
        node_id: "node".into(),
        trees: Arc::new(trees),
        records,
        volumes: Locks::default(),
        asked: Locks::default(),
    }
}

#[tokio::test]
async fn volume_within_a_pod_is_no_export() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path());
    let target = directory.path().join("pod");
    let publish = |volume_id: &str, ephemeral: &str| {
        let context = [
            ("server", "127.0.0.1"),
            ("share", "/srv/volumes/of-another-tenant"),
            ("csi.storage.k8s.io/ephemeral", ephemeral),
        ];
        let capability = VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume::default())),
            access_mode: None,
        };
        service.node_publish_volume(Request::new(NodePublishVolumeRequest {
            volume_id: volume_id.into(),
            target_path: target.display().to_string(),
            volume_capability: Some(capability),
            volume_context: context.map(|(key, value)| (key.into(), value.into())).into(),
            ..Default::default()
        }))
    };
    let inline = format!("csi-{}", "0a".repeat(32));
    for (volume_id, ephemeral) in [("v", "true"), (&inline, "true"), (&inline, "false")] {
        let status = publish(volume_id, ephemeral).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        assert!(!target.exists());
    }
}

/// A FUSE mount whose process never answers stands for the export of a server that went away.
#[tokio::test]
#[ignore = "needs root and /dev/fuse"]
async fn hung_volume_keeps_one_thread() {
    let directory = tempfile::tempdir().unwrap();
    let service = Arc::new(service(directory.path()));
    let target = directory.path().join("pod");
    std::fs::create_dir(&target).unwrap();
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let options = std::ffi::CString::new(options).unwrap();
    mount("hung", &target, "fuse", MountFlags::empty(), &*options).unwrap();
    let volume = Volume::Export { source: "s:/".into(), options: String::new() };
    service.records.add("v", &target, volume).unwrap();
    let stats = || {
        let (service, path) = (service.clone(), target.display().to_string());
        tokio::spawn(async move {
            let request = NodeGetVolumeStatsRequest {
                volume_id: "v".into(),
                volume_path: path,
                ..Default::default()
            };
            service.node_get_volume_stats(Request::new(request)).await
        })
    };
    let first = stats();
    while service.asked.is_free(&target.display().to_string()) {
        tokio::task::yield_now().await;
    }
    let second = tokio::time::timeout(3 * USAGE_WAIT, stats()).await;
    // Ends the connection, and so the first call.
    drop(device);
    assert!(first.await.unwrap().is_err());
    unmount(&target, UnmountFlags::DETACH).unwrap();
    let status = second.expect("an answer").unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}
