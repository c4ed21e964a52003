//! The start of a program from a cold client, over a network that netem delays.

use std::fs;
use std::process::{Command, Stdio};

use crate::guest::{Guest, Network};
use crate::test_site::{TestSite, eventually, free_port};
use vouch_testkit::kill_on_drop::KillOnDrop;
use vouch_testkit::require;

const DIRECTORIES: usize = 31;
const FILES: usize = 620;
const REQUESTS_MAX: usize = 60;

/// As large as those of programs: from 1 to 60 kB.
fn content(file: usize) -> Vec<u8> {
    let mut state = file as u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..1000 + file * file * 7919 % 59_000).map(|_| next()).collect()
}

/// Serves the site's directory, with an access log.
fn start_nginx(site: &TestSite, address: &str, port: u16) -> KillOnDrop {
    let root = site.path("");
    let root = root.display();
    let configuration = format!(
        "daemon off; master_process off; user root; pid {root}/nginx.pid; error_log {root}/error.log; events {{}}\n\
         http {{ access_log {root}/access.log; client_body_temp_path {root}/t; proxy_temp_path {root}/t; fastcgi_temp_path {root}/t;\n\
         uwsgi_temp_path {root}/t; scgi_temp_path {root}/t; server {{ listen {address}:{port}; root {root}; }} }}\n"
    );
    site.write("nginx.conf", configuration);
    let path = site.path("nginx.conf");
    let mut command = Command::new("nginx");
    command
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .arg("-c")
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let nginx = KillOnDrop(command.spawn().expect("the program starts"));
    assert!(
        eventually(std::time::Duration::from_secs(30), || std::net::TcpStream::connect((
            address, port
        ))
        .is_ok()),
        "nginx listens"
    );
    nginx
}

#[test]
#[ignore = "needs root and guests"]
fn hundreds_of_files_need_few_requests_over_a_slow_network() {
    let network = Network::new();
    require("the package nginx", fs::exists("/usr/sbin/nginx").is_ok_and(|there| there));
    let site = TestSite::new();
    // Not the order in which the publisher stores them.
    let name = |file: usize| format!("lib/{}/file-{file}", file * 17 % DIRECTORIES);
    let order: Vec<usize> = (0..FILES).map(|n| n * 277 % FILES).collect();
    (0..FILES).for_each(|file| site.write(&format!("src/{}", name(file)), content(file)));
    site.write("order", order.iter().map(|&file| name(file) + "\n").collect::<String>());
    site.publish();
    let port = free_port();
    let _nginx = start_nginx(&site, &network.address, port);
    let replica = format!("http://{}:{port}/db", network.address);
    let guest = Guest::with_port(&network, port)
        .file(&site.path("order"))
        .set("VOUCH", env!("CARGO_BIN_EXE_vouch"));
    let out = guest.set("REPLICA", &replica).set("NAME", &site.name("")).run("netem.sh");
    let sum = Command::new("sh")
        .args(["-c", "xargs cat <../order | sha256sum"])
        .current_dir(site.path("src"))
        .output()
        .expect("a shell");
    assert!(out.contains(&format!("sum: {}", String::from_utf8_lossy(&sum.stdout))), "{out}");
    assert!(out.contains("ok: read"), "{out}");
    let requests = fs::read_to_string(site.path("access.log")).expect("a log").lines().count();
    println!("{requests} requests");
    assert!((1..=REQUESTS_MAX).contains(&requests), "{requests} requests");
}
