//! Servers as child processes: started, waited for, their CPU and memory read, and ended with the
//! value that holds them.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::OrStop as _;

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it answers; on all loopback addresses.
    pub port: u16,
    /// Configuration and the like that it needs while it runs.
    _files: Option<tempfile::TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts `command`, which must answer at `port` soon.
    pub fn start(mut command: Command, port: u16, files: Option<tempfile::TempDir>) -> Self {
        let name = format!("{:?}", command.get_program());
        let child = command.stdin(Stdio::null()).spawn().or_stop(&name);
        let mut server = Self { child, port, _files: files };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if start.elapsed() > Duration::from_secs(10) || server.child.try_wait().is_ok_and(|status| status.is_some()) {
                Err::<(), _>("does not answer").or_stop(&name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// `vouch serve` over a database.
    pub fn vouch(program: &Path, database: &Path, threads: usize) -> Self {
        let port = free_port();
        let mut command = Command::new(program);
        command.arg("serve").arg("--db").arg(database).args(["--listen", &format!("0.0.0.0:{port}"), "--threads", &threads.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self::start(command, port, None)
    }

    /// nginx with two workers over some small files, without logs and else as Debian configures it;
    /// with TLS 1.3 only or with connections that serve several requests if so wanted.
    pub fn nginx(contents: &[(&str, &[u8])], tls: bool, keep_alive: bool) -> Self {
        let files = tempfile::tempdir().or_stop("a directory for nginx");
        let (port, dir) = (free_port(), files.path().display().to_string());
        fs::create_dir(files.path().join("www")).or_stop("www");
        for (name, content) in contents {
            fs::write(files.path().join("www").join(name), content).or_stop(name);
        }
        // nginx's workers run as another user when it is started by root.
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o755)).or_stop("nginx's directory");
        let mut listen = format!("listen 0.0.0.0:{port} backlog=4096;");
        if tls {
            let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost";
            let mut openssl = Command::new("openssl");
            openssl.args(request.split(' ')).arg("-keyout").arg(files.path().join("key")).arg("-out").arg(files.path().join("cert"));
            let made = openssl.stderr(Stdio::null()).status().or_stop("openssl");
            assert!(made.success(), "openssl makes a certificate");
            listen = format!(
                "listen 0.0.0.0:{port} ssl backlog=4096; ssl_certificate {dir}/cert; ssl_certificate_key {dir}/key; ssl_protocols TLSv1.3;"
            );
        }
        let keep_alive = if keep_alive { 65 } else { 0 };
        let config = format!(
            "worker_processes 2; daemon off; pid {dir}/pid; error_log /dev/null;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; sendfile on; tcp_nopush on; keepalive_timeout {keep_alive};\n\
             client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c; uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;\n\
             server {{ {listen} root {dir}/www; }} }}\n"
        );
        fs::write(files.path().join("conf"), config).or_stop("nginx's configuration");
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(files.path().join("conf")).stderr(Stdio::null());
        Self::start(command, port, Some(files))
    }

    /// Loopback addresses that all lead to the server: so many that ports in TIME_WAIT never run
    /// out.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        (1..=32).map(|i| SocketAddr::from(([127, 0, 0, i], self.port))).collect()
    }

    /// CPU time of the process and its children that live now.
    pub fn cpu(&self) -> Duration {
        let pid = self.child.id();
        Duration::from_nanos(family(pid).into_iter().map(cpu_ns).sum())
    }

    /// CPU time of the process and all threads that it has had, to the hundredth of a second.
    pub fn cpu_ever(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // What follows the name, which may hold anything: state is the 3rd field, utime and stime are the
        // 14th and 15th (proc(5)).
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        Duration::from_millis((ticks(11) + ticks(12)) * 10)
    }

    /// Resident memory of the process, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }
}

/// A port that nothing listens on.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").or_stop("a free port");
    listener.local_addr().or_stop("a free port").port()
}

fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    std::iter::once(pid).chain(children.split_whitespace().filter_map(|child| child.parse().ok())).collect()
}

/// Time on a CPU of all threads, by the scheduler's own count.
fn cpu_ns(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok();
    tasks.flatten().filter_map(of_task).sum()
}
