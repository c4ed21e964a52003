use std::io::{BufRead as _, Write as _};

use crate::bench::BenchServer;
use crate::browser::check_page_in_browser;
use crate::prelude::*;

fn web_server() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
                while lines
                    .by_ref()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .count()
                    > 0
                {
                    let head =
                        "HTTP/1.1 200 OK\r\nContent-Length: 1024\r\nConnection: close\r\n\r\n";
                    let _ = stream.write_all(&[head.as_bytes(), &[b's'; 1024]].concat());
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                }
            });
        }
    });
    address
}

#[test]
#[ignore = "needs FUSE and nginx"]
fn published_tree_is_measured_beside_its_directory() {
    let served = BenchServer::new();
    let site = &served.site;
    for directory in ["place", "project"] {
        std::fs::create_dir(site.path(directory)).expect("a directory");
    }
    std::fs::write(site.path("project/number"), "42").expect("a file");
    let web = web_server();
    let (target, nfs) = (format!("http://{web}/small"), served.target());
    let outputs = ["--json", "tree.json", "--html", "tree.html", "--target", &nfs];
    let project =
        ["--project", "project", "--build", "cp $SRC/number object; test $(cat object) = 42"];
    let args = ["bench", "tree", "--dir", "place", "--quick", "--rounds", "1", "--target", &target];
    let table = site.run_ok([&args[..], &outputs[..], &project].concat());
    served.assert_clean();
    assert_contains!(table, "tree cold", "local directory", "a name of three");
    let text = std::fs::read_to_string(site.path("tree.json")).expect("the record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let result = |kind: &str| {
        record["results"]
            .as_array()
            .expect("results")
            .iter()
            .find(|result| result["case"]["kind"] == kind)
            .cloned()
    };
    let labels = |result: &Value| -> Vec<String> {
        result["subjects"]
            .as_array()
            .expect("subjects")
            .iter()
            .map(|subject| subject["label"].as_str().unwrap_or("").to_owned())
            .collect()
    };
    let compiled = labels(&result("compile").expect("a compile"));
    assert!(
        compiled.contains(&"tree cold".to_owned())
            && compiled.contains(&"local directory".to_owned()),
        "{compiled:?}"
    );
    assert!(
        compiled.contains(&"sshfs cold".to_owned()) || text.contains("sshfs cold: "),
        "{compiled:?}, nor is it left out"
    );
    let replayed = result("replay").expect("clients that replay it");
    let sample = &replayed["subjects"][0]["samples"][0];
    assert!(
        sample["operations"].as_u64() > Some(6) && sample["bytes"].as_u64() > Some(10_000),
        "{replayed}"
    );
    let connected = labels(&result("connect").expect("connections"));
    let named = format!("http {web}");
    assert_eq!(connected, ["replica", "nginx HTTP", "nginx HTTPS", &named]);
    let nfs = format!("{} sys", served.export.address);
    let read = labels(&result("read").expect("reads"));
    assert!(read.contains(&nfs) && read.contains(&"tree warm".to_owned()), "{read:?}");
    let built = labels(&result("build").expect("the project"));
    assert!(
        built.contains(&"tree cold".to_owned())
            && built.contains(&"local directory".to_owned())
            && !built.contains(&nfs),
        "{built:?}"
    );
    let all = || record["results"].as_array().expect("results").iter();
    let parts = all()
        .find(|result| result["panel"] == "Where the time of small reads goes")
        .expect("a breakdown");
    assert_eq!(
        labels(parts),
        ["whole read", "kernel and mount", "client's computation", "replica and network"]
    );
    for part in parts["subjects"].as_array().expect("subjects") {
        let (seconds, requests) =
            (part["figure"]["median"].as_f64(), part["samples"][0]["operations"].as_u64());
        assert!(seconds > Some(0.0) && requests > Some(1), "{part}");
    }
    assert!(
        parts["subjects"][1]["samples"][0]["operations"].as_u64() >= Some(200),
        "a request for each file: {parts}"
    );
    assert_eq!(all().filter(|result| result["case"]["kind"] == "primitive").count(), 6);
    let results = record["results"].as_array().expect("results");
    let verified: Vec<_> = results
        .iter()
        .filter(|result| labels(result) == ["nothing verified", "all verified"])
        .collect();
    assert_eq!(verified.len(), 2, "small files, and a large one");
    for result in verified {
        let [without, with] = [0, 1].map(|at| result["subjects"][at]["samples"][0].clone());
        for sample in [&without, &with] {
            assert!(
                sample["operations"].as_u64() > Some(1) && sample["bytes"].as_u64() > Some(10_000),
                "{result}"
            );
        }
    }
    check_page_in_browser(site, "tree.html", 10);
    assert_eq!(site.count("place"), 0);
}

#[test]
fn workloads_without_a_server_run_alone() {
    let site = TestSite::new();
    let null: Value =
        serde_json::from_str(&site.run_ok(["bench", "null", "--json"])).expect("JSON");
    assert!(null["calls"].as_u64().expect("a count") > 1000, "{null}");
    let one = ["--enctypes", "aes256-cts-hmac-sha1-96", "--sizes", "4K"];
    let table = site.run_ok([&["bench", "seal", "--quick", "--rounds", "1"], &one[..]].concat());
    assert_contains!(table, "aes256-cts-hmac-sha1-96", "16 together"; "aes128");
    std::fs::create_dir(site.path("work")).expect("a directory");
    site.run_ok(["bench", "work", "files", "200", "work"]);
    assert_eq!(site.count("work"), 0);
    site.expect_err(2, ["bench", "iops"], &["--target"]);
}

#[test]
#[ignore = "needs FUSE, Chromium and nginx"]
fn bench_all_runs_without_a_target() {
    let site = TestSite::with_directories(&["place"]);
    let place = site.path("place").display().to_string();
    let outputs = ["--quick", "--rounds", "1", "--json", "all.json", "--html", "all.html"];
    site.run_ok(
        [&["bench", "all", "--no-tree", "--no-audit", "--audit-dir", &place], &outputs[..]]
            .concat(),
    );
    let record = site.json("all.json");
    let results = record["results"].as_array().expect("results");
    let workloads: std::collections::BTreeSet<_> =
        results.iter().filter_map(|result| result["workload"].as_str()).collect();
    assert_eq!(
        workloads.into_iter().collect::<Vec<_>>(),
        ["audit", "seal"],
        "workloads without a server"
    );
    let left_out = record["left_out"].to_string();
    for what in ["transfer", "iops", "concurrency", "--target"] {
        assert!(left_out.contains(what), "{what}: {left_out}");
    }
    check_page_in_browser(&site, "all.html", 1);
}

#[test]
fn audited_export_is_measured_beside_an_unaudited_one() {
    let site = TestSite::with_directories(&["place"]);
    let place = site.path("place").display().to_string();
    let args = format!(
        "bench audit --no-kernel --quick --rounds 1 --files 200 --json run.json --dir {place}"
    );
    let args = words(&args);
    let table = site.run_ok(args);
    assert!(table.contains("export, trail"), "{table}");
    let text = std::fs::read_to_string(site.path("run.json")).expect("the record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let [result] = &record["results"].as_array().expect("results")[..] else { panic!("{record}") };
    let [plain, trail] = &result["subjects"].as_array().expect("subjects")[..] else {
        panic!("{result}")
    };
    for subject in [plain, trail] {
        assert_eq!(subject["operations"], 200, "{subject}");
        assert_eq!(subject["errors"], 0, "{subject}");
    }
    let other = |subject: &Value, name: &str| {
        subject["samples"][0]["others"]
            .as_array()
            .and_then(|all| all.iter().find(|other| other[0] == name))
            .map(|other| other[1].as_f64())
    };
    assert!(other(trail, "records").flatten().expect("a count") >= 1000.0, "{trail}");
    assert_eq!(other(trail, "records lost").flatten(), Some(0.0), "{trail}");
    assert!(other(plain, "records").is_none(), "{plain}");
    assert_eq!(site.count("place"), 0);
}

#[test]
fn killed_run_is_resumed_where_it_stopped() {
    let site = TestSite::new();
    let args = words(
        "bench seal --quick --rounds 1 --enctypes aes256-cts-hmac-sha1-96 --sizes 64,1024 --json run.json",
    );
    let mut child = site
        .command(&args)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let line = lines
        .by_ref()
        .map_while(Result::ok)
        .find(|line| line.contains(", 1 KiB: "))
        .expect("a line for each finished case");
    assert_contains!(line, " s left: seal, aes256-cts-hmac-sha1-96, ", "MB/s");
    child.kill().expect("the run is not over");
    child.wait().expect("a child");
    let read = || -> Value {
        serde_json::from_slice(&std::fs::read(site.path("run.json")).expect("a record"))
            .expect("JSON")
    };
    let before = read();
    assert_eq!(before["interrupted"], true);
    let output = site.run([&args[..], &["--resume", "run.json"]].concat());
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(
        !messages.lines().any(|line| line.contains("left: seal, ") && line.contains(", 64 B: ")),
        "{messages}"
    );
    let after = read();
    assert!(after["interrupted"] == false && after["results"][0] == before["results"][0]);
    assert!(
        after["results"].as_array().expect("results").len()
            > before["results"].as_array().expect("results").len()
    );
    assert!(
        after["notes"][0].as_str().expect("text").starts_with("continues the run of "),
        "{}",
        after["notes"]
    );

    std::fs::write(
        site.path("other.json"),
        after.to_string().replace(after["machine"]["cpu"].as_str().expect("text"), "Z80"),
    )
    .expect("a file");
    assert_contains!(
        site.run_err(3, [&args[..], &["--resume", "other.json"]].concat()),
        "another machine: Z80"
    );
}
