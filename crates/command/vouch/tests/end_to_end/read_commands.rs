use std::io::{Read as _, Write as _};

use crate::prelude::*;

#[test]
fn ls_cat_log_diff_and_verify_show_the_published_tree() {
    let world = TestSite::new();
    world.small_tree();
    world.publish_with(&["--tag", "v1"]);
    let _replica = world.serve();
    assert_eq!(world.run_ok(["ls", &world.name("")]), "dir\nhello\nlink\n");
    assert!(world.run_ok(["ls", "-l", &world.name("/")]).contains("link -> dir/numbers"));
    assert_eq!(world.run_ok(["ls", "-R", "--json", &world.name("")]).lines().count(), 5);
    assert_eq!(world.run_ok(["cat", &world.name("/hello")]), "hello world\n");
    assert_eq!(world.run_ok(["cat", &world.name("/link")]), std::fs::read_to_string(world.path("src/dir/numbers")).expect("text"));
    assert!(world.run_err(4, ["cat", &world.name("/dir/no")]).contains("no such file"));
    assert!(world.run_err(3, ["cat", &world.name("/dir")]).contains("is a directory; give a file in it"));

    world.write("src/hello", "hello again\n");
    world.write("src/new", "new\n");
    std::fs::remove_file(world.path("src/dir/empty")).expect("the file exists");
    world.publish();
    assert!(eventually(std::time::Duration::from_secs(10), || world.run_ok(["cat", &world.name("/hello")]) == "hello again\n"));
    let output = world.run(["diff", &world.name("")]);
    assert_eq!(output.status.code(), Some(1));
    let output_text = String::from_utf8(output.stdout).expect("text");
    for line in ["- dir/empty", "~ hello  content mtime", "+ new"] {
        assert!(output_text.lines().any(|found| found == line), "{output_text}");
    }
    assert!(world.run(["diff", &world.name(""), "--from", "2", "--to", "2"]).status.success());
    assert_eq!(world.run_ok(["cat", "--revision", "1", &world.name("/hello")]), "hello world\n");
    assert!(world.run_err(4, ["cat", "--revision", "9", &world.name("/hello")]).contains("revision 9"));
    let log = world.run_ok(["log", &world.name("")]);
    assert!(log.lines().count() == 3 && log.trim_end().ends_with("v1"), "{log}");
    assert!(world.run_ok(["verify", &world.name("")]).contains("sound"));
    assert!(world.run_ok(["verify", "--json", &world.name("")]).contains("\"problem_count\": 0"));
}

#[test]
fn ls_of_an_opaque_directory_shows_only_named_entries() {
    let world = TestSite::new();
    world.small_tree();
    world.write("src/o/secret", "x");
    world.write("src/o/below/deep", "y");
    world.publish_with(&["--opaque", "o"]);
    let _replica = world.serve();
    let note = format!("{} is opaque: its names are hidden; give a name in it\n", world.name("/o"));
    for args in [&["ls"][..], &["ls", "-l"], &["ls", "--json"], &["ls", "-R", "--json"]] {
        let output = world.run([args, &[&world.name("/o")]].concat());
        assert_eq!(
            (output.status.code(), &*output.stdout, &*String::from_utf8_lossy(&output.stderr)),
            (Some(0), &b""[..], &*note),
            "{args:?}"
        );
    }
    let output = world.run(["ls", "-R", &world.name("")]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), note);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "dir\nhello\nlink\no\n\ndir:\nempty\nnumbers\n\no:\n");
    assert_eq!(world.run_ok(["ls", &world.name("/o/below")]), "deep\n");
    assert!(world.run_ok(["ls", "-l", &world.name("/o/secret")]).contains("o/secret"));
    assert!(world.run_ok(["ls", "-d", &world.name("/o")]).ends_with("o\n"));
    assert!(world.run_ok(["get", &world.name(""), "copy"]).contains("1 opaque directories were copied empty"));
    assert!(world.path("copy/dir/numbers").exists() && !world.path("copy/o/secret").exists());
    world.run_ok(["get", &world.name("/o/secret"), "secret"]);
    world.write("src/o/second", "z");
    world.publish_with(&["--opaque", "o"]);
    let mut lines = String::new();
    assert!(eventually(std::time::Duration::from_secs(10), || {
        lines = String::from_utf8_lossy(&world.run(["diff", &world.name("")]).stdout).into_owned();
        lines.lines().any(|line| line.starts_with("~ o  content"))
    }));
    assert!(!lines.contains("o/"), "{lines}");
}

#[test]
fn verify_reports_findings_when_the_replica_closes_the_connection() {
    let (world, replica) = TestSite::served();
    for pack in std::fs::read_dir(world.path("db/packs")).expect("packs").filter_map(Result::ok) {
        std::fs::File::options().write(true).open(pack.path()).and_then(|file| file.set_len(40)).expect("cut");
    }
    let output = world.run(["verify", "--json", "--timeout", "20s", &world.name("")]);
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{output_text}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["problem_count"], &report["ended_early"], &report["frames"]), (&1.into(), &true.into(), &0.into()));
    let problem = report["problems"][0].as_str().expect("text");
    assert!(problem.contains(&replica.address) && output_text.contains(problem), "{problem}: {output_text}");
}

#[test]
fn get_copies_every_odd_case() {
    if !python_is_available() {
        return;
    }
    let world = TestSite::new();
    assert!(world.script("odd-tree", ["src", "--large", "3000", "--depth", "200"]).status.success());
    world.publish_with(&["--private-files", "allow"]);
    let _replica = world.serve();
    let all: &[&str] = if crate::test_site::is_root() { &["--suid", "--dev"] } else { &[] };
    world.run_ok([&["get", &world.name(""), "copy"], all].concat());
    world.assert_same("src", "copy", if crate::test_site::is_root() { &[] } else { &["--no-owner", "--no-xattr"] });
    std::fs::create_dir(world.path("into")).expect("new");
    world.run_ok(["get", &world.name("/sizes/1300001"), "into"]);
    assert_eq!(std::fs::metadata(world.path("into/1300001")).expect("copied").len(), 1_300_001);
    assert!(world.run_err(3, ["get", &world.name("/sizes/1300001"), "into"]).contains("exists already"));
    let left: Vec<_> =
        std::fs::read_dir(world.path("")).expect("a directory").filter_map(Result::ok).map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".vouch-get")), "{left:?}");
}

#[test]
fn get_as_root_leaves_out_privileges_and_devices() {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    if !is_available("root", crate::test_site::is_root()) {
        return;
    }
    let world = TestSite::new();
    world.write("src/tool", "#!/bin/sh\n");
    std::fs::set_permissions(world.path("src/tool"), std::fs::Permissions::from_mode(0o4755)).expect("the owner");
    world.run_tool("mknod", &["src/null", "c", "1", "3"]);
    world.run_tool("setfattr", &["-n", "trusted.x", "-v", "1", "src/tool"]);
    world.publish();
    let _replica = world.serve();
    let mode = |path: &str| std::fs::metadata(world.path(path)).expect("copied").permissions().mode() & 0o7777;
    assert!(world.run_ok(["get", &world.name(""), "plain"]).contains("3 set-id bits, capabilities or devices were left out"));
    assert_eq!((mode("plain/tool"), world.path("plain/null").exists()), (0o755, false));
    let report: serde_json::Value =
        serde_json::from_str(&world.run_ok(["get", &world.name(""), "all", "--suid", "--dev", "--json"])).expect("JSON");
    assert_eq!(report["left_out"], 0);
    assert_eq!(mode("all/tool"), 0o4755);
    assert!(std::fs::metadata(world.path("all/null")).expect("copied").file_type().is_char_device());
}

#[test]
fn mirror_is_pulled_served_and_kept_current() {
    let world = TestSite::published();
    let first = world.serve();
    let report: serde_json::Value =
        serde_json::from_str(&world.run_ok(["pull", &world.name(""), "--db", "mirror", "--json"])).expect("JSON");
    assert_eq!((&report["revision"], &report["was_current"]), (&1.into(), &false.into()));
    assert!(world.run_ok(["pull", &world.name(""), "--db", "mirror"]).contains("already present"));
    world.write("src/hello", "second\n");
    world.publish();
    assert!(eventually(std::time::Duration::from_secs(10), || world
        .run_ok(["pull", &world.name(""), "--db", "mirror"])
        .contains("revision 2")));
    assert!(world.run_ok(["verify", "--db", "mirror"]).contains("sound"));
    drop(first);
    let mirror = world.serve_db("mirror", 0);
    let name = world.name("/hello");
    assert_eq!(world.run_ok(["cat", "--no-cache", "--replica", &mirror.address, &name]), "second\n");
}

#[test]
fn replica_serves_health_and_metrics() {
    let (world, replica) = TestSite::served();
    world.run_ok(["cat", "--no-cache", &world.name("/dir/numbers")]);
    let mut output_text = String::new();
    for path in ["/healthz", "/metrics"] {
        let mut stream = std::net::TcpStream::connect(&replica.page).expect("the page answers");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("a request");
        stream.read_to_string(&mut output_text).expect("an answer");
    }
    assert!(output_text.contains("\"healthy\": true") && output_text.contains("# TYPE"), "{output_text}");
}

#[test]
fn second_cat_reads_from_the_disk_cache() {
    let (world, mut replica) = TestSite::served();
    let first = world.run_ok(["cat", &world.name("/dir/numbers")]);
    assert!(std::fs::read_dir(world.path("cache")).expect("a cache").count() > 0);
    for pack in std::fs::read_dir(world.path("db/packs")).expect("packs").filter_map(Result::ok) {
        if pack.file_name().to_string_lossy().starts_with('d') {
            std::fs::remove_file(pack.path()).expect("a pack");
        }
    }
    assert_eq!(world.run_ok(["cat", "--timeout", "5s", &world.name("/dir/numbers")]), first);
    replica.kill();
}

#[test]
fn closed_output_pipe_is_no_error() {
    let (world, _replica) = TestSite::served();
    let mut child =
        world.command(["cat", &world.name("/dir/numbers")]).stdout(std::process::Stdio::piped()).spawn().expect("the binary starts");
    let mut out = child.stdout.take().expect("piped");
    out.read_exact(&mut [0; 10]).expect("a beginning");
    drop(out);
    assert!(child.wait().expect("a child").success());
}

#[test]
fn completions_help_and_man_pages_match_the_parser() {
    let world = TestSite::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(world.run_ok(["completions", shell]).contains("publish"));
    }
    let help = world.run_ok(["help", "publish"]);
    assert!(help.contains("Examples:") && help.contains("--location"), "{help}");
    assert!(world.run_ok(["--help"]).contains("Exit codes"));
    world.run_ok(["man", "--out", "man"]);
    for entry in std::fs::read_dir(world.path("man")).expect("pages").filter_map(Result::ok) {
        let page = std::fs::read_to_string(entry.path()).expect("a page");
        let sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "FILES", "EXIT STATUS", "SEE ALSO"];
        let is_configuration = entry.file_name() == "vouch.toml.5";
        for section in sections.into_iter().filter(|section| !is_configuration || !["FILES", "EXIT STATUS"].contains(section)) {
            assert!(
                page.lines().any(|line| line == format!(".SH {section}") || line == format!(".SH \"{section}\"")),
                "{entry:?}: {section}"
            );
        }
    }
    let configuration = world.run_ok(["man", "vouch.toml"]);
    assert!(configuration.contains("TABLE [serve]") && configuration.contains("cache\\-quota"), "{configuration}");
}
