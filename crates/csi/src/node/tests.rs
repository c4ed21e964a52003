use rustix::mount::{UnmountFlags, unmount};

use super::*;
use crate::bind::mount_without_answers;
use crate::csi_v1::volume_capability::MountVolume;
use crate::launcher::{Launch, Launcher};
use crate::pod_tickets::Shown;
use vouch_jobs::wire::Reply;

fn service(directory: &Path) -> NodeService {
    let records = Arc::new(Records::open(directory.join("published")).unwrap());
    let launcher = Launcher::new(Launch::Process, directory, Vec::new()).unwrap();
    let mounts = Mounts::open(directory, launcher, records.clone(), Duration::ZERO).unwrap();
    NodeService {
        node_id: "node".into(),
        mounts: Arc::new(mounts),
        records,
        targets: Locks::default(),
        asked: Locks::default(),
        tickets: Arc::new(
            PodTickets::open(directory.join("agent.sock"), directory.join("ended.json")).unwrap(),
        ),
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
    let device = mount_without_answers(&target);
    let volume = Volume::Export { source: "s:/".into(), options: String::new(), job: None };
    assert!(service.records.add("v", &target, volume, false).is_ok());
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

/// An agent that says yes, and notes what it was asked.
fn agent(socket: &Path) -> std::sync::mpsc::Receiver<serde_json::Value> {
    agent_with(socket, Reply::Done)
}

fn agent_with(socket: &Path, reply: Reply) -> std::sync::mpsc::Receiver<serde_json::Value> {
    use std::io::{Read as _, Write as _};
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let (send, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut connection, mut lengths) = (connection.unwrap(), [0; 8]);
            connection.read_exact(&mut lengths).unwrap();
            let len = u32::from_be_bytes(*lengths.last_chunk().unwrap());
            let mut text = vec![0; len as usize];
            connection.read_exact(&mut text).unwrap();
            send.send(serde_json::from_slice(&text).unwrap()).unwrap();
            let reply = vouch_jobs::wire::encode(&reply, b"");
            connection.write_all(&(reply.len() as u32).to_be_bytes()).unwrap();
            connection.write_all(&reply).unwrap();
        }
    });
    asked
}

/// The mount fails here, as its server is nobody: then the tickets are gone too.
#[tokio::test]
async fn token_of_the_pod_is_shown_and_its_job_ends_with_the_volume() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path());
    let asked = agent(&directory.path().join("agent.sock"));
    let tokens = r#"{"vouch-jobs":{"token":"a.b.c","expirationTimestamp":"2027-01-01T00:00:00Z"}}"#;
    let publish = |context: &[(&str, &str)]| {
        let export =
            [("server", "192.0.2.1"), ("share", "/v"), ("sec", "krb5p"), ("podTickets", "true")];
        let context = export.iter().chain(context);
        service.node_publish_volume(Request::new(NodePublishVolumeRequest {
            volume_id: "v".into(),
            target_path: directory.path().join("pod").display().to_string(),
            volume_capability: Some(VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume {
                    mount_flags: vec!["vers=4,wrong".into()],
                    ..Default::default()
                })),
                access_mode: None,
            }),
            volume_context: context.map(|&(key, value)| (key.into(), value.into())).collect(),
            ..Default::default()
        }))
    };
    let uid = ("csi.storage.k8s.io/pod.uid", "6f4d2b1e-5a34-4c58-b7ad-0f5a3b1e2c77");
    for (context, missing) in [(&[][..], "podInfoOnMount"), (&[uid][..], "tokenRequests")] {
        let status = publish(context).await.unwrap_err();
        assert!(status.message().contains(missing), "{status}");
    }
    assert!(asked.try_recv().is_err());
    let failed = publish(&[uid, ("csi.storage.k8s.io/serviceAccount.tokens", tokens)]).await;
    assert!(failed.unwrap_err().message().contains("mount"));
    let (entered, left) = (asked.recv().unwrap(), asked.recv().unwrap());
    assert_eq!((&entered["request"], &entered["token"]), (&"enter-pod".into(), &"a.b.c".into()));
    assert_eq!((&left["request"], &left["job"]), (&"leave".into(), &entered["job"]));
    let job = entered["job"].as_str().unwrap();
    assert!(job.starts_with(&format!("pod-{}.", uid.1)), "{job}");
    assert!(!directory.path().join("pod").exists());
}

/// An agent that does not answer, as while its broker is away.
#[tokio::test]
async fn pod_that_waits_for_tickets_delays_no_end_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let service = Arc::new(service(directory.path()));
    let socket = directory.path().join("agent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (waiting, ending) = (directory.path().join("waiting"), directory.path().join("ending"));
    let volume = Volume::Export { source: "s:/v".into(), options: String::new(), job: None };
    assert!(service.records.add("v", &ending, volume, false).is_ok());
    let tokens = r#"{"vouch-jobs":{"token":"a.b.c"}}"#;
    let context = [
        ("server", "192.0.2.1"),
        ("share", "/v"),
        ("sec", "krb5p"),
        ("podTickets", "true"),
        ("client", "fuse"),
        ("csi.storage.k8s.io/pod.uid", "u1"),
        ("csi.storage.k8s.io/serviceAccount.tokens", tokens),
    ];
    let request = NodePublishVolumeRequest {
        volume_id: "v".into(),
        target_path: waiting.display().to_string(),
        volume_capability: Some(VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume::default())),
            access_mode: None,
        }),
        volume_context: context.map(|(key, value)| (key.into(), value.into())).into(),
        ..Default::default()
    };
    let publishing = service.clone();
    let waiting_pod =
        tokio::spawn(async move { publishing.node_publish_volume(Request::new(request)).await });
    let connection = tokio::task::spawn_blocking(move || listener.accept().unwrap()).await.unwrap();
    let end = NodeUnpublishVolumeRequest {
        volume_id: "v".into(),
        target_path: ending.display().to_string(),
    };
    let ended = service.node_unpublish_volume(Request::new(end));
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("no wait").unwrap();
    drop(connection);
    let status = waiting_pod.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(service.records.all(), []);
}

#[test]
fn pod_with_a_mount_of_its_own_has_a_cache_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let tickets =
        PodTickets::open(directory.path().join("agent.sock"), directory.path().join("ended.json"))
            .unwrap();
    let path = PathBuf::from("/state/pods/pod-u1.v");
    let asked =
        agent_with(&directory.path().join("agent.sock"), Reply::Cache { path: path.clone() });
    let shown = || Shown {
        job: vouch_jobs::names::JobId::parse("pod-u1.v").unwrap(),
        token: "a.b.c".into(),
        owns_cache: true,
    };
    assert_eq!(tickets.show(shown()).unwrap(), Some(path.clone()));
    assert_eq!(asked.recv().unwrap()["owns_cache"], true);
    // The same token: from memory.
    assert_eq!(tickets.show(shown()).unwrap(), Some(path));
    assert!(asked.try_recv().is_err());
}

/// Its answer to the end of one pod never comes.
#[test]
fn end_that_an_agent_does_not_answer_delays_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("agent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let tickets = PodTickets::open(socket.clone(), directory.path().join("ended.json")).unwrap();
    let tickets = &tickets;
    let job = |text| vouch_jobs::names::JobId::parse(text).unwrap();
    std::thread::scope(|scope| {
        let first = job("pod-u1.v");
        scope.spawn(move || tickets.end(&first));
        let unanswered = listener.accept().unwrap();
        drop(listener);
        std::fs::remove_file(&socket).unwrap();
        let asked = agent(&socket);
        let (send, ended) = std::sync::mpsc::channel();
        let other = job("pod-u2.v");
        scope.spawn(move || {
            tickets.end(&other);
            send.send(()).unwrap();
        });
        let ended = ended.recv_timeout(Duration::from_secs(20));
        drop(unanswered);
        ended.expect("no wait");
        assert_eq!(asked.recv().unwrap()["job"], "pod-u2.v");
    });
}

#[test]
fn agent_that_was_away_hears_of_ends_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let open = || PodTickets::open(path("agent.sock"), path("ended.json")).unwrap();
    let job = vouch_jobs::names::JobId::parse("pod-u1.v").unwrap();
    open().end(&job);
    // The next driver.
    let tickets = open();
    assert!(tickets.retry().is_err());
    let asked = agent(&path("agent.sock"));
    tickets.retry().unwrap();
    assert_eq!(asked.recv().unwrap()["job"], "pod-u1.v");
    open().retry().unwrap();
    assert!(asked.try_recv().is_err());
}
