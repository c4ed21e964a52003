use crate::prelude::*;

pub(crate) const DB: &str = "s3://trees/group/tools";

pub(crate) struct BucketSite {
    pub(crate) site: TestSite,
    server: KillOnDrop,
    port: u16,
}

impl BucketSite {
    pub(crate) fn new() -> BucketSite {
        require_program("versitygw");
        let (mut site, port) = (TestSite::new(), free_port());
        std::fs::create_dir_all(site.path("objects/trees")).expect("a bucket");
        let server = start_server(&site, port);
        site.environment = vec![
            ("AWS_ACCESS_KEY_ID", "key-of-the-test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("VOUCH_BUCKET_DIR", site.path("work").display().to_string()),
        ];
        BucketSite { site, server, port }
    }

    fn on_another_machine(&mut self, machine: &str) {
        let dir = self.site.path(format!("work-{machine}")).display().to_string();
        self.site.environment.retain(|(name, _)| *name != "VOUCH_BUCKET_DIR");
        self.site.environment.push(("VOUCH_BUCKET_DIR", dir));
    }

    fn publish_args<'a>(&self, location: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [
            &["publish", "src", "--db", DB, "--keys", "keys", "--location", location, "--json"][..],
            more,
        ]
        .concat()
    }

    fn publish(&self, more: &[&str]) -> serde_json::Value {
        let location = format!("127.0.0.1:{}", self.site.port);
        serde_json::from_str(&self.site.run_ok(self.publish_args(&location, more))).expect("JSON")
    }

    fn objects(&self, dir: &str) -> Vec<String> {
        let path = self.site.path("objects/trees/group/tools").join(dir);
        let entries = std::fs::read_dir(path).into_iter().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn make_public(&self) -> String {
        let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::trees/*"}]}"#;
        let url = format!("http://127.0.0.1:{}/trees?policy=", self.port);
        let user = format!("key-of-the-test:{SECRET}");
        let unsigned = "x-amz-content-sha256: UNSIGNED-PAYLOAD";
        let args = format!("-sf --aws-sigv4 aws:amz:us-east-1:s3 --user {user} -X PUT {url}");
        let args = [&words(&args)[..], &["-H", unsigned, "--data-binary", policy]].concat();
        self.site.run_tool("curl", &args);
        format!("http://127.0.0.1:{}/trees/group/tools", self.port)
    }

    /// SIGKILL.
    pub(crate) fn kill_server(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }

    pub(crate) fn restart_server(&mut self) {
        self.server = start_server(&self.site, self.port);
    }

    fn assert_sound(&self) {
        assert!(self.site.run_ok(["verify", "--db", DB]).contains("sound"));
    }
}

const SECRET: &str = "secret-of-the-test";

fn start_server(site: &TestSite, port: u16) -> KillOnDrop {
    let mut command = Command::new("versitygw");
    command.env("ROOT_ACCESS_KEY", "key-of-the-test").env("ROOT_SECRET_KEY", SECRET);
    command
        .args(["--port", &format!("127.0.0.1:{port}"), "--keep-alive", "--quiet", "posix"])
        .arg(site.path("objects"));
    let server = KillOnDrop(
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the server starts"),
    );
    within(30, "the server does not listen", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    server
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].concat().iter().map(|byte| *byte as char).collect()
}

fn change(site: &TestSite, round: u64) {
    for file in 0..12 {
        site.write(&format!("src/changing/{file}"), noise(round * 12 + file, 100_000));
    }
    site.write("src/round", format!("{round}\n"));
}

#[test]
#[ignore = "needs versitygw"]
fn check_tells_whether_a_bucket_is_fit() {
    let bucket = BucketSite::new();
    let checked = bucket.site.run(["check", DB]);
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        checked.status.success() && text.contains("fit: of eight writers, one won"),
        "{checked:?}"
    );
    assert!(
        !bucket.site.path("objects/trees/group").exists() && !text.contains("/dev/fuse"),
        "{text}"
    );
    let missing = bucket.site.run(["check", "s3://no-such-bucket/x"]);
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
}

#[test]
#[ignore = "needs curl and versitygw"]
fn bucket_is_published_served_pulled_and_read_by_its_url() {
    let bucket = BucketSite::new();
    let site = &bucket.site;
    site.small_tree();
    assert!(site.run_err(4, ["verify", "--db", DB]).contains("no database here"));
    assert_eq!(bucket.publish(&[])["revision"], 1);
    bucket.assert_sound();
    assert_eq!(site.run_ok(["log", "--db", DB, "--json"]).lines().count(), 1);
    assert!(site.name("").contains(site.run_ok(["name", DB]).trim()));

    std::thread::sleep(Duration::from_millis(2100));
    bucket.publish(&[]);
    let third = bucket.publish(&[]);
    assert_eq!(
        (&third["revision"], &third["files_read"], &third["new_frames"]),
        (&3.into(), &0.into(), &1.into())
    );
    assert!(!bucket.objects("").contains(&"lock".to_owned()), "the lock is released");

    let name = site.name("");
    let replica = site.serve_db(DB, site.port);
    assert_eq!(site.run_ok(["cat", "--no-cache", &format!("{name}/hello")]), "hello world\n");
    site.write("src/hello", "next revision\n");
    bucket.publish(&[]);
    within(30, "the replica does not see the new revision", || {
        site.run_ok(&format!("cat --no-cache {name}/hello")) == "next revision\n"
    });
    drop(replica);

    let url = bucket.make_public();
    let by_url = ["--no-cache", "--only-replicas", "--replica", &url];
    site.run_ok([&["get", &name, "out"][..], &by_url].concat());
    site.assert_same("src", "out", &[]);
    for (object, cache) in [
        ("manifest", "max-age=30".to_owned()),
        (&format!("packs/{}", bucket.objects("packs")[0]), "immutable".to_owned()),
    ] {
        let headers =
            Command::new("curl").args(["-sI", &format!("{url}/{object}")]).output().expect("curl");
        assert!(text(&headers).contains(&cache), "{object}: {}", text(&headers));
    }

    site.run_ok([&["pull", &name, "--db", "s3://trees/mirror"][..], &by_url].concat());
    assert!(site.run_ok(["verify", "--db", "s3://trees/mirror"]).contains("sound"));
}

#[test]
#[ignore = "needs versitygw"]
fn another_machine_continues_the_publication() {
    let mut bucket = BucketSite::new();
    bucket.site.small_tree();
    bucket.publish(&[]);
    bucket.on_another_machine("b");
    change(&bucket.site, 1);
    let second = bucket.publish(&[]);
    assert_eq!(second["revision"], 2);
    assert!(second["shared_frames"].as_u64() > Some(0), "what the bucket has is not stored again");
    bucket.on_another_machine("c");
    bucket.assert_sound();
}

#[test]
#[ignore = "needs versitygw"]
fn only_one_of_two_publishers_wins() {
    let mut bucket = BucketSite::new();
    bucket.site.small_tree();
    bucket.publish(&[]);
    let location = format!("127.0.0.1:{}", bucket.site.port);
    for round in 2..8 {
        change(&bucket.site, round);
        let publishers: Vec<_> = ["x", "y"]
            .map(|machine| {
                bucket.on_another_machine(machine);
                let args = bucket.publish_args(&location, &[]);
                bucket
                    .site
                    .command(args)
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .expect("the binary starts")
            })
            .into_iter()
            .map(|child| child.wait_with_output().expect("it ends"))
            .collect();
        let revision = |output: &Output| {
            serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")["revision"]
                .as_u64()
        };
        let winners: Vec<_> =
            publishers.iter().filter(|output| output.status.success()).map(revision).collect();
        assert!(
            !winners.is_empty() && (winners.len() == 1 || winners[0] != winners[1]),
            "{winners:?} {:?}",
            publishers.iter().map(text).collect::<Vec<_>>()
        );
        for loser in publishers.iter().filter(|output| !output.status.success()) {
            assert_eq!(loser.status.code(), Some(8), "{}", text(loser));
            assert!(text(loser).contains(DB), "{}", text(loser));
        }
        bucket.assert_sound();
    }
}

#[test]
#[ignore = "needs versitygw"]
fn killed_publisher_leaves_the_revision_before_or_the_new_one() {
    let bucket = BucketSite::new();
    let site = &bucket.site;
    site.small_tree();
    bucket.publish(&[]);
    let kills: u64 =
        std::env::var("VOUCH_BUCKET_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(24);
    let location = format!("127.0.0.1:{}", site.port);
    let newest = || {
        let log = site.run_ok(["log", "--db", DB, "--json"]);
        let rows =
            log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        rows.filter_map(|row| row["revision"].as_u64()).max().expect("a revision")
    };
    let publisher = |round| {
        change(site, round);
        let args = bucket.publish_args(&location, &["--pack-size", "256K", "--keep", "3"]);
        site.command(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts")
    };
    let begun = Instant::now();
    assert!(publisher(kills).wait().expect("it ends").success());
    let undisturbed = begun.elapsed().as_micros() as u64;
    let (mut before, mut interrupted) = (2, 0);
    let mut random = SplitMix64(0x5eed);
    for kill in 0..kills {
        let mut child = publisher(kill);
        std::thread::sleep(Duration::from_micros(random.roll(undisturbed)));
        let _ = child.kill();
        interrupted += u64::from(!child.wait().expect("it ends").success());
        let now = newest();
        assert!(now == before || now == before + 1, "kill {kill}: revision {now} after {before}");
        before = now;
        if kill % 8 == 0 || kill + 1 == kills {
            bucket.assert_sound();
        }
        if kill % 10 == 5 {
            site.run_ok(["gc", "--db", DB, "--grace", "0s", "--drop-unfinished"]);
            bucket.assert_sound();
        }
    }
    assert!(interrupted > kills / 4, "the kills came too late: {interrupted} of {kills}");
    assert_eq!(bucket.publish(&[])["revision"], before + 1);
    bucket.assert_sound();
}

#[test]
#[ignore = "needs versitygw"]
fn killed_server_delays_a_publication_or_ends_it_with_an_error() {
    let mut bucket = BucketSite::new();
    bucket.site.small_tree();
    bucket.publish(&[]);
    let location = format!("127.0.0.1:{}", bucket.site.port);
    let (mut revision, mut random) = (1, SplitMix64(77));
    for round in 0..8 {
        change(&bucket.site, 1000 + round);
        let args = bucket.publish_args(&location, &["--pack-size", "256K"]);
        let child = bucket
            .site
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        std::thread::sleep(Duration::from_micros(random.roll(100_000)));
        bucket.kill_server();
        std::thread::sleep(Duration::from_millis(200));
        bucket.restart_server();
        let output = child.wait_with_output().expect("it ends");
        assert!(matches!(output.status.code(), Some(0 | 6 | 8)), "{}", text(&output));
        bucket.assert_sound();
        let after = bucket.publish(&[])["revision"].as_u64().expect("a number");
        let published = u64::from(output.status.success());
        assert!(
            after == revision + 1 + published || after == revision + 2,
            "round {round}: {after} after {revision}"
        );
        revision = after;
    }
}

#[test]
#[ignore = "needs versitygw"]
fn collection_keeps_objects_of_an_earlier_manifest_for_the_grace_period() {
    let bucket = BucketSite::new();
    let site = &bucket.site;
    site.small_tree();
    change(site, 1);
    bucket.publish(&[]);
    let url = bucket.make_public();
    let (name, database) = (site.name(""), site.path("objects/trees/group/tools"));
    let old_manifest = std::fs::read(database.join("manifest")).expect("a manifest");
    let copy = |to: &str| {
        let to = site.path(to);
        std::fs::create_dir_all(&to).expect("a directory");
        site.run_tool(
            "cp",
            &["-r", &format!("{}/.", database.display()), to.to_str().expect("plain")],
        );
        std::fs::write(to.join("manifest"), &old_manifest).expect("a file");
    };
    change(site, 2);
    bucket.publish(&["--keep", "1"]);
    let before = (bucket.objects("packs"), bucket.objects("index"));
    let output = site.run_ok(["gc", "--db", DB, "--grace", "1h"]);
    assert!(output.contains("removed 0 unused files, "), "{output}");
    assert!(before.0.iter().all(|pack| bucket.objects("packs").contains(pack)), "no pack is gone");
    assert!(
        before.1.iter().all(|segment| bucket.objects("index").contains(segment)),
        "no segment is gone"
    );
    copy("early");
    assert!(
        site.run_ok(["verify", "--db", "early"]).contains("1 revisions"),
        "the revision before is whole"
    );
    assert!(bucket.objects("").contains(&"garbage".to_owned()));

    let output = site.run_ok(["gc", "--db", DB, "--grace", "0s"]);
    assert!(!output.contains("removed 0 unused"), "{output}");
    assert!(bucket.objects("packs").len() < before.0.len() || bucket.objects("packs") != before.0);
    bucket.assert_sound();
    let by_url = ["--no-cache", "--only-replicas", "--replica", &url];
    site.run_ok([&["verify", &name][..], &by_url].concat());
    copy("late");
    let damaged = site.run(["verify", "--db", "late"]);
    assert_eq!(
        damaged.status.code(),
        Some(1),
        "an old manifest without its objects is damage: {}",
        text(&damaged)
    );
}

#[test]
#[ignore = "needs versitygw"]
fn errors_of_buckets_name_object_and_cure_and_no_secret() {
    let mut bucket = BucketSite::new();
    bucket.site.small_tree();
    bucket.publish(&[]);
    let pack = bucket.objects("packs").remove(0);
    let check = |bucket: &BucketSite, code: i32, db: &str, words: &[&str]| {
        let error = bucket.site.run_err(code, ["verify", "--db", db]);
        words.iter().for_each(|word| assert!(error.contains(word), "{error}"));
        assert!(!error.contains(SECRET), "{error}");
    };
    check(&bucket, 4, "s3://trees/none", &["s3://trees/none", "no database here"]);
    check(&bucket, 3, "s3://nobody/none", &["no such bucket", "AWS_ENDPOINT_URL"]);
    check(&bucket, 3, "s3://trees/a//b", &["s3://BUCKET/PREFIX"]);
    bucket.site.write("objects/trees/full/notes.txt", "mine");
    let location = format!("127.0.0.1:{}", bucket.site.port);
    bucket.site.expect_err(
        3,
        ["publish", "src", "--db", "s3://trees/full", "--keys", "keys", "--location", &location],
        &["notes.txt", "nothing was changed"],
    );

    let path = bucket.site.path("objects/trees/group/tools/packs").join(&pack);
    let bytes = std::fs::read(&path).expect("a pack");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("a file");
    let cut = bucket.site.run(["verify", "--db", DB]);
    assert!(cut.status.code() == Some(1) && text(&cut).contains(&pack), "{}", text(&cut));
    std::fs::remove_file(&path).expect("a pack");
    let lost = bucket.site.run(["verify", "--db", DB]);
    assert!(lost.status.code() == Some(1) && text(&lost).contains(&pack), "{}", text(&lost));

    bucket
        .site
        .environment
        .iter_mut()
        .find(|(name, _)| *name == "AWS_SECRET_ACCESS_KEY")
        .expect("set")
        .1 = "another-secret".to_owned();
    check(&bucket, 5, DB, &["refuses the request", "AWS_ACCESS_KEY_ID", "manifest"]);
    let _ = bucket.server.kill();
    let _ = bucket.server.wait();
    let began = Instant::now();
    check(&bucket, 6, DB, &["does not serve the request", "AWS_ENDPOINT_URL"]);
    assert!(began.elapsed() < Duration::from_secs(60), "the time of retries is bounded");
}
