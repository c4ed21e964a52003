use std::collections::HashSet;

use vouch_audit::json;
use vouch_audit::operations::number::CREATE;
use vouch_nfs4::Status;

use crate::mount_audit::SmallDisk;
use crate::prelude::*;

const WAIT_MAX: Duration = Duration::from_secs(120);
const WORKERS: usize = 3;

fn start(site: &TestSite, more: &[&str]) -> Export {
    let data = site.path("data").display().to_string();
    Export::start(
        site,
        &[&["--options", "rw,insecure,no_root_squash", "--dir", &data], more].concat(),
    )
}

#[derive(Default)]
struct ClientResults {
    made: Mutex<Vec<String>>,
    refused: AtomicU64,
}

#[test]
#[ignore = "needs root"]
fn moved_watched_directory_is_audited_after_kill() {
    require("root, to serve another user", is_root());
    let site = TestSite::new();
    std::fs::create_dir_all(site.path("data/a/secret")).expect("new");
    std::fs::write(site.path("data/a/secret/f"), "text").expect("new");
    for path in ["data", "data/a"] {
        std::os::unix::fs::chown(site.path(path), Some(4711), Some(4711))
            .expect("root may call chown");
    }
    site.run_ok(["audit", "keygen", "trail"]);
    let watched = site.path("data/a/secret");
    site.write("rules", format!("-w {} -p rwa -k s\n", watched.display()));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let opens = || site.run_ok("audit search trail -S open --key s --result success --count");
    for (round, directory) in [&b"a"[..], b"b"].into_iter().enumerate() {
        let export =
            start(&site, &["--audit", "trail", "--audit-rules", "rules", "--audit-sync", "each"]);
        runtime.block_on(async {
            let client = connect(export.address, 1, &format!("round {round}"), 4711)
                .await
                .expect("the client connects");
            let secret = client
                .walk(&[b"export/", directory, b"/secret"].concat())
                .await
                .expect("the file exists");
            let file = loop {
                match client.open(&secret.handle, b"f", ShareAccess::READ, None).await {
                    Err(Error::Refused { status: Status::GRACE | Status::DELAY, .. }) => {
                        tokio::time::sleep(Duration::from_millis(100)).await
                    }
                    opened => break opened.expect("the file is world-readable"),
                }
            };
            client.close_file(file).await.expect("the file was open");
            if round == 0 {
                let root = client.walk(b"export").await.expect("the root");
                client
                    .rename(&root.handle, b"a", &root.handle, b"b")
                    .await
                    .expect("the user owns the directory");
            }
        });
        assert!(
            eventually(WAIT_MAX, || site.path("trail/moved").exists()),
            "the move is not stored"
        );
        assert!(
            eventually(WAIT_MAX, || opens() == format!("{}\n", round + 1)),
            "round {round}: {}",
            opens()
        );
        drop(export);
    }
}

async fn create_directories(
    address: SocketAddr,
    worker: usize,
    results: &ClientResults,
) -> Result<(), Error> {
    let client =
        connect(address, 1, &format!("worker {worker}"), rustix::process::getuid().as_raw())
            .await?;
    let root = match client.walk(b"export").await {
        Err(Error::Refused { status: Status::SERVERFAULT, .. }) => {
            results.refused.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        walked => walked?,
    };
    for number in 0.. {
        let name = format!("d-{worker}-{number}");
        match client.mkdir(&root.handle, name.as_bytes(), 0o755).await {
            Ok(_) => results.made.lock().push(name),
            Err(Error::Refused { status: Status::SERVERFAULT, .. }) => {
                results.refused.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(Error::Refused { status: Status::GRACE | Status::DELAY, .. }) => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn with_full_disk(
    more: &[&str],
    is_denied: bool,
    then: impl FnOnce(&TestSite, &mut Export, &ClientResults, &dyn Fn(usize)),
) {
    let site = TestSite::with_directories(&["data"]);
    let disk = SmallDisk::new(&site, "disk");
    site.run_ok(["audit", "keygen", "disk/trail"]);
    let data = format!("/{}/", site.path("data").display());
    let denied = ["--audit-deny", &data];
    let denied = if is_denied { &denied[..] } else { &[] };
    let mut export =
        start(&site, &[&["--audit", "disk/trail", "--audit-sync", "each"], denied, more].concat());
    let results = Arc::new(ClientResults::default());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (address, all) = (export.address, results.clone());
    let begin = |worker| {
        let results = all.clone();
        runtime.spawn(async move { create_directories(address, worker, &results).await });
    };
    (0..WORKERS).for_each(begin);
    assert!(
        eventually(WAIT_MAX, || results.made.lock().len() > 10),
        "no operation was acknowledged"
    );
    disk.fill();
    then(&site, &mut export, &results, &begin);
    runtime.shutdown_background();
}

fn recorded_directories(site: &TestSite) -> HashSet<String> {
    let mut found = HashSet::new();
    let read = records(&site.path("disk/trail"), 1, |record| {
        if (record.class, record.operation, record.result) == (Class::Operation, CREATE, 0) {
            let path = std::str::from_utf8(record.path).expect("UTF-8");
            found.extend(path.rsplit('/').next().map(str::to_owned));
        }
    });
    read.expect("the trail is read");
    found
}

#[test]
#[ignore = "needs root"]
fn denied_export_refuses_operations_that_cannot_be_recorded() {
    require("root, to make a small disk", is_root());
    with_full_disk(&["--audit-policy", "count"], true, |site, export, results, begin| {
        let mut others = WORKERS..;
        let is_refused = || {
            others.next().into_iter().for_each(begin);
            results.refused.load(Ordering::SeqCst) > 0
        };
        assert!(eventually(WAIT_MAX, is_refused), "no operation was refused");
        let made = results.made.lock().clone();
        let there = recorded_directories(site);
        let missing: Vec<_> = made.iter().filter(|name| !there.contains(*name)).collect();
        assert!(missing.is_empty(), "{missing:?} of {}", made.len());
        std::fs::remove_file(site.path("disk/filler")).expect("the filler exists");
        assert!(
            eventually(WAIT_MAX, || results.made.lock().len() > made.len() + 10),
            "the export does not continue"
        );
        export.terminate();
        let there = recorded_directories(site);
        assert!(results.made.lock().iter().all(|name| there.contains(name)));
    });
}

#[test]
#[ignore = "needs root"]
fn halt_policy_ends_the_export_with_its_own_code() {
    require("root, to make a small disk", is_root());
    with_full_disk(&["--audit-policy", "halt"], false, |_, export, _, _| {
        assert!(eventually(WAIT_MAX, || export.exit_code().is_some()), "the process does not end");
        assert_eq!(export.exit_code(), Some(7));
    });
}

#[test]
#[ignore = "needs root"]
fn start_on_a_full_disk_follows_the_audit_policy() {
    require("root, to make a small disk", is_root());
    let site = TestSite::with_directories(&["data"]);
    let disk = SmallDisk::new(&site, "disk");
    let public = site.run_ok(["audit", "keygen", "disk/trail"]);
    let args = |policy| ["--audit", "disk/trail", "--audit-sync", "each", "--audit-policy", policy];
    let refused = |policy| {
        let export = ["export", "--dir", "data", "--state", "exporting", "--listen", "127.0.0.1:0"];
        let output_text = site.run_err(7, [&export[..], &args(policy)].concat());
        assert!(
            output_text.contains("free disk space")
                && output_text.contains(policy)
                && output_text.lines().count() == 1,
            "{output_text}"
        );
    };
    let starts = || {
        administrative_records(&site, "disk/trail")
            .iter()
            .filter(|[act, ..]| act == "start")
            .count()
    };
    disk.fill();
    for round in 1..=2 {
        ["block", "halt"].iter().for_each(|policy| refused(policy));
        let mut export = start(&site, &args("count"));
        assert_eq!(starts(), round - 1);
        std::fs::remove_file(site.path("disk/filler")).expect("the filler exists");
        assert!(eventually(WAIT_MAX, || starts() == round), "the export does not continue");
        let lost = std::fs::metadata(site.path("disk/trail/lost"))
            .expect("the counter file exists once the disk has room");
        assert_eq!(lost.len(), 512, "lost records were not counted");
        if round == 1 {
            disk.fill();
            export.child.kill().expect("the process runs");
            export.child.wait().expect("a child");
        } else {
            export.terminate();
        }
    }
    let verified = site.run_ok(["audit", "verify", "--public", public.trim(), "disk/trail"]);
    assert!(verified.contains("sound"), "{verified}");
}

fn administrative_records(site: &TestSite, trail: &str) -> Vec<[String; 3]> {
    let mut acts = Vec::new();
    let read = entries(&site.path(trail), 1, |entry| {
        let mut scratch = Vec::new();
        if entry.kind == Kind::Record
            && let Ok(record) = Record::decode(&entry.body, &mut scratch)
        {
            let value = json::value(&record, Some(entry.boot));
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            acts.push([
                text(&value["event"]["action"]),
                text(&value["event"]["outcome"]),
                text(&value["vouch"]["detail"]),
            ]);
        }
        true
    });
    read.expect("the trail is read");
    acts
}

#[test]
fn audit_deny_must_name_an_export_at_start_and_reload() {
    let site = TestSite::with_directories(&["data", "more"]);
    site.run_ok(["audit", "keygen", "trail"]);
    let at = |name: &str| site.path(name).to_str().expect("UTF-8").to_owned();
    let listen = format!("127.0.0.1:{}", free_port());
    let args = format!(
        "export --exports list --state exporting --listen {listen} --audit trail --audit-deny"
    );
    let args = words(&args);
    let both = format!("{}/ *(rw,insecure)\n{} *(rw,insecure)\n", at("data"), at("more"));
    site.write("list", &both);
    for none in ["/export", &format!("{}x", at("more"))] {
        site.expect_err(
            2,
            [&args[..], &[none]].concat(),
            &[none, &format!("{}, {}", at("data"), at("more"))],
        );
    }
    for none in ["relative", "tree:"] {
        assert_eq!(site.run([&args[..], &[none]].concat()).status.code(), Some(2), "{none}");
    }
    let child = site
        .command(args)
        .arg(format!("{}/./", at("more")))
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let mut export =
        Export { child: KillOnDrop(child), address: listen.parse().expect("an address") };
    assert!(
        eventually(WAIT_MAX, || administrative_records(&site, "trail")
            .iter()
            .any(|[act, _, detail]| act == "start" && detail.ends_with(&at("more")))),
        "{:?}",
        administrative_records(&site, "trail")
    );
    assert_eq!(site.run_ok(["export", "reload", "--state", "exporting"]), "");
    site.write(
        "list",
        format!("{} *(rw,insecure)\n{} *(rw,insecure,mp)\n", at("data"), at("more")),
    );
    assert!(!site.run_ok(["export", "reload", "--state", "exporting"]).contains("--audit-deny"));
    site.write("list", format!("{} *(rw,insecure)\n", at("data")));
    assert!(site.run_ok(["export", "reload", "--state", "exporting"]).contains("--audit-deny"));
    site.write("list", both);
    assert_eq!(site.run_ok(["export", "reload", "--state", "exporting"]), "");
    export.terminate();
    let acts = administrative_records(&site, "trail");
    let done: Vec<_> = acts
        .iter()
        .map(|[act, ..]| act.as_str())
        .filter(|act| ["turned-down", "stop"].contains(act))
        .collect();
    assert_eq!(done, ["turned-down", "stop"], "{acts:?}");
}

#[test]
fn failed_reload_is_recorded_and_changes_nothing() {
    let site = TestSite::with_directories(&["data"]);
    site.run_ok(["audit", "keygen", "trail"]);
    site.write("rules", "-a always,exit -S CREATE\n");
    let mut export = start(&site, &["--audit", "trail", "--audit-rules", "rules"]);
    site.write("rules", "-a always,exit -S CREATE\n-a always,exit -S nothing-such\n");
    let records = || administrative_records(&site, "trail");
    assert!(eventually(WAIT_MAX, || !records().is_empty()), "the start is not recorded");
    signal("HUP", export.child.id());
    assert!(
        eventually(WAIT_MAX, || records().iter().any(|[act, ..]| act == "reload")),
        "{:?}",
        records()
    );
    site.write("rules", "-a always,exit -S CREATE,OPEN\n");
    signal("HUP", export.child.id());
    assert!(
        eventually(WAIT_MAX, || records().iter().filter(|[act, ..]| act == "reload").count() == 2),
        "{:?}",
        records()
    );
    export.terminate();
    let acts = records();
    let shown: Vec<_> =
        acts.iter().map(|[act, outcome, _]| (act.as_str(), outcome.as_str())).collect();
    assert_eq!(
        shown,
        [
            ("start", "success"),
            ("reload", "failure"),
            ("rules", "success"),
            ("reload", "success"),
            ("stop", "success")
        ]
    );
    assert!(acts[1][2].contains("line 2") && acts[2][2].contains("1 rules"), "{acts:?}");
}
