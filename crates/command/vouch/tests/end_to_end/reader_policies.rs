//! Policies of witnesses hold for services that read trees for others: exports and caches.

use crate::prelude::*;
use crate::test_site::Replica;
use crate::witnesses::{line, witness};

/// A published tree that w1 has cosigned, and three policies: `met`, `missed` and `broken`.
fn cosigned() -> TestSite {
    let site = TestSite::new();
    site.small_tree();
    let server = witness(&site, 1);
    site.write("met", line(1, &server.url) + "quorum w1\n");
    site.write("missed", line(1, "") + &line(2, "") + "group all all w1 w2\nquorum all\n");
    site.write("broken", "quorum nobody\n");
    site.publish_with(&["--policy", "met"]);
    site
}

const ANY_PORT: &str = "127.0.0.1:0";

const CAUSE: [&str; 2] = ["not believed", "the cosignatures of w1 do not suffice"];

/// The exit code and the errors of a service that must not start.
fn refusal(site: &TestSite, args: &[&str], settings: &str) -> (Option<i32>, String) {
    site.write("vouch.toml", settings);
    let errors = fs::File::create(site.path("errors")).expect("a file");
    let mut command = site.command(args);
    command.env("VOUCH_CONFIG", site.path("vouch.toml")).stdout(Stdio::null()).stderr(errors);
    let mut child = KillOnDrop(command.spawn().expect("the binary starts"));
    within(60, "the service has started", || child.try_wait().expect("a child").is_some());
    let code = child.wait().expect("a child").code();
    (code, fs::read_to_string(site.path("errors")).expect("text"))
}

fn assert_unwitnessed(site: &TestSite, args: &[&str], settings: &str) {
    let (code, errors) = refusal(site, args, settings);
    assert_eq!(code, Some(10), "{args:?} {settings:?}: {errors}");
    CAUSE.iter().for_each(|part| assert_contains!(errors, part));
}

/// The options of one policy: by the command line, the table of the command, and the top level.
fn settings(table: &str, policy: &Path) -> [String; 2] {
    let policy = policy.display();
    [format!("[{table}]\npolicy = [\"{policy}\"]\n"), format!("policy = [\"{policy}\"]\n")]
}

#[test]
fn export_of_tree_without_quorum_is_refused() {
    let site = cosigned();
    let _replica = site.serve();
    let database = site.path("db").display().to_string();
    for (number, tree) in [database, site.name("")].iter().enumerate() {
        let (tree, state) = (format!("tree:{tree}"), format!("exporting-{number}"));
        let export = ["export", "--dir", &tree, "--options", "ro", "--listen", ANY_PORT];
        let export = [&export[..], &["--state", &state]].concat();
        assert_unwitnessed(&site, &[&export[..], &["--policy", "missed"]].concat(), "");
        for text in settings("export", &site.path("missed")) {
            assert_unwitnessed(&site, &export, &text);
        }
        let both = [&export[..], &["--policy", "met", "--policy", "missed"]].concat();
        assert_unwitnessed(&site, &both, "");
        let (code, errors) = refusal(&site, &[&export[..], &["--policy", "broken"]].concat(), "");
        assert_eq!(code, Some(3), "{errors}");
        assert_contains!(errors, "broken: policy line 1");
    }
}

#[test]
fn export_of_tree_with_quorum_serves_it() {
    let site = cosigned();
    let tree = format!("tree:{}", site.path("db").display());
    let args = ["--dir", &tree, "--options", "ro,insecure", "--policy", "met"];
    let export = Export::start(&site, &args);
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let client = connect(export.address, 2, "reader", 0).await.expect("a session");
        client.walk(b"export/dir").await.expect("a directory of the tree");
    });
}

#[test]
fn listed_tree_without_quorum_is_left_out() {
    let site = cosigned();
    site.write("shared/file", "content");
    let (shared, tree) = (site.path("shared"), site.path("db"));
    let (shared, tree) = (shared.display(), tree.display());
    site.write("list", format!("{shared} *(ro,insecure)\ntree:{tree} *(ro,insecure)\n"));
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listen = address.to_string();
    let args = ["export", "--exports", "list", "--state", "exporting", "--listen", &listen];
    let errors = fs::File::create(site.path("errors")).expect("a file");
    let mut command = site.command([&args[..], &["--policy", "missed"]].concat());
    let _export = Export::spawn(command.stderr(errors), address);
    let errors = || fs::read_to_string(site.path("errors")).expect("text");
    within(30, "no warning about the tree", || errors().contains("is not exported"));
    CAUSE.iter().for_each(|part| assert_contains!(errors(), part));
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let client = connect(address, 2, "reader", 0).await.expect("a session");
        let listed = format!("{shared}/file");
        client.walk(&listed.as_bytes()[1..]).await.expect("the directory is exported");
        let refused = format!("{tree}/dir");
        client.walk(&refused.as_bytes()[1..]).await.expect_err("the tree is not");
    });
}

#[test]
fn dry_run_of_an_export_names_a_broken_policy() {
    let site = cosigned();
    site.write("shared/file", "content");
    site.write("list", format!("{} *(ro)\n", site.path("shared").display()));
    let check = |more: &[&str], settings: &str| {
        site.write("vouch.toml", settings);
        let mut command = site.command([&["export", "check", "--exports", "list"], more].concat());
        command.env("VOUCH_CONFIG", site.path("vouch.toml"));
        let output = command.output().expect("the binary starts");
        (output.status.code(), text_of(&output))
    };
    let (code, text) = check(&["--policy", "missed"], "");
    assert_eq!(code, Some(0), "{text}");
    assert_contains!(text, "missed: policy of witnesses is valid");
    let broken = settings("export", &site.path("broken"));
    for (more, text) in [(&["--policy", "broken"][..], ""), (&[], &broken[0]), (&[], &broken[1])] {
        let (code, text) = check(more, text);
        assert_eq!(code, Some(1), "{text}");
        assert_contains!(text, "broken: policy line 1");
    }
}

#[test]
fn cache_takes_no_tree_without_quorum() {
    let site = cosigned();
    let _replica = site.serve();
    let name = site.name("");
    let serve = ["serve", "--db", "kept", "--cache-of", &name, "--quota", "64M", "--listen"];
    let serve = [&serve[..], &[ANY_PORT]].concat();
    assert_unwitnessed(&site, &[&serve[..], &["--policy", "missed"]].concat(), "");
    for text in settings("serve", &site.path("missed")) {
        assert_unwitnessed(&site, &serve, &text);
    }
    let errors = fs::File::create(site.path("errors")).expect("a file");
    let mut command = site.command([&serve[..], &["--policy", "met", "--refresh", "1s"]].concat());
    command.stderr(errors);
    let cache = Replica::start(command);
    let file = format!("{name}/hello");
    let args = ["cat", &file, "--only-replicas", "--replica", &cache.address, "--no-cache"];
    assert_eq!(site.run_ok(args), "hello world\n");
    // No witness sees the next revision, so the cache stays with this one.
    site.write("src/hello", "unwitnessed\n");
    site.publish();
    let errors = || fs::read_to_string(site.path("errors")).expect("text");
    within(60, "the cache does not refuse the revision", || errors().contains("is not believed"));
    assert_eq!(site.run_ok(args), "hello world\n");
}

#[test]
fn check_of_a_tree_reports_missing_quorum() {
    let site = cosigned();
    let _replica = site.serve();
    let name = site.name("");
    let check = |policy: &str| text_of(&site.run(["check", &name, "--policy", policy]));
    assert_contains!(check("met"), "offers revision 1");
    let missed = check("missed");
    assert_contains!(missed, "tree-refused");
    CAUSE.iter().for_each(|part| assert_contains!(missed, part));
    assert_contains!(check("broken"), "broken: policy line 1");
}
