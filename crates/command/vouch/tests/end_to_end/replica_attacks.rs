use crate::gateway::{Gateway, request};
use crate::prelude::*;

#[test]
fn lying_replica_is_detected_and_another_is_used() {
    let site = TestSite::published();
    copy(&site.path("db"), &site.path("liar"));
    let flipped = flip_data(&site.path("liar/packs"));
    assert!(flipped > 0);
    let honest = site.serve();
    let liar = site.serve_db("liar", 0);
    let expected = fs::read_to_string(site.path("src/dir/numbers")).expect("text");
    for order in [[&liar.address, &honest.address], [&honest.address, &liar.address]] {
        let name = site.name("/dir/numbers");
        let args = format!(
            "cat --no-cache --only-replicas --replica {} --replica {} {name}",
            order[0], order[1]
        );
        let args = words(&args);
        assert_eq!(site.run_ok(args), expected);
    }
    let name = site.name("/dir/numbers");
    let output = site.run(&format!(
        "cat --no-cache --timeout 1h --only-replicas --replica {} {name}",
        liar.address
    ));
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(5) && output_text.contains("no replica can be trusted"),
        "{output_text}"
    );
    assert!(expected.as_bytes().starts_with(&output.stdout));
    assert_eq!(site.run(["verify", "--db", "liar"]).status.code(), Some(1));
}

#[test]
fn revision_older_than_one_seen_is_refused() {
    let site = TestSite::published();
    read_second_revision(&site);
    let stale = site.serve_db("old", 0);
    let name = site.name("/hello");
    let args = ["cat", "--timeout", "5s", "--only-replicas", "--replica", &stale.address, &name];
    // A background thread writes the cache, and a short command may end before it.
    assert!(eventually(Duration::from_secs(60), || {
        let current = site.serve();
        assert_eq!(site.run_ok(["cat", &name]), "second\n");
        drop(current);
        site.run(args).stdout == b"second\n"
    }));
    let output = site.run([&args[..], &["--no-cache"]].concat());
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(5)
            && output.stdout.is_empty()
            && output_text.contains("offers the old revision 1"),
        "{output_text}"
    );
    assert_eq!(String::from_utf8_lossy(&as_a_new_client(&site, &args).stdout), "hello world\n");
}

#[test]
fn expired_revision_is_refused() {
    let site = TestSite::new();
    site.small_tree();
    site.publish_with(&["--duration", "1s"]);
    let _replica = site.serve();
    std::thread::sleep(Duration::from_millis(2100));
    let output_text = refusal_output(&site, &["cat", "--timeout", "5s", &site.name("/hello")]);
    assert_eq!(output_text.matches("valid until 20").count(), 1, "{output_text}");
    assert!(output_text.contains(" ago; the publisher must publish again"), "{output_text}");
    let output_text =
        refusal_output(&site, &["pull", "--timeout", "5s", &site.name(""), "--db", "mirror"]);
    assert_eq!(output_text.matches("valid until 20").count(), 1, "{output_text}");
}

fn refusal_output(site: &TestSite, args: &[&str]) -> String {
    let output = site.run(args);
    let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{output_text}");
    output_text
}

#[test]
fn revocation_without_a_reason_is_reported_once() {
    let site = TestSite::published();
    site.run_ok(["revoke", "keys", "--reason", "", "--out", "revocation", "--db", "db"]);
    let _replica = site.serve();
    for args in [&["cat", &site.name("/hello")][..], &["pull", &site.name(""), "--db", "mirror"]] {
        let output_text = refusal_output(&site, args);
        assert_eq!(
            output_text.matches("was revoked, without a reason; ask the publisher").count(),
            1,
            "{output_text}"
        );
        assert_eq!(output_text.lines().count(), 1, "{output_text}");
    }
}

#[test]
fn revocation_shows_at_each_service_and_command() {
    let (site, replica) = TestSite::served();
    let name = site.name("");
    site.run_ok(["pull", &name, "--db", "mirror"]);
    let mirror = site.serve_db("mirror", 0);
    let gateway = Gateway::start(&site, &["--refresh", "1s"]);
    let health = |page: &str| request(page, "GET", "/healthz", &[]).status;
    let pages = [&*replica.page, &mirror.page, &gateway.page];
    assert_eq!(pages.map(health), [200; 3]);
    site.run_ok(["revoke", "keys", "--reason", "stolen", "--db", "db"]);
    within(10, "the replica refuses to be seen as healthy", || health(&replica.page) == 503);
    // The mirror learns it from its publisher, and the gateway from any replica.
    within(10, "pull ends with it", || {
        site.run(["pull", &name, "--db", "mirror"]).status.code() == Some(5)
    });
    within(10, "mirror and gateway show it", || pages.map(health) == [503; 3]);
    for page in [&replica.page, &mirror.page] {
        let shown: serde_json::Value =
            serde_json::from_slice(&request(page, "GET", "/healthz", &[]).body).expect("JSON");
        let tree = &shown["trees"][0];
        assert_eq!((&tree["state"], &tree["trouble"]), (&"revoked".into(), &"stolen".into()));
    }
    assert_eq!(gateway.get("/hello").status, 410);
    site.write("src/hello", "one more\n");
    let location = site.location();
    let publish = format!("publish src --db db --keys keys --location {location}");
    for refused in [&*publish, "verify --db db", "verify --db mirror", &format!("verify {name}")] {
        site.expect_err(5, refused, &["revoked", "stolen"]);
    }
    for warned in ["log --db db", "gc --db mirror"] {
        let output = site.run(warned);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && text.contains("is revoked (stolen)"),
            "{warned}: {text}"
        );
    }
}

#[test]
fn revocation_from_any_source_is_honoured() {
    let (site, _replica) = TestSite::served();
    site.run_ok(["cat", &site.name("/hello")]);
    site.run_ok(["revoke", "keys", "--reason", "a test of it", "--out", "revocation"]);
    fs::create_dir(site.path("statements")).expect("new");
    let hostid = site.run_ok(["name", "keys"]);
    for file in [format!("{}.revoked", hostid.trim()), "revocation-of-tools".to_owned()] {
        fs::copy(site.path("revocation"), site.path("statements").join(&file)).expect("a copy");
        let mut fresh = site.command(["cat", "--statements", "statements", &site.name("/hello")]);
        let output = fresh
            .env("VOUCH_STATE", site.path(format!("state-{}", file.len())))
            .output()
            .expect("the binary starts");
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(5) && output_text.contains("a test of it"),
            "{file}: {output_text}"
        );
        fs::remove_file(site.path("statements").join(&file)).expect("was there");
    }
    fs::write(site.path("statements").join(hostid.trim()), "cut short").expect("a file");
    for dir in ["statements", "no-such-directory", "revocation"] {
        let output = site.run(["cat", "--statements", dir, &site.name("/hello")]);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{dir}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    site.run_ok(["revoke", "--statement", "revocation", "--db", "db"]);
    assert!(eventually(Duration::from_secs(10), || site
        .run(["cat", &site.name("/hello")])
        .status
        .code()
        == Some(5)));
}

#[test]
fn mirror_forwards_revocation_that_it_finds_while_pulling() {
    for was_forwarded in [false, true] {
        let (site, _replica) = TestSite::served();
        site.run_ok(["pull", &site.name(""), "--db", "mirror"]);
        let pull_fails = |words: &str| {
            let output = site.run(["pull", &site.name(""), "--db", "mirror"]);
            output.status.code() == Some(5)
                && String::from_utf8_lossy(&output.stderr).contains(words)
        };
        if was_forwarded {
            site.run_ok(["keygen", "--out", "new-keys"]);
            let new_name = site.run_ok(["name", "new-keys", "--location", "127.0.0.1:1"]);
            site.run_ok(["forward", "keys", "--to", new_name.trim(), "--db", "db"]);
            assert!(eventually(Duration::from_secs(10), || pull_fails("moved")));
        }
        site.run_ok(["revoke", "keys", "--reason", "handed on", "--db", "db"]);
        assert!(
            eventually(Duration::from_secs(10), || pull_fails("handed on")),
            "forwarded before: {was_forwarded}"
        );
        let mirror = site.serve_db("mirror", 0);
        let output = as_a_new_client(
            &site,
            &["cat", "--only-replicas", "--replica", &mirror.address, &site.name("/hello")],
        );
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(5) && output_text.contains("handed on"),
            "{was_forwarded}: {output_text}"
        );
    }
}

#[test]
fn published_tree_may_list_revocations_of_others() {
    let (site, lists) = (TestSite::new(), TestSite::new());
    site.small_tree();
    site.publish();
    let _replica = site.serve();
    site.run_ok(["revoke", "keys", "--reason", "as listed", "--out", "revocation"]);
    let hostid = site.run_ok(["name", "keys"]);
    lists.small_tree();
    fs::create_dir(lists.path("src/revoked")).expect("new");
    fs::copy(site.path("revocation"), lists.path("src/revoked").join(hostid.trim()))
        .expect("a copy");
    lists.publish();
    let _listing = lists.serve();
    site.run_ok(["cat", &site.name("/hello")]);
    site.expect_err(
        5,
        ["cat", "--statement-tree", &lists.name("/revoked"), &site.name("/hello")],
        &["as listed"],
    );
    site.run_err(4, ["cat", "--statement-tree", &lists.name("/nosuch"), &site.name("/hello")]);
    site.run_err(3, ["cat", "--statement-tree", &lists.name("/hello"), &site.name("/hello")]);
}

#[test]
fn forwarding_pointer_leads_to_the_new_name() {
    let site = TestSite::published();
    site.run_ok(["keygen", "--out", "new-keys"]);
    let location = site.location();
    site.write("src/hello", "at the new place\n");
    site.run_ok(&format!("publish src --db new-db --keys new-keys --location {location}"));
    let new_name = site.run_ok(["name", "new-keys", "--location", &location]);
    site.run_ok(["forward", "keys", "--to", new_name.trim(), "--db", "db"]);
    let _replica = start_listener(
        &mut site.command(["serve", "--db", "db", "--db", "new-db", "--listen", &location]),
    );
    let followed = site.run(["cat", &site.name("/hello")]);
    let refused = site.run(["cat", "--refuse-forwarding", &site.name("/hello")]);
    site.run_ok(["revoke", "keys", "--reason", "stolen", "--out", "revocation"]);
    site.run_ok(["revoke", "--statement", "revocation", "--db", "db"]);
    let revoked = eventually(Duration::from_secs(10), || {
        site.run(["cat", &site.name("/hello")]).status.code() == Some(5)
    });
    assert_eq!(
        String::from_utf8_lossy(&followed.stdout),
        "at the new place\n",
        "{}",
        String::from_utf8_lossy(&followed.stderr)
    );
    assert_eq!(refused.status.code(), Some(5));
    assert!(revoked, "a revocation outranks the pointer that came before it");
    assert!(site.run_err(5, ["cat", "--timeout", "5s", &site.name("/hello")]).contains("stolen"));
}

#[test]
fn corrupted_seen_file_admits_no_older_revision() {
    let site = TestSite::published();
    read_second_revision(&site);
    let hostid = site.run_ok(["name", "keys"]);
    let state = site.path("state-of-this-test");
    fs::create_dir(&state).expect("new");
    let command = |args: &[&str]| {
        site.command(args).env("VOUCH_STATE", &state).output().expect("the binary starts")
    };
    let _stale = site.serve_db("old", site.port);
    fs::write(state.join(hostid.trim()), b"VOUCHSEE and then nothing that fits").expect("written");
    let output = command(&["cat", "--no-cache", &site.name("/hello")]);
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(7)
            && output.stdout.is_empty()
            && output_text.contains("move it away"),
        "{output_text}"
    );
    assert!(
        fs::read(state.join(hostid.trim())).expect("still there").starts_with(b"VOUCHSEE and then"),
        "the damaged file was replaced"
    );
}

#[test]
fn new_signing_key_voids_the_old_one() {
    let site = TestSite::published();
    copy(&site.path("db"), &site.path("thief-db"));
    site.run_ok(["certify", "keys"]);
    site.publish();
    {
        let _replica = site.serve();
        site.run_ok(["cat", &site.name("/hello")]);
    }
    fs::create_dir(site.path("stolen")).expect("new");
    for (from, to) in [
        ("signing-1.key", "signing.key"),
        ("signing-1.cert", "signing.cert"),
        ("log-1.key", "log.key"),
        ("log-1.cert", "log.cert"),
    ] {
        fs::copy(site.path("keys").join(from), site.path("stolen").join(to)).expect("a copy");
    }
    site.write("src/hello", "forged\n");
    let location = site.location();
    for _ in 0..3 {
        site.run_ok(&format!("publish src --db thief-db --keys stolen --location {location}"));
    }
    let _thief = site.serve_db("thief-db", site.port);
    let output = site.run(["cat", "--timeout", "5s", &site.name("/hello")]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello world\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("certificate"));
}

fn read_second_revision(site: &TestSite) {
    copy(&site.path("db"), &site.path("old"));
    site.write("src/hello", "second\n");
    site.publish();
    let _current = site.serve();
    assert_eq!(site.run_ok(["cat", &site.name("/hello")]), "second\n");
}

fn as_a_new_client(site: &TestSite, args: &[&str]) -> Output {
    let mut fresh = site.command(args);
    fresh.env("VOUCH_STATE", site.path("other-state")).env("VOUCH_CACHE", site.path("other-cache"));
    fresh.output().expect("the binary starts")
}

pub(crate) fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").args([from, to]).status().expect("cp");
    assert!(status.success());
}

pub(crate) fn flip_data(packs: &Path) -> usize {
    let mut flipped = 0;
    for entry in fs::read_dir(packs).expect("packs").filter_map(Result::ok) {
        if !entry.file_name().to_string_lossy().starts_with("d-") {
            continue;
        }
        let mut bytes = fs::read(entry.path()).expect("a pack");
        for at in (200..bytes.len()).step_by(2000) {
            bytes[at] ^= 4;
            flipped += 1;
        }
        fs::write(entry.path(), bytes).expect("a pack");
    }
    flipped
}
