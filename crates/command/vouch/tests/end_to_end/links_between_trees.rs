use std::os::unix::fs::symlink;

use crate::prelude::*;

#[test]
fn commands_follow_links_into_other_trees() {
    let (authority, tools) = (TestSite::new(), TestSite::published());
    let _tools = tools.serve();
    for (link, target) in [
        ("tools", format!("/vouch/{}", tools.name(""))),
        ("relative", format!("../{}", tools.name("/dir"))),
    ] {
        std::fs::create_dir_all(authority.path("src")).expect("a directory");
        symlink(target, authority.path("src").join(link)).expect("a link");
    }
    symlink("/etc/passwd", authority.path("src/out")).expect("a link");
    authority.publish();
    let _authority = authority.serve();

    assert_eq!(authority.run_ok(["cat", &authority.name("/tools/hello")]), "hello world\n");
    assert_eq!(authority.run_ok(["ls", &authority.name("/tools")]), "dir\nhello\nlink\n");
    assert_eq!(authority.run_ok(["ls", &authority.name("/relative")]), "empty\nnumbers\n");
    assert_eq!(
        authority.run_ok(["ls", "-R", &authority.name("/tools")]),
        "dir\nhello\nlink\n\ndir:\nempty\nnumbers\n"
    );
    authority.run_ok(["get", &authority.name("/tools/dir"), "copy"]);
    assert!(authority.path("copy/numbers").is_file());
    authority.run_ok(["get", &authority.name("/relative"), "entered"]);
    assert!(authority.path("entered/numbers").is_file());
    authority.run_ok(["get", &authority.name("/out"), "link"]);
    assert!(authority.path("link").is_symlink(), "a link out of all trees is copied");
    assert!(authority.run_ok(["verify", &authority.name("/tools")]).starts_with(&tools.name("")));

    let first = authority.name("/tools");
    let error = authority.run_err(4, ["cat", &authority.name("/tools/no")]);
    assert!(error.contains(&format!("{first} -> {}: no: no such file", tools.name(""))), "{error}");
    assert_contains!(
        authority.run_err(3, ["cat", &authority.name("/out")]),
        "leads out of the tree, to /etc/passwd"
    );
    assert_contains!(
        authority.run_err(3, ["verify", &authority.name("/relative")]),
        "not the root of a tree"
    );
}

#[test]
fn endless_links_between_trees_end_with_an_error() {
    let (a, b) = (TestSite::new(), TestSite::new());
    for (from, to) in [(&a, &b), (&b, &a)] {
        std::fs::create_dir_all(from.path("src")).expect("a directory");
        symlink(format!("/vouch/{}", to.name("/next")), from.path("src/next")).expect("a link");
        from.publish();
    }
    let _replicas = (a.serve(), b.serve());
    assert_contains!(
        a.run_err(3, ["cat", &a.name("/next")]),
        "more than 16 links from tree to tree"
    );
}

#[test]
fn authority_script_makes_changes_and_removes_links() {
    let (authority, tools) = (TestSite::new(), TestSite::published());
    let _tools = tools.serve();
    let run = |names: &str| {
        authority.write("names", names);
        let output = authority.script("authority", ["names", "src"]);
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let name = tools.name("");
    let first = format!("# Ours\ntools {name}\nnumbers {name}/dir\n");
    assert_eq!(run(&first), (true, "2 links made, 0 of them changed, 0 removed\n".into()));
    authority.publish();
    let _authority = authority.serve();
    assert_eq!(authority.run_ok(["cat", &authority.name("/tools/hello")]), "hello world\n");
    assert_eq!(authority.run_ok(["ls", &authority.name("/numbers")]), "empty\nnumbers\n");
    assert_eq!(
        run(&format!("tools {name}/dir\n")),
        (true, "1 links made, 1 of them changed, 1 removed\n".into())
    );
    assert_eq!(
        run(&format!("tools {name}/dir\n")).1,
        "0 links made, 0 of them changed, 0 removed\n"
    );
    for (names, why) in [
        ("tools nowhere\n", "line 1: want NAME"),
        (&format!("a {name}\na {name}\n"), "line 2: a is listed twice"),
    ] {
        let (done, output) = run(names);
        assert!(!done && output.contains(why), "{output}");
    }
    assert!(authority.path("src/tools").is_symlink(), "a bad list changes nothing");
}
