//! A verifying cache behind and in front of squid, and HTTPS through squid.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use vouch_testkit::{noise, require_program, require_programs, words};

use crate::http_replica::{Process, answered, nginx_with, squid, squid_with, start};
use crate::test_site::{Replica, TestSite, free_port, within};

pub(crate) fn published() -> TestSite {
    let site = TestSite::new();
    site.small_tree();
    for number in 0..12 {
        site.write(&format!("src/noise/{number}"), noise(number, 60_000));
    }
    site.publish_with(&["--pack-size", "256K"]);
    site
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cache {
    Squid,
    /// As Debian configures it: keeps less than [`Cache::Squid`].
    StockSquid,
    Varnish,
    Nginx,
    Haproxy,
    /// Leaves the query out of its key and ignores `Cache-Control`: keeps an earlier manifest.
    NginxIgnoringCacheControl,
}

impl Cache {
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Squid | Self::StockSquid => "squid",
            Self::Haproxy => "haproxy",
            Self::Varnish => "varnishd",
            Self::Nginx | Self::NginxIgnoringCacheControl => "nginx",
        }
    }

    /// With options for clients of the database at `path`.
    pub(crate) fn start(
        self,
        site: &TestSite,
        port: u16,
        origin: u16,
        path: &str,
    ) -> (Process, Vec<String>) {
        let dir = site.path("");
        let dir = dir.to_str().expect("a plain path").trim_end_matches('/');
        let args = |url_port: u16, proxy: String| {
            [
                "--replica".to_owned(),
                format!("http://127.0.0.1:{url_port}/{path}"),
                "--proxy".to_owned(),
                proxy,
            ]
            .to_vec()
        };
        match self {
            Self::Squid => (squid(site, port), args(origin, format!("http://127.0.0.1:{port}"))),
            Self::StockSquid => {
                (squid_with(site, port, ""), args(origin, format!("http://127.0.0.1:{port}")))
            }
            Self::Haproxy => {
                let config = format!(
                    "global\n    maxconn 1000\ncache kept\n    total-max-size 256\n    max-age 3600\n\
                     defaults\n    mode http\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n\
                     frontend front\n    bind 127.0.0.1:{port}\n    http-request cache-use kept\n    http-response cache-store kept\n    default_backend back\n\
                     backend back\n    server origin 127.0.0.1:{origin}\n"
                );
                site.write("haproxy.cfg", config);
                (
                    start("haproxy", &["-db", "-f", &format!("{dir}/haproxy.cfg")], port),
                    args(port, "DIRECT".into()),
                )
            }
            Self::Varnish => {
                let (listen, backend) =
                    (format!("127.0.0.1:{port}"), format!("127.0.0.1:{origin}"));
                let work = format!("{dir}/varnish");
                let options =
                    format!("-F -j none -n {work} -a {listen} -b {backend} -s malloc,64m -T none");
                let options = words(&options);
                (start("varnishd", &options, port), args(port, "DIRECT".into()))
            }
            Self::Nginx | Self::NginxIgnoringCacheControl => {
                let key = if let Self::NginxIgnoringCacheControl = self {
                    "proxy_cache_key $uri; proxy_ignore_headers Cache-Control Expires;"
                } else {
                    ""
                };
                let config = format!(
                    "daemon off; user root; pid {dir}/cache.pid; error_log {dir}/cache-error.log; events {{}}\n\
                     http {{ access_log off; proxy_cache_path {dir}/kept keys_zone=kept:1m;\n\
                     client_body_temp_path {dir}/t; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/t; uwsgi_temp_path {dir}/t; scgi_temp_path {dir}/t;\n\
                     server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{origin}; proxy_cache kept; proxy_cache_valid 200 1h; {key} }} }} }}\n"
                );
                let config = if crate::test_site::is_root() {
                    config
                } else {
                    config.replace("user root;", "")
                };
                site.write("cache.conf", config);
                (
                    start("nginx", &["-c", &format!("{dir}/cache.conf")], port),
                    args(port, "DIRECT".into()),
                )
            }
        }
    }
}

pub(crate) fn serve(site: &TestSite, port: u16, more: &[&str]) -> Replica {
    let listen = format!("127.0.0.1:{port}");
    Replica::start(
        site.command(
            [&["serve", "--listen", &listen, "--metrics", "127.0.0.1:0"][..], more].concat(),
        ),
    )
}

#[test]
#[ignore = "needs squid"]
fn pull_through_cache_works_behind_and_in_front_of_squid() {
    require_program("squid");
    let site = published();
    let (proxy_port, cache_port) = (free_port(), free_port());
    let _squid = squid(&site, proxy_port);
    let origin = site.serve();
    let (name, proxy) = (site.name(""), format!("http://127.0.0.1:{proxy_port}"));
    let hostid = name.rsplit(',').next().expect("a HOSTID").to_owned();
    let origin_url = format!("http://127.0.0.1:{}/{hostid}", origin.port());
    let behind = format!(
        "--db kept --cache-of {name} --quota 100M --only-replicas --replica {origin_url} --proxy {proxy}"
    );
    let behind = words(&behind);
    let _cache = serve(&site, cache_port, &[&behind[..], &["--refresh", "1s"]].concat());
    let url = format!("http://127.0.0.1:{cache_port}/{hostid}");
    let get = |out: &str| {
        site.run_ok(&format!(
            "get --no-cache --only-replicas --replica {url} --proxy {proxy} {name} {out}"
        ));
        site.assert_same("src", out, &[]);
    };
    get("first");
    get("second");
    // The manifest's URL changes each minute, so squid delays a revision by a minute at most.
    site.write("src/hello", "next revision\n");
    site.publish_with(&["--pack-size", "256K"]);
    let show = || {
        site.run(&format!(
            "cat --no-cache --only-replicas --replica {url} --proxy {proxy} {name}/hello"
        ))
        .stdout
    };
    within(130, "the new revision is not seen", || show() == b"next revision\n");
    get("third");
}

/// A relay to an origin that is 20 ms away.
fn far_away(port: u16, origin: u16) {
    let pump = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || {
            let mut bytes = vec![0; 256 << 10];
            while let Ok(len @ 1..) = from.read(&mut bytes) {
                std::thread::sleep(Duration::from_millis(10));
                if to.write_all(&bytes[..len]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
        });
    };
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", origin)) else { continue };
            let copies = (client.try_clone(), server.try_clone());
            let (Ok(client_too), Ok(server_too)) = copies else { continue };
            pump(client, server);
            pump(server_too, client_too);
        }
    });
}

#[test]
#[ignore = "needs haproxy, nginx, squid and varnish"]
fn default_packs_are_kept_by_each_web_cache() {
    require_programs(&["haproxy", "nginx", "squid", "varnishd"]);
    let site = TestSite::new();
    let files_len = 24 * 150_000;
    for number in 0..48 {
        let directory = if number % 2 == 0 { "even" } else { "odd" };
        site.write(&format!("src/{directory}/{number}"), noise(number, 150_000));
    }
    site.publish();
    let packs = site.count("db/packs");
    assert!(packs > 10, "{packs} packs");
    let (near, origin_port) = (free_port(), free_port());
    let _origin = nginx_with(&site, near, "");
    far_away(origin_port, near);
    for cache in [Cache::StockSquid, Cache::Varnish, Cache::Nginx, Cache::Haproxy] {
        let port = free_port();
        let (_process, by_cache) = cache.start(&site, port, origin_port, "db");
        let by_cache: Vec<&str> = by_cache.iter().map(String::as_str).collect();
        let read = |client: &str, path: &str| {
            let before = answered(&site).1;
            let (name, out) = (site.name(path), format!("{}-{client}", cache.program()));
            let get = ["get", "--no-cache", "--only-replicas"];
            site.run_ok([&get[..], &by_cache, &[&name, &out]].concat());
            site.assert_same(&format!("src{path}"), &out, &[]);
            answered(&site).1 - before
        };
        // A part of the tree, and then all of it.
        for (path, of) in [("/odd", "part"), ("", "whole")] {
            let (first, second) =
                (read(&format!("first-{of}"), path), read(&format!("second-{of}"), path));
            assert!(first <= files_len * 6 / 5, "{cache:?}: the origin sent {first} bytes");
            assert!(second <= files_len / 100, "{cache:?}: the origin sent {second} bytes again");
        }
    }
}

#[test]
#[ignore = "needs curl and squid"]
fn https_of_a_replica_works_through_squid_and_takes_new_certificates() {
    require_programs(&["squid", "curl"]);
    let mut site = published();
    let certificate = |site: &TestSite, host: &str, trusted: &str| {
        let made = rcgen::generate_simple_self_signed([host.to_owned()]).expect("a certificate");
        site.write(trusted, made.cert.pem());
        site.write("key.new", made.signing_key.serialize_pem());
        for (new, old) in [(trusted, "cert.pem"), ("key.new", "key.pem")] {
            std::fs::copy(site.path(new), site.path("new")).expect("a file");
            std::fs::rename(site.path("new"), site.path(old)).expect("a file replaced at once");
        }
    };
    certificate(&site, "localhost", "first.pem");
    let (port, proxy_port) = (free_port(), free_port());
    let _squid = squid(&site, proxy_port);
    let _replica =
        serve(&site, port, &["--db", "db", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let (name, proxy) = (site.name(""), format!("http://127.0.0.1:{proxy_port}"));
    let hostid = name.rsplit(',').next().expect("a HOSTID").to_owned();
    let url = format!("https://localhost:{port}/{hostid}");
    let args =
        ["get", "--no-cache", "--only-replicas", "--replica", &url, "--proxy", &proxy, &name];
    site.environment.push(("SSL_CERT_FILE", site.path("first.pem").display().to_string()));
    site.run_ok([&args[..], &["tunnelled"]].concat());
    site.assert_same("src", "tunnelled", &[]);

    let pack = std::fs::read_dir(site.path("db/packs"))
        .expect("packs")
        .map(|entry| entry.expect("an entry"));
    let pack = pack
        .max_by_key(|entry| entry.metadata().map_or(0, |found| found.len()))
        .expect("a pack")
        .file_name();
    let pack = pack.to_str().expect("a name").to_owned();
    let mut slow = Command::new("curl");
    slow.args(words(&format!(
        "-sS --limit-rate 60K --cacert first.pem -o slow {url}/packs/{pack}"
    )));
    let mut slow =
        slow.current_dir(site.path("")).stdin(Stdio::null()).spawn().expect("curl starts");
    let received = || std::fs::metadata(site.path("slow")).map_or(0, |found| found.len());
    within(20, "no byte of the pack arrives", || received() > 0);
    certificate(&site, "localhost", "second.pem");
    let trusts = |file: &str| {
        let page = format!("https://localhost:{port}/{hostid}/manifest");
        let mut command = Command::new("curl");
        command.args(["-s", "-o", "/dev/null", "--cacert", file, &page]).current_dir(site.path(""));
        command.status().is_ok_and(|status| status.success())
    };
    within(20, "the new certificate is not used", || trusts("second.pem"));
    assert!(!trusts("first.pem"));
    assert!(slow.wait().expect("curl ends").success(), "the connection from before was dropped");
    assert_eq!(
        std::fs::read(site.path("slow")).unwrap(),
        std::fs::read(site.path("db/packs").join(&pack)).unwrap()
    );

    site.write("key.pem", "no key\n");
    std::thread::sleep(Duration::from_millis(2500));
    assert!(trusts("second.pem"));
}
