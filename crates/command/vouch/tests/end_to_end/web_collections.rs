//! Publications and collections beside clients whose web cache has an earlier manifest.

use std::time::Duration;
use vouch_testkit::words;

use crate::http_replica::nginx_with;
use crate::test_site::{Mount, TestSite, eventually, free_port};
use crate::web_caches::{Cache, published};
use vouch_testkit::{noise, require_program, require_programs};

/// Replaces all packs.
fn publish_and_collect(site: &TestSite, grace: &[&str]) {
    site.run_tool("cp", &["-a", "src", "earlier"]);
    for number in 0..12 {
        site.write(&format!("src/noise/{number}"), noise(100 + number, 60_000));
    }
    site.write("src/hello", "second revision\n");
    site.publish_with(&["--pack-size", "256K", "--keep", "1"]);
    let output = site.run_ok([&["gc", "--db", "db", "--pack-size", "256K"], grace].concat());
    assert_eq!(
        output.contains("stay for readers of an earlier manifest"),
        grace.is_empty(),
        "{output}"
    );
}

fn assert_whole_revision(site: &TestSite, out: &str) -> u64 {
    let is_earlier =
        std::fs::read(site.path(out).join("hello")).expect("a file") == b"hello world\n";
    site.assert_same(if is_earlier { "earlier" } else { "src" }, out, &[]);
    if is_earlier { 1 } else { 2 }
}

#[test]
#[ignore = "needs FUSE and nginx"]
fn clients_of_caches_read_on_after_a_collection() {
    for cache in [Cache::Squid, Cache::Varnish, Cache::Nginx, Cache::NginxIgnoringCacheControl] {
        require_programs(&["nginx", cache.program()]);
        let site = published();
        let (origin, port) = (free_port(), free_port());
        let _server = nginx_with(&site, origin, "open_file_cache off;");
        let (_cache, through) = cache.start(&site, port, origin, "db");
        let through: Vec<&str> =
            ["--only-replicas"].into_iter().chain(through.iter().map(String::as_str)).collect();
        let name = site.name("");
        let mount =
            Mount::new(&site, "mnt", &[&["--cache", "mount-cache", &name], &through[..]].concat());
        site.run_ok([&["ls", "--no-cache", &name], &through[..]].concat());
        publish_and_collect(&site, &[]);
        let mut seen = 0;
        for client in ["first", "second"] {
            site.run_ok([&["get", "--no-cache", &name, client], &through[..]].concat());
            seen = assert_whole_revision(&site, client);
        }
        for number in 0..12 {
            let bytes = std::fs::read(mount.path(format!("noise/{number}")))
                .unwrap_or_else(|error| panic!("{cache:?}: {error}"));
            assert!(
                [number, 100 + number].iter().any(|seed| bytes == noise(*seed, 60_000)),
                "{cache:?}: noise/{number}"
            );
        }
        if let Cache::NginxIgnoringCacheControl = cache {
            assert_eq!(seen, 1, "the cache has the earlier manifest");
        }
    }
}

#[test]
#[ignore = "needs nginx"]
fn replica_serves_files_of_an_earlier_manifest_to_a_cache() {
    require_program("nginx");
    for grace in [&[][..], &["--grace", "0s"]] {
        let site = published();
        let port = free_port();
        let _replica = site.serve();
        let name = site.name("");
        let hostid = name.rsplit(',').next().expect("a HOSTID");
        let (_cache, through) =
            Cache::NginxIgnoringCacheControl.start(&site, port, site.port, hostid);
        let through: Vec<&str> =
            ["--only-replicas"].into_iter().chain(through.iter().map(String::as_str)).collect();
        site.run_ok([&["ls", "--no-cache", &name], &through[..]].concat());
        publish_and_collect(&site, grace);
        let (url, hello) =
            (format!("http://127.0.0.1:{}/{hostid}", site.port), site.name("/hello"));
        let direct = format!(
            "cat --no-cache --state other --only-replicas --replica {url} --proxy DIRECT {hello}"
        );
        let direct = words(&direct);
        assert!(eventually(Duration::from_secs(60), || site.run(&direct).stdout
            == b"second revision\n"));
        let get = site
            .run([&["get", "--no-cache", "--timeout", "5s", &name, "out"], &through[..]].concat());
        if grace.is_empty() {
            assert!(get.status.success(), "{}", String::from_utf8_lossy(&get.stderr));
            assert_eq!(assert_whole_revision(&site, "out"), 1);
        } else {
            assert_eq!(get.status.code(), Some(6), "the packs are gone");
        }
    }
}
