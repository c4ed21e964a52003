//! Management of exports over the network.

use vouch_testkit::certificates::{Authority, Holder};

use crate::prelude::*;

struct Managed {
    site: TestSite,
    export: Export,
    server: String,
}

impl Managed {
    /// With the administrators `ops` (all), `viewer` (read) and `guest` (none).
    fn start() -> Managed {
        let site = TestSite::with_directories(&["listed", "new"]);
        let authority = Authority::new(&site.path(""), "ca");
        authority.issue("server", Holder::on_loopback());
        for name in ["ops", "viewer", "guest"] {
            authority.issue(name, Holder::default());
        }
        site.write("roles", "# of this test\ndns:ops all\ndns:viewer read\n");
        site.write("exports", format!("{} *(rw,insecure)\n", site.path("listed").display()));
        site.run_ok("audit keygen trail");
        let server = format!("127.0.0.1:{}", free_port());
        let args = format!(
            "--exports exports --audit trail --management {server} --management-cert server.pem \
             --management-key server.key --management-client-ca ca.pem --management-roles roles"
        );
        // No client renews its lease.
        let export = Export::start_with_lease(&site, "90", &words(&args));
        Managed { site, export, server }
    }

    fn run_as(&self, holder: &str, args: &str) -> (Option<i32>, String) {
        let how = format!(
            "--server {} --server-ca ca.pem --admin-cert {holder}.pem --admin-key {holder}.key",
            self.server
        );
        let output = self.site.run([words(args), words(&how)].concat());
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    }

    fn done(&self, args: &str) -> String {
        let (code, text) = self.run_as("ops", args);
        assert_eq!(code, Some(0), "{args}: {text}");
        text
    }

    fn records(&self, class: &str) -> Vec<Value> {
        let found = self.site.run_ok(format!("audit search trail --class {class} --json").as_str());
        found.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

#[tokio::test]
async fn commands_manage_a_server_over_the_network() {
    let managed = Managed::start();
    let path = |name: &str| managed.site.path(name).display().to_string();
    let (listed, new) = (path("listed"), path("new"));
    managed.site.write("listed/file", "1");
    let nfs = connect(managed.export.address, 1, "held", 0).await.expect("a client");
    let directory = nfs.walk(listed.as_bytes()).await.expect("the export").handle;
    let _open = nfs.open(&directory, b"file", ShareAccess::READ, None).await.expect("an open");

    managed.done(&format!("export add {new} *(ro,insecure)"));
    for args in ["export list", "export check", "export client list", "export states"] {
        let shown = if args.ends_with("client list") { "held" } else { &listed };
        assert!(managed.done(args).contains(shown), "{args}");
    }
    let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    for args in ["export list", "export states", "export check --exports exports"] {
        let local = managed.site.run_ok(format!("{args} --json --state exporting").as_str());
        let remote = managed.done(&format!("{} --json", args.replace("--exports exports", "")));
        assert_eq!(json(&local), json(&remote), "{args}");
    }
    let status: Value = serde_json::from_str(&managed.done("export status --json")).expect("JSON");
    let local = managed.site.run_ok("export status --json --state exporting");
    let local: Value = serde_json::from_str(&local).expect("JSON");
    for field in ["version", "site", "exports", "name_service", "draining", "copies"] {
        assert_eq!(status[field], local[field], "{field}");
    }
    assert_eq!(status["clients"][0]["owner"], local["clients"][0]["owner"]);
    managed.done(&format!("export set {new} *(rw,insecure)"));
    managed.done("export drain");
    assert!(managed.done("export status").contains("draining"));
    managed.done("export drain --cancel");
    assert!(managed.done(&format!("export unlock {listed}/file")).starts_with("1 "));
    managed.done("export drain --wait 1s");
    let id = status["clients"][0]["id"].as_str().expect("an id");
    managed.done(&format!("export client evict {id}"));
    managed.done("export reload");
    managed.done("export reload --discard");
    assert!(!managed.done("export list").contains(&new));
    managed.site.write("exports", "/nowhere *(rw,no_such_option)\n");
    assert_eq!(managed.run_as("ops", "export check").0, Some(1));
    let (code, text) = managed.run_as("ops", "export reload");
    assert!(code == Some(3) && text.contains("no_such_option"), "{text}");
    let (code, text) = managed.run_as("ops", "export client evict 192.0.2.1");
    assert!(code == Some(4) && text.contains("no client 192.0.2.1"), "{text}");
}

#[test]
fn refused_administrators_are_told_and_recorded() {
    let managed = Managed::start();
    let new = managed.site.path("new").display().to_string();
    managed.done(&format!("export add --keep {new} *(ro)"));
    assert!(managed.run_as("viewer", "export list").1.contains(&new));
    let (code, text) = managed.run_as("viewer", &format!("export remove {new}"));
    assert!(code == Some(5) && text.contains("viewer has the role read"), "{text}");
    let (code, text) = managed.run_as("guest", "export list");
    assert!(code == Some(5) && text.contains("guest has no role"), "{text}");
    let foreign = Authority::new(&managed.site.path(""), "foreign");
    foreign.issue("thief", Holder::default());
    let (code, text) = managed.run_as("thief", "export list");
    assert_eq!(code, Some(6), "{text}");
    let found = || {
        let refusals = managed.records("refusal");
        (refusals.len() == 3).then_some(refusals)
    };
    assert!(
        eventually(Duration::from_secs(30), || found().is_some()),
        "{:#?}",
        managed.records("refusal")
    );
    let refusals = found().expect("three");
    for (record, holder) in refusals.iter().zip(["viewer", "guest"]) {
        assert_eq!(record["tls"]["client"]["subject"], holder, "{record}");
    }
    assert!(refusals[2].to_string().contains("UnknownIssuer"), "{}", refusals[2]);
    let managed_by: Vec<Value> = managed
        .records("administrative")
        .into_iter()
        .filter(|one| one["event"]["action"] == "managed")
        .collect();
    assert_eq!(managed_by.len(), 1, "{managed_by:#?}");
    assert_eq!(managed_by[0]["tls"]["client"]["subject"], "ops", "{managed_by:#?}");
    assert_eq!(managed_by[0]["source"]["ip"], "127.0.0.1", "{managed_by:#?}");
}

/// grpcurl and its libraries are Go's.
#[test]
#[ignore = "needs Go"]
fn grpcurl_manages_a_server_by_the_published_interface() {
    let managed = Managed::start();
    let new = managed.site.path("new").display().to_string();
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../export/service/proto");
    let call = |method: &str, message: &str, holder: &str| {
        let mut go = Command::new("go");
        go.args(["run", "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"])
            .args(["-cacert", "ca.pem", "-cert", &format!("{holder}.pem")])
            .args(["-key", &format!("{holder}.key"), "-proto", "vouch_export_v1.proto"])
            .arg("-import-path")
            .arg(&proto)
            .args(["-d", message, &managed.server])
            .arg(format!("vouch.export.v1.Management/{method}"))
            .current_dir(managed.site.path("."));
        let output = go.output().expect("Go");
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let added = format!(r#"{{"path": "{new}", "clients": ["192.0.2.0/24(rw)"]}}"#);
    let (done, text) = call("AddExport", &added, "ops");
    assert!(done, "{text}");
    let (done, text) = call("ListExports", "", "viewer");
    assert!(done && text.contains("ORIGIN_TEMPORARY"), "{text}");
    let (done, text) = call("GetStatus", "", "viewer");
    assert!(done && text.contains(env!("CARGO_PKG_VERSION")), "{text}");
    let (done, text) = call("Unlock", &format!(r#"{{"path": "{new}"}}"#), "viewer");
    assert!(!done && text.contains("PermissionDenied"), "{text}");
}
