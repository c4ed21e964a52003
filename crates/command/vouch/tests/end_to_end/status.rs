use std::os::unix::fs::PermissionsExt as _;

use crate::gateway::Gateway;
use crate::prelude::*;
use crate::test_site::Replica;

struct Machine {
    mount: Option<Mount>,
    replica: Replica,
    site: TestSite,
}

impl Machine {
    fn start(tree: impl FnOnce(&TestSite), mount_args: &[&str]) -> Machine {
        let mut site = TestSite::new();
        site.environment.push(("VOUCH_RUNTIME_DIR", site.path("run").display().to_string()));
        tree(&site);
        site.publish();
        let replica = site.serve();
        let mount = Mount::new(&site, "mnt", &[mount_args, &[&site.name("")]].concat());
        Machine { mount: Some(mount), replica, site }
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.site.run_ok(["status", "--json"])).expect("JSON")
    }

    fn socket(&self, kind: &str) -> PathBuf {
        let of_kind = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&format!("{kind}-")))
        };
        let find = || {
            let entries = std::fs::read_dir(self.site.path("run")).expect("a directory");
            entries.map(|entry| entry.expect("an entry").path()).find(of_kind)
        };
        assert!(eventually(Duration::from_secs(10), || find().is_some()), "no socket of {kind}");
        find().expect("found")
    }
}

fn of_kind<'a>(status: &'a Value, kind: &str) -> &'a Value {
    status["daemons"]
        .as_array()
        .expect("an array")
        .iter()
        .find(|daemon| daemon["kind"] == kind)
        .expect("a daemon of this kind")
}

fn start_export(site: &TestSite) -> Export {
    std::fs::create_dir_all(site.path("data")).expect("a directory");
    let export = Export::start(site, &["--dir", "data"]);
    assert!(eventually(Duration::from_secs(20), || site
        .run(["export", "status"])
        .status
        .success()));
    export
}

#[test]
#[ignore = "needs FUSE"]
fn status_shows_all_daemons_of_the_machine() {
    let mut machine = Machine::start(TestSite::small_tree, &["--timeout", "3s", "--refresh", "1s"]);
    let mut export = start_export(&machine.site);
    let gateway = Gateway::start(&machine.site, &[]);
    assert_eq!(gateway.get("/hello").text(), "hello world\n");
    let numbers = std::fs::read(machine.site.path("mnt/dir/numbers")).expect("verified bytes");
    let status = machine.status();
    let mount = of_kind(&status, "mount");
    let tree = &mount["detail"]["trees"][0];
    assert_eq!(tree["name"], machine.site.name(""));
    assert_eq!((&tree["revision"], &tree["served"]), (&1.into(), &true.into()));
    assert!(
        tree["network_bytes"]
            .as_u64()
            .is_some_and(|sent| sent > 0 && sent < 2 * numbers.len() as u64),
        "{tree}"
    );
    let replica = &tree["replicas"][0];
    assert_eq!(
        (&replica["address"], &replica["state"], &replica["lies"]),
        (&machine.replica.address.clone().into(), &"up".into(), &0.into())
    );
    assert!(replica["latency_seconds"].as_f64().is_some_and(|latency| latency > 0.0), "{replica}");
    assert_eq!(of_kind(&status, "serve")["detail"]["trees"][0]["state"], "fresh");
    assert_eq!(of_kind(&status, "export")["detail"]["exports"][0]["pseudo_path"], "/export");
    let served = &of_kind(&status, "gateway")["detail"];
    assert_eq!(
        (&served["state"], &served["revision"], &served["good_replicas"]),
        (&"fresh".into(), &1.into(), &1.into()),
        "{served}"
    );
    assert!(served["sent_bytes"].as_u64().is_some_and(|sent| sent >= 12), "{served}");
    let text = machine.site.run_ok(["status"]);
    let headings =
        ["MOUNTS", "REPLICAS OF MOUNTS", "CACHES", "SERVED TREES", "GATEWAYS", "EXPORTS"];
    for expected in headings.into_iter().chain([
        &*machine.replica.address,
        &gateway.address,
        "1 of 1",
        "/export",
    ]) {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
    machine.replica.kill();
    assert!(eventually(Duration::from_secs(30), || {
        let text = machine.site.run_ok(["status"]);
        text.contains("WARNINGS AND ERRORS OF THE LAST HOUR") && text.contains("replica failed")
    }));
    export.terminate();
    assert!(
        !machine.status()["daemons"]
            .as_array()
            .expect("an array")
            .iter()
            .any(|daemon| daemon["kind"] == "export")
    );
}

#[test]
#[ignore = "needs FUSE"]
fn status_sockets_are_private_and_dead_mounts_are_named() {
    let mut machine = Machine::start(TestSite::small_tree, &[]);
    let socket = machine.socket("mount");
    assert_eq!(std::fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o600);
    machine.mount.take().expect("mounted").kill();
    let point = machine.site.path("mnt");
    assert!(eventually(Duration::from_secs(10), || {
        let status = machine.status();
        status["mounts_without_status"]
            .as_array()
            .expect("an array")
            .iter()
            .any(|path| *path == *point.to_string_lossy())
    }));
    assert!(machine.site.run_ok(["status"]).contains("no status: the process ended"));
    let _next = Mount::new(&machine.site, "mnt", &[&machine.site.name("")]);
    assert!(eventually(Duration::from_secs(10), || !socket.exists()));
}

#[test]
#[ignore = "needs FUSE and prometheus"]
fn metrics_of_all_daemons_follow_the_conventions_of_prometheus() {
    require_program("promtool");
    let machine = Machine::start(TestSite::small_tree, &[]);
    let _export = start_export(&machine.site);
    let _gateway = Gateway::start(&machine.site, &[]);
    std::fs::read(machine.site.path("mnt/hello")).expect("verified bytes");
    let mut names = std::collections::BTreeSet::new();
    for kind in ["mount", "serve", "gateway", "export"] {
        let metrics =
            machine.site.run_ok(&format!("status --metrics {}", machine.socket(kind).display()));
        let mut check = Command::new("promtool");
        let output = vouch_testkit::output_with(check.args(["check", "metrics"]), &metrics);
        let complaints = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success() && complaints.is_empty(),
            "{kind}: {}\n{metrics}",
            String::from_utf8_lossy(&complaints)
        );
        names.extend(
            metrics.lines().filter_map(|line| {
                Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned())
            }),
        );
    }
    let later = |name: &str| name.starts_with("vouch_export_gss_") || name.contains("_audit_");
    let dashboard = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging/grafana/vouch.json");
    let dashboard: Value =
        serde_json::from_slice(&std::fs::read(dashboard).expect("packaging/ is in the repository"))
            .expect("JSON");
    let mut queries = 0;
    for expression in expressions(&dashboard) {
        for name in expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        {
            if name.starts_with("vouch_") || name.starts_with("process_") {
                let base = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end))
                    .unwrap_or(name);
                assert!(
                    names.contains(name) || names.contains(base) || later(name),
                    "no daemon has {name}, which {expression} queries"
                );
                queries += 1;
            }
        }
    }
    assert!(queries > 20, "the dashboard has only {queries} metrics");
}

fn expressions(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let own = fields
                .iter()
                .filter(|(key, _)| *key == "expr")
                .filter_map(|(_, value)| Some(value.as_str()?.to_owned()));
            own.chain(fields.values().flat_map(expressions)).collect()
        }
        Value::Array(items) => items.iter().flat_map(expressions).collect(),
        _ => Vec::new(),
    }
}

#[test]
#[ignore = "needs FUSE, attr and rsync"]
fn attributes_tell_about_a_file_and_are_not_copied() {
    require_programs(&["getfattr", "rsync"]);
    let with_attribute = |site: &TestSite| {
        site.small_tree();
        site.run_tool("setfattr", &["-n", "user.own", "-v", "kept", "src/hello"]);
        site.run_tool("setfattr", &["-n", "user.vouch.verified", "-v", "forged", "src/hello"]);
    };
    for tree in [TestSite::small_tree as fn(&TestSite), with_attribute] {
        let machine = Machine::start(tree, &[]);
        let site = &machine.site;
        let own = std::fs::read(site.path("src/dir/numbers")).expect("a file").len();
        let value = |name: &str, file: &str| {
            let output = Command::new("getfattr")
                .args(["--only-values", "-n", &format!("user.vouch.{name}"), file])
                .current_dir(site.path("mnt"))
                .output();
            let output = output.expect("getfattr");
            output.status.success().then(|| String::from_utf8(output.stdout).expect("text"))
        };
        let begun =
            value("cached", "dir/numbers").expect("an attribute of a file that nobody has read");
        assert!(begun.ends_with(&format!("/{own}")) && begun != format!("{own}/{own}"), "{begun}");
        std::fs::read(site.path("mnt/dir/numbers")).expect("verified bytes");
        assert_eq!(value("cached", "dir/numbers"), Some(format!("{own}/{own}")));
        assert_eq!(value("revision", "hello").as_deref(), Some("1"));
        assert_eq!(value("tree", "dir"), Some(site.name("")));
        assert_eq!(value("replica", "hello").as_ref(), Some(&machine.replica.address));
        assert_eq!(value("handle", "hello").as_deref(), Some("inline"));
        assert!(value("handle", "dir/numbers").is_some_and(|handle| handle.len() > 30));
        assert!(
            value("verified", "hello").is_some_and(|text| text.starts_with("yes, valid until 20"))
        );
        assert_eq!(value("unknown", "hello"), None);
        site.run_tool("cp", &["-a", "mnt", "copied"]);
        site.run_tool("rsync", &["-aX", "mnt/", "synced"]);
        for copy in ["mnt/hello", "copied/hello", "synced/hello"] {
            let output = Command::new("getfattr")
                .args(["-d", copy])
                .current_dir(site.path(""))
                .output()
                .expect("getfattr");
            assert!(!String::from_utf8_lossy(&output.stdout).contains("user.vouch"), "{copy}");
        }
    }
}
