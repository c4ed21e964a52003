//! NFS servers under test, as child processes: `vouch export` and NFS-Ganesha.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vouch_bench::cpu::ServerCpu;

use crate::OrExit as _;
use crate::realm::{self, Realm};
use crate::tls_servers::Certificates;

pub const EXPORT: &str = "export";

const START_S_MAX: u64 = 10;

/// Realm and certificates of a run. A run without Kerberos, or without TLS, has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Proofs<'a> {
    pub realm: Option<&'a Realm>,
    pub certificates: Option<&'a Certificates>,
}

/// Dropping it ends the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pub port: u16,
    _files: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl Server {
    /// With `sync`, replies wait until names and attributes are on disk. With `audited`, an audit
    /// trail records every operation.
    pub fn vouch(
        program: &Path,
        directory: &Path,
        sync: bool,
        proofs: Proofs<'_>,
        audited: bool,
    ) -> Self {
        let files = tempfile::tempdir().or_exit("make a directory for vouch");
        let port = free_port();
        let mut command = Command::new(program);
        command.arg("export").arg("--dir").arg(directory).args(["--pseudo", &format!("/{EXPORT}")]);
        command.args(["--listen", &format!("0.0.0.0:{port}"), "--options"]);
        command.arg(format!(
            "rw,no_root_squash,insecure,{}sec=krb5p:krb5i:krb5:sys",
            if sync { "" } else { "async," }
        ));
        if let Some(realm) = proofs.realm {
            command
                .envs(realm.environment())
                .arg("--keytab")
                .arg(realm.service_keytab())
                .arg("--idmap")
                .arg(realm.idmap());
        }
        if let Some(certificates) = proofs.certificates {
            certificates.give(&mut command);
        }
        if audited {
            let trail = files.path().join("trail");
            let made = Command::new(program)
                .args(["audit", "keygen"])
                .arg(&trail)
                .stdout(Stdio::null())
                .status();
            assert!(
                made.or_exit("run vouch audit keygen").success(),
                "vouch audit keygen makes a trail"
            );
            command.arg("--audit").arg(trail);
        }
        // No client has state to reclaim. The shortest lease gives the shortest grace period.
        command.arg("--state").arg(files.path().join("state")).args(["--lease", "10"]);
        command
            .stdout(Stdio::null())
            .stderr(fs::File::create(files.path().join("log")).or_exit("create a log"));
        Self::start(command, port, files)
    }

    /// NFS-Ganesha 15. 0 `threads` are its default, which is high for a machine with few cores.
    pub fn ganesha(directory: &Path, threads: usize, proofs: Proofs<'_>) -> Self {
        let files = tempfile::tempdir().or_exit("make a directory for Ganesha");
        let (dir, port) = (files.path().display().to_string(), free_port());
        let (kerberos, flavours, owners) = match proofs.realm {
            Some(realm) => {
                let (principal, keytab) =
                    (realm::HOST_BASED, realm.service_keytab().display().to_string());
                (
                    format!(
                        "PrincipalName = \"{principal}\"; KeytabPath = {keytab}; CCacheDir = {dir}; Active_krb5 = true;"
                    ),
                    "sys,krb5,krb5i,krb5p",
                    format!(
                        "DomainName = \"{}\"; UseGetpwnam = false; IdmapConf = \"{}\";",
                        realm::DOMAIN,
                        realm.idmap().display()
                    ),
                )
            }
            None => ("Active_krb5 = false;".into(), "sys", String::new()),
        };
        let threads = match threads {
            0 => String::new(),
            _ => format!("RPC_Ioq_ThrdMax = {threads};"),
        };
        let tls = proofs.certificates.map(|certificates| {
            let [authority, certificate, key] = ["ca.pem", "server.pem", "server.key"]
                .map(|name| certificates.path(name).display().to_string());
            format!(
                "TLS_CONFIG {{ Enable_TLS = true; TLS_CA_File = {authority}; TLS_Cert_File = {certificate}; TLS_Key_File = {key}; }}\n"
            )
        });
        let config = format!(
            "NFS_CORE_PARAM {{ NFS_Port = {port}; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; \
             Bind_addr = 0.0.0.0; mount_path_pseudo = true; {threads} \
             allow_set_io_flusher_fail = true; }}\n\
             NFSv4 {{ Graceless = true; RecoveryRoot = \"{dir}/state\"; Minor_Versions = 0,1,2; Allow_Numeric_Owners = true; \
             Only_Numeric_Owners = true; {owners} }}\n\
             NFS_KRB5 {{ {kerberos} }}\n{}\
             EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /{EXPORT}; Access_Type = RW; Squash = No_Root_Squash; SecType = {flavours}; \
             Protocols = 4; Transports = TCP; FSAL {{ Name = VFS; }} }}\n\
             LOG {{ Default_Log_Level = EVENT; }}\n",
            tls.unwrap_or_default(),
            directory.display()
        );
        fs::write(files.path().join("conf"), config).or_exit("write Ganesha's configuration");
        fs::create_dir(files.path().join("state")).or_exit("make Ganesha's state directory");
        let mut command = Command::new("ganesha.nfsd");
        command.envs(proofs.realm.map(Realm::environment).unwrap_or_default());
        command.arg("-F").args([
            "-f",
            &format!("{dir}/conf"),
            "-L",
            &format!("{dir}/log"),
            "-p",
            &format!("{dir}/pid"),
            "-N",
            "EVENT",
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self::start(command, port, files)
    }

    pub(crate) fn start(mut command: Command, port: u16, files: tempfile::TempDir) -> Self {
        let name = format!("start {:?}", command.get_program());
        let child = command.stdin(Stdio::null()).spawn().or_exit(&name);
        let mut server = Self { child, port, _files: files };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if started.elapsed() > Duration::from_secs(START_S_MAX)
                || server.child.try_wait().is_ok_and(|status| status.is_some())
            {
                Err::<(), _>(format!("no answer on port {port}")).or_exit(&name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    pub fn cpu(&self) -> ServerCpu {
        ServerCpu::Process(self.child.id())
    }

    /// Resident memory, KiB.
    pub fn resident_kib(&self) -> u64 {
        resident_kib(self.child.id())
    }
}

/// 0 if unreadable.
pub fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").or_exit("find a free port");
    listener.local_addr().or_exit("find a free port").port()
}
