use vouch_testkit::certificates::self_signed;

use crate::http_replica::nginx_with;
use crate::prelude::*;

/// A replica answers requests with an absolute URL, like a proxy.
#[test]
fn proxies_of_the_environment_are_used() {
    let (mut site, _replica) = TestSite::served();
    let name = site.name("");
    let hostid = name.rsplit(',').next().expect("a HOSTID").to_owned();
    let (served, closed) =
        (format!("http://127.0.0.1:{}", site.port), format!("http://127.0.0.1:{}", free_port()));
    let args = |url: &str| {
        [
            "cat",
            "--no-cache",
            "--timeout",
            "4s",
            "--only-replicas",
            "--replica",
            &format!("{url}/{hostid}"),
            &format!("{name}/hello"),
        ]
        .map(str::to_owned)
    };
    let by_address = args(&served);
    let by_name = args("http://store.invalid");
    assert_eq!(site.run_ok(&by_address), "hello world\n");
    site.run_err(6, &by_name);

    site.environment = vec![("http_proxy", served)];
    assert_eq!(site.run_ok(&by_name), "hello world\n");

    site.environment = vec![("http_proxy", closed)];
    site.run_err(6, &by_address);
    for direct in
        ["127.0.0.1".to_owned(), "*".to_owned(), format!("other, 127.0.0.1:{}", site.port)]
    {
        site.environment.push(("no_proxy", direct));
        assert_eq!(site.run_ok(&by_address), "hello world\n");
        site.environment.pop();
    }
    site.environment.push(("no_proxy", "127.0.0.1:9".to_owned()));
    site.run_err(6, &by_address);
}

/// As in small containers.
#[test]
fn system_without_authorities_reads_over_plain_http() {
    let (mut site, _replica) = TestSite::served();
    let name = site.name("");
    let hostid = name.rsplit(',').next().expect("a HOSTID").to_owned();
    site.environment = without_authorities();
    let url = format!("http://127.0.0.1:{}/{hostid}", site.port);
    let cat = format!("cat --no-cache --only-replicas --replica {url} {name}/hello");
    assert_eq!(site.run_ok(&cat), "hello world\n");
}

fn without_authorities() -> Vec<(&'static str, String)> {
    ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| (name, "/nonexistent".into())).to_vec()
}

#[test]
#[ignore = "needs nginx"]
fn web_server_with_http2_is_asked_by_it() {
    require_program("nginx");
    let mut site = TestSite::published();
    self_signed(&site.path(""), "localhost");
    let (port, tls_port) = (free_port(), free_port());
    let root = site.path("");
    let root = root.to_str().expect("a plain path").trim_end_matches('/');
    let more = format!(
        "listen 127.0.0.1:{tls_port} ssl http2; ssl_certificate {root}/cert.pem; ssl_certificate_key {root}/key.pem;\n\
         access_log {root}/combined.log combined;"
    );
    let _server = nginx_with(&site, port, &more);
    site.environment.push(("SSL_CERT_FILE", site.path("cert.pem").display().to_string()));
    let url = format!("https://localhost:{tls_port}/db");
    site.run_ok(&format!(
        "get --no-cache --only-replicas --replica {url} --proxy DIRECT {} out",
        site.name("")
    ));
    site.assert_same("src", "out", &[]);
    let log = || std::fs::read_to_string(site.path("combined.log")).unwrap_or_default();
    assert!(eventually(Duration::from_secs(10), || log().contains("/db/packs/")), "{}", log());
    assert!(log().lines().all(|line| line.contains("HTTP/2.0\"")), "{}", log());

    site.environment = without_authorities();
    let cat = format!("cat --no-cache --only-replicas --replica {url} {}/hello", site.name(""));
    let error = site.run_err(6, &cat);
    assert_contains!(error, "install the package ca-certificates");
}
