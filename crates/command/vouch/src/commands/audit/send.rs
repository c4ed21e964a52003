use std::path::PathBuf;

use rustls::pki_types::ServerName;
use vouch_audit_pipeline::send::{NatsOptions, Sender, Target, TlsOptions, server_name};

use super::directory::require_trail;
use crate::cli::Global;
use crate::exit::Outcome;

/// Send records to a collector as they are written, and continue after a restart.
///
/// Syslog over TLS or TCP delivers at least once: each connection ends after 10 s or 8 MiB, and its
/// records count as sent when the collector has ended it too, after reading everything. NATS
/// delivers at least once: JetStream acknowledges stored records. Records without acknowledgement
/// are sent again, so a collector may see a record twice (`event.sequence` identifies it; a NATS
/// stream drops it by its id). UDP has no acknowledgements. Over TLS, a collector needs a
/// certificate that --tls-ca trusts. A record is sent when it is sealed and on disk, at most
/// `--audit-seal` after it was written.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch audit send --to syslog+tls://collector.example.org --tls-ca /etc/vouch/collector-ca.pem --position /var/lib/vouch/sent /var/lib/vouch/audit\n  \
                  vouch audit send --to syslog+tcp://collector.example.org:601 --position /var/lib/vouch/sent /var/lib/vouch/audit\n  \
                  vouch audit send --to nats+tls://nats.example.org/audit.nfs1 --tls-ca /etc/vouch/nats-ca.pem --position /var/lib/vouch/sent /var/lib/vouch/audit\n  \
                  vouch audit send --once --to syslog+udp://127.0.0.1:514 --position /var/lib/vouch/sent /var/lib/vouch/audit"
)]
pub(crate) struct Args {
    /// Directory of the trail.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Collector: syslog+tls://HOST[:PORT] (6514), syslog+tcp://HOST:PORT, syslog+udp://HOST:PORT,
    /// nats+tls://HOST[:PORT]/SUBJECT (4222) or nats://HOST[:PORT]/SUBJECT.
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    to: Target,
    /// File of the position reached; created if missing, and then everything is sent.
    #[arg(long, value_name = "FILE")]
    position: PathBuf,
    /// Stop when all sealed records are sent.
    #[arg(long)]
    once: bool,
    /// Name of this machine in messages, if not its host name.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    nats: NatsArgs,
}

/// TLS to the collector.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
struct TlsArgs {
    /// CA certificates (PEM) that may sign the collector's certificate; no others are trusted.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Client certificate (PEM, with intermediate certificates), if the collector requires one.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name or address in the collector's certificate, if it differs from the URL.
    #[arg(long, value_name = "NAME", value_parser = server_name)]
    tls_name: Option<ServerName<'static>>,
    /// Accept the end of a TCP connection without TLS close_notify as proof that the collector has
    /// read everything (needed for rsyslog). An attacker on the network can forge it.
    #[arg(long)]
    tls_plain_end: bool,
}

/// NATS.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "NATS")]
struct NatsArgs {
    /// User at the NATS server.
    #[arg(long, value_name = "NAME", requires = "nats_password_file")]
    nats_user: Option<String>,
    /// File of the user's password, or of a token without --nats-user.
    #[arg(long, value_name = "FILE")]
    nats_password_file: Option<PathBuf>,
}

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        !self.once
    }
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    if args.once {
        require_trail(&args.directory)?;
    } else if let Err(error) = require_trail(&args.directory) {
        // The server may create the trail later.
        tracing::warn!(%error, "waiting for the trail");
    }
    let (tls, nats) = (args.tls, args.nats);
    let sender = Sender {
        directory: args.directory,
        to: args.to,
        position: args.position,
        once: args.once,
        host: args.host,
        tls: TlsOptions {
            ca: tls.tls_ca,
            certificate: tls.tls_cert,
            key: tls.tls_key,
            name: tls.tls_name,
            accepts_plain_end: tls.tls_plain_end,
        },
        nats: NatsOptions { user: nats.nats_user, password_file: nats.nats_password_file },
    };
    Ok(sender.run()?)
}
