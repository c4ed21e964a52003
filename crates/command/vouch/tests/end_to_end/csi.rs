//! `vouch csi`: volumes of trees, as kubelet asks for them.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use vouch_csi::csi_v1::volume_capability::access_mode::Mode;
use vouch_csi::csi_v1::volume_capability::{AccessMode, AccessType, MountVolume};
use vouch_csi::csi_v1::*;

use crate::prelude::*;

pub(crate) const INVALID_ARGUMENT: i32 = 3;
pub(crate) const NOT_FOUND: i32 = 5;
pub(crate) const FAILED_PRECONDITION: i32 = 9;
const UNAVAILABLE: i32 = 14;
/// No answer.
pub(crate) const KILLED: i32 = -1;

pub(crate) struct CsiDriver {
    child: KillOnDrop,
    socket: PathBuf,
}

impl CsiDriver {
    pub(crate) fn start(site: &TestSite, options: &[&str]) -> CsiDriver {
        Self::start_by(site, &[], options)
    }

    /// `starter` is a command that executes its last arguments, as setpriv(1).
    pub(crate) fn start_by(site: &TestSite, starter: &[&str], options: &[&str]) -> CsiDriver {
        let socket = site.path("csi.sock");
        let socket_text = socket.display().to_string();
        let fixed =
            ["csi", "--socket", &socket_text, "--driver-state", "driver", "--node-id", "127.0.0.1"];
        let own = site.command([&fixed, options].concat());
        let program = own.get_program().to_str().expect("text");
        let line = [starter, &[program]].concat();
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).args(own.get_args()).current_dir(site.path(""));
        command.stdin(Stdio::null());
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("VOUCH_RUNTIME_DIR", site.path("run"));
        let (child, line) = crate::test_site::start(&mut command);
        assert!(line.starts_with("serving csi.vouch on "), "{line:?}");
        CsiDriver { child, socket }
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// It has been killed.
    pub(crate) fn reap(mut self) {
        self.child.wait().expect("a child");
    }

    /// A call of gRPC without a stream. An error has its code and text.
    pub(crate) fn call<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, (i32, String)> {
        let path = format!("http://csi/csi.v1.{method}");
        let mut frame = vec![0];
        frame.extend(u32::try_from(request.encoded_len()).expect("small").to_be_bytes());
        request.encode(&mut frame).expect("room");
        let exchange = async {
            let stream = tokio::net::UnixStream::connect(&self.socket).await?;
            let io = TokioIo::new(stream);
            let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
            let (mut sender, connection) = handshake.await.map_err(std::io::Error::other)?;
            tokio::spawn(connection);
            let head = hyper::Request::post(path)
                .header("content-type", "application/grpc")
                .header("te", "trailers");
            let request = head.body(Full::new(Bytes::from(frame))).expect("valid");
            let response = sender.send_request(request).await.map_err(std::io::Error::other)?;
            let head = response.headers().clone();
            let body = response.into_body().collect().await.map_err(std::io::Error::other)?;
            let trailers = body.trailers().cloned().unwrap_or(head);
            std::io::Result::Ok((trailers, body.to_bytes()))
        };
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (trailers, body) =
            runtime.block_on(exchange).map_err(|error| (KILLED, error.to_string()))?;
        let field = |name: &str| {
            trailers
                .get(name)
                .map(|value| value.to_str().expect("text").to_owned())
                .unwrap_or_default()
        };
        match field("grpc-status").parse().expect("a code") {
            0 => Ok(A::decode(&body[5..]).expect("the answer of this call")),
            code => Err((code, field("grpc-message").replace("%20", " "))),
        }
    }

    pub(crate) fn publish(
        &self,
        site: &TestSite,
        volume_id: &str,
        target: &str,
        attributes: &[(&str, &str)],
    ) -> Result<(), (i32, String)> {
        let request = NodePublishVolumeRequest {
            volume_id: volume_id.into(),
            target_path: site.path(target).display().to_string(),
            volume_capability: Some(capability()),
            volume_context: context(attributes),
            ..Default::default()
        };
        self.call::<NodePublishVolumeResponse>("Node/NodePublishVolume", &request).map(drop)
    }

    pub(crate) fn unpublish(&self, site: &TestSite, volume_id: &str, target: &str) {
        let request = NodeUnpublishVolumeRequest {
            volume_id: volume_id.into(),
            target_path: site.path(target).display().to_string(),
        };
        self.call::<NodeUnpublishVolumeResponse>("Node/NodeUnpublishVolume", &request)
            .expect("unpublished");
        assert!(!site.path(target).exists());
    }

    fn health(&self, volume_id: &str) -> VolumeHealth {
        let request =
            NodeGetVolumeHealthRequest { volume_id: volume_id.into(), ..Default::default() };
        let answer: NodeGetVolumeHealthResponse =
            self.call("Node/NodeGetVolumeHealth", &request).expect("known");
        answer.volume_health.expect("required")
    }
}

pub(crate) fn capability() -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::MultiNodeReaderOnly.into() }),
    }
}

pub(crate) fn context(attributes: &[(&str, &str)]) -> HashMap<String, String> {
    attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Processes whose command line names the site's driver.
pub(crate) fn mount_processes(site: &TestSite) -> Vec<u32> {
    let trees = site.path("driver/trees").display().to_string();
    let entries = fs::read_dir("/proc").expect("proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&trees))
    })
    .collect()
}

/// Ends the mounts that a failed test would leave.
pub(crate) struct Cleared(pub(crate) PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        let ours =
            vouch_tree_mount::mounts().unwrap_or_default().into_iter().map(|(point, _)| point);
        ours.filter(|point| point.starts_with(&self.0))
            .for_each(|point| drop(Command::new("umount").arg("-l").arg(point).status()));
    }
}

#[test]
#[ignore = "needs root and FUSE"]
fn pods_share_a_mount_that_outlives_the_driver() {
    require("root", is_root());
    let (site, _replica) = TestSite::served();
    let _cleared = Cleared(site.path(""));
    let name = site.name("");
    let driver = CsiDriver::start(&site, &[]);
    driver.publish(&site, "v1", "pods/a", &[("name", &name)]).expect("published");
    driver
        .publish(&site, "v1", "pods/b", &[("name", &name), ("csi.storage.k8s.io/pod.name", "b")])
        .expect("published");
    driver.publish(&site, "v2", "pods/c", &[("name", &name), ("path", "dir")]).expect("published");
    assert_eq!(site.count("driver/trees"), 1);
    let processes = mount_processes(&site);
    assert_eq!(processes.len(), 2, "a supervisor and a worker");
    let open = fs::File::open(site.path("pods/a/dir/numbers")).expect("published");
    driver.kill();
    // Pods read on, and a new driver knows them.
    assert_eq!(fs::read_to_string(site.path("pods/b/hello")).expect("mounted"), "hello world\n");
    let driver = CsiDriver::start(&site, &["--idle-max", "1s"]);
    driver.publish(&site, "v1", "pods/a", &[("name", &name)]).expect("it is there");
    let begun = Instant::now();
    driver
        .publish(&site, "v3", "pods/d", &[("name", &name), ("path", "/dir/")])
        .expect("published");
    println!("published in {:?} where the tree is mounted", begun.elapsed());
    assert_eq!(mount_processes(&site), processes);
    assert!(site.path("pods/d/numbers").is_file() && site.path("pods/c/numbers").is_file());
    assert!(fs::write(site.path("pods/d/new"), "x").is_err());
    assert_eq!(driver.health("v3").health_statuses, []);
    let status: Value = serde_json::from_str(&{
        let mut command = site.command("status --json");
        String::from_utf8(
            command.env("VOUCH_RUNTIME_DIR", site.path("run")).output().expect("runs").stdout,
        )
        .expect("text")
    })
    .expect("JSON");
    let daemons = status["daemons"].as_array().expect("a list");
    let detail =
        &daemons.iter().find(|daemon| daemon["kind"] == "csi").expect("the driver")["detail"];
    assert_eq!((&detail["published_trees"], &detail["trees"]), (&4.into(), &1.into()));
    drop(open);
    for (volume, target) in
        [("v1", "pods/a"), ("v1", "pods/b"), ("v2", "pods/c"), ("v3", "pods/d"), ("v3", "pods/d")]
    {
        driver.unpublish(&site, volume, target);
    }
    within(30, "the unused tree stays mounted", || site.count("driver/trees") == 0);
    within(30, "the process stays", || mount_processes(&site).is_empty());
}

#[test]
#[ignore = "needs root and FUSE"]
fn dead_mount_is_mounted_again_for_its_pods() {
    require("root", is_root());
    let (site, mut replica) = TestSite::served();
    let _cleared = Cleared(site.path(""));
    let name = site.name("");
    let driver = CsiDriver::start(&site, &["--", "--timeout", "2s"]);
    fs::create_dir(site.path("pods")).expect("a directory");
    fs::create_dir(site.path("seen")).expect("a directory");
    site.run_tool("mount", &["--bind", "--make-shared", "pods", "pods"]);
    driver.publish(&site, "v1", "pods/a", &[("name", &name)]).expect("published");
    // A running container, with `mountPropagation: HostToContainer`.
    let mut container = Command::new("unshare");
    container.args(["--mount", "--propagation", "slave", "sh", "-c"]);
    container.arg("mount --bind pods/a seen && exec sleep infinity").current_dir(site.path(""));
    let container = KillOnDrop(container.spawn().expect("unshare(1)"));
    let seen = format!("/proc/{}/root{}/hello", container.0.id(), site.path("seen").display());
    within(20, "no container", || fs::read(&seen).is_ok());
    driver.publish(&site, "v2", "pods/b", &[("name", &name), ("path", "dir")]).expect("published");
    let kill = || {
        // The supervisor first: it would start another worker.
        mount_processes(&site).into_iter().for_each(|pid| signal("KILL", pid));
    };
    kill();
    within(60, "the mount stays dead", || {
        site.path("pods/a/hello").is_file() && site.path("pods/b/numbers").is_file()
    });
    within(20, "the container has the dead mount", || fs::read(&seen).is_ok());
    let mut status = site.command("status");
    let status = status.env("VOUCH_RUNTIME_DIR", site.path("run")).output().expect("runs").stdout;
    let status = String::from_utf8(status).expect("text");
    let of_site = site.path("pods").display().to_string();
    let mut lines = status.lines().filter(|line| line.contains(&of_site));
    assert!(!lines.any(|line| line.contains("no status")), "{status}");
    // A pod that starts while the tree is dead gets a mount that works.
    kill();
    driver.publish(&site, "v3", "pods/c", &[("name", &name)]).expect("published");
    assert_eq!(fs::read_to_string(site.path("pods/c/hello")).expect("mounted"), "hello world\n");
    // The kernel may answer for a dead mount from its cache.
    let device = |path: &str| fs::metadata(site.path(path)).map(|file| file.dev()).ok();
    within(60, "the mount stays dead", || device("pods/a") == device("pods/c"));
    // A pod that can't read is reported while no mount can be made.
    replica.kill();
    let mut seen = Vec::new();
    let shown = eventually(Duration::from_secs(60), || {
        seen = driver.health("v1").health_statuses;
        if seen.is_empty() {
            kill();
            let _ = fs::remove_dir_all(site.path("driver/cache"));
        }
        seen.first().is_some_and(|entry| entry.reason == "MountDead" && !entry.message.is_empty())
    });
    assert!(shown, "{seen:?}");
    for (volume, target) in [("v1", "pods/a"), ("v2", "pods/b"), ("v3", "pods/c")] {
        driver.unpublish(&site, volume, target);
    }
}

/// Resident memory of processes, in KiB.
fn resident_kib(pids: &[u32]) -> usize {
    let of = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    pids.iter().map(of).sum()
}

/// `VOUCH_CSI_PODS` starts more pods; the driver is killed at each tenth.
#[test]
#[ignore = "needs root and FUSE"]
fn pods_come_and_go_while_the_driver_is_killed() {
    require("root", is_root());
    let (site, _replica) = TestSite::served();
    let _cleared = Cleared(site.path(""));
    let pods: usize =
        std::env::var("VOUCH_CSI_PODS").map_or(60, |text| text.parse().expect("a number"));
    let name = site.name("");
    let mut driver = CsiDriver::start(&site, &[]);
    driver.publish(&site, "reader", "pods/reader", &[("name", &name)]).expect("published");
    let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (path, stopped, count) =
        (site.path("pods/reader/dir/numbers"), stop.clone(), reads.clone());
    let expected = fs::read(site.path("src/dir/numbers")).expect("the source");
    let reader = std::thread::spawn(move || {
        while !stopped.load(Ordering::SeqCst) {
            assert!(fs::read(&path).expect("a pod that runs reads on") == expected);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let processes = mount_processes(&site);
    let (mut running, mut slowest, mut kills) = (Vec::new(), Duration::ZERO, 0);
    for number in 0..pods {
        let (volume, target) = (format!("v{number}"), format!("pods/{number}"));
        let killer = (number % 10 == 9).then(|| {
            let (pid, pause) = (driver.child.id(), Duration::from_millis(number as u64 / 10 % 10));
            std::thread::spawn(move || {
                std::thread::sleep(pause);
                signal("KILL", pid);
            })
        });
        let begun = Instant::now();
        let published = driver.publish(&site, &volume, &target, &[("name", &name)]);
        if killer.is_none() {
            slowest = slowest.max(begun.elapsed());
        }
        if let Some(killer) = killer {
            killer.join().expect("no panic");
            kills += 1;
            driver.kill();
            driver = CsiDriver::start(&site, &[]);
            // As kubelet does, also where the answer came before the kill.
            driver.publish(&site, &volume, &target, &[("name", &name)]).expect("published");
        } else {
            published.expect("published");
        }
        assert!(site.path(&target).join("hello").is_file());
        running.push((volume, target));
        if running.len() > 8 {
            let (volume, target) = running.remove(0);
            driver.unpublish(&site, &volume, &target);
        }
    }
    stop.store(true, Ordering::SeqCst);
    reader.join().expect("no read failed");
    assert_eq!(mount_processes(&site), processes);
    let before = resident_kib(&[&processes[..], &[driver.child.id()]].concat());
    let further: Vec<String> = (0..100).map(|number| format!("further/{number}")).collect();
    for target in &further {
        driver.publish(&site, target, target, &[("name", &name)]).expect("published");
    }
    let after = resident_kib(&[&processes[..], &[driver.child.id()]].concat());
    println!(
        "{pods} pods, {kills} kills, {} reads of another pod; slowest publication {slowest:?}; {} KiB for each of 100 pods",
        reads.load(Ordering::SeqCst),
        after.saturating_sub(before) / 100
    );
    running.push(("reader".into(), "pods/reader".into()));
    running.extend(further.into_iter().map(|target| (target.clone(), target)));
    for (volume, target) in running {
        driver.unpublish(&site, &volume, &target);
    }
    assert_eq!(site.count("driver/published"), 0);
    let mounts = vouch_tree_mount::mounts().expect("the mount table");
    let left = mounts.into_iter().filter(|(point, _)| point.starts_with(site.path("pods")));
    assert_eq!(left.count(), 0);
}

#[test]
#[ignore = "needs root and FUSE"]
fn volume_attributes_select_what_a_pod_sees() {
    require("root", is_root());
    let site = TestSite::new();
    site.small_tree();
    std::os::unix::fs::symlink("/etc", site.path("src/out")).expect("a link");
    std::os::unix::fs::symlink("dir", site.path("src/in")).expect("a link");
    site.publish_with(&["--tag", "v1"]);
    let _replica = site.serve();
    let _cleared = Cleared(site.path(""));
    site.write("src/hello", "hello again\n");
    site.publish();
    let name = site.name("");
    let driver = CsiDriver::start(&site, &["--", "--timeout", "2s"]);
    for (target, content, more) in [
        ("n", "hello again\n", &[][..]),
        ("r", "hello world\n", &[("revision", "1")]),
        ("t", "hello world\n", &[("tag", "v1")]),
    ] {
        driver.publish(&site, target, target, &[&[("name", &*name)], more].concat()).expect(target);
        assert_eq!(fs::read_to_string(site.path(target).join("hello")).expect("mounted"), content);
    }
    driver
        .publish(&site, "in", "in-target", &[("name", &format!("{name}/in"))])
        .expect("a link within");
    assert!(site.path("in-target/numbers").is_file());
    let witness =
        "witness w w.example+ceb7f6a3+BFq0xl8Zk1vZ6o3d4m6nK3mJxq0f1v7T7Zc6oQ1m0u9k\nquorum w\n";
    for (code, part, more) in [
        (INVALID_ARGUMENT, "polcy", &[("polcy", "x")][..]),
        (INVALID_ARGUMENT, "out of the tree", &[("path", "out")]),
        (INVALID_ARGUMENT, "out of the tree", &[("path", "dir/../../..")]),
        (INVALID_ARGUMENT, "no directory", &[("path", "hello")]),
        (NOT_FOUND, "missing", &[("path", "missing")]),
        (NOT_FOUND, "v9", &[("tag", "v9")]),
        (INVALID_ARGUMENT, "policy", &[("policy", witness)]),
    ] {
        let (seen, text) = driver
            .publish(&site, "bad", "bad", &[&[("name", &*name)], more].concat())
            .expect_err(part);
        assert!(seen == code && text.contains(part), "{more:?}: {seen} {text}");
        assert!(!site.path("bad").exists());
    }
    site.run_ok("keygen --out other");
    let elsewhere = site.run_ok(&format!("name other --location 127.0.0.1:{}", free_port()));
    let (code, text) =
        driver.publish(&site, "bad", "bad", &[("name", &elsewhere)]).expect_err("no replica");
    assert_eq!(code, UNAVAILABLE, "{text}");
    let (code, text) = driver.publish(&site, "bad", "bad", &[]).expect_err("no name");
    assert!(code == INVALID_ARGUMENT && text.contains("@HOST,HOSTID"), "{text}");
    for (volume, target) in [("n", "n"), ("r", "r"), ("t", "t"), ("in", "in-target")] {
        driver.unpublish(&site, volume, target);
    }
}

#[test]
#[ignore = "needs root, FUSE and Go"]
fn csi_sanity_finds_no_fault() {
    require("root", is_root());
    let (site, _replica) = TestSite::served();
    let _cleared = Cleared(site.path(""));
    let _driver = CsiDriver::start(&site, &[]);
    site.write("parameters.yaml", format!("name: \"{}\"\n", site.name("")));
    run_sanity(&site, &[]);
}

/// The conformance tests of the interface, for the services that the driver announces.
pub(crate) fn run_sanity(site: &TestSite, more: &[&str]) {
    let mut go = Command::new("go");
    go.args(["run", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.6.0"]);
    let option = |name: &str, file: &str| format!("--csi.{name}={}", site.path(file).display());
    go.arg(format!("--csi.endpoint=unix://{}", site.path("csi.sock").display()));
    go.args([
        option("testvolumeparameters", "parameters.yaml"),
        option("mountdir", "sanity-target"),
        option("stagingdir", "sanity-stage"),
    ]);
    let output = go.args(more).output().expect("go runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", text.lines().next_back().unwrap_or_default());
}
