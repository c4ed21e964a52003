use std::os::unix::fs::{PermissionsExt as _, chown};

use crate::prelude::*;

fn site(files: &[(&str, &str)]) -> TestSite {
    let mut site = TestSite::published();
    let name = site.name("");
    for (file, text) in files {
        site.write(
            &format!("etc/{file}"),
            text.replace("NAME", &name).replace("DIR", &site.path("").to_string_lossy()),
        );
    }
    site.environment.push(("VOUCH_CONFIG", site.path("etc").to_string_lossy().into_owned()));
    site
}

fn shown(site: &TestSite, option: &str, line: &[&str]) -> (String, String) {
    let rows: serde_json::Value =
        serde_json::from_str(&site.run_ok([&["config", "show", "--json"], line].concat()))
            .expect("JSON");
    let row = rows.as_array().expect("a list").iter().find(|row| row["name"] == option);
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().expect("text").to_owned();
    row.map_or_else(Default::default, |row| (text(row, "value"), text(row, "source")))
}

#[test]
fn nearer_settings_override_farther_ones() {
    let mut site = site(&[
        (
            "vouch.toml",
            "cache-quota = \"1G\"\ntimeout = \"7s\"\nno-cache = true\n[mount]\nnoexec = true\nallow-other = true\n",
        ),
        (
            "conf.d/20-b.toml",
            "cache-quota = \"2G\"\n[tree.tools]\nname = \"NAME\"\nmemory-cache = \"8M\"\n[tree.tools.mount]\ncache-quota = \"3G\"\n",
        ),
        ("conf.d/10-a.toml", "cache-quota = \"5G\"\n"),
        ("conf.d/30.disabled", "nonsense"),
    ]);
    let file = |name: &str, line: u32| format!("{}:{line}", site.path("etc").join(name).display());
    let (main, late) = (|line| file("vouch.toml", line), |line| file("conf.d/20-b.toml", line));
    let expect = |option: &str, line: &[&str], value: &str, source: &str| {
        assert_eq!(
            shown(&site, option, line),
            (value.to_owned(), source.to_owned()),
            "{option} of {line:?}"
        );
    };
    expect("cache-quota", &["ls", "tools"], "2G", &late(1));
    expect("cache-quota", &["mount", "tools", "/mnt"], "3G", &late(6));
    expect("memory-cache", &["ls", "tools/dir"], "8M", &late(4));
    expect("memory-cache", &["ls", &site.name("/dir")], "8M", &late(4));
    expect(
        "memory-cache",
        &["ls", "@elsewhere.example,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
        "256M",
        "default",
    );
    expect("timeout", &["mount", "tools", "/mnt"], "7s", &main(2));
    expect("timeout", &["mount", "tools", "/mnt", "--timeout", "1s"], "1s", "command line");
    expect("no-cache", &["ls", "tools"], "true", &main(3));
    expect("no-cache", &["ls", "tools", "--no-cache=false"], "false", "command line");
    expect("allow-other", &["mount", "tools", "/mnt"], "true", &main(6));
    expect("only-me", &["mount", "--only-me", "tools", "/mnt"], "true", "command line");
    expect("allow-other", &["mount", "--only-me", "tools", "/mnt"], "false", "default");
    let cache = site.path("cache").to_string_lossy().into_owned();
    expect("cache", &["ls", "tools"], &cache, "environment VOUCH_CACHE");
    site.write("etc/conf.d/40.toml", "cache = \"/elsewhere\"\n");
    assert_eq!(
        shown(&site, "cache", &["ls", "tools"]),
        (cache, "environment VOUCH_CACHE".to_owned())
    );
    site.environment.push(("VOUCH_CONFIG", "/dev/null".into()));
    assert_eq!(shown(&site, "timeout", &["ls", "x"]), ("30s".to_owned(), "default".to_owned()));
}

#[test]
fn commands_use_short_names_and_settings() {
    let site = site(&[(
        "vouch.toml",
        "[tree.tools]\nname = \"NAME\"\n[tree.tools.pull]\ndb = \"DIR/mirror\"\nkeep = 1\n",
    )]);
    let replica = site.serve();
    assert_eq!(site.run_ok(["cat", "tools/hello"]), "hello world\n");
    assert_eq!(site.run_ok(["name", "tools"]).trim(), site.name(""));
    site.run_ok(["pull", "tools"]);
    drop(replica);
    site.write(
        "etc/conf.d/serve.toml",
        format!(
            "[serve]\ndb = [{:?}]\nlisten = \"127.0.0.1:{}\"\n",
            site.path("mirror"),
            site.port
        ),
    );
    let service = start_listener(&mut site.command(["serve"]));
    assert_eq!(site.run_ok(["cat", "--no-cache", "tools/hello"]), "hello world\n");
    drop(service);
    site.expect_err(3, ["cat", "tulls/hello"], &["tulls", "short names: tools"]);
    let settings = format!(
        "[tree.tools.publish]\ndir = \"DIR/src\"\ndb = \"DIR/db\"\nkeys = \"DIR/keys\"\nlocation = \"127.0.0.1:{}\"\n",
        site.port
    );
    site.write(
        "etc/conf.d/publish.toml",
        settings.replace("DIR", &site.path("").to_string_lossy()),
    );
    site.run_ok(["publish", "--tree", "tools"]);
    assert_eq!(site.run(["publish", "--tree", "none"]).status.code(), Some(2));
}

#[test]
fn faults_are_named_with_file_line_and_cure() {
    let cases: &[(&str, u32, &[&str])] = &[
        (
            "cache-quota = \"1G\"\ncahce-quota = \"1G\"\n",
            2,
            &["unknown option `cahce-quota`", "did you mean `cache-quota`?"],
        ),
        ("cache_quota = \"1G\"\n", 1, &["did you mean `cache-quota`?"]),
        ("cache-quota = \"1Q\"\n", 1, &["can't be \"1Q\"", "256M, 10G"]),
        ("passthrough = \"auto\"\n", 1, &["put it into [mount]"]),
        ("[mount]\npassthrough = \"often\"\n", 2, &["use never, auto, always"]),
        ("[mount]\nnoexec = \"yes\"\n", 2, &["`mount.noexec` is a switch", "true or false"]),
        ("[mount]\ndetached = true\n", 2, &["unknown option"]),
        ("[muont]\nnoexec = true\n", 2, &["no table [muont]", "did you mean `mount`?"]),
        ("timeout = [\"1s\", \"2s\"]\n", 1, &["takes one value"]),
        ("timeout = true\n", 1, &["takes a value", "DURATION"]),
        ("[export]\nlease = -1\n", 2, &["can't be \"-1\"", "write a whole number"]),
        ("a = \n", 1, &["TOML"]),
        ("[tree.tools]\nname = \"pub.example.org\"\n", 2, &["tree.tools.name", "@HOST,HOSTID"]),
        ("[tree.tools]\ncache = \"/c\"\n", 2, &["[tree.tools] has no valid name"]),
        ("[tree.\"a/b\"]\nname = \"NAME\"\n", 2, &["is not a short name"]),
        ("[tree.a]\nname = \"NAME\"\n[tree.b]\nname = \"NAME\"\n", 4, &["same key"]),
        ("[tree.a]\nname = \"NAME\"\nnoexec = true\n", 3, &["put it into [tree.a.mount]"]),
        ("[tree.a]\nname = \"NAME\"\nonly-replicas = true\n", 2, &["would fail", "--replica"]),
        ("[umount]\nx = 1\n", 2, &["no table [umount]"]),
    ];
    let site = site(&[("vouch.toml", "")]);
    let name = site.name("");
    for (text, line, parts) in cases {
        let text = text.replace("NAME", &name);
        site.write("etc/vouch.toml", &text);
        let output = site.run(["config", "check"]);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(3), "{text}: {stdout}");
        let place = format!("{}:{line}: ", site.path("etc/vouch.toml").display());
        assert!(stdout.starts_with(&place), "{text}: {stdout}");
        for part in *parts {
            assert!(stdout.contains(part), "{text}: {stdout} lacks {part}");
        }
        assert_eq!(stdout.lines().count(), 1, "{text}: {stdout}");
    }
    site.write("etc/vouch.toml", "a = 1\nb = 2\n");
    site.expect_err(
        3,
        ["ls", "@h,x"],
        &["vouch.toml:1: unknown option `a`", "1 more: `vouch config check`"],
    );
    site.run_ok(["mount", "--help"]);
    assert!(site.run_err(3, ["umount", "src"]).contains("not a vouch mount"));
    assert!(site.run_err(3, ["--config", "no-such", "ls", "@h,x"]).contains("no such file"));
    site.write("etc/vouch.toml", "only-replicas = true\n");
    let output = site.run(["ls", &name]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("note: --only-replicas is from"),
        "{output:?}"
    );
}

#[test]
fn log_file_of_a_service_is_not_opened_by_its_subcommands() {
    let site =
        site(&[("vouch.toml", "[export]\ndir = \"data\"\nlog-file = \"logs/export.log\"\n")]);
    fs::create_dir(site.path("data")).expect("a directory");
    site.run_ok(["export", "check"]);
    let started = site.run_err(4, ["export", "--state", "exporting", "--listen", "127.0.0.1:0"]);
    assert_contains!(started, "logs/export.log: no such file or directory; create its directory");
    fs::create_dir(site.path("logs")).expect("a directory");
    site.run_ok(["export", "check"]);
    assert_eq!(site.count("logs"), 0);
}

#[test]
#[ignore = "needs root"]
fn root_refuses_files_that_others_can_write() {
    require("root", is_root());
    let site = site(&[("vouch.toml", "timeout = \"7s\"\n"), ("conf.d/a.toml", "")]);
    site.run_ok(["config", "check"]);
    for path in ["etc/vouch.toml", "etc/conf.d", "etc", "etc/conf.d/a.toml"] {
        let mode = std::fs::metadata(site.path(path)).expect("it exists").permissions();
        std::fs::set_permissions(site.path(path), std::fs::Permissions::from_mode(0o777))
            .expect("root may");
        site.expect_err(3, ["ls", "@h,x"], &["writable by other users", "chmod go-w"]);
        std::fs::set_permissions(site.path(path), mode).expect("root may");
        chown(site.path(path), Some(65534), None).expect("root may");
        assert!(site.run_err(3, ["ls", "@h,x"]).contains("belongs to user 65534"));
        chown(site.path(path), Some(0), None).expect("root may");
    }
    site.run_ok(["config", "check"]);
    std::fs::remove_file(site.path("etc/conf.d/a.toml")).expect("a file");
    site.run_tool("mkfifo", &["etc/conf.d/a.toml"]);
    assert!(site.run_err(3, ["ls", "@h,x"]).contains("not a regular file"));
    std::fs::remove_file(site.path("etc/conf.d/a.toml")).expect("a FIFO");
    site.write("etc/conf.d/a.toml", vec![b'\n'; (4 << 20) + 1]);
    assert!(site.run_err(3, ["ls", "@h,x"]).contains("longer than 4096 KiB"));
}

#[test]
#[ignore = "needs FUSE"]
fn mounts_take_their_place_and_names_from_the_configuration() {
    let site = site(&[(
        "vouch.toml",
        "[tree.tools]\nname = \"NAME\"\n[tree.tools.mount]\ndir = \"DIR/tools\"\n[namespace]\ndir = \"DIR/all\"\n",
    )]);
    let _replica = site.serve();
    std::fs::create_dir(site.path("tools")).expect("a directory");
    for what in [
        site.path("tools").to_string_lossy().into_owned(),
        "tools".to_owned(),
        "./tools/".to_owned(),
    ] {
        site.run_ok(["mount", "--background", &what]);
        assert_eq!(
            std::fs::read_to_string(site.path("tools/hello")).expect("mounted"),
            "hello world\n"
        );
        site.run_ok(["umount", "tools"]);
    }
    let all = Mount::new(&site, "all", &[]);
    assert_eq!(
        std::fs::read_link(all.path("tools")).expect("a short name").to_string_lossy(),
        site.name("")
    );
    assert_eq!(
        std::fs::read_to_string(all.path("tools/hello")).expect("through the short name"),
        "hello world\n"
    );
    let names: Vec<_> = std::fs::read_dir(all.path(""))
        .expect("mounted")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert!(names.iter().any(|name| name == "tools") && names.len() == 2, "{names:?}");
    assert!(std::fs::metadata(all.path("other")).is_err());
    assert!(site.run_err(2, ["mount", "/no/such/place"]).contains("give the mount point"));
}
