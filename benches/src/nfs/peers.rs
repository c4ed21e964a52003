//! The two servers of live exports: `vouch export` and NFS-Ganesha, of the same directory, under
//! the same name.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use vouch_audit::keys::Ratchet;
use vouch_audit::trail::{KEY, SystemDisk, create};

use crate::OrStop as _;
use crate::nfs::kerberos::{self, Realm};
use crate::process::{Server, free_port};

/// Name of the export in both servers' pseudo file systems.
pub const EXPORT: &str = "export";

/// `vouch export` of `directory`, with its state in a directory of its own. `sync`: replies wait
/// until names and attributes are on the disk. `trail`: every operation is recorded in this trail,
/// which is gone on with or begun.
pub fn vouch(program: &Path, directory: &Path, port: Option<u16>, sync: bool, realm: Option<&Realm>, trail: Option<&Path>) -> Server {
    let files = tempfile::tempdir().or_stop("a directory for vouch");
    let port = port.unwrap_or_else(free_port);
    let mut command = Command::new(program);
    command.arg("export").arg("--dir").arg(directory).args(["--pseudo", &format!("/{EXPORT}")]);
    command.args(["--listen", &format!("0.0.0.0:{port}"), "--options"]);
    command.arg(format!("rw,no_root_squash,insecure,{}sec=krb5p:krb5i:krb5:sys", if sync { "" } else { "async," }));
    if let Some(realm) = realm {
        command.envs(realm.environment()).arg("--keytab").arg(realm.service_keytab()).arg("--idmap").arg(realm.idmap());
    }
    if let Some(trail) = trail {
        if !trail.join(KEY).exists() {
            fs::create_dir_all(trail).or_stop(trail.display());
            create(&SystemDisk, &trail.join(KEY), &Ratchet::new([1; 16], &[2; 32])).or_stop("the trail's key");
        }
        command.arg("--audit").arg(trail);
    }
    // Nobody has anything to reclaim: the shortest lease is the shortest grace.
    command.arg("--state").arg(files.path().join("state")).args(["--lease", "10"]);
    command.stdout(Stdio::null()).stderr(fs::File::create(files.path().join("log")).or_stop("vouch's log"));
    Server::start(command, port, Some(files))
}

/// NFS-Ganesha of `directory` with so many worker threads: its own default is too many for few
/// cores.
pub fn ganesha(directory: &Path, port: Option<u16>, threads: usize, realm: Option<&Realm>) -> Server {
    let files = tempfile::tempdir().or_stop("a directory for Ganesha");
    let (dir, port) = (files.path().display().to_string(), port.unwrap_or_else(free_port));
    let (kerberos, flavours, owners) = match realm {
        Some(realm) => {
            let (principal, keytab) = (kerberos::HOST_BASED, realm.service_keytab().display().to_string());
            (
                format!("PrincipalName = \"{principal}\"; KeytabPath = {keytab}; CCacheDir = {dir}; Active_krb5 = true;"),
                "sys,krb5,krb5i,krb5p",
                format!("DomainName = \"{}\"; UseGetpwnam = false; IdmapConf = \"{}\";", kerberos::DOMAIN, realm.idmap().display()),
            )
        }
        None => ("Active_krb5 = false;".into(), "sys", String::new()),
    };
    let config = format!(
        "NFS_CORE_PARAM {{ NFS_Port = {port}; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; \
         Bind_addr = 0.0.0.0; mount_path_pseudo = true; RPC_Ioq_ThrdMax = {threads}; }}\n\
         NFSv4 {{ Graceless = true; RecoveryRoot = \"{dir}/state\"; Minor_Versions = 0,1,2; Allow_Numeric_Owners = true; \
         Only_Numeric_Owners = true; {owners} }}\n\
         NFS_KRB5 {{ {kerberos} }}\n\
         EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /{EXPORT}; Access_Type = RW; Squash = No_Root_Squash; SecType = {flavours}; \
         Protocols = 4; Transports = TCP; FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = EVENT; }}\n",
        directory.display()
    );
    fs::write(files.path().join("conf"), config).or_stop("Ganesha's configuration");
    fs::create_dir(files.path().join("state")).or_stop("Ganesha's state");
    let mut command = Command::new("ganesha.nfsd");
    command.envs(realm.map(Realm::environment).unwrap_or_default());
    command.arg("-F").args(["-f", &format!("{dir}/conf"), "-L", &format!("{dir}/log"), "-p", &format!("{dir}/pid"), "-N", "EVENT"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Server::start(command, port, Some(files))
}
