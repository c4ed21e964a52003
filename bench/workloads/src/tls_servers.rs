//! Servers over TLS with one certificate: `vouch export` and nginx.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vouch_testkit::certificates::{Authority, Holder};

use vouch_bench::target::TlsFiles;

use crate::OrExit as _;
use crate::servers::{Server, free_port};

/// Files of an authority, a server and a client: ECDSA with P-256.
#[derive(Debug)]
pub struct Certificates {
    files: tempfile::TempDir,
}

impl Certificates {
    pub fn new() -> Self {
        let files = tempfile::tempdir().or_exit("make a directory for certificates");
        let authority = Authority::new(files.path(), "ca");
        for name in ["server", "client"] {
            authority.issue(name, Holder::on_loopback());
        }
        Self { files }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// What a client needs that shows a certificate.
    pub fn client(&self) -> TlsFiles {
        TlsFiles {
            authorities: self.path("ca.pem"),
            certificate: Some((self.path("client.pem"), self.path("client.key"))),
            name: None,
        }
    }

    /// Options of `vouch export`.
    pub(crate) fn give(&self, command: &mut Command) {
        for (option, name) in [
            ("--tls-cert", "server.pem"),
            ("--tls-key", "server.key"),
            ("--tls-client-ca", "ca.pem"),
        ] {
            command.arg(option).arg(self.path(name));
        }
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// Starts `vouch export` that asks clients for certificates.
    pub fn vouch_over_tls(program: &Path, certificates: &Certificates) -> Self {
        let files = tempfile::tempdir().or_exit("make a directory for vouch");
        let port = free_port();
        let shared = files.path().join("shared");
        fs::create_dir(&shared).or_exit("make a directory to export");
        let mut command = Command::new(program);
        command
            .arg("export")
            .arg("--dir")
            .arg(shared)
            .args(["--options", "rw,insecure,xprtsec=mtls"]);
        command
            .args(["--listen", &format!("0.0.0.0:{port}")])
            .arg("--state")
            .arg(files.path().join("state"));
        certificates.give(&mut command);
        command
            .stdout(Stdio::null())
            .stderr(fs::File::create(files.path().join("log")).or_exit("create a log"));
        Self::start(command, port, files)
    }

    /// Starts nginx as one process that demands certificates of clients and resumes no session.
    pub fn nginx_over_tls(certificates: &Certificates) -> Self {
        let files = tempfile::tempdir().or_exit("make a directory for nginx");
        let (dir, port) = (files.path().display(), free_port());
        let [certificate, key, authority] = ["server.pem", "server.key", "ca.pem"]
            .map(|name| certificates.path(name).display().to_string());
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let config = format!(
            "daemon off; master_process off; {user} pid {dir}/pid; error_log {dir}/log; events {{ worker_connections 10000; }}\n\
             http {{ access_log off; client_body_temp_path {dir}/t; proxy_temp_path {dir}/t; fastcgi_temp_path {dir}/t;\n\
             uwsgi_temp_path {dir}/t; scgi_temp_path {dir}/t;\n\
             server {{ listen {port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};\n\
             ssl_client_certificate {authority}; ssl_verify_client on; ssl_protocols TLSv1.3; ssl_ecdh_curve X25519;\n\
             ssl_session_cache off; ssl_session_tickets off; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;\n\
             keepalive_timeout 0; location / {{ return 204; }} }} }}\n"
        );
        let path = files.path().join("conf");
        fs::write(&path, config).or_exit("write nginx's configuration");
        let mut command = Command::new("nginx");
        command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .arg("-c")
            .arg(path)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self::start(command, port, files)
    }
}
