use std::io::{Read as _, Write as _};

use crate::prelude::*;

#[test]
fn ls_cat_log_diff_and_verify_show_the_published_tree() {
    let site = TestSite::new();
    site.small_tree();
    site.publish_with(&["--tag", "v1"]);
    let _replica = site.serve();
    assert_eq!(site.run_ok(["ls", &site.name("")]), "dir\nhello\nlink\n");
    assert!(site.run_ok(["ls", "-l", &site.name("/")]).contains("link -> dir/numbers"));
    assert_eq!(site.run_ok(["ls", "-R", "--json", &site.name("")]).lines().count(), 5);
    assert_eq!(site.run_ok(["cat", &site.name("/hello")]), "hello world\n");
    assert_eq!(
        site.run_ok(["cat", &site.name("/link")]),
        std::fs::read_to_string(site.path("src/dir/numbers")).expect("text")
    );
    assert!(site.run_err(4, ["cat", &site.name("/dir/no")]).contains("no such file"));
    assert_contains!(
        site.run_err(3, ["cat", &site.name("/dir")]),
        "is a directory; give a file in it"
    );

    site.write("src/hello", "hello again\n");
    site.write("src/new", "new\n");
    std::fs::remove_file(site.path("src/dir/empty")).expect("the file exists");
    site.publish();
    assert!(eventually(std::time::Duration::from_secs(10), || site
        .run_ok(["cat", &site.name("/hello")])
        == "hello again\n"));
    let output = site.run(["diff", &site.name("")]);
    assert_eq!(output.status.code(), Some(1));
    let output_text = String::from_utf8(output.stdout).expect("text");
    for line in ["- dir/empty", "~ hello  content mtime", "+ new"] {
        assert!(output_text.lines().any(|found| found == line), "{output_text}");
    }
    assert!(site.run(["diff", &site.name(""), "--from", "2", "--to", "2"]).status.success());
    assert_eq!(site.run_ok(["cat", "--revision", "1", &site.name("/hello")]), "hello world\n");
    assert_contains!(
        site.run_err(4, ["cat", "--revision", "9", &site.name("/hello")]),
        "revision 9"
    );
    let log = site.run_ok(["log", &site.name("")]);
    assert!(log.lines().count() == 3 && log.trim_end().ends_with("v1"), "{log}");
    assert!(site.run_ok(["verify", &site.name("")]).contains("sound"));
    assert!(site.run_ok(["verify", "--json", &site.name("")]).contains("\"problem_count\": 0"));
}

#[test]
fn ls_of_an_opaque_directory_shows_only_named_entries() {
    let site = TestSite::new();
    site.small_tree();
    site.write("src/o/secret", "x");
    site.write("src/o/below/deep", "y");
    site.publish_with(&["--opaque", "o"]);
    let _replica = site.serve();
    let note = format!("{} is opaque: its names are hidden; give a name in it\n", site.name("/o"));
    for args in [&["ls"][..], &["ls", "-l"], &["ls", "--json"], &["ls", "-R", "--json"]] {
        let output = site.run([args, &[&site.name("/o")]].concat());
        assert_eq!(
            (output.status.code(), &*output.stdout, &*String::from_utf8_lossy(&output.stderr)),
            (Some(0), &b""[..], &*note),
            "{args:?}"
        );
    }
    let output = site.run(["ls", "-R", &site.name("")]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), note);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "dir\nhello\nlink\no\n\ndir:\nempty\nnumbers\n\no:\n"
    );
    assert_eq!(site.run_ok(["ls", &site.name("/o/below")]), "deep\n");
    assert!(site.run_ok(["ls", "-l", &site.name("/o/secret")]).contains("o/secret"));
    assert!(site.run_ok(["ls", "-d", &site.name("/o")]).ends_with("o\n"));
    assert_contains!(
        site.run_ok(["get", &site.name(""), "copy"]),
        "1 opaque directories were copied empty"
    );
    assert!(site.path("copy/dir/numbers").exists() && !site.path("copy/o/secret").exists());
    site.run_ok(["get", &site.name("/o/secret"), "secret"]);
    site.write("src/o/second", "z");
    site.publish_with(&["--opaque", "o"]);
    let mut lines = String::new();
    assert!(eventually(std::time::Duration::from_secs(10), || {
        lines = String::from_utf8_lossy(&site.run(["diff", &site.name("")]).stdout).into_owned();
        lines.lines().any(|line| line.starts_with("~ o  content"))
    }));
    assert!(!lines.contains("o/"), "{lines}");
}

#[test]
fn verify_reports_findings_when_the_replica_closes_the_connection() {
    let (site, replica) = TestSite::served();
    for pack in std::fs::read_dir(site.path("db/packs")).expect("packs").filter_map(Result::ok) {
        std::fs::File::options()
            .write(true)
            .open(pack.path())
            .and_then(|file| file.set_len(40))
            .expect("cut");
    }
    let output = site.run(["verify", "--json", "--timeout", "20s", &site.name("")]);
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{output_text}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["problem_count"], &report["ended_early"], &report["frames"]),
        (&1.into(), &true.into(), &0.into())
    );
    let problem = report["problems"][0].as_str().expect("text");
    assert!(
        problem.contains(&replica.address) && output_text.contains(problem),
        "{problem}: {output_text}"
    );
}

#[test]
#[ignore = "needs python3"]
fn get_copies_every_odd_case() {
    require_program("python3");
    let site = TestSite::new();
    assert!(site.script("odd-tree", ["src", "--large", "3000", "--depth", "200"]).status.success());
    site.publish_with(&["--private-files", "allow"]);
    let _replica = site.serve();
    let all: &[&str] = if crate::test_site::is_root() { &["--suid", "--dev"] } else { &[] };
    site.run_ok([&["get", &site.name(""), "copy"], all].concat());
    site.assert_same(
        "src",
        "copy",
        if crate::test_site::is_root() { &[] } else { &["--no-owner", "--no-xattr"] },
    );
    std::fs::create_dir(site.path("into")).expect("new");
    site.run_ok(["get", &site.name("/sizes/1300001"), "into"]);
    assert_eq!(std::fs::metadata(site.path("into/1300001")).expect("copied").len(), 1_300_001);
    assert_contains!(
        site.run_err(3, ["get", &site.name("/sizes/1300001"), "into"]),
        "exists already"
    );
    let left: Vec<_> = std::fs::read_dir(site.path(""))
        .expect("a directory")
        .filter_map(Result::ok)
        .map(|entry| entry.file_name())
        .collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".vouch-get")), "{left:?}");
}

#[test]
#[ignore = "needs root"]
fn get_as_root_leaves_out_privileges_and_devices() {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    require("root", crate::test_site::is_root());
    let site = TestSite::new();
    site.write("src/tool", "#!/bin/sh\n");
    std::fs::set_permissions(site.path("src/tool"), std::fs::Permissions::from_mode(0o4755))
        .expect("the owner");
    site.run_tool("mknod", &["src/null", "c", "1", "3"]);
    site.run_tool("setfattr", &["-n", "trusted.x", "-v", "1", "src/tool"]);
    site.publish();
    let _replica = site.serve();
    let mode = |path: &str| {
        std::fs::metadata(site.path(path)).expect("copied").permissions().mode() & 0o7777
    };
    assert_contains!(
        site.run_ok(["get", &site.name(""), "plain"]),
        "3 set-id bits, capabilities or devices were left out"
    );
    assert_eq!((mode("plain/tool"), site.path("plain/null").exists()), (0o755, false));
    let report: serde_json::Value = serde_json::from_str(
        &site.run_ok(&format!("get {} all --suid --dev --json", site.name(""))),
    )
    .expect("JSON");
    assert_eq!(report["left_out"], 0);
    assert_eq!(mode("all/tool"), 0o4755);
    assert!(std::fs::metadata(site.path("all/null")).expect("copied").file_type().is_char_device());
}

#[test]
fn mirror_is_pulled_served_and_kept_current() {
    let site = TestSite::published();
    let first = site.serve();
    let report: serde_json::Value =
        serde_json::from_str(&site.run_ok(["pull", &site.name(""), "--db", "mirror", "--json"]))
            .expect("JSON");
    assert_eq!((&report["revision"], &report["was_current"]), (&1.into(), &false.into()));
    assert!(site.run_ok(["pull", &site.name(""), "--db", "mirror"]).contains("already present"));
    site.write("src/hello", "second\n");
    site.publish();
    assert!(eventually(std::time::Duration::from_secs(10), || site
        .run_ok(["pull", &site.name(""), "--db", "mirror"])
        .contains("revision 2")));
    assert!(site.run_ok(["verify", "--db", "mirror"]).contains("sound"));
    drop(first);
    let mirror = site.serve_db("mirror", 0);
    let name = site.name("/hello");
    assert_eq!(site.run_ok(["cat", "--no-cache", "--replica", &mirror.address, &name]), "second\n");
}

#[test]
fn replica_serves_health_and_metrics() {
    let (site, replica) = TestSite::served();
    site.run_ok(["cat", "--no-cache", &site.name("/dir/numbers")]);
    let mut output_text = String::new();
    for path in ["/healthz", "/metrics"] {
        let mut stream = std::net::TcpStream::connect(&replica.page).expect("the page answers");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .expect("a request");
        stream.read_to_string(&mut output_text).expect("an answer");
    }
    assert_contains!(output_text, "\"healthy\": true", "# TYPE");
}

#[test]
fn second_cat_reads_from_the_disk_cache() {
    let (site, mut replica) = TestSite::served();
    let first = site.run_ok(["cat", &site.name("/dir/numbers")]);
    assert!(std::fs::read_dir(site.path("cache")).expect("a cache").count() > 0);
    for pack in std::fs::read_dir(site.path("db/packs")).expect("packs").filter_map(Result::ok) {
        if pack.file_name().to_string_lossy().starts_with('d') {
            std::fs::remove_file(pack.path()).expect("a pack");
        }
    }
    assert_eq!(site.run_ok(["cat", "--timeout", "5s", &site.name("/dir/numbers")]), first);
    replica.kill();
}

#[test]
fn closed_output_pipe_is_no_error() {
    let (site, _replica) = TestSite::served();
    let mut child = site
        .command(["cat", &site.name("/dir/numbers")])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut out = child.stdout.take().expect("piped");
    out.read_exact(&mut [0; 10]).expect("a beginning");
    drop(out);
    assert!(child.wait().expect("a child").success());
}

#[test]
fn completions_help_and_man_pages_match_the_parser() {
    let site = TestSite::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(site.run_ok(["completions", shell]).contains("publish"));
    }
    let help = site.run_ok(["help", "publish"]);
    assert!(help.contains("Examples:") && help.contains("--location"), "{help}");
    assert!(site.run_ok(["--help"]).contains("Exit codes"));
    site.run_ok(["man", "--out", "man"]);
    for entry in std::fs::read_dir(site.path("man")).expect("pages").filter_map(Result::ok) {
        let page = std::fs::read_to_string(entry.path()).expect("a page");
        let sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "FILES", "EXIT STATUS", "SEE ALSO"];
        let is_configuration = entry.file_name() == "vouch.toml.5";
        for section in sections
            .into_iter()
            .filter(|section| !is_configuration || !["FILES", "EXIT STATUS"].contains(section))
        {
            assert!(
                page.lines()
                    .any(|line| line == format!(".SH {section}")
                        || line == format!(".SH \"{section}\"")),
                "{entry:?}: {section}"
            );
        }
    }
    let configuration = site.run_ok(["man", "vouch.toml"]);
    assert_contains!(configuration, "TABLE [serve]", "cache\\-quota");
}
