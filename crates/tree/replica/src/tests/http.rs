use std::fs;
use std::io::BufRead as _;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use vouch_tree::statement::{Body, KeyStatement};

use super::*;

struct Response {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }
}

fn read_response(stream: &mut impl std::io::BufRead, is_head: bool) -> Response {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert!(
            stream.read_line(&mut line).unwrap() > 0,
            "the connection ended in a head: {lines:?}"
        );
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
    let fields = lines[1..].iter().map(|line| line.split_once(": ").unwrap());
    let fields: Vec<_> =
        fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let mut response = Response { status, fields, body: Vec::new() };
    if !is_head && status != 304 {
        response.body = vec![0; response.field("content-length").parse().unwrap()];
        stream.read_exact(&mut response.body).unwrap();
    }
    response
}

fn ask(address: SocketAddr, request: &str) -> Response {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(socket, "{request}\r\n").unwrap();
    read_response(&mut io::BufReader::new(socket), request.starts_with("HEAD"))
}

fn get(server: &Running, path: &str, fields: &str) -> Response {
    ask(server.address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n{fields}"))
}

fn files(made: &TestTree) -> Vec<String> {
    let list = |dir: &str| {
        let entries = fs::read_dir(made.path().join(dir)).unwrap();
        entries
            .map(|entry| format!("{dir}/{}", entry.unwrap().file_name().to_str().unwrap()))
            .collect::<Vec<_>>()
    };
    [list("packs"), list("index")].concat()
}

#[test]
fn files_of_the_database_are_served_as_by_a_web_server() {
    let made = TestTree::new(1);
    made.commit(1, 60);
    let server = serve(&made);
    for base in ["", &format!("/{}", hostid(1))] {
        let manifest = get(&server, &format!("{base}/manifest?at=77"), "");
        assert_eq!(
            (manifest.status, manifest.body),
            (200, fs::read(made.path().join("manifest")).unwrap())
        );
        for name in files(&made) {
            let whole = fs::read(made.path().join(&name)).unwrap();
            let path = format!("{base}/{name}");
            let found = get(&server, &path, "");
            assert!((found.status, &found.body) == (200, &whole), "{path}");
            assert!(
                found.field("cache-control").contains("immutable")
                    && found.field("date").ends_with("GMT")
            );
            let part = get(&server, &path, "Range: bytes=7-99\r\n");
            assert_eq!((part.status, &part.body[..]), (206, &whole[7..100]));
            assert_eq!(part.field("content-range"), format!("bytes 7-99/{}", whole.len()));
            let head = ask(server.address, &format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n"));
            assert_eq!(
                (head.status, head.field("content-length")),
                (200, &*whole.len().to_string())
            );
        }
    }
    for path in [
        "/",
        "/lock",
        "/packs/../manifest",
        "/packs/d-00000009.pack",
        "/packs/m-1.pack",
        &format!("/{}/manifest", hostid(2)),
    ] {
        assert_eq!(get(&server, path, "").status, 404, "{path}");
    }
    assert!(server.metric("vouch_requests_total{procedure=\"http\",result=\"ok\"}") > 4);
}

#[test]
fn conditions_and_ranges_are_honoured() {
    let made = TestTree::new(1);
    made.commit(1, 60);
    let server = serve(&made);
    let manifest = get(&server, "/manifest", "");
    let tag = manifest.field("etag").to_owned();
    assert!(manifest.field("cache-control").contains("max-age=30"));
    let same = get(&server, "/manifest", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((same.status, same.field("etag")), (304, &*tag));
    let pack = format!("/{}", files(&made)[0]);
    let len = get(&server, &pack, "").body.len();
    let beyond = get(&server, &pack, &format!("Range: bytes={len}-\r\n"));
    assert_eq!((beyond.status, beyond.field("content-range")), (416, &*format!("bytes */{len}")));
    assert_eq!(get(&server, &pack, "Range: bytes=0-1\r\nIf-Range: \"other\"\r\n").status, 200);
    made.commit(2, 60);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(get(&server, "/manifest", &format!("If-None-Match: {tag}\r\n")).status, 200);
}

#[test]
fn connections_persist_and_end_as_requested() {
    let made = TestTree::new(1);
    made.commit(1, 60);
    let server = serve(&made);
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let requests = "HEAD /manifest HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\nGET /manifest HTTP/1.0\r\n\r\n";
    socket.write_all(requests.as_bytes()).unwrap();
    let mut stream = io::BufReader::new(socket);
    assert_eq!(
        [true, false, false].map(|is_head| read_response(&mut stream, is_head).status),
        [200, 404, 200]
    );
    assert_eq!(stream.fill_buf().unwrap(), b"", "HTTP/1.0 ends with its response");
    for (request, status) in [
        ("POST /manifest HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("GET /manifest HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 400),
        ("GARBAGE\r\n", 400),
        ("GET /manifest HTTP/2.0\r\n", 400),
    ] {
        let response = ask(server.address, request);
        assert_eq!((response.status, response.field("connection")), (status, "close"), "{request}");
    }
}

#[test]
fn received_statements_are_in_the_manifest() {
    let made = TestTree::new(1);
    made.commit(1, 60);
    let dir = tempfile::tempdir().unwrap();
    let statement = KeyStatement::issue(
        &SecretKey::from_seed(&[1; 32]),
        5,
        Body::Revocation { reason: "lost".into() },
    );
    fs::write(dir.path().join(format!("{}.revocation", hostid(1))), statement.to_text()).unwrap();
    let server =
        start(ServeConfig { statements: Some(dir.path().into()), ..config(vec![made.path()]) });
    let manifest = get(&server, "/manifest", "").body;
    let view = vouch_tree_store::RemoteView::parse(&manifest).unwrap();
    assert_eq!(view.statements(), [statement.to_xdr()]);
}

#[test]
fn https_serves_the_same_files_beside_clear_text() {
    let made = TestTree::new(1);
    made.commit(1, 60);
    let dir = tempfile::tempdir().unwrap();
    vouch_testkit::certificates::self_signed(dir.path(), "localhost");
    let files_of_tls =
        TlsFiles { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    let server =
        start(ServeConfig { tls: Some(files_of_tls.clone()), ..config(vec![made.path()]) });

    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files_of_tls.certificate).unwrap()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(vouch_tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls =
        rustls::ClientConnection::new(Arc::new(client), ServerName::try_from("localhost").unwrap())
            .unwrap();
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut stream = io::BufReader::new(rustls::StreamOwned::new(tls, socket));
    for _ in 0..3 {
        for name in files(&made) {
            write!(stream.get_mut(), "GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let found = read_response(&mut stream, false);
            assert!(
                (found.status, found.body) == (200, fs::read(made.path().join(&name)).unwrap()),
                "{name}"
            );
        }
    }
    assert_eq!(get(&server, "/manifest", "").status, 200);
    assert!(server.connect().fsinfo(hostid(1), false).is_some());

    let mut broken = server.connect();
    broken.send(b"\x16\x03\x01\x00\x05hello");
    let mut rest = Vec::new();
    let _ = broken.socket.read_to_end(&mut rest);
}

#[test]
fn certificate_files_that_do_not_fit_are_refused() {
    let made = TestTree::new(1);
    let dir = tempfile::tempdir().unwrap();
    let files =
        TlsFiles { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    let open = || {
        Server::open(ServeConfig { tls: Some(files.clone()), ..config(vec![made.path()]) })
            .err()
            .unwrap()
            .to_string()
    };
    assert!(open().contains("cert.pem"));
    fs::write(&files.certificate, "nothing").unwrap();
    assert!(open().contains("contains no certificate"), "{}", open());
}
