//! Symbolic links from tree to tree: certification paths.

use std::os::unix::fs::symlink;

use crate::world::World;

#[test]
fn commands_follow_links_into_other_trees() {
    let (authority, tools) = (World::new(), World::published());
    let _tools = tools.serve();
    for (link, target) in [("tools", format!("/vouch/{}", tools.name(""))), ("relative", format!("../{}", tools.name("/dir")))] {
        std::fs::create_dir_all(authority.path("src")).expect("a directory");
        symlink(target, authority.path("src").join(link)).expect("a link");
    }
    symlink("/etc/passwd", authority.path("src/out")).expect("a link");
    authority.publish();
    let _authority = authority.serve();

    assert_eq!(authority.ok(["cat", &authority.name("/tools/hello")]), "hello world\n");
    assert_eq!(authority.ok(["ls", &authority.name("/tools")]), "dir\nhello\nlink\n");
    assert_eq!(authority.ok(["ls", &authority.name("/relative")]), "empty\nnumbers\n");
    assert_eq!(authority.ok(["ls", "-R", &authority.name("/tools")]), "dir\nhello\nlink\n\ndir:\nempty\nnumbers\n");
    authority.ok(["get", &authority.name("/tools/dir"), "copy"]);
    assert!(authority.path("copy/numbers").is_file());
    assert!(authority.ok(["verify", &authority.name("/tools")]).starts_with(&tools.name("")));

    let first = authority.name("/tools");
    assert!(authority.fails(4, ["cat", &authority.name("/tools/no")]).contains(&first));
    assert!(authority.fails(3, ["cat", &authority.name("/out")]).contains("leads out of the tree, to /etc/passwd"));
    assert!(authority.fails(3, ["verify", &authority.name("/relative")]).contains("not the root of a tree"));
}

#[test]
fn endless_links_between_trees_end_with_an_error() {
    let (a, b) = (World::new(), World::new());
    for (from, to) in [(&a, &b), (&b, &a)] {
        std::fs::create_dir_all(from.path("src")).expect("a directory");
        symlink(format!("/vouch/{}", to.name("/next")), from.path("src/next")).expect("a link");
        from.publish();
    }
    let _replicas = (a.serve(), b.serve());
    assert!(a.fails(3, ["cat", &a.name("/next")]).contains("more than 16 links from tree to tree"));
}
