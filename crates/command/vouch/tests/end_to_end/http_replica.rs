use crate::prelude::*;

pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

pub(crate) fn start(program: &str, args: &[&str], port: u16) -> Process {
    let mut command = Command::new(program);
    command
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = Process(command.spawn().expect("the program starts"));
    assert!(
        eventually(Duration::from_secs(30), || std::net::TcpStream::connect(("127.0.0.1", port))
            .is_ok()),
        "{program} does not listen on port {port}"
    );
    process
}

fn nginx(site: &TestSite, port: u16) -> Process {
    nginx_with(site, port, "")
}

pub(crate) fn nginx_with(site: &TestSite, port: u16, more: &str) -> Process {
    let root = site.path("");
    let root = root.to_str().expect("a plain path").trim_end_matches('/');
    let user = if is_root() { "user root;" } else { "" };
    let config = format!(
        "daemon off; {user} pid {root}/nginx.pid; error_log {root}/error.log; events {{}}\n\
         http {{ log_format bytes '$request_uri $status $body_bytes_sent'; access_log {root}/access.log bytes;\n\
         client_body_temp_path {root}/t; proxy_temp_path {root}/t; fastcgi_temp_path {root}/t; uwsgi_temp_path {root}/t; scgi_temp_path {root}/t;\n\
         server {{ listen 127.0.0.1:{port}; root {root}; {more}\n\
         location ~ /(packs|index)/ {{ add_header Cache-Control \"public, max-age=31536000, immutable\"; }}\n\
         location ~ /manifest$ {{ add_header Cache-Control \"max-age=30\"; }} }} }}\n"
    );
    site.write("nginx.conf", config);
    start("nginx", &["-c", &format!("{root}/nginx.conf")], port)
}

pub(crate) fn squid(site: &TestSite, port: u16) -> Process {
    squid_with(
        site,
        port,
        "cache_mem 64 MB\nmaximum_object_size_in_memory 8 MB\ncollapsed_forwarding on\n",
    )
}

pub(crate) fn squid_with(site: &TestSite, port: u16, more: &str) -> Process {
    let config = format!(
        "http_port 127.0.0.1:{port}\nhttp_access allow all\npid_filename none\naccess_log none\ncache_log /dev/null\ncache_store_log none\n\
         shutdown_lifetime 0 seconds\nnetdb_filename none\n{more}"
    );
    site.write("squid.conf", config);
    start("squid", &["-N", "-f", site.path("squid.conf").to_str().expect("a plain path")], port)
}

pub(crate) fn answered(site: &TestSite) -> (usize, u64) {
    std::thread::sleep(Duration::from_millis(200));
    let log = std::fs::read_to_string(site.path("access.log")).unwrap_or_default();
    (
        log.lines().count(),
        log.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum(),
    )
}

#[test]
#[ignore = "needs nginx"]
fn nginx_over_a_database_is_a_replica() {
    require_program("nginx");
    let site = TestSite::published();
    let port = free_port();
    let server = nginx(&site, port);
    let (name, url) = (site.name(""), format!("http://127.0.0.1:{port}/db"));
    let by_http = ["--only-replicas", "--replica", &url];
    let run = |args: &[&str]| site.run_ok([args, &by_http].concat());
    assert_eq!(run(&["cat", &format!("{name}/hello")]), "hello world\n");
    run(&["get", &name, "out"]);
    assert_eq!(
        std::fs::read(site.path("out/dir/numbers")).unwrap(),
        std::fs::read(site.path("src/dir/numbers")).unwrap()
    );
    run(&["verify", &name]);

    run(&["pull", &name, "--db", "mirror"]);
    site.write("src/hello", "second revision\n");
    site.publish();
    run(&["pull", &name, "--db", "mirror"]);
    assert!(
        site.run_ok(["verify", "--db", "mirror"]).contains("revision"),
        "the mirror is verified"
    );
    assert_eq!(run(&["cat", &format!("{name}/hello")]), "second revision\n");

    site.run_ok(["gc", "--db", "db", "--keep", "1"]);
    assert_eq!(run(&["cat", "--no-cache", &format!("{name}/hello")]), "second revision\n");

    let other = TestSite::published();
    site.expect_err(6, [&["ls", &other.name("")][..], &by_http].concat(), &["serves the tree"]);
    let elsewhere = format!("http://127.0.0.1:{port}/none");
    let args = ["ls", "--no-cache", "--only-replicas", "--replica", &elsewhere, &name];
    site.expect_err(6, args, &[&elsewhere, "manifest: the server answers 404 Not Found"]);
    drop(server);
    let error =
        site.run_err(6, [&["ls", "--no-cache", "--timeout", "2s", &name][..], &by_http].concat());
    assert!(error.to_lowercase().contains("connect"), "{error}");
}

#[test]
#[ignore = "needs FUSE and nginx"]
fn mirrors_named_in_the_tree_take_over_from_its_host() {
    require_program("nginx");
    let port = free_port();
    let with_mirrors = |site: &TestSite| {
        site.small_tree();
        site.write("src/.vouch-mirrors", format!("# a web server\nhttp://127.0.0.1:{port}/db\n"));
    };
    let Mounted { site, mount, replica } =
        Mounted::with_tree(&["--timeout", "5s"], &[], with_mirrors);
    let _server = nginx(&site, port);
    assert_eq!(std::fs::read(mount.path("hello")).unwrap(), b"hello world\n");
    drop(replica);
    assert_eq!(
        std::fs::read(mount.path("dir/numbers")).unwrap(),
        std::fs::read(site.path("src/dir/numbers")).unwrap()
    );
    assert!(answered(&site).0 > 0, "the mirror was asked");
}

#[test]
#[ignore = "needs nginx and squid"]
fn clients_behind_one_squid_cost_the_origin_one_client() {
    require_programs(&["nginx", "squid"]);
    let site = TestSite::new();
    site.small_tree();
    for number in 0..60 {
        site.write(&format!("src/noise/{number}"), noise(number, 50_000));
    }
    site.publish_with(&["--pack-size", "256K"]);
    let (port, proxy_port) = (free_port(), free_port());
    let _server = nginx(&site, port);
    let (name, url, proxy) = (
        site.name(""),
        format!("http://127.0.0.1:{port}/db"),
        format!("http://127.0.0.1:{proxy_port}"),
    );
    let get = |client: &str, proxies: &[&str]| {
        let mut args =
            vec!["get", "--no-cache", "--only-replicas", "--replica", &url, &name, client];
        proxies.iter().for_each(|proxy| args.extend(["--proxy", proxy]));
        site.run_ok(args);
        assert_eq!(
            std::fs::read(site.path(client).join("noise/7")).unwrap(),
            std::fs::read(site.path("src/noise/7")).unwrap()
        );
    };
    get("direct", &["DIRECT"]);
    let (_, one) = answered(&site);
    let cache = squid(&site, proxy_port);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (get, proxy) = (&get, &proxy);
            scope.spawn(move || get(&format!("client{number}"), &[proxy]));
        }
    });
    let (_, all) = answered(&site);
    assert!(
        all - one <= one + one / 10,
        "8 clients cost the origin {} bytes, one {one}",
        all - one
    );

    drop(cache);
    get("without", &[&proxy, "DIRECT"]);
    assert!(answered(&site).1 >= all + one * 9 / 10, "read from the origin");
}
