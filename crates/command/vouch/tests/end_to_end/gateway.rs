use std::io::{Read as _, Write as _};

use vouch_testkit::certificates::self_signed;

use crate::prelude::*;
use crate::test_site::Replica;

pub(crate) struct Gateway {
    child: KillOnDrop,
    pub(crate) address: String,
    pub(crate) page: String,
}

impl Gateway {
    pub(crate) fn start(site: &TestSite, more: &[&str]) -> Gateway {
        let mut command = site.command(&format!(
            "gateway --listen 127.0.0.1:0 --metrics 127.0.0.1:0 {}",
            site.name("")
        ));
        let (child, address, page) = start_listener(command.args(more));
        Gateway { child, address, page }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        request(&self.address, method, path, headers)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[])
    }

    fn page(&self, path: &str) -> Answer {
        request(&self.page, "GET", path, &[])
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(
            Command::new("kill")
                .args([name, &self.child.id().to_string()])
                .status()
                .expect("kill starts")
                .success()
        );
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        let line = self
            .head
            .lines()
            .find(|line| line.split(':').next().is_some_and(|key| key.eq_ignore_ascii_case(name)));
        line.and_then(|line| line.split_once(": ")).map_or("", |(_, value)| value)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

pub(crate) fn request(address: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut socket = TcpStream::connect(address).expect("the gateway listens");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let lines: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    // The gateway may refuse a long request before its end.
    let head = format!("{method} {path} HTTP/1.0\r\nHost: gateway\r\n{lines}\r\n");
    socket.write_all(head.as_bytes()).expect("a request");
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).expect("an answer");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    Answer { status, head, body: bytes[end + 4..].to_vec() }
}

fn started() -> (TestSite, Replica, Gateway) {
    let site = TestSite::new();
    site.small_tree();
    site.write("src/a & b/<img src=x onerror=alert(1)>", "x");
    site.write("src/@12/file", "at sign\n");
    site.write("src/page.html", "<title>page</title><script>document.title='script ran'</script>");
    std::os::unix::fs::symlink("/etc/passwd", site.path("src/outside")).expect("a link");
    std::os::unix::fs::symlink("dir", site.path("src/folder")).expect("a link");
    site.publish_with(&["--tag", "v1"]);
    let replica = site.serve();
    let gateway = Gateway::start(&site, &["--refresh", "1s"]);
    (site, replica, gateway)
}

#[test]
fn gateway_shows_directories_files_and_revisions() {
    let (site, _replica, gateway) = started();
    let root = gateway.get("/");
    assert_eq!((root.status, root.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = root.header("content-security-policy");
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("script"),
        "{policy}"
    );
    for link in [
        "href=\"./hello\"",
        "href=\"./dir/\"",
        "href=\"./a%20%26%20b/\"",
        "href=\"./@/%4012/\"",
        "→ <bdi>dir/numbers</bdi>",
    ] {
        assert!(root.text().contains(link), "{link}: {}", root.text());
    }
    let hostile = gateway.get("/a%20%26%20b/").text();
    assert_contains!(hostile, "&lt;img src=x onerror=alert(1)&gt;"; "<img");

    assert_eq!(gateway.get("/hello").text(), "hello world\n");
    assert_eq!(gateway.get("/@/@12/file").text(), "at sign\n");
    assert_eq!(
        gateway.get("/link").body,
        std::fs::read(site.path("src/dir/numbers")).expect("a file")
    );
    assert_eq!(gateway.get("/folder/empty").status, 200);
    for (path, place) in [("/dir", "./dir/"), ("/@1", "./@1/"), ("/@1/.//dir", "../../@1/dir/")] {
        assert_eq!(
            (gateway.get(path).status, gateway.get(path).header("location")),
            (302, place),
            "{path}"
        );
    }

    site.write("src/hello", "second\n");
    site.publish();
    within(30, "the new revision is not shown", || gateway.get("/hello").text() == "second\n");
    for old in ["/@1/hello", "/@tag:v1/hello"] {
        assert_eq!(gateway.get(old).text(), "hello world\n", "{old}");
    }
    assert!(gateway.get("/@1/hello").header("cache-control").starts_with("public, max-age="));
    assert_eq!(gateway.get("/hello").header("cache-control"), "no-cache");
    assert!(
        gateway.get("/@1/dir/").text().contains("href=\"../../dir/\""),
        "a link to the newest revision"
    );
    let revisions = gateway.get("/@revisions?format=json").json();
    assert_eq!(
        (&revisions["revisions"][0]["revision"], &revisions["revisions"][1]["tag"]),
        (&2.into(), &"v1".into())
    );
}

#[test]
fn gateway_answers_programs_with_json() {
    let (site, _replica, gateway) = started();
    for number in 0..2500 {
        site.write(&format!("src/many/{number:04}"), "");
    }
    site.publish();
    let by_header = gateway.request("GET", "/dir/", &[("Accept", "application/json")]).json();
    assert_eq!(by_header["name"], "dir");
    assert_eq!(by_header["entries"][1]["name"], "numbers");
    assert_eq!(by_header["entries"][1]["size"], 288_890);
    within(30, "the new revision is not shown", || gateway.get("/many/?format=json").status == 200);
    let many = gateway.get("/many/?format=json").json();
    let names: Vec<_> = many["entries"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| entry["name"].as_str().expect("text"))
        .collect();
    assert!(names.len() == 2500 && names.is_sorted(), "{} names", names.len());
    let rest = gateway.get("/many/?format=json&after=2497").json();
    assert_eq!(rest["entries"].as_array().map(Vec::len), Some(2));
    let first = gateway.get("/many/").text();
    assert!(
        first.matches("<tr>").count() == 1001 && first.contains("href=\"./?after=0999\""),
        "{}",
        first.matches("<tr>").count()
    );
    assert!(gateway.get("/many/?after=1999").text().contains("here 2,001 to 2,500"));

    let file = gateway.get("/hello?format=json").json();
    assert_eq!((&file["name"], &file["file"]["size"]), (&"hello".into(), &12.into()));
    assert_eq!(file["etag"], gateway.get("/hello").header("etag"));
    let missing = gateway.request("GET", "/nothing", &[("Accept", "application/json")]);
    assert_eq!((missing.status, &missing.json()["status"]), (404, &404.into()));
}

#[test]
fn unchanged_files_are_not_sent_again() {
    let (site, _replica, gateway) = started();
    let file = gateway.get("/dir/numbers");
    let (etag, bytes) = (file.header("etag").to_owned(), file.body.clone());
    assert_eq!(gateway.get("/link").header("etag"), etag, "the tag follows content, not names");
    let head = gateway.request("HEAD", "/dir/numbers", &[]);
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "288890", 0));
    assert_eq!(gateway.request("GET", "/dir/numbers", &[("If-None-Match", &etag)]).status, 304);
    assert_eq!(gateway.request("GET", "/dir/numbers", &[("If-Match", "\"other\"")]).status, 412);

    let part = gateway.request(
        "GET",
        "/dir/numbers",
        &[("Range", "bytes=131070-131080"), ("If-Range", &etag)],
    );
    assert_eq!(
        (part.status, part.header("content-range"), &part.body[..]),
        (206, "bytes 131070-131080/288890", &bytes[131_070..=131_080])
    );
    let parts = gateway.request("GET", "/dir/numbers", &[("Range", "bytes=0-1,-2")]);
    assert_eq!(parts.status, 206);
    assert_eq!(parts.header("content-length"), parts.body.len().to_string());
    let text = parts.text();
    assert_contains!(
        text,
        "Content-Range: bytes 0-1/288890\r\n\r\n0\n\r\n",
        "bytes 288888-288889/288890\r\n\r\n9\n\r\n"
    );
    let past = gateway.request("GET", "/dir/numbers", &[("Range", "bytes=288890-")]);
    assert_eq!((past.status, past.header("content-range")), (416, "bytes */288890"));

    let list = gateway.get("/").header("etag").to_owned();
    site.write("src/dir/numbers", bytes.iter().rev().copied().collect::<Vec<u8>>());
    let numbers =
        std::fs::File::options().write(true).open(site.path("src/dir/numbers")).expect("a file");
    numbers
        .set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
        .expect("its time");
    site.publish_with(&["--rehash"]);
    within(30, "the new revision is not shown", || {
        gateway.request("GET", "/dir/numbers", &[("If-None-Match", &etag)]).status != 304
    });
    let date = "Sun, 09 Sep 2001 01:46:40 GMT";
    for stale in [&etag[..], date] {
        let whole =
            gateway.request("GET", "/dir/numbers", &[("Range", "bytes=100-"), ("If-Range", stale)]);
        assert_eq!((whole.status, whole.body.len()), (200, 288_890), "{stale}");
    }
    assert_eq!(gateway.request("GET", "/dir/numbers", &[("If-Modified-Since", date)]).status, 200);
    assert_ne!(gateway.get("/").header("etag"), list);
    assert_eq!(
        gateway
            .request("GET", "/hello", &[("If-None-Match", gateway.get("/hello").header("etag"))])
            .status,
        304
    );
}

#[test]
fn paths_never_leave_the_tree() {
    let (_site, _replica, gateway) = started();
    for (path, status) in [
        ("/../etc/passwd", 400),
        ("/%2e%2e/etc/passwd", 400),
        ("/dir/..%2f..%2fetc/passwd", 400),
        ("/@1/../../etc/passwd", 400),
        ("/dir/%2E%2E/hello", 400),
        ("/hello%00.html", 400),
        ("/%zz", 400),
        ("/etc/passwd", 404),
        ("//etc/passwd", 404),
        ("/outside", 404),
        ("/..;/etc/passwd", 404),
        ("/\\..\\etc\\passwd", 404),
        ("/%c0%ae%c0%ae/etc/passwd", 404),
        ("/hello/", 404),
        ("/hello/x", 404),
        ("/@99/hello", 404),
        ("/@tag:none/hello", 404),
        ("/@none/hello", 404),
        ("http://other.example/etc/passwd", 404),
    ] {
        let answer = gateway.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(!answer.text().contains("root:"), "{path}");
    }
    assert_eq!(gateway.request("DELETE", "/hello", &[]).status, 405);
    assert_eq!(gateway.request("POST", "/hello", &[]).header("allow"), "GET, HEAD");
    assert_eq!(gateway.request("GET", &format!("/{}", "a".repeat(40_000)), &[]).status / 100, 4);
    assert_eq!(gateway.get("/hello").status, 200);
    assert_contains!(
        gateway.page("/metrics").text(),
        "vouch_gateway_responses_total{status=\"404\"} 12"
    );
}

#[test]
fn expired_tree_is_unavailable_with_its_reason() {
    let site = TestSite::new();
    site.small_tree();
    site.publish_with(&["--duration", "4s"]);
    let replica = site.serve();
    let gateway = Gateway::start(&site, &["--timeout", "2s"]);
    assert_eq!(gateway.get("/hello").status, 200);
    assert_eq!(gateway.page("/health").status, 200);
    drop(replica);
    std::thread::sleep(Duration::from_secs(5));
    for path in ["/hello", "/@1/hello", "/", "/@revisions"] {
        let answer = gateway.get(path);
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
        assert!(answer.text().starts_with("revision 1 expired on 20"), "{}", answer.text());
        assert_eq!(
            (answer.header("retry-after"), answer.header("cache-control")),
            ("10", "no-store")
        );
    }
    assert_eq!(gateway.page("/health").status, 503);
    site.publish();
    let _replica = site.serve();
    assert!(
        eventually(Duration::from_secs(30), || gateway.get("/hello").status == 200),
        "{}",
        gateway.get("/hello").text()
    );
}

#[test]
fn slow_and_greedy_clients_do_not_block_others() {
    let site = TestSite::new();
    site.small_tree();
    site.write("src/large", vec![7; 64 << 20]);
    site.publish();
    let _replica = site.serve();
    let gateway = Gateway::start(
        &site,
        &["--address-connections-max", "4", "--stall-max", "2s", "--idle-max", "2s"],
    );
    let open = || TcpStream::connect(&gateway.address).expect("the gateway listens");
    let mut held: Vec<_> = (0..4).map(|_| open()).collect();
    for socket in &mut held[..2] {
        socket.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").expect("a request");
    }
    held[2].write_all(b"GET /la").expect("half a request");
    std::thread::sleep(Duration::from_millis(500));
    let mut refused = open();
    let _ = refused.write_all(b"GET /hello HTTP/1.0\r\n\r\n");
    let mut answer = Vec::new();
    assert!(
        refused.read_to_end(&mut answer).is_err() || answer.is_empty(),
        "a fifth connection of the address is closed"
    );
    within(20, "the held connections stay", || {
        !(gateway.page("/metrics").text().lines().any(|line| line == "vouch_connections 4"))
    });
    assert_eq!(gateway.get("/hello").text(), "hello world\n");
}

#[test]
#[ignore = "needs curl"]
fn https_uses_the_certificate_files_and_reads_them_again() {
    require_program("curl");
    let site = TestSite::published();
    let certificate = |name: &str| self_signed(&site.path(""), name);
    certificate("first.example");
    let _replica = site.serve();
    let gateway = Gateway::start(&site, &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let port = gateway.address.rsplit(':').next().expect("a port").to_owned();
    let get = |host: &str| {
        let resolve = format!("{host}:{port}:127.0.0.1");
        let url = format!("https://{host}:{port}/hello");
        let output = Command::new("curl")
            .args(["-sS", "--cacert", "cert.pem", "--resolve", &resolve, &url])
            .current_dir(site.path(""))
            .output();
        let output = output.expect("curl starts");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(get("first.example"), (true, "hello world\n".to_owned()));
    assert!(!get("second.example").0);
    for version in ["2", "1.1"] {
        let resolve = format!("first.example:{port}:127.0.0.1");
        let urls = ["hello", "dir/numbers", "missing"]
            .map(|path| format!("https://first.example:{port}/{path}"));
        let format = "%{http_version} %{http_code}\n";
        let mut command = Command::new("curl");
        command
            .args(words(&format!("-sS --http{version} --cacert cert.pem --resolve {resolve} -Z")));
        command
            .args(["-w", format])
            .args(urls.iter().flat_map(|url| ["-o", "/dev/null", url]))
            .current_dir(site.path(""));
        let shown =
            String::from_utf8_lossy(&command.output().expect("curl starts").stdout).into_owned();
        let mut lines: Vec<_> = shown.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["200", "200", "404"].map(|status| format!("{version} {status}")));
    }
    certificate("second.example");
    gateway.signal("-HUP");
    within(20, "the new certificate is not used", || get("second.example").0);
    site.expect_err(
        3,
        &format!(
            "gateway {} --listen 127.0.0.1:0 --tls-cert key.pem --tls-key key.pem",
            site.name("")
        ),
        &["no certificate in PEM format"],
    );
}
