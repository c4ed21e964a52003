//! `vouch csi` with exports that `vouch nfs-mount` mounts, for pods with user namespaces.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use vouch_csi::csi_v1::volume_capability::{AccessType, MountVolume};
use vouch_csi::csi_v1::*;
use vouch_testkit::certificates::{Authority, Holder, user_name};

use crate::csi::{
    Cleared, CsiDriver, FAILED_PRECONDITION, KILLED, capability, context, mount_processes,
};
use crate::csi_exports::{NODE, request, served, start};
use crate::prelude::*;

type Attributes = std::collections::HashMap<String, String>;

/// A pod's call, with options of the class and the pod's Secret.
fn publish(
    driver: &CsiDriver,
    site: &TestSite,
    (volume, target): (&str, &str),
    attributes: &Attributes,
    flags: &str,
    secrets: &[(&str, String)],
) -> Result<(), (i32, String)> {
    let mount = MountVolume { mount_flags: vec![flags.into()], ..Default::default() };
    let access_type = Some(AccessType::Mount(mount));
    let request = NodePublishVolumeRequest {
        volume_id: volume.into(),
        target_path: site.path(target).display().to_string(),
        volume_capability: Some(VolumeCapability { access_type, ..capability() }),
        volume_context: attributes.clone(),
        secrets: secrets.iter().map(|(key, text)| ((*key).to_owned(), text.clone())).collect(),
        ..Default::default()
    };
    driver.call::<NodePublishVolumeResponse>("Node/NodePublishVolume", &request).map(drop)
}

fn total_bytes(driver: &CsiDriver, site: &TestSite, volume: &str, target: &str) -> i64 {
    let request = NodeGetVolumeStatsRequest {
        volume_id: volume.into(),
        volume_path: site.path(target).display().to_string(),
        ..Default::default()
    };
    let stats: NodeGetVolumeStatsResponse =
        driver.call("Node/NodeGetVolumeStats", &request).expect("stats");
    stats.usage[0].total
}

/// A user namespace maps the user 1000 of files to 5000, as for a pod with `hostUsers: false`.
fn idmapped(site: &TestSite, from: &str, to: &str) {
    fs::create_dir(site.path(to)).expect("a directory");
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/idmapped_mount.py");
    let mut command = Command::new("python3");
    command.arg(tool).arg(site.path(from)).arg(site.path(to)).args(["1000", "4000"]);
    assert!(command.status().expect("python3 starts").success());
}

#[test]
#[ignore = "needs root, FUSE, python3 and Linux 6.12"]
fn pods_use_an_export_through_user_namespaces() {
    require("root", is_root());
    require_program("python3");
    let site = TestSite::new();
    let _cleared = Cleared(site.path(""));
    let (export, mut options) = served(&site);
    options.push("--quota".into());
    let driver = start(&site, &options);
    let parameters = [
        ("server", "127.0.0.1"),
        ("client", "fuse"),
        // The driver mounts from a port below 1024.
        ("exportOptions", "sync"),
        ("mode", "0755"),
    ];
    let created: CreateVolumeResponse = driver
        .call("Controller/CreateVolume", &request("pvc-1", 16 << 20, &parameters))
        .expect("created");
    let volume = created.volume.expect("required");
    let attached = ControllerPublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        node_id: NODE.into(),
        volume_capability: Some(capability()),
        ..Default::default()
    };
    driver
        .call::<ControllerPublishVolumeResponse>("Controller/ControllerPublishVolume", &attached)
        .expect("exported");
    let flags = format!("port={},acregmax=0,acdirmax=0", export.address.port());
    let pod = |driver: &CsiDriver, target: &str| {
        publish(driver, &site, ("pvc-1", target), &volume.volume_context, &flags, &[])
    };
    pod(&driver, "pods/a").expect("published");
    pod(&driver, "pods/b").expect("published");
    let processes = mount_processes(&site);
    assert_eq!(processes.len(), 1, "pods without an identity share a mount");
    fs::write(site.path("pods/a/file"), "text").expect("written");
    assert_eq!(fs::read_to_string(site.path("pods/b/file")).expect("the same"), "text");

    let own = site.path("volumes/pvc-1/own");
    fs::create_dir(&own).expect("a directory");
    chown(&own, Some(1000), Some(1000)).expect("changed");
    idmapped(&site, "pods/b", "mapped");
    let mut user = Command::new("setpriv");
    user.args(["--reuid=5000", "--regid=5000", "--clear-groups", "sh", "-c"]);
    user.args(["echo text > file && ! echo text > ../file"]);
    assert!(user.current_dir(site.path("mapped/own")).status().expect("setpriv(1)").success());
    assert_eq!(fs::metadata(own.join("file")).expect("the server's").uid(), 1000);

    assert_eq!(total_bytes(&driver, &site, "pvc-1", "pods/a"), 16 << 20);
    let larger = ControllerExpandVolumeRequest {
        volume_id: volume.volume_id.clone(),
        capacity_range: Some(CapacityRange { required_bytes: 32 << 20, limit_bytes: 0 }),
        ..Default::default()
    };
    let expanded: ControllerExpandVolumeResponse =
        driver.call("Controller/ControllerExpandVolume", &larger).expect("expanded");
    assert_eq!((expanded.capacity_bytes, expanded.node_expansion_required), (32 << 20, false));
    within(20, "the capacity is the old one", || {
        total_bytes(&driver, &site, "pvc-1", "pods/a") == 32 << 20
    });

    // The driver ends, and the pods continue; then the mount's process.
    driver.kill();
    fs::write(site.path("pods/a/more"), "more").expect("written");
    let driver = start(&site, &options);
    pod(&driver, "pods/a").expect("it is there");
    assert_eq!(mount_processes(&site), processes);
    processes.iter().for_each(|pid| signal("KILL", *pid));
    within(30, "the mount stays dead", || {
        ["pods/a/more", "pods/b/more"]
            .iter()
            .all(|path| fs::read(site.path(path)).is_ok_and(|text| text == b"more"))
    });
    site.run_tool("umount", &["mapped"]);
    driver.unpublish(&site, "pvc-1", "pods/a");
    assert_eq!(fs::read(site.path("pods/b/more")).expect("another pod's"), b"more");
    driver.unpublish(&site, "pvc-1", "pods/b");
    within(30, "the process stays", || mount_processes(&site).is_empty());
    assert_eq!((site.count("driver/trees"), site.count("driver/published")), (0, 0));
}

#[test]
#[ignore = "needs root and FUSE"]
fn server_that_is_away_delays_no_end_of_a_pod() {
    require("root", is_root());
    let site = TestSite::new();
    let _cleared = Cleared(site.path(""));
    let mut export = shared(&site, free_port(), &[]);
    let driver = CsiDriver::start(&site, &[]);
    let attributes = shared_attributes(&[]);
    let flags = format!("port={}", export.address.port());
    for target in ["a", "b"] {
        publish(&driver, &site, ("v", target), &attributes, &flags, &[]).expect("published");
    }
    let exclusive = NodePublishVolumeRequest {
        volume_id: "v".into(),
        target_path: site.path("c").display().to_string(),
        volume_capability: Some(VolumeCapability {
            access_mode: Some(volume_capability::AccessMode {
                mode: volume_capability::access_mode::Mode::SingleNodeSingleWriter.into(),
            }),
            ..capability()
        }),
        volume_context: attributes.clone(),
        ..Default::default()
    };
    let (code, _) = driver
        .call::<NodePublishVolumeResponse>("Node/NodePublishVolume", &exclusive)
        .expect_err("in use");
    assert_eq!(code, FAILED_PRECONDITION);
    signal("STOP", export.child.id());
    // As kubelet does each minute.
    publish(&driver, &site, ("v", "a"), &attributes, &flags, &[]).expect("it is there");
    driver.unpublish(&site, "v", "a");
    driver.unpublish(&site, "v", "b");
    assert_eq!(site.count("driver/trees"), 0);
    signal("CONT", export.child.id());
    within(90, "the process stays", || mount_processes(&site).is_empty());
    export.terminate();
}

fn shared(site: &TestSite, port: u16, more: &[&str]) -> Export {
    fs::create_dir_all(site.path("shared")).expect("a directory");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let listen = address.to_string();
    let fixed = ["export", "--dir", "shared", "--state", "exporting", "--lease", "5"];
    let options = ["--options", "rw,insecure,no_root_squash", "--listen", &listen];
    Export::spawn(&mut site.command([&fixed, &options[..], more].concat()), address)
}

fn shared_attributes(more: &[(&str, &str)]) -> Attributes {
    context(&[&[("server", "127.0.0.1"), ("share", "/export"), ("client", "fuse")], more].concat())
}

#[test]
#[ignore = "needs root and FUSE"]
fn certificate_of_a_pod_is_its_user() {
    require("root", is_root());
    let site = TestSite::new();
    let _cleared = Cleared(site.path(""));
    let authority = Authority::new(&site.path(""), "ca");
    authority.issue("server", Holder::on_loopback());
    for (name, user) in [("physics", "daemon@example.org"), ("chemistry", "bin@example.org")] {
        authority.issue(name, Holder { others: vec![user_name(user)], ..Holder::default() });
    }
    let tls = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "ca.pem"];
    let port = free_port();
    let serve = || shared(&site, port, &[&tls[..], &["--domain", "example.org"]].concat());
    let mut export = serve();
    let mode = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(site.path("shared"), mode).expect("changed");
    let driver = CsiDriver::start(&site, &[]);
    let flags = format!("port={}", export.address.port());
    let text = |file: &str| fs::read_to_string(site.path(file)).expect("a file");
    let secret = |name: &str| {
        [
            ("ca.crt", text("ca.pem")),
            ("tls.crt", text(&format!("{name}.pem"))),
            ("tls.key", text(&format!("{name}.key"))),
        ]
    };
    let by_secret = shared_attributes(&[("xprtsec", "mtls")]);
    publish(&driver, &site, ("v", "a"), &by_secret, &flags, &secret("physics")).expect("published");
    // The files of a namespace, on the node.
    let path = |file: &str| site.path(file).display().to_string();
    let by_file = shared_attributes(&[
        ("xprtsec", "mtls"),
        ("tlsCa", &path("ca.pem")),
        ("tlsCert", &path("${namespace}.pem")),
        ("tlsKey", &path("${namespace}.key")),
        ("csi.storage.k8s.io/pod.namespace", "chemistry"),
    ]);
    publish(&driver, &site, ("v", "b"), &by_file, &flags, &[]).expect("published");
    let uid = |user: &str| {
        let line = fs::read_to_string("/etc/passwd").expect("users");
        let line = line.lines().find(|line| line.starts_with(&format!("{user}:"))).expect(user);
        line.split(':').nth(2).expect("a field").parse::<u32>().expect("a number")
    };
    // The kernel lets nobody create files of other users in a sticky directory (fs.protected_regular).
    let write = |pod: &str, user: &str, name: &str| {
        let uid = uid(user);
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={uid}"), "--clear-groups", "touch", name]);
        assert!(command.current_dir(site.path(pod)).status().expect("setpriv(1)").success());
        let file = fs::metadata(site.path("shared").join(name)).expect("the server's");
        assert_eq!(file.uid(), uid);
    };
    write("a", "daemon", "of-daemon");
    write("b", "bin", "of-bin");
    // kubelet shows a renewed certificate, and the next connection has it.
    publish(&driver, &site, ("v", "a"), &by_secret, &flags, &secret("chemistry")).expect("there");
    export.terminate();
    let _export = serve();
    write("a", "bin", "of-bin-too");
    driver.unpublish(&site, "v", "a");
    driver.unpublish(&site, "v", "b");
    assert_eq!((site.count("driver/trees"), site.count("driver/secrets")), (0, 0));
}

/// The calls of kubelet and of the sidecars for one pod, which repeat what a killed driver has not answered.
struct Cluster<'a> {
    site: &'a TestSite,
    driver: CsiDriver,
    options: Vec<String>,
    kills: usize,
}

impl Cluster<'_> {
    fn until_answered<A>(&mut self, call: impl Fn(&CsiDriver) -> Result<A, (i32, String)>) -> A {
        loop {
            match call(&self.driver) {
                Ok(answer) => return answer,
                Err((KILLED, _)) => {
                    let next = start(self.site, &self.options);
                    std::mem::replace(&mut self.driver, next).reap();
                    self.kills += 1;
                }
                Err((code, text)) => panic!("{code} {text}"),
            }
        }
    }

    fn create(&mut self, name: &str) -> Attributes {
        let parameters = [("server", "127.0.0.1"), ("client", "fuse"), ("exportOptions", "sync")];
        let created: CreateVolumeResponse = self.until_answered(|driver| {
            driver.call("Controller/CreateVolume", &request(name, 1 << 20, &parameters))
        });
        let attach = ControllerPublishVolumeRequest {
            volume_id: name.into(),
            node_id: NODE.into(),
            volume_capability: Some(capability()),
            ..Default::default()
        };
        self.until_answered(|driver| {
            let method = "Controller/ControllerPublishVolume";
            driver.call::<ControllerPublishVolumeResponse>(method, &attach)
        });
        created.volume.expect("required").volume_context
    }

    fn end(&mut self, (volume, target, is_export): &(String, String, bool)) {
        let end = NodeUnpublishVolumeRequest {
            volume_id: volume.clone(),
            target_path: self.site.path(target).display().to_string(),
        };
        self.until_answered(|driver| {
            driver.call::<NodeUnpublishVolumeResponse>("Node/NodeUnpublishVolume", &end)
        });
        if !is_export {
            return;
        }
        let detach = ControllerUnpublishVolumeRequest {
            volume_id: volume.clone(),
            node_id: NODE.into(),
            ..Default::default()
        };
        self.until_answered(|driver| {
            let method = "Controller/ControllerUnpublishVolume";
            driver.call::<ControllerUnpublishVolumeResponse>(method, &detach)
        });
        let delete = DeleteVolumeRequest { volume_id: volume.clone(), ..Default::default() };
        self.until_answered(|driver| {
            driver.call::<DeleteVolumeResponse>("Controller/DeleteVolume", &delete)
        });
    }
}

/// `VOUCH_CSI_PODS` starts more pods. The driver is killed during each tenth.
#[test]
#[ignore = "needs root and FUSE"]
fn nothing_is_left_of_pods_with_trees_and_exports_after_kills() {
    require("root", is_root());
    let (site, _replica) = TestSite::served();
    let _cleared = Cleared(site.path(""));
    let pods: usize =
        std::env::var("VOUCH_CSI_PODS").map_or(40, |text| text.parse().expect("a number"));
    let (export, mut options) = served(&site);
    options.extend(["--quota", "--idle-max", "1s"].map(str::to_owned));
    let (flags, name) = (format!("port={}", export.address.port()), site.name(""));
    let driver = start(&site, &options);
    let mut cluster = Cluster { site: &site, driver, options, kills: 0 };
    let tree = context(&[("name", &name)]);
    publish(&cluster.driver, &site, ("reader", "pods/reader"), &tree, "", &[]).expect("published");
    let attributes = cluster.create("writer");
    publish(&cluster.driver, &site, ("writer", "pods/writer"), &attributes, &flags, &[])
        .expect("published");
    let begun = Instant::now();
    let mut running = Vec::new();
    for number in 0..pods {
        let killer = (number % 10 == 9).then(|| {
            let (pid, pause) =
                (cluster.driver.pid(), Duration::from_millis(number as u64 * 7 % 300));
            std::thread::spawn(move || {
                std::thread::sleep(pause);
                signal("KILL", pid);
            })
        });
        let is_export = number % 2 == 1;
        let (volume, target) = (format!("v{number}"), format!("pods/{number}"));
        let attributes = if is_export { cluster.create(&volume) } else { tree.clone() };
        let flags = if is_export { &*flags } else { "" };
        cluster.until_answered(|driver| {
            publish(driver, &site, (&volume, &target), &attributes, flags, &[])
        });
        match is_export {
            true => fs::write(site.path(&target).join("file"), &volume).expect("written"),
            false => assert!(site.path(&target).join("hello").is_file()),
        }
        assert!(site.path("pods/reader/hello").is_file(), "a pod that runs reads on");
        fs::write(site.path("pods/writer/file"), &volume).expect("a pod that runs writes on");
        running.push((volume, target, is_export));
        if running.len() > 6 {
            cluster.end(&running.remove(0));
        }
        killer.map(JoinHandle::join);
    }
    running.push(("reader".into(), "pods/reader".into(), false));
    running.push(("writer".into(), "pods/writer".into(), true));
    running.iter().for_each(|pod| cluster.end(pod));
    println!("{pods} pods, {} kills, {:?}", cluster.kills, begun.elapsed());
    within(60, "a mount stays", || site.count("driver/trees") == 0);
    within(60, "a process stays", || mount_processes(&site).is_empty());
    let mounts = vouch_tree_mount::mounts().expect("the mount table");
    let left = mounts.into_iter().filter(|(point, _)| point.starts_with(site.path("")));
    assert_eq!((left.count(), site.count("driver/published")), (0, 0));
    let list = fs::read_to_string(site.path("lists/csi.exports")).expect("the driver's list");
    assert_eq!((list.lines().count(), site.count("volumes")), (1, 1), "{list}");
    let listed = site.run_ok("export list --state exporting --json");
    assert!(!listed.contains("volumes"), "{listed}");
    assert_eq!(cluster.kills, pods / 10);
}
