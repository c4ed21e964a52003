//! Killed at random moments while clients read: each client gets one whole revision, or an error in
//! time. `VOUCH_WEB_KILLS`: number of kills; `VOUCH_WEB_KILLS_SEED`: first seed.

use std::process::Stdio;
use std::time::{Duration, Instant};
use vouch_testkit::{SplitMix64, noise, words};

use crate::test_site::{Replica, TestSite, free_port, within};
use crate::web_caches::serve;

const FILES: u64 = 6;
const TIMEOUT: Duration = Duration::from_secs(4);
const MARGIN: Duration = Duration::from_secs(6);

fn write_revision(site: &TestSite, revision: u64) {
    for file in 0..FILES {
        let mut bytes = format!("{revision}\n").into_bytes();
        bytes.extend(noise(revision * FILES + file, 40_000 + 30_000 * file as usize));
        site.write(&format!("src/{file}"), bytes);
    }
}

fn revision_of(site: &TestSite, out: &str) -> Option<u64> {
    let first = std::fs::read(site.path(out).join("0")).ok()?;
    let revision: u64 =
        std::str::from_utf8(first.split(|byte| *byte == b'\n').next()?).ok()?.parse().ok()?;
    let is_whole = (0..FILES).all(|file| {
        let mut expected = format!("{revision}\n").into_bytes();
        expected.extend(noise(revision * FILES + file, 40_000 + 30_000 * file as usize));
        std::fs::read(site.path(out).join(file.to_string())).is_ok_and(|bytes| bytes == expected)
    });
    is_whole.then_some(revision)
}

struct Services {
    origin: Option<Replica>,
    cache: Option<Replica>,
    origin_port: u16,
    cache_port: u16,
    hostid: String,
    name: String,
}

impl Services {
    fn start(&mut self, site: &TestSite) {
        let origin_port = self.origin_port;
        self.origin.get_or_insert_with(|| site.serve_db("db", origin_port));
        let origin_url = format!("http://127.0.0.1:{origin_port}/{}", self.hostid);
        let (cache_port, name) = (self.cache_port, self.name.clone());
        self.cache.get_or_insert_with(|| {
            let of = format!(
                "--db kept --cache-of {name} --quota 100M --only-replicas --replica {origin_url}"
            );
            let of = words(&of);
            serve(site, cache_port, &[&of[..], &["--refresh", "1s", "--timeout", "3s"]].concat())
        });
    }

    fn replicas(&self, way: u64) -> Vec<String> {
        let url = |port: u16| {
            ["--replica".to_owned(), format!("http://127.0.0.1:{port}/{}", self.hostid)]
        };
        match way {
            0 => url(self.origin_port).to_vec(),
            1 => url(self.cache_port).to_vec(),
            _ => [url(self.cache_port), url(self.origin_port)].concat(),
        }
    }
}

#[test]
fn kills_of_origin_cache_and_publisher_leave_one_revision_whole() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("VOUCH_WEB_KILLS").unwrap_or(9);
    let seed = number("VOUCH_WEB_KILLS_SEED").unwrap_or(1);
    let site = TestSite::new();
    write_revision(&site, 1);
    site.publish();
    let name = site.name("");
    let hostid = name.rsplit(',').next().expect("a HOSTID").to_owned();
    let mut services = Services {
        origin: None,
        cache: None,
        origin_port: site.port,
        cache_port: free_port(),
        hostid,
        name: name.clone(),
    };
    services.start(&site);
    let (mut newest, mut counts) = (1, [0u64; 6]);
    for round in 0..kills {
        let mut random = SplitMix64(seed.wrapping_add(round));
        let (victim, way, delay) =
            (random.roll(3), random.roll(3), Duration::from_millis(random.roll(700)));
        write_revision(&site, newest + 1);
        let mut publisher = site.command(&site.publication());
        let mut publisher = publisher
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let out = format!("out{round}");
        let replicas = services.replicas(way);
        let mut args: Vec<&str> = vec!["get", "--no-cache", "--timeout", "4s", "--only-replicas"];
        args.extend(replicas.iter().map(String::as_str));
        args.extend([name.as_str(), &out]);
        let mut client = site.command(args);
        client.env("VOUCH_STATE", site.path(format!("state{}", round % 2 * (round + 1))));
        let began = Instant::now();
        let client =
            client.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        std::thread::sleep(delay);
        match victim {
            0 => drop(services.origin.take()),
            1 => drop(services.cache.take()),
            _ => drop(publisher.kill()),
        }
        let output = client.wait_with_output().expect("a client");
        let (took, error) = (began.elapsed(), String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(took < TIMEOUT + MARGIN, "round {round}: {took:?}: {error}");
        let is_published = publisher.wait().expect("a publisher").success();
        assert!(is_published || victim == 2, "round {round}: the publisher fails by itself");
        if output.status.success() {
            let revision = revision_of(&site, &out);
            assert!(
                revision.is_some_and(|found| found <= newest + 1),
                "round {round}: not one revision whole: {revision:?}"
            );
        } else {
            assert!(
                error.lines().any(|line| line.starts_with("vouch: get: ")),
                "round {round}: {:?}: {error}",
                output.status
            );
            // A cache that does not answer in time leaves the client with the revision that it knows, whose
            // frames may be gone.
            let is_old =
                output.status.code() == Some(1) && error.contains("have dropped an old revision");
            assert!(
                is_old || matches!(output.status.code(), Some(5 | 6)),
                "round {round}: {:?}: {error}",
                output.status
            );
        }
        counts[victim as usize] += 1;
        counts[if output.status.success() { 3 } else { 4 }] += 1;
        let _ = std::fs::remove_dir_all(site.path(&out));

        services.start(&site);
        let log = site.run_ok(["log", "--db", "db", "--json"]);
        let in_force = log.lines().count() as u64;
        assert!(
            in_force == newest || in_force == newest + 1,
            "round {round}: {in_force} revisions after {newest}"
        );
        counts[5] += u64::from(in_force == newest);
        newest = in_force;
        if round % 10 == 0 {
            assert!(site.run_ok(["verify", "--db", "db"]).contains("sound"), "round {round}");
        }
    }
    write_revision(&site, newest + 1);
    site.publish();
    for way in 0..3 {
        let replicas = services.replicas(way);
        let get = || {
            let mut args: Vec<&str> =
                vec!["get", "--no-cache", "--timeout", "4s", "--only-replicas"];
            args.extend(replicas.iter().map(String::as_str));
            let _ = std::fs::remove_dir_all(site.path("last"));
            site.run([&args[..], &[&name, "last"]].concat()).status.success()
                && revision_of(&site, "last") == Some(newest + 1)
        };
        within(60, &format!("way {way} does not recover"), get);
    }
    let [origins, caches, publishers, read, failed, undone] = counts;
    println!(
        "{kills} kills from seed {seed}: origin {origins}, cache {caches}, publisher {publishers}; clients: {read} read one revision whole, \
         {failed} ended with an error in time; {undone} publications left the revision before"
    );
}
