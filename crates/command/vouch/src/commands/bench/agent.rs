use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use vouch_bench::StopFlag;
use vouch_bench::agent::{Acceptor, Limits, serve};

use crate::exit::{At as _, Failure, Outcome};
use crate::{interrupt, output};

/// Measure on this node for a coordinator elsewhere.
///
/// Start one agent on each node: by hand, ssh, srun or a batch system; then name the agents to a
/// workload with --agent. An agent only does benchmark work on NFS servers, touches no local files,
/// and accepts only coordinators that prove knowledge of the token or have a ticket of a named
/// principal. Runs until SIGINT or SIGTERM.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Address to listen on for coordinators.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:20490")]
    listen: SocketAddr,
    /// File of the secret shared with coordinators; nobody else may be able to read it.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "principal",
        conflicts_with = "principal"
    )]
    token_file: Option<PathBuf>,
    /// Accept coordinators with a ticket of this principal; may be repeated.
    #[arg(long, value_name = "NAME@REALM")]
    principal: Vec<String>,
    /// Keytab with the keys of host/NODE; the default is the system's.
    #[arg(long, value_name = "FILE", requires = "principal")]
    keytab: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let acceptor = match &args.token_file {
        Some(file) => Acceptor::Token(token(file)?),
        None => {
            Acceptor::Kerberos { keytab: args.keytab.clone(), principals: args.principal.clone() }
        }
    };
    interrupt::become_daemon().at("signals")?;
    let listener = TcpListener::bind(args.listen).at(args.listen)?;
    let stop = StopFlag::default();
    let stop_requested = stop.clone();
    let _taken = interrupt::stop_gracefully(move || stop_requested.set());
    output::text(&format!("agent on {}\n", listener.local_addr().at(args.listen)?))?;
    serve(&listener, &acceptor, Limits::default(), &stop, &|line| tracing::info!("{line}"))?;
    Ok(())
}

pub(super) fn token(file: &Path) -> Outcome<Vec<u8>> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(file).at(file.display())?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(Failure::input(file.display(), "other users can read it")
            .cure(format!("chmod 600 {}", file.display())));
    }
    let token = std::fs::read(file).at(file.display())?.trim_ascii().to_vec();
    if token.len() < TOKEN_LEN_MIN {
        return Err(Failure::input(file.display(), "too short to be a secret")
            .cure("head -c 32 /dev/urandom | base64 > FILE"));
    }
    Ok(token)
}

const TOKEN_LEN_MIN: usize = 16;
