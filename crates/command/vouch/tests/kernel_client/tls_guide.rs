//! docs/tls.md to the letter: its authority, its configurations and its commands, with a Linux client.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::guest::{Guest, Network};
use vouch_testkit::kill_on_drop::KillOnDrop;
use vouch_testkit::{assert_contains, documented_block, free_port, within};

const PAGE: &str = include_str!("../../../../../docs/tls.md");
const SERVER: &str = "nfs.example.org";
const NODE: &str = "node7.example.org";
/// Gives the server the directories of the page, and the client's name.
const INSIDE: &str =
    r#"mount --bind "$0/srv" /srv && mount --bind "$0/hosts" /etc/hosts && exec "$@""#;

/// The commands of the block of the page that has this text.
fn commands(part: &str) -> Vec<String> {
    let block = documented_block(PAGE, part);
    block.split("$ ").filter(|command| !command.is_empty()).map(str::to_owned).collect()
}

fn run(directory: &Path, commands: &[String]) {
    for command in commands {
        let mut shell = Command::new("sh");
        let out = shell.current_dir(directory).args(["-ec", command]).stdin(Stdio::null()).output();
        let out = out.expect("sh(1)");
        assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// The authority, the server's certificate, those of two nodes, and a list that revokes the second.
fn issue(directory: &Path) {
    let all = commands("-subj '/CN=Example NFS' -keyout ca.key");
    run(directory, &all);
    for (node, file) in [(NODE, "node7."), ("node8.example.org", "node8.")] {
        let rename = |command: &String| command.replace(SERVER, node).replace("tls.", file);
        run(directory, &all[1..].iter().map(rename).collect::<Vec<_>>());
    }
    let revoke = |command: &String| command.replace("node7.pem", "node8.pem");
    run(directory, &commands("-gencrl").iter().map(revoke).collect::<Vec<_>>());
}

fn start_server(directory: &Path, network: &Network, port: u16) -> KillOnDrop {
    let here = directory.display().to_string();
    let block = documented_block(PAGE, "tls-cert = ");
    let settings: String = block
        .lines()
        .filter(|line| !line.starts_with("# "))
        .map(|line| format!("{line}\n"))
        .collect();
    let settings = settings
        .replace("/etc/vouch/clients.pem", "/etc/vouch/ca.pem")
        .replace("/etc/vouch/clients.crl", "/etc/vouch/revoked.pem")
        .replace("/etc/vouch", &here)
        .replace("/etc/exports", &format!("{here}/exports"))
        .replace("[::]:2049", &format!("{}:{port}", network.address));
    std::fs::write(directory.join("vouch.toml"), settings).expect("a file");
    let lines = documented_block(PAGE, "/srv/home");
    let without_kerberos = lines.lines().filter(|line| !line.contains("krb5"));
    let exports: String = without_kerberos.map(|line| format!("{line}\n")).collect();
    std::fs::write(directory.join("exports"), exports).expect("a file");
    let hosts = format!("127.0.0.1 localhost\n10.77.{}.2 {NODE}\n", network.index());
    std::fs::write(directory.join("hosts"), hosts).expect("a file");
    for name in ["public", "data", "home"] {
        let path = directory.join("srv").join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        std::fs::write(path.join("file"), name).expect("a file");
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", INSIDE]).arg(directory);
    command.args([env!("CARGO_BIN_EXE_vouch"), "export", "--state"]).arg(directory.join("state"));
    let server = command.env("VOUCH_CONFIG", directory.join("vouch.toml")).stdin(Stdio::null());
    let server = KillOnDrop(server.spawn().expect("unshare(1)"));
    within(30, "the server does not listen", || {
        std::net::TcpStream::connect((network.address.as_str(), port)).is_ok()
    });
    server
}

/// With VOUCH_PEERS_SUITE=sid, the newest Linux, nfs-utils and ktls-utils of Debian.
#[test]
#[ignore = "needs root and guests"]
fn linux_client_mounts_as_the_guide_says() {
    let network = Network::new();
    let directory = tempfile::tempdir().expect("a directory");
    issue(directory.path());
    let port = free_port();
    let _server = start_server(directory.path(), &network, port);
    let configuration = directory.path().join("tlshd.conf");
    let block = documented_block(PAGE, "[authenticate.client]");
    std::fs::write(&configuration, block).expect("a file");
    let mount = documented_block(PAGE, "# mount -t nfs4");
    let mount = mount.lines().find_map(|line| line.strip_prefix("# mount ")).expect("a command");
    let mut guest = Guest::with_port(&network, port)
        .newer_system()
        .names(NODE, SERVER)
        .file(&configuration)
        .set("MOUNT", &format!("mount {}", mount.replace("-o ", &format!("-o port={port},"))));
    for file in ["ca.pem", "node7.pem", "node7.key"] {
        guest = guest.file(&directory.path().join(file));
    }
    let out = guest.run("tls_guide.sh");
    println!("{out}");
    assert_contains!(out, "ok: mtls", "ok: tls without a certificate", "ok: symptoms");
}
