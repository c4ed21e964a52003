use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;

use vouch_audit::operations::number::OPEN;
use vouch_audit::trail::segments;

use crate::prelude::*;

const WAIT_MAX: Duration = Duration::from_secs(60);
const KILLS: u64 = 12;
const WORKERS: usize = 3;
const FILES: usize = 100;

fn site(make: impl FnOnce(&TestSite)) -> TestSite {
    let site = TestSite::new();
    site.small_tree();
    make(&site);
    site.publish();
    let public = site.run_ok(["audit", "keygen", "trail"]);
    site.write("trail.pub", public);
    fs::set_permissions(site.path(""), PermissionsExt::from_mode(0o755))
        .expect("our own directory");
    site
}

fn mount(site: &TestSite, more: &[&str]) -> Mount {
    let name = site.name("");
    let args = [&["--audit", "trail", "--cache", "cache"], more, &[&*name]].concat();
    Mount::new(site, "mnt", &args)
}

fn search(site: &TestSite, more: &[&str]) -> Vec<Value> {
    let found = site.run_ok([&["audit", "search", "trail", "--json"], more].concat());
    found.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn actions(found: &[Value]) -> Vec<&str> {
    found.iter().filter_map(|one| one["event"]["action"].as_str()).collect()
}

fn verify(site: &TestSite) {
    let public = fs::read_to_string(site.path("trail.pub")).expect("written above");
    let verified = site.run_ok(["audit", "verify", "--public", public.trim(), "trail"]);
    assert!(verified.contains("sound"), "{verified}");
}

#[test]
#[ignore = "needs FUSE and auditd"]
fn mount_audit_records_reads_by_user() {
    let site = site(|_| {});
    let replica = site.serve();
    let page = format!("127.0.0.1:{}", free_port());
    let mounted = mount(&site, &["--audit-metrics", &page]);
    let numbers = mounted.path("dir/numbers");
    let len = fs::metadata(site.path("src/dir/numbers")).expect("published").len();
    let uid = if is_root() { 4711 } else { rustix::process::getuid().as_raw() };
    let mut command = Command::new(if is_root() { "setpriv" } else { "cat" });
    if is_root() {
        command.args(["--reuid=4711", "--regid=4712", "--clear-groups", "cat"]);
    }
    let output = command.arg(&numbers).output().expect("a tool of every system");
    assert_eq!(
        (output.status.code(), output.stdout.len() as u64),
        (Some(0), len),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(fs::metadata(mounted.path("missing")).is_err());
    let held = File::open(mounted.path("hello")).expect("published");
    let mut metrics = String::new();
    let mut stream = std::net::TcpStream::connect(&page).expect("the page answers");
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("a request");
    stream.read_to_string(&mut metrics).expect("an answer");
    assert_contains!(
        metrics,
        "\nvouch_mount_audit_healthy 1\n",
        "\nvouch_mount_audit_records_lost_total 0\n"
    );
    assert_eq!(mounted.terminate(), Some(0));
    drop((held, replica, stream));

    let (uid_text, path) = (uid.to_string(), numbers.to_str().expect("UTF-8"));
    let mine =
        |more: &[&str]| search(&site, &[&["--uid", &uid_text, "--path", path], more].concat());
    let opens = mine(&["-S", "open"]);
    // `--auid` matches the login uid of the test process, or its uid if it has no login uid.
    let login = opens[0]["vouch"]["login_uid"]
        .as_u64()
        .map_or_else(|| uid_text.clone(), |login| login.to_string());
    assert_eq!(mine(&["-S", "open", "--auid", &login]).len(), 1);
    assert_eq!(mine(&["-S", "open", "--auid", "4242"]).len(), 0);
    assert_eq!(opens.len(), 1, "{opens:?}");
    let (open, tree) = (&opens[0], format!("tree:{}", site.name("")));
    assert_eq!(
        (&open["vouch"]["export"], &open["vouch"]["flavour"], &open["event"]["outcome"]),
        (&tree.into(), &"local".into(), &"success".into())
    );
    assert_eq!((&open["vouch"]["asked"], &open["vouch"]["granted"]), (&1.into(), &1.into()));
    assert!(open["process"]["thread"]["id"].as_u64().is_some_and(|pid| pid > 0), "{open}");
    let close = &mine(&["-S", "close"])[0];
    assert_eq!(
        (close["vouch"]["bytes_read"].as_u64(), &close["vouch"]["file_id"]),
        (Some(len), &open["vouch"]["file_id"])
    );
    if is_root() {
        assert_eq!(open["user"]["group"]["id"], "4712");
    }
    let hello = site.path("mnt/hello");
    let held = search(&site, &["--path", hello.to_str().expect("UTF-8"), "-S", "close"]);
    assert!(
        held[0]["vouch"]["detail"].as_str().is_some_and(|why| why.contains("still open")),
        "{held:?}"
    );
    let missing = search(
        &site,
        &["--path", site.path("mnt/missing").to_str().expect("UTF-8"), "--result", "failure"],
    );
    assert_eq!((actions(&missing), &missing[0]["error"]["code"]), (vec!["lookup"], &"2".into()));
    assert_eq!(
        actions(&search(&site, &["--class", "administrative"])),
        ["start", "revision", "stop"]
    );
    verify(&site);

    let text = site.run_ok(["audit", "search", "trail", "--kernel-text"]);
    site.write("audit.log", &text);
    for (program, args) in [
        ("ausearch", vec!["-i", "-ui", &uid_text, "-f", path, "-sc", "openat"]),
        ("aureport", vec!["--file"]),
    ] {
        let result = Command::new(program)
            .args(&args)
            .arg("-if")
            .arg(site.path("audit.log"))
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .output()
            .expect("auditd is installed");
        let output_text = String::from_utf8_lossy(&result.stdout).into_owned();
        assert!(
            output_text.contains(path),
            "{program}: {output_text} {}",
            String::from_utf8_lossy(&result.stderr)
        );
        assert!(
            program != "ausearch" || output_text.matches("type=SYSCALL").count() == 1,
            "{output_text}"
        );
    }
}

fn write_large_files(site: &TestSite) {
    for number in 0..40 {
        site.write(&format!("src/noise/{number}"), noise(number, 60_000));
    }
}

fn make_altered_database(site: &TestSite) {
    site.run_tool("cp", &["-a", "db", "liar"]);
    for pack in fs::read_dir(site.path("liar/packs")).expect("packs").flatten() {
        if pack.file_name().to_string_lossy().starts_with("d-") {
            let mut bytes = fs::read(pack.path()).expect("a pack");
            bytes.iter_mut().skip(300).step_by(4096).for_each(|byte| *byte ^= 0x20);
            fs::write(pack.path(), bytes).expect("a pack");
        }
    }
}

#[test]
#[ignore = "needs FUSE"]
fn lying_replica_is_recorded_even_if_another_has_good_data() {
    let site = site(write_large_files);
    make_altered_database(&site);
    site.write("rules", "-a never,exit -S open,close,read,lookup,getattr,readdir\n");
    let (liar, honest) = (site.serve_db("liar", 0), site.serve());
    let options = words(
        "--no-cache --audit trail --audit-rules rules --timeout 5s --only-replicas --replica",
    );
    let at = |who: &[&str]| {
        Mount::new(
            &site,
            "mnt",
            &[&["--xattrs", "off"], &options[..], who, &[&site.name("")]].concat(),
        )
    };
    let lies = || search(&site, &["--class", "refusal", "--newest", "-n", "100000"]);

    let alone = at(&[&liar.address]);
    assert_eq!(fs::read(alone.path("noise/7")).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(alone.terminate(), Some(0));
    let found = lies();
    assert!(
        !found.is_empty() && found.iter().all(|one| one["event"]["action"] == "altered"),
        "{found:?}"
    );
    assert_eq!(
        (&found[0]["source"]["ip"], &found[0]["source"]["port"]),
        (&"127.0.0.1".into(), &liar.port().into())
    );
    assert_eq!(found[0]["vouch"]["export"], format!("tree:{}", site.name("")));
    assert!(
        found[0]["vouch"]["detail"].as_str().is_some_and(|why| why.contains("hash to")),
        "{found:?}"
    );

    let before = found.len();
    let healed = (0..20).any(|_| {
        let both = at(&[&liar.address, "--replica", &honest.address]);
        for number in 0..40 {
            let name = format!("noise/{number}");
            assert!(
                fs::read(both.path(&name)).expect("healed")
                    == fs::read(site.path(format!("src/{name}"))).expect("published")
            );
        }
        assert_eq!(both.terminate(), Some(0));
        lies().len() > before
    });
    assert!(healed, "no lie was detected in 20 mounts");
    assert!(search(&site, &["--class", "operation"]).is_empty(), "rules left all of them out");
    verify(&site);
}

#[test]
#[ignore = "needs FUSE"]
fn rules_select_by_path_and_are_reloaded_by_sighup() {
    let site = site(|_| {});
    let _replica = site.serve();
    let point = site.path("mnt");
    let watch =
        |name: &str| site.write("rules", format!("-w {}/{name} -p r -k {name}\n", point.display()));
    let opened = |key: &str| search(&site, &["--key", key, "-S", "open"]).len();
    let acts = || search(&site, &["--class", "administrative"]).len();
    watch("dir");
    let mounted = mount(&site, &["--audit-rules", "rules", "--audit-sync", "each"]);
    let read_both = || {
        ["hello", "dir/numbers"]
            .iter()
            .for_each(|name| drop(fs::read(mounted.path(name)).expect("published")))
    };
    read_both();
    assert!(eventually(WAIT_MAX, || opened("dir") == 1));
    assert_eq!(search(&site, &["--path", point.join("hello").to_str().expect("UTF-8")]).len(), 0);
    let before = acts();
    site.write("rules", "-w nowhere\n");
    mounted.signal("HUP");
    assert!(eventually(WAIT_MAX, || acts() == before + 1));
    assert_eq!(actions(&search(&site, &["--class", "administrative"])).last(), Some(&"reload"));
    read_both();
    assert!(eventually(WAIT_MAX, || opened("dir") == 2));
    watch("hello");
    mounted.signal("HUP");
    assert!(eventually(WAIT_MAX, || acts() == before + 2));
    assert_eq!(
        actions(&search(&site, &["--class", "administrative"])).last(),
        Some(&"turned-down")
    );
    read_both();
    assert!(eventually(WAIT_MAX, || opened("hello") == 1));
    assert_eq!(mounted.terminate(), Some(0));
    assert_eq!(opened("dir"), 2);
    let turned_down = || {
        actions(&search(&site, &["--class", "administrative"]))
            .iter()
            .filter(|act| **act == "turned-down")
            .count()
    };
    for (sync, times) in [("each", 1), ("none", 2), ("none", 2)] {
        assert_eq!(
            mount(&site, &["--audit-rules", "rules", "--audit-sync", sync]).terminate(),
            Some(0)
        );
        assert_eq!(turned_down(), times, "{sync}");
    }
    verify(&site);
    site.expect_err(3, ["mount", "--audit", "nowhere", &site.name(""), "mnt"], &["nowhere"]);
}

#[test]
#[ignore = "needs FUSE"]
fn every_open_is_recorded_when_the_mount_is_killed() {
    let files = |site: &TestSite| {
        for number in 0..WORKERS * FILES {
            site.write(&format!("src/many/{number}"), number.to_string());
        }
    };
    let site = site(files);
    let _replica = site.serve();
    let (mut random, mut all) = (SplitMix64(23), 0);
    for round in 0..KILLS {
        let first =
            segments(&site.path("trail")).expect("the trail").last().map_or(1, |file| file.number);
        let before = recorded_opens(&site.path("trail"), first);
        let mounted = mount(
            &site,
            &words("--audit-policy block --audit-sync each --audit-segment 64K --audit-seal 1s"),
        );
        let (opened, ended): (Arc<Mutex<HashMap<PathBuf, usize>>>, Arc<AtomicBool>) =
            Default::default();
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (opened, ended, many) = (opened.clone(), ended.clone(), mounted.path("many"));
                std::thread::spawn(move || {
                    for number in (0..FILES).cycle() {
                        let path = many.join((worker * FILES + number).to_string());
                        if ended.load(Ordering::SeqCst) || File::open(&path).is_err() {
                            return;
                        }
                        *opened.lock().entry(path).or_default() += 1;
                    }
                })
            })
            .collect();
        assert!(
            eventually(WAIT_MAX, || !opened.lock().is_empty()),
            "kill {round}: nothing is opened"
        );
        std::thread::sleep(Duration::from_millis(random.roll(120)));
        mounted.kill();
        ended.store(true, Ordering::SeqCst);
        workers.into_iter().for_each(|worker| worker.join().expect("the worker does not panic"));
        let after = recorded_opens(&site.path("trail"), first);
        for (path, count) in opened.lock().iter() {
            let count_of =
                |counts: &HashMap<PathBuf, usize>| counts.get(path).copied().unwrap_or(0);
            let recorded = count_of(&after) - count_of(&before);
            assert!(
                recorded >= *count,
                "kill {round}: {} was opened {count} times, {recorded} are recorded",
                path.display()
            );
            all += count;
        }
    }
    assert_eq!(mount(&site, &[]).terminate(), Some(0));
    verify(&site);
    assert!(all as u64 >= KILLS);
    println!("{KILLS} kills, {all} opens acknowledged");
}

fn recorded_opens(trail: &Path, first: u64) -> HashMap<PathBuf, usize> {
    let mut found = HashMap::new();
    let read = records(trail, first, |record| {
        if (record.class, record.operation, record.result) == (Class::Operation, OPEN, 0) {
            let path = std::str::from_utf8(record.path).expect("UTF-8");
            *found.entry(PathBuf::from(path)).or_default() += 1;
        }
    });
    read.expect("the trail is read");
    found
}

pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn new(site: &TestSite, name: &str) -> Self {
        fs::create_dir(site.path(name)).expect("new");
        site.run_tool("mount", &["-t", "tmpfs", "-o", "size=2M", "tmpfs", name]);
        SmallDisk(site.path(name))
    }

    pub(crate) fn fill(&self) {
        let mut filler = File::create(self.0.join("filler")).expect("room for a name");
        for len in [1 << 16, 4096, 1] {
            while filler.write_all(&vec![1; len]).is_ok() {}
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
#[ignore = "needs root and FUSE"]
fn full_disk_affects_the_mount_according_to_the_policy() {
    require("root, to make a small disk", is_root());
    for policy in ["count", "block", "halt"] {
        let site = site(|_| {});
        let _replica = site.serve();
        let disk = SmallDisk::new(&site, "disk");
        site.run_ok(["audit", "keygen", "disk/trail"]);
        let name = site.name("");
        let args = format!(
            "--audit disk/trail --audit-sync each --audit-policy {policy} --timeout 2s {name}"
        );
        let args = words(&args);
        let mut mounted = Mount::new(&site, "mnt", &args);
        let hello = mounted.path("hello");
        assert!(fs::read(&hello).is_ok());
        disk.fill();
        match policy {
            "count" => assert!((0..500).all(|_| File::open(&hello).is_ok())),
            "block" => assert!(
                eventually(WAIT_MAX, || (0..100).any(|_| File::open(&hello).is_err())),
                "opens succeed without a record"
            ),
            _ => {
                assert!(eventually(WAIT_MAX, || (0..100).any(|_| File::open(&hello).is_err())
                    || mounted.exit_code().is_some()));
                assert!(
                    eventually(WAIT_MAX, || mounted.exit_code() == Some(7)),
                    "the process does not end"
                );
                continue;
            }
        }
        fs::remove_file(site.path("disk/filler")).expect("the filler exists");
        assert!(
            eventually(WAIT_MAX, || fs::read(&hello).is_ok()),
            "{policy}: the mount does not continue"
        );
        assert_eq!(mounted.terminate(), Some(0), "{policy}");
        let opens: u64 = site
            .run_ok("audit search disk/trail -S open --result success --count")
            .trim()
            .parse()
            .expect("a number");
        assert!(policy != "count" || opens >= 500, "{opens}");
    }
}

#[test]
fn export_records_lies_of_replicas() {
    let site = TestSite::new();
    write_large_files(&site);
    site.publish();
    make_altered_database(&site);
    let liar = site.serve_db("liar", site.port);
    site.run_ok(["audit", "keygen", "trail"]);
    let source = format!("tree:{}", site.name(""));
    let options =
        ["--options", "ro,insecure,no_root_squash", "--audit", "trail", "--audit-sync", "each"];
    let mut export = Export::start(&site, &[&["--dir", &source], &options[..]].concat());
    let read = async {
        let client = connect(export.address, 1, "reader", 0).await?;
        let directory = client.walk(b"export/noise").await?;
        let open = client.open(&directory.handle, b"7", ShareAccess::READ, None).await?;
        client.read(&open, 0, 60_000).await.map(drop)
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let refused = runtime.block_on(read).is_err();
    export.terminate();
    assert!(refused, "altered data was accepted");
    let found = search(&site, &["--class", "refusal"]);
    assert!(
        !found.is_empty() && found.iter().all(|one| one["event"]["action"] == "altered"),
        "{found:?}"
    );
    assert_eq!(found[0]["source"]["port"], liar.port());
    assert!(
        found[0]["vouch"]["detail"].as_str().is_some_and(|why| why.starts_with(&source)),
        "{found:?}"
    );
}
