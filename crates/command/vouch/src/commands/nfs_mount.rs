use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use vouch_daemon::log_output;
use vouch_daemon::status::DaemonKind;
use vouch_mount_service::start_in_background;
use vouch_nfs_mount::{
    CacheTimes, ClientFiles, MountOptions, Mounted, Security, Service, TlsClient,
};

use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::status_page::StatusPage;
use crate::{config, interrupt, output, size, when};

/// Mount an NFS export with FUSE, without root and without the kernel's NFS client.
///
/// NFSv4.2, or 4.1 if the server lacks it. Close-to-open consistency, locks, and recovery after a
/// restart of the server are as in nfs(5).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch nfs-mount filer.example.org:/home /mnt\n  \
                  vouch nfs-mount --sec krb5p filer.example.org:/home ~/home       after kinit\n  \
                  vouch nfs-mount --tls-ca ca.pem --background filer.example.org:/data /mnt\n\n\
                  With --background the log goes to the system's log once it is mounted, unless --log-file is given. In the foreground it runs until Ctrl-C, SIGTERM or `vouch umount DIR`.")]
pub(crate) struct Args {
    /// The server and the path of its export.
    #[arg(value_name = "HOST:/PATH")]
    export: String,
    /// The mount point.
    #[arg(value_name = "DIR")]
    point: PathBuf,
    /// Return when mounted, and continue in the background.
    #[arg(long, short)]
    background: bool,
    /// Set by the command itself for the background process.
    #[arg(long, hide = true)]
    detached: bool,
    /// Security flavour. krb5, krb5i and krb5p take the ticket of the mounting user (kinit,
    /// KRB5CCNAME).
    #[arg(long, value_name = "FLAVOUR", default_value = "sys")]
    sec: Flavour,
    /// Kerberos principal of the server; the default is nfs@HOST.
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Encrypt with TLS (RFC 9289). The server's certificate must be from an authority in this PEM
    /// file.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// This client's certificate (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// Private key of the client's certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name in the server's certificate; the default is HOST.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_name: Option<String>,
    /// Port of the server.
    #[arg(long, value_name = "N", default_value = "2049")]
    port: u16,
    /// Connections to the server.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=16))]
    connections: u8,
    /// Give other users access. Default for root with --sec sys: each call then names its user.
    /// Under Kerberos all users act with the ticket of the mounting user.
    #[arg(long, conflicts_with = "only_me")]
    allow_other: bool,
    /// Give no other user access, even if root mounts.
    #[arg(long)]
    only_me: bool,
    /// Let idmapped mounts and user namespaces use it. The kernel checks modes and owners, and the
    /// server sees the mounting user for all.
    #[arg(long)]
    idmap: bool,
    /// Forbid changes.
    #[arg(long)]
    read_only: bool,
    /// Honour set-user-id bits: this trusts the server with privileges.
    #[arg(long)]
    suid: bool,
    /// Honour device nodes.
    #[arg(long)]
    dev: bool,
    /// Forbid execution.
    #[arg(long)]
    noexec: bool,
    /// Fail a call after this time without an answer, as `soft` in nfs(5). The default is to wait.
    #[arg(long, value_name = "DURATION", value_parser = when::parse_duration)]
    soft: Option<Duration>,
    /// Least time for which attributes of a file are used without asking.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = when::parse_duration_or_zero)]
    acregmin: Duration,
    /// Longest time for attributes of a file.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = when::parse_duration_or_zero)]
    acregmax: Duration,
    /// Least time for attributes and names of a directory.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = when::parse_duration_or_zero)]
    acdirmin: Duration,
    /// Longest time for attributes and names of a directory.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = when::parse_duration_or_zero)]
    acdirmax: Duration,
    /// Cache no attributes and names.
    #[arg(long, conflicts_with_all = ["acregmin", "acregmax", "acdirmin", "acdirmax"])]
    noac: bool,
    /// Largest READ and WRITE, 4K to 1M.
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_io_len)]
    io_size: u32,
    /// Read-ahead of the kernel. Only root can exceed 128K.
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = size::parse)]
    read_ahead: u64,
    /// Written data that may wait for the server.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_write_buffer)]
    write_buffer: u32,
    /// Address of the metrics and health page. The same is on the status socket, see vouch-status(1).
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    metrics: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Flavour {
    Sys,
    Krb5,
    Krb5i,
    Krb5p,
}

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        !self.background || self.detached
    }
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    if args.background && !args.detached {
        let line = start_in_background(config::arguments().into_iter().skip(1))?;
        return output::text(&line);
    }
    let options = options(&args)?;
    let page = StatusPage::open(DaemonKind::NfsMount, args.metrics)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().at("runtime")?;
    let stop = Arc::new(Notify::new());
    let notify = stop.clone();
    let _taken = interrupt::stop_gracefully(move || notify.notify_one());
    let mounted = runtime.block_on(async {
        tokio::select! {
            mounted = vouch_nfs_mount::mount(&args.point, options) => Ok(mounted?),
            () = stop.notified() => Err(Failure::interrupted()),
        }
    })?;
    page.answer_during(mounted.report(), || {
        announce(&args, &mounted)?;
        Ok(runtime.block_on(mounted.serve_until(stop.notified()))?)
    })
}

fn announce(args: &Args, mounted: &Mounted) -> Outcome {
    if args.detached {
        let _ = rustix::process::setsid();
    }
    output::text(&format!("mounted on {}\n", mounted.point().display()))?;
    if args.detached {
        log_output::leave_standard_error();
    }
    Ok(())
}

fn options(args: &Args) -> Outcome<MountOptions> {
    let shape =
        || Failure::usage(&args.export, "is no export").cure("write HOST:/PATH, as for mount(8)");
    let (host, path) = args.export.split_once(":/").ok_or_else(shape)?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err(shape());
    }
    let address = address_of(host, args.port)?;
    let service = match args.sec {
        Flavour::Sys => None,
        Flavour::Krb5 => Some(Service::None),
        Flavour::Krb5i => Some(Service::Integrity),
        Flavour::Krb5p => Some(Service::Privacy),
    };
    let is_root = rustix::process::geteuid().is_root();
    let security = service.map_or(Security::Sys, |service| Security::Kerberos {
        service,
        principal: args.principal.clone().unwrap_or_else(|| format!("nfs@{host}")),
    });
    Ok(MountOptions {
        source: args.export.clone(),
        address,
        path: path.as_bytes().to_vec(),
        tls: tls(args, host)?,
        connections: args.connections.into(),
        allow_other: args.allow_other
            || is_root && !args.only_me && (args.sec == Flavour::Sys || args.idmap),
        checks_locally: args.idmap,
        read_only: args.read_only,
        suid: args.suid,
        dev: args.dev,
        exec: !args.noexec,
        times: times(args),
        timeout: args.soft,
        io_len_max: args.io_size,
        read_ahead_bytes: u32::try_from(args.read_ahead)
            .map_err(|_| Failure::usage("--read-ahead", "is more than 4G"))?,
        dirty_max: args.write_buffer,
        security,
    })
}

fn address_of(host: &str, port: u16) -> Outcome<SocketAddr> {
    let mut found = (host, port).to_socket_addrs().at(host)?;
    found.next().ok_or_else(|| Failure::usage(host, "has no address"))
}

fn tls(args: &Args, host: &str) -> Outcome<Option<TlsClient>> {
    let Some(authorities) = args.tls_ca.clone() else { return Ok(None) };
    let certificate = args.tls_cert.clone().zip(args.tls_key.clone());
    let files = ClientFiles { authorities, certificate };
    let name = args.tls_name.as_deref().unwrap_or(host);
    TlsClient::rereading(&files, name).map(Some).map_err(|error| Failure::input("TLS", error))
}

fn times(args: &Args) -> CacheTimes {
    match args.noac {
        true => CacheTimes::NONE,
        false => CacheTimes {
            file: (args.acregmin, args.acregmax.max(args.acregmin)),
            directory: (args.acdirmin, args.acdirmax.max(args.acdirmin)),
        },
    }
}

fn parse_io_len(text: &str) -> Result<u32, String> {
    let len = u32::try_from(size::parse(text)?).ok();
    let len = len.filter(|len| (4 << 10..=1 << 20).contains(len) && len % 4096 == 0);
    len.ok_or_else(|| "write 4K to 1M, in steps of 4K".into())
}

fn parse_write_buffer(text: &str) -> Result<u32, String> {
    let len = u32::try_from(size::parse(text)?).ok().filter(|len| *len >= 4 << 20);
    len.ok_or_else(|| "write 4M to 4G".into())
}
