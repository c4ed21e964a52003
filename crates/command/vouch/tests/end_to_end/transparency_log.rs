use crate::prelude::*;
use crate::test_site::Replica;

/// Builds a reader with torchwood and Tessera by the go command, which fetches pinned modules.
pub(crate) fn build_go_reader(site: &TestSite) -> PathBuf {
    let directory = site.path("peer");
    site.write("peer/main.go", include_str!("../../../../tree/log/tests/go/main.go"));
    let modules = [
        "filippo.io/torchwood@v0.10.0",
        "github.com/transparency-dev/tessera@v1.0.4",
        "github.com/transparency-dev/formats@v0.1.1",
    ];
    for arguments in [
        &["mod", "init", "peer"][..],
        &[&["get"][..], &modules].concat(),
        &["build", "-o", "peer", "."],
    ] {
        let mut go = Command::new("go");
        go.envs([("GOTOOLCHAIN", "go1.27.0"), ("GOFLAGS", "-mod=mod"), ("GOWORK", "off")]);
        succeed(go.current_dir(&directory).args(arguments));
    }
    directory.join("peer")
}

#[test]
#[ignore = "needs Go"]
fn go_tools_read_published_log() {
    let site = TestSite::new();
    let reader = build_go_reader(&site);
    site.small_tree();
    let read = |entries: u64| {
        std::fs::copy(site.path("keys/log.pub"), site.path("db/log.pub")).expect("keys");
        let printed = succeed(Command::new(&reader).arg("read").arg(site.path("db/log")));
        assert!(printed.starts_with(&format!("{entries} entries of vouch/v1/log/")), "{printed}");
    };
    assert_eq!(site.publish()["log_entries"], 1);
    read(1);
    site.write("src/hello", "changed\n");
    assert_eq!(site.publish_with(&["--tag", "v1"])["log_entries"], 2);
    read(2);
    site.run_ok("rollback --to 1 --db db --keys keys");
    site.run_ok("tag moved --revision 2 --db db --keys keys");
    read(5);
    // A new key continues the log.
    site.run_ok("certify keys");
    assert_eq!(site.publish()["log_entries"], 6);
    read(6);
    let report: Value = serde_json::from_str(&site.run_ok("verify --db db --json")).expect("JSON");
    assert_eq!(report["log_entries"], 6);
}

#[test]
fn tree_without_log_key_goes_on_and_gets_its_history_later() {
    let site = TestSite::new();
    site.small_tree();
    for name in ["log.key", "log.cert", "log.pub"] {
        std::fs::remove_file(site.path("keys").join(name)).expect("keygen writes it");
    }
    assert_contains!(site.run_ok(&site.publication()), "none; `vouch certify`");
    assert_eq!(site.publish().get("log_entries"), None);
    site.run_ok("certify keys");
    assert_eq!(site.publish()["log_entries"], 3);
}

#[test]
fn certify_keeps_the_log_key_on_request() {
    let site = TestSite::published();
    let key = || std::fs::read(site.path("keys/log.key")).expect("a key");
    let first = key();
    site.run_ok("certify keys --keep-log-key keys/log.cert");
    assert!(key() == first);
    assert_eq!(site.publish()["log_entries"], 2);
    site.run_ok("certify keys");
    assert!(key() != first);
    assert!(std::fs::read(site.path("keys/log-2.key")).expect("the earlier key") == first);
    assert_eq!(site.publish()["log_entries"], 3);
}

fn witness_key() -> String {
    let algorithm = vouch_log::key::Algorithm::CosignatureEd25519;
    let key = vouch_log::key::Signer::from_seed("w.example", algorithm, &[1; 32]);
    key.expect("a key").verifier().to_text()
}

#[test]
fn later_certificates_keep_demand_for_witnesses() {
    let site = TestSite::published();
    let key = witness_key();
    site.write("policy", format!("witness w {key}\nquorum w\n"));
    assert_contains!(site.run_ok("certify keys --policy policy --out second"), "demanded of all");
    for out in ["third", "fourth"] {
        let args = ["certify", "keys", "--keep-log-key", "second/log.cert", "--out", out];
        assert_contains!(site.run_ok(args), "demanded of all", "log key      kept");
    }
    site.write("none", "quorum none\n");
    for args in ["certify keys --policy none --out fifth", "certify keys --out sixth"] {
        assert_contains!(site.run_ok(args), "not demanded");
    }
}

#[test]
fn entries_of_the_log_are_listed() {
    let (site, _replica) = TestSite::served();
    site.publish_with(&["--tag", "v1"]);
    site.run_ok("certify keys");
    site.publish();
    let of_database = site.run_ok("log --entries --db db --json");
    let rows: Vec<Value> =
        of_database.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers = |name: &str| rows.iter().map(|row| row[name].as_u64()).collect::<Vec<_>>();
    assert_eq!(numbers("index"), [Some(2), Some(1), Some(0)]);
    assert_eq!(numbers("revision"), [Some(3), Some(2), Some(1)]);
    assert_eq!(numbers("certificate"), [Some(2), Some(1), Some(1)]);
    assert_eq!(rows[1]["tag"], "v1");
    assert!(rows[0]["signing_key"] != rows[1]["signing_key"]);
    let name = site.name("");
    assert_eq!(site.run_ok(["log", "--entries", &name, "--json"]), of_database);
    let text = site.run_ok(["log", "--entries", "-n", "1", &name]);
    assert_contains!(text, "ENTRY", "REVISION", "CERTIFICATE");
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn damage_of_the_log_is_found() {
    let site = TestSite::published();
    site.publish();
    site.write("db/log/tile/entries/000.p/2", "damaged");
    let output = site.run("verify --db db");
    assert_eq!(output.status.code(), Some(1));
    assert_contains!(
        String::from_utf8_lossy(&output.stdout),
        "the log of revisions: tile/entries/000.p/2 of the log"
    );
}

/// A writer was killed between the manifest and `log/checkpoint`, which web servers show.
#[test]
fn older_checkpoint_file_is_reported_and_replaced_by_the_next_writer() {
    let site = TestSite::published();
    let old = std::fs::read(site.path("db/log/checkpoint")).expect("a checkpoint");
    site.publish();
    let new = std::fs::read(site.path("db/log/checkpoint")).expect("a checkpoint");
    assert!(!site.run_ok("verify --db db").contains("note:"));
    std::fs::write(site.path("db/log/checkpoint"), old).expect("a file");
    assert_contains!(site.run_ok("verify --db db"), "of 1 entries where the log has 2", "sound");
    let mut command = site.command("serve --db db --listen 127.0.0.1:0");
    command.stderr(std::fs::File::create(site.path("serve.log")).expect("a file"));
    drop(Replica::start(command));
    let log = std::fs::read_to_string(site.path("serve.log")).expect("a log");
    assert_contains!(log, "log/checkpoint is an older head");
    site.run_ok("gc --db db");
    assert!(new == std::fs::read(site.path("db/log/checkpoint")).expect("a checkpoint"));
    assert!(!site.run_ok("verify --db db").contains("note:"));
    let other = TestSite::published();
    site.run_tool("cp", &[other.path("db/log/checkpoint").to_str().expect("text"), "db/log/"]);
    let output = site.run("verify --db db");
    assert_eq!(output.status.code(), Some(1));
    assert_contains!(String::from_utf8_lossy(&output.stdout), "another history of the log");
}

/// The answer to a GET request: its head and its body.
fn http_get(port: u16, path: &str) -> (String, Vec<u8>) {
    use std::io::{Read as _, Write as _};
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the replica listens");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer.split_off(end + 4))
}

#[test]
fn replica_answers_files_of_the_log() {
    let site = TestSite::published();
    site.publish();
    // Left by a killed writer: of no head.
    site.write("db/log/tile/0/000.p/3", "left");
    let replica = site.serve();
    let (head, checkpoint) = http_get(replica.port(), "/log/checkpoint");
    assert_contains!(head, "200 OK", "text/plain", "max-age=30");
    assert_eq!(checkpoint, std::fs::read(site.path("db/log/checkpoint")).expect("a file"));
    for path in ["log/tile/0/000.p/2", "log/tile/entries/000.p/1"] {
        let (head, bytes) = http_get(replica.port(), &format!("/{path}"));
        assert_contains!(head, "200 OK", "immutable", "ETag");
        assert_eq!(bytes, std::fs::read(site.path("db").join(path)).expect("a file"));
    }
    for path in ["log/tile/0/000.p/3", "log/tile/0/000", "log/tile/0/../0/000.p/2", "pending"] {
        assert_contains!(http_get(replica.port(), &format!("/{path}")).0, "404");
    }
}

#[test]
fn mirror_has_the_log_and_serves_it_on() {
    let (site, replica) = TestSite::served();
    let name = site.name("");
    site.run_ok(["pull", &name, "--db", "mirror"]);
    let checkpoint = |db: &str| {
        std::fs::read_to_string(site.path(db).join("log/checkpoint")).expect("a checkpoint")
    };
    assert_eq!(checkpoint("mirror"), checkpoint("db"));
    for _ in 0..2 {
        site.publish();
    }
    site.run_ok(["pull", &name, "--db", "mirror"]);
    assert_eq!(checkpoint("mirror"), checkpoint("db"));
    assert!(checkpoint("mirror").lines().nth(1) == Some("3"), "{}", checkpoint("mirror"));
    drop(replica);

    let second = site.serve_db("mirror", free_port());
    let location = format!("127.0.0.1:{}", second.port());
    let pull = ["pull", &name, "--db", "third", "--only-replicas", "--replica", &location];
    site.run_ok(pull);
    let report: Value =
        serde_json::from_str(&site.run_ok("verify --db third --json")).expect("JSON");
    assert_eq!((&report["log_entries"], &report["problem_count"]), (&3.into(), &0.into()));
}

#[test]
fn cache_serves_the_log_of_its_origin() {
    let (site, origin) = TestSite::served();
    let port = free_port();
    let cache = || {
        let listen = format!("127.0.0.1:{port}");
        let name = site.name("");
        Replica::start(site.command([
            "serve",
            "--db",
            "tree-cache",
            "--cache-of",
            &name,
            "--quota",
            "64M",
            "--listen",
            &listen,
            "--metrics",
            "127.0.0.1:0",
        ]))
    };
    let file = |path: &str| std::fs::read(site.path("db").join(path)).expect("a file");
    let first = cache();
    assert_eq!(http_get(port, "/log/checkpoint").1, file("log/checkpoint"));
    assert_eq!(http_get(port, "/log/tile/0/000.p/1").1, file("log/tile/0/000.p/1"));
    drop(first);
    site.publish();
    let _second = cache();
    within(30, "the cache does not follow", || {
        http_get(port, "/log/checkpoint").1 == file("log/checkpoint")
    });
    assert_eq!(http_get(port, "/log/tile/entries/000.p/2").1, file("log/tile/entries/000.p/2"));
    drop(origin);
}

#[test]
fn log_is_pulled_from_a_mirror_that_the_tree_names() {
    let site = TestSite::new();
    site.small_tree();
    let mirror_port = free_port();
    site.write("src/.vouch-mirrors", format!("127.0.0.1:{mirror_port}\n"));
    site.publish();
    site.publish();
    // The host in the name has lost the log's files.
    site.run_tool("cp", &["-r", "db", "bare"]);
    std::fs::remove_dir_all(site.path("bare/log/tile")).expect("the log");
    let _bare = site.serve_db("bare", site.port);
    let _mirror = site.serve_db("db", mirror_port);
    site.run_ok(["pull", &site.name(""), "--db", "copy"]);
    assert_eq!(site.run_ok("log --entries --db copy --json").lines().count(), 2);
}

#[test]
fn fork_of_the_log_is_refused_with_evidence() {
    let site = TestSite::published();
    site.run_tool("cp", &["-r", "db", "thief"]);
    site.publish();
    let replica = site.serve();
    let name = site.name("");
    site.run_ok(["pull", &name, "--db", "mirror"]);
    drop(replica);
    site.write("src/hello", "of the thief\n");
    for _ in 0..2 {
        let location = site.location();
        site.run_ok(["publish", "src", "--db", "thief", "--keys", "keys", "--location", &location]);
    }
    let _thief = site.serve_db("thief", site.port);
    let refused = site.run_err(5, ["pull", &name, "--db", "mirror"]);
    assert_contains!(refused, "two histories", "2 entries of one", "3 of another");
    for file in ["ours.checkpoint", "theirs.checkpoint", "ours.evidence", "theirs.evidence"] {
        assert!(site.path("mirror/fork").join(file).exists(), "{file}");
    }
    assert_contains!(site.run_ok("verify --db mirror"), "sound");
    assert_eq!(site.run_ok("log --db mirror --json").lines().count(), 1);
    // The heads have different sizes: the third file shows that one does not continue the other.
    let hostid = name.rsplit_once(',').expect("a name").1;
    let verify = |hostid: &str| ["verify", "--fork", "mirror/fork", hostid].map(str::to_owned);
    let shown = site.run_ok(verify(hostid));
    assert_contains!(shown, "PROVEN: the log of 3 entries does not continue that of 2");
    std::fs::remove_file(site.path("mirror/fork/consistency")).expect("a file");
    let without = site.run(verify(hostid));
    assert_eq!(without.status.code(), Some(1));
    assert_contains!(String::from_utf8_lossy(&without.stdout), "nothing is proven");
}

/// The thief has all keys, and shows one revision to one victim.
#[test]
fn victim_of_a_thief_keeps_evidence_for_a_third_party() {
    let site = TestSite::published();
    ["thief", "old"].iter().for_each(|copy| site.run_tool("cp", &["-r", "db", copy]));
    let (name, location) = (site.name(""), site.location());
    let hostid = name.rsplit_once(',').expect("a name").1.to_owned();
    site.write("src/hello", "of the thief\n");
    site.run_ok(["publish", "src", "--db", "thief", "--keys", "keys", "--location", &location]);
    let victim = |path: &str| ["cat", &site.name(path), "--state", "victim"].map(str::to_owned);
    {
        let _thief = site.serve_db("thief", site.port);
        assert_eq!(site.run_ok(victim("/hello")), "of the thief\n");
        site.run_tool("cp", &["-a", "victim", "second"]);
    }
    site.write("src/hello", "of the publisher\n");
    site.publish();
    let replica = site.serve();
    // The client keeps the revision that it has, and warns.
    let error = site.run(victim("/hello")).stderr;
    let error = String::from_utf8_lossy(&error);
    let kept = format!("show the evidence in victim/fork/{hostid}");
    assert_contains!(error, "another revision 2 was seen before", &kept);
    let evidence = site.path(format!("victim/fork/{hostid}"));

    // The third party has the directory and the HOSTID alone.
    let third = TestSite::new();
    let evidence = evidence.to_str().expect("text");
    let verify = |hostid: &str| ["verify", "--fork", evidence, hostid].map(str::to_owned);
    let shown = third.run_ok(verify(&hostid));
    assert_contains!(shown, "PROVEN: two revisions 2 are signed", "PROVEN: two heads of 2 entries");
    assert_contains!(third.run_ok(verify(&name)), "PROVEN");
    let other = third.run_ok("name keys --location x.example");
    let other_hostid = other.trim().rsplit_once(',').expect("a name").1;
    assert_eq!(third.run(verify(other_hostid)).status.code(), Some(1));

    // A new signing key, certified by the root key, decides. The log's head is still evidence.
    drop(replica);
    site.run_ok("certify keys --keep-log-key keys/log.cert");
    site.run_ok(["publish", "src", "--db", "old", "--keys", "keys", "--location", &location]);
    let _replica = site.serve_db("old", site.port);
    let read = site.run(["cat", &site.name("/hello"), "--state", "second"]);
    assert_eq!(read.stdout, b"of the publisher\n");
    assert_contains!(String::from_utf8_lossy(&read.stderr), "another head of 2 entries");
    let evidence = format!("second/fork/{hostid}");
    let shown = site.run_ok(["verify", "--fork", &evidence, &hostid]);
    assert_contains!(shown, "PROVEN: two heads of 2 entries");
}

#[test]
fn revision_without_demanded_witness_is_not_believed() {
    let (site, _replica) = TestSite::served();
    let name = site.name("");
    let key = witness_key();
    site.write("policy", format!("witness w {key}\nquorum w\n"));
    site.write("lax", "quorum none\n");
    let refused = site.run_err(10, ["ls", &name, "--policy", "policy"]);
    assert_contains!(
        refused,
        "not believed",
        "no witness do not suffice",
        "must have its witnesses cosign"
    );
    site.run_ok(["ls", &name, "--policy", "lax"]);
    site.run_err(10, ["ls", &name, "--policy", "lax", "--policy", "policy"]);
    // The root key demands it for all readers; one that demands less is refused too.
    site.run_ok("certify keys --policy policy");
    site.publish();
    for (state, policy) in [("first", "lax"), ("second", "policy")] {
        site.run_err(10, ["ls", &name, "--policy", policy, "--state", state]);
    }
    site.run_err(10, ["pull", &name, "--db", "mirror", "--state", "third"]);
    // A reader that has seen an earlier revision keeps it until it expires.
    assert_contains!(site.run_ok(["ls", &name]), "hello");
    site.write("lax", "quorum nobody\n");
    assert_contains!(site.run_err(3, ["ls", &name, "--policy", "lax"]), "lax: policy line 1");
}
