//! Commands for the running server of exports.

use crate::prelude::*;

fn order(site: &TestSite, args: &str) -> (Option<i32>, String) {
    let output = site.run([words(args), vec!["--state", "exporting"]].concat());
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn done(site: &TestSite, args: &str) -> String {
    let (code, text) = order(site, args);
    assert_eq!(code, Some(0), "{args}: {text}");
    text
}

async fn walk(address: SocketAddr, client: &str, path: &str) -> Result<(), Error> {
    let client = connect(address, 1, client, 0).await?;
    client.walk(path.as_bytes()).await.map(drop)
}

#[tokio::test]
async fn exports_are_added_kept_and_removed_and_audited() {
    let site = TestSite::with_directories(&["listed", "kept", "temporary"]);
    site.write("exports", format!("{} *(rw,insecure)\n", site.path("listed").display()));
    site.write("kept/file", "1");
    let [listed, kept, temporary] =
        ["listed", "kept", "temporary"].map(|name| site.path(name).display().to_string());
    site.run_ok("audit keygen trail");
    let args = ["--exports", "exports", "--audit", "trail"];
    let mut export = Export::start(&site, &args);
    done(&site, &format!("export add --keep {kept} *(ro,insecure)"));
    done(&site, &format!("export add {temporary} *(rw,insecure)"));
    walk(export.address, "a", &format!("{kept}/file")).await.expect("it is exported");
    let list = done(&site, "export list");
    for (path, origin) in [(&listed, "list"), (&kept, "kept"), (&temporary, "temporary")] {
        let mut lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert!(lines.any(|line| line[0] == *path && line[2] == origin), "{list}");
    }
    // `kill -9` right after the command loses nothing that was to be kept.
    signal("KILL", export.child.id());
    eventually(Duration::from_secs(10), || export.child.try_wait().is_ok_and(|end| end.is_some()));
    let export = Export::start(&site, &args);
    let list = done(&site, "export list");
    assert!(list.contains(&kept) && !list.contains(&temporary), "{list}");
    let checked = done(&site, "export check --exports exports");
    assert!(checked.contains(&kept), "{checked}");
    done(&site, &format!("export set --keep {kept} 192.0.2.1(ro)"));
    assert!(walk(export.address, "b", &kept).await.is_err(), "the client lost its access");
    let (code, text) = order(&site, &format!("export remove {kept}-none"));
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("is not exported"), "{text}");
    let (code, text) = order(&site, &format!("export add {temporary} *(no_such_option)"));
    assert_eq!(code, Some(3), "{text}");
    done(&site, &format!("export remove --keep {kept}"));
    done(&site, "export drain");
    assert!(done(&site, "export status").contains("draining"));
    done(&site, "export drain --cancel");

    let orders = || {
        let found = site.run_ok("audit search trail --class administrative --json");
        let lines = found.lines().filter(|line| line.contains("\"managed\""));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(eventually(Duration::from_secs(30), || orders().len() == 8), "{:#?}", orders());
    assert!(orders()[0].contains("export add --keep"), "{:#?}", orders());
    let refused = orders().iter().filter(|order| order.contains("\"failure\"")).count();
    assert_eq!(refused, 2, "{:#?}", orders());
}

/// HAProxy connects from 127.0.0.2, with the header and without.
#[tokio::test]
#[ignore = "needs haproxy"]
async fn clients_behind_a_balancer_keep_their_address() {
    require_program("haproxy");
    let site = TestSite::with_directories(&["data"]);
    let data = site.path("data").display().to_string();
    site.write("exports", format!("{data} 127.0.0.1(rw,insecure)\n"));
    let export = Export::start(&site, &["--exports", "exports", "--proxy-from", "127.0.0.2/31"]);
    let (with, without) = (free_port(), free_port());
    let listen = |name: &str, port: u16, options: &str| {
        let server = export.address;
        format!(
            "listen {name}\n    bind 127.0.0.1:{port}\n    server vouch {server} source 127.0.0.2 {options}\n"
        )
    };
    let timeouts =
        "defaults\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n";
    let config =
        [timeouts, &listen("with", with, "send-proxy-v2"), &listen("without", without, "")];
    site.write("haproxy.cfg", config.concat());
    let mut haproxy = Command::new("haproxy");
    haproxy.args(["-db", "-f"]).arg(site.path("haproxy.cfg"));
    let _haproxy = KillOnDrop(haproxy.spawn().expect("haproxy starts"));
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    assert!(eventually(Duration::from_secs(30), || TcpStream::connect(at(without)).is_ok()));
    let behind = connect(at(with), 1, "behind", 0).await.expect("the header is taken");
    behind.walk(data.as_bytes()).await.expect("the client's own address has access");
    let status = site.run_ok("export status --json --state exporting");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let address = status["clients"][0]["address"].as_str();
    assert!(address.is_some_and(|address| address.starts_with("127.0.0.1:")), "{status}");
    // A connection of the balancer without a header, and one of a client with access.
    let refused = tokio::time::timeout(WAIT_MAX, walk(at(without), "bare", &data)).await;
    assert!(!matches!(refused, Ok(Ok(()))), "no header, no service");
    walk(export.address, "direct", &data).await.expect("other connections have no header");
}

const WAIT_MAX: Duration = Duration::from_secs(10);

/// A user's own directory of sockets has a link that looks like one more server.
#[test]
#[ignore = "needs root"]
fn other_users_keep_no_order_from_the_server() {
    require("root", is_root());
    let mut site = TestSite::with_directories(&["data", "run", "run/joe"]);
    site.environment.push(("VOUCH_RUNTIME_DIR", site.path("run").display().to_string()));
    let export = Export::start(&site, &["--dir", "data", "--options", "rw,insecure"]);
    let server = site.path(format!("run/export-{}.sock", export.child.id()));
    assert!(eventually(Duration::from_secs(10), || server.exists()), "no {}", server.display());
    let link = site.path("run/joe/export-1.sock");
    std::os::unix::fs::symlink(&server, &link).expect("a link");
    std::os::unix::fs::lchown(&link, Some(65534), None).expect("root");
    for args in ["export list", "export reload"] {
        let output = site.run(words(args));
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
