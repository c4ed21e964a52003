//! `vouch csi` with `vouch export`: directories for the nodes that use them, and for nobody else.

use std::os::unix::fs::PermissionsExt as _;

use vouch_csi::csi_v1::*;

use crate::csi::{
    CsiDriver, FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND, capability, context,
};
use crate::prelude::*;

pub(crate) const NODE: &str = "127.0.0.1";

/// A server that reads its own list and the driver's.
pub(crate) fn served(site: &TestSite) -> (Export, Vec<String>) {
    for directory in ["volumes", "lists", "shared"] {
        fs::create_dir_all(site.path(directory)).expect("a directory");
    }
    site.write("lists/own.exports", format!("{} *(ro,insecure)\n", site.path("shared").display()));
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let lists = site.path("lists").display().to_string();
    let mut command = site.command([
        "export",
        "--state",
        "exporting",
        "--listen",
        &address.to_string(),
        "--exports",
        &lists,
    ]);
    let export = Export::spawn(command.env("VOUCH_RUNTIME_DIR", site.path("run")), address);
    let path = |name: &str| site.path(name).display().to_string();
    let options = [
        "--export-root",
        &path("volumes"),
        "--export-list",
        &path("lists/csi.exports"),
        "--export-socket",
        &path("exporting/control.sock"),
    ];
    (export, options.map(str::to_owned).into())
}

pub(crate) fn start(site: &TestSite, options: &[String]) -> CsiDriver {
    CsiDriver::start(site, &options.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn request(name: &str, bytes: i64, parameters: &[(&str, &str)]) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.into(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_capabilities: vec![capability()],
        parameters: context(
            &[
                &[("server", "filer.example"), ("exportOptions", "insecure,no_root_squash")],
                // Later ones replace earlier ones.
                parameters,
            ]
            .concat(),
        ),
        ..Default::default()
    }
}

/// True if a client of this machine can enter the directory.
fn can_mount(export: &Export, path: &Path) -> bool {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client =
            crate::prelude::connect(export.address, 2, "csi", 0).await.expect("the server answers");
        client.walk(path.as_os_str().as_encoded_bytes()).await.is_ok()
    })
}

#[test]
fn export_is_for_the_nodes_that_use_the_volume() {
    let site = TestSite::new();
    let (export, options) = served(&site);
    let driver = start(&site, &options);
    let created: CreateVolumeResponse = driver
        .call(
            "Controller/CreateVolume",
            &request("pvc-1", 1 << 20, &[("sec", "sys"), ("mode", "0777")]),
        )
        .expect("created");
    let volume = created.volume.expect("required");
    let path = site.path("volumes/pvc-1").canonicalize().expect("a directory");
    assert_eq!(volume.volume_context["share"], path.display().to_string());
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o777);
    assert!(!can_mount(&export, &path));

    let publish = |driver: &CsiDriver, node: &str| {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: node.into(),
            volume_capability: Some(capability()),
            ..Default::default()
        };
        driver
            .call::<ControllerPublishVolumeResponse>("Controller/ControllerPublishVolume", &request)
    };
    publish(&driver, "192.0.2.7").expect("another node");
    assert!(!can_mount(&export, &path));
    publish(&driver, NODE).expect("this node");
    assert!(can_mount(&export, &path));
    assert_eq!(publish(&driver, "node-name").expect_err("no address").0, NOT_FOUND);

    // Another controller knows the volume and its nodes.
    driver.kill();
    let driver = start(&site, &options);
    let delete = |driver: &CsiDriver| {
        let request =
            DeleteVolumeRequest { volume_id: volume.volume_id.clone(), ..Default::default() };
        driver.call::<DeleteVolumeResponse>("Controller/DeleteVolume", &request)
    };
    assert_eq!(delete(&driver).expect_err("in use").0, FAILED_PRECONDITION);
    fs::write(path.join("data"), "x").expect("the volume");
    let unpublish = |node: &str| {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: node.into(),
            ..Default::default()
        };
        driver
            .call::<ControllerUnpublishVolumeResponse>(
                "Controller/ControllerUnpublishVolume",
                &request,
            )
            .expect("unpublished");
    };
    unpublish(NODE);
    assert!(!can_mount(&export, &path));
    // An empty node is all nodes.
    unpublish("");
    delete(&driver).expect("deleted");
    delete(&driver).expect("deleted already");
    assert!(!path.exists());
}

#[test]
fn parameters_of_export_volumes_are_checked() {
    let site = TestSite::new();
    let (_export, options) = served(&site);
    let driver = start(&site, &options);
    for (parameter, value) in [
        ("sec", "none"),
        ("xprtsec", "ssl"),
        ("mode", "rwx"),
        ("exportOptions", "rw) *(rw"),
        ("share", "/etc"),
        ("secc", "krb5p"),
    ] {
        let request = request("pvc-2", 0, &[(parameter, value)]);
        let (code, text) = driver
            .call::<CreateVolumeResponse>("Controller/CreateVolume", &request)
            .expect_err(parameter);
        assert!(code == INVALID_ARGUMENT && text.contains(parameter), "{parameter}: {code} {text}");
    }
    assert_eq!(site.count("volumes"), 1, "only the driver's records");
    let (code, _) = driver
        .call::<CreateVolumeResponse>("Controller/CreateVolume", &request("big", i64::MAX, &[]))
        .expect_err("no room");
    assert_eq!(code, 8);
    let (code, text) = driver
        .publish(&site, "v", "target", &[("server", "filer"), ("share", "/v/../etc")])
        .expect_err("a path");
    assert!(code == INVALID_ARGUMENT && text.contains("share"), "{text}");
}
