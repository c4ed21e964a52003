use crate::audit_commands::with_trail;
use crate::prelude::*;

const HOSTID: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn bad_values_give_one_line_and_exit_code() {
    let site = TestSite::new();
    site.small_tree();
    site.write("junk", "junk");
    let nowhere = format!("@127.0.0.1:1,{HOSTID}");
    let name: &str = &nowhere;
    let cases: &[(i32, &[&str])] = &[
        (2, &["keygen", "--out", "new", "--until", "2001-01-01"]),
        (4, &["certify", "no-such"]),
        (3, &["name", "@host"]),
        (3, &["name", "@host,abc"]),
        (3, &["name", "keys", "--location", "a/b"]),
        (4, &["name", "no-such"]),
        (3, &["name", "junk"]),
        (4, &["revoke", "no-such"]),
        (3, &["revoke", "--statement", "junk"]),
        (2, &["forward", "keys"]),
        (3, &["forward", "keys", "--to", "junk"]),
        (4, &["publish", "no-such", "--db", "db", "--keys", "keys", "--location", "h"]),
        (3, &["publish", "junk", "--db", "db", "--keys", "keys", "--location", "h"]),
        (4, &["publish", "src", "--db", "db", "--keys", "no-such", "--location", "h"]),
        (3, &["publish", "src", "--db", "db", "--keys", "keys", "--location", "a b"]),
        (3, &["publish", "src", "--db", "new", "--keys", "keys", "--location", "h", "--tag", ""]),
        (3, &words("publish src --db new --keys keys --location h --opaque no-such")),
        (3, &["publish", "src", "--db", "keys", "--keys", "keys", "--location", "h"]),
        (7, &["keygen", "--out", "/proc/new"]),
        (4, &["gc", "--db", "no-such"]),
        (4, &["serve", "--db", "no-such", "--listen", "127.0.0.1:0"]),
        (3, &["pull", "junk", "--db", "mirror"]),
        (6, &["pull", name, "--db", "mirror", "--timeout", "2s"]),
        (2, &["pull", &format!("{name}/path"), "--db", "mirror"]),
        (3, &["mount", "junk", "mnt"]),
        (3, &["umount", "src"]),
        (3, &["ls", "junk"]),
        (6, &["ls", name, "--timeout", "2s"]),
        (6, &["cat", &format!("{name}/x"), "--timeout", "2s"]),
        (6, &["get", &format!("{name}/x"), "x", "--timeout", "2s"]),
        (6, &["log", name, "--timeout", "2s"]),
        (4, &["log", "--db", "no-such"]),
        (6, &["diff", name, "--timeout", "2s"]),
        (6, &["verify", name, "--timeout", "2s"]),
        (4, &["verify", "--db", "no-such"]),
        (2, &["man", "no-such"]),
    ];
    for (code, args) in cases {
        let output_text = site.run_err(*code, *args);
        assert!(
            output_text.starts_with(&format!("vouch: {}: ", args[0])),
            "{args:?}: {output_text}"
        );
        assert!(!output_text.contains("os error"), "{output_text}");
    }
    assert!(!site.path("new").exists(), "a refused option leaves no database behind");
}

#[test]
fn damaged_database_that_cannot_be_opened_fails_verification() {
    for damage in ["manifest", "segment", "gone", "pack"] {
        let site = TestSite::new();
        site.small_tree();
        site.publish();
        let first =
            |dir: &str| std::fs::read_dir(site.path(dir)).unwrap().next().unwrap().unwrap().path();
        match damage {
            "manifest" => std::fs::write(site.path("db/manifest"), "no manifest").unwrap(),
            "segment" => std::fs::write(first("db/index"), "").unwrap(),
            "gone" => std::fs::remove_file(first("db/index")).unwrap(),
            _ => std::fs::write(first("db/packs"), "").unwrap(),
        }
        let output = site.run(["verify", "--db", "db"]);
        let output_text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{damage}: {output_text}");
        assert!(
            output_text.contains("PROBLEMS") && !output_text.contains("`vouch verify"),
            "{damage}: {output_text}"
        );
    }
}

#[test]
fn wrong_command_line_exits_with_usage_error() {
    let site = TestSite::new();
    for args in [
        &["no-such-command"][..],
        &["publish"],
        &["publish", "src", "--no-such-option"],
        &["mount"],
        &["serve"],
        &["log"],
        &["verify"],
        &["gc", "--db", "db", "--keep", "0"],
        &words("publish . --db db --keys keys --location localhost --threads 0"),
        &["serve", "--db", "db", "--connections-max", "0"],
        &words("publish src --db db --keys keys --location h --duration soon"),
        &["pull", "x", "--db", "d", "--in-flight", "lots"],
        &["completions", "no-such-shell"],
        &["cat", "--replica", "", "x"],
        &["keygen", "--out", "k", "--until", "someday"],
        &words("export --dir . --state s --listen 192.0.2.1:9 --audit-policy block"),
        &words("export --dir . --state s --listen 192.0.2.1:9 --audit-sync each"),
        &["export", "--dir", ".", "--state", "s", "--sealing-kernels", "abacus"],
        &words("bench consistency nfs://127.0.0.1:9/x --minor 0,1 --faults cut"),
        &["mount", "@nowhere,x", "mnt", "--audit-keep", "1d"],
        &["mount", "@nowhere,x", "mnt", "--audit-seal", "1s"],
    ] {
        let output = site.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
    let output = site.run(["--log-level", "what=ever=this", "name", "keys"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn missing_mount_point_is_named_without_advice_to_create_it() {
    let site = TestSite::new();
    for command in ["refresh", "umount", "upgrade"] {
        let said = site.run_err(4, [command, "none"]);
        assert_eq!(
            said.trim_end(),
            format!("vouch: {command}: none: no such directory, so no tree is mounted there")
        );
    }
}

#[test]
fn options_for_new_files_never_overwrite() {
    let site = with_trail();
    site.small_tree();
    site.publish();
    let _replica = site.serve();
    let file = site.name("/hello");
    site.run_ok(["prove", &file, "--out", "proof"]);
    site.write("old", "mine");
    let no_name = "old: exists already; choose another name, or remove it";
    fs::create_dir(site.path("reports")).expect("a directory");
    site.write("reports/violation.txt", "of an earlier run");
    let no_report = "reports/violation.txt: exists already; choose another name, or remove it";
    let no_keys = "exists already, and keys are never overwritten; choose another directory";
    let cases: &[(&str, &[&str])] = &[
        (no_name, &["prove", &file, "--out", "old"]),
        (no_name, &["check-proof", &file, "proof", "--out", "old"]),
        (no_name, &["audit", "prove", "--out", "old", "trail", "1"]),
        (no_name, &["revoke", "keys", "--reason", "stolen", "--out", "old"]),
        (no_name, &["forward", "keys", "--to", &format!("@h,{HOSTID}"), "--out", "old"]),
        (no_name, &["bugreport", "--out", "old"]),
        (no_name, &["get", &file, "old"]),
        (no_report, &["bench", "consistency", "nfs://127.0.0.1:9/x", "--out", "reports"]),
        (no_keys, &["keygen", "--out", "keys"]),
        (no_keys, &["certify", "keys", "--out", "keys"]),
    ];
    for (says, args) in cases {
        let said = site.run_err(3, *args);
        assert!(
            said.starts_with(&format!("vouch: {}: ", args[0])) && said.trim_end().ends_with(says),
            "{args:?}: {said}"
        );
        assert_eq!(fs::read(site.path("old")).expect("the file stays"), b"mine");
    }
    // `vouch man --out` replaces the pages of an earlier version. No other command has such an option.
    site.run_ok(["man", "--out", "man"]);
    let pages =
        fs::read_dir(site.path("man")).expect("pages").map(|page| page.expect("a page").path());
    let with_option = pages
        .filter(|page| fs::read_to_string(page).expect("text").contains(r"\fB\-\-out\fR \fI<"));
    let named =
        with_option.map(|page| page.file_stem().expect("a name").to_string_lossy().into_owned());
    let mut found: Vec<String> = named.collect();
    found.sort();
    let expected = words(
        "audit-prove bench-consistency bugreport certify check-proof forward keygen man prove revoke",
    );
    let expected: Vec<_> = expected.iter().map(|name| format!("vouch-{name}")).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_command_has_help_with_an_example() {
    let site = TestSite::new();
    let commands = "keygen certify name revoke forward publish gc serve pull mount umount ls cat get log diff verify completions man";
    for command in commands.split(' ') {
        let help = site.run_ok(["help", command]);
        assert!(help.contains("Examples:") && help.contains("Usage:"), "{command}: {help}");
    }
}

#[test]
fn damaged_databases_are_not_served() {
    let site = TestSite::published();
    let manifest = site.path("db/manifest");
    let bytes = std::fs::read(&manifest).expect("a manifest");
    for cut in [0, 10, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&manifest, &bytes[..cut]).expect("written");
        site.run_err(3, ["serve", "--db", "db", "--listen", "127.0.0.1:0"]);
        site.run_err(3, ["log", "--db", "db"]);
    }
}
