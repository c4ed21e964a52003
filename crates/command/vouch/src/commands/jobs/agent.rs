//! `vouch jobs agent`: options of a node's agent.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vouch_daemon::service_manager;
use vouch_daemon::status::DaemonKind;
use vouch_jobs::PORT_DEFAULT;
use vouch_jobs::agent::{Agent, AgentConfig, AgentReport};
use vouch_jobs::names::NodeName;

use super::{AGENT_SOCKET, listen};
use crate::exit::{At as _, Failure, Outcome};
use crate::status_page::StatusPage;
use crate::{interrupt, output, when};

/// Keep the tickets of this node's jobs.
///
/// The prolog and epilog of the scheduler call it. It writes each user's tickets to --cache, renews
/// them when half of their life is over, and removes them when the user's last job here has ended,
/// is past its deadline, or is unknown to the broker.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch jobs agent --broker head.example.org\n  \
                  vouch jobs agent --broker head.example.org --principal host/image.example.org    nodes of one image\n\n\
                  It runs until SIGTERM or SIGINT. Tickets stay then, and the next start takes them over.")]
pub(super) struct Args {
    /// Host of the broker.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_broker)]
    broker: (String, u16),
    /// Name of this node in the scheduler; by default the host name up to its first dot.
    #[arg(long, value_name = "NAME")]
    node: Option<NodeName>,
    /// Principal of this node; by default the keytab's host/ with the short or full host name.
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,
    /// Keytab with the principal's key.
    #[arg(long, value_name = "FILE", default_value = "/etc/krb5.keytab")]
    keytab: PathBuf,
    /// Where rpc.gssd reads users' tickets.
    #[arg(long, value_name = "FILE:PATH", default_value = "FILE:/tmp/krb5cc_%{uid}")]
    cache: String,
    /// Directory of the agent's state, which a new start reads.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/vouch-jobs-agent")]
    state: PathBuf,
    /// Socket for prologs and epilogs.
    #[arg(long, value_name = "PATH", default_value = AGENT_SOCKET)]
    socket: PathBuf,
    /// Interval at which the agent asks which jobs have ended.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = when::parse_duration)]
    poll: Duration,
    /// Address of the metrics and health page.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::cli::socket_address)]
    metrics: Option<SocketAddr>,
}

pub(super) fn run(args: Args) -> Outcome {
    service_manager::connect();
    let _taken = interrupt::stop_gracefully(service_manager::stopping);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let node = match args.node {
        Some(node) => node,
        None => NodeName::parse(host.split('.').next().unwrap_or_default())
            .map_err(|error| Failure::input("--node", error))?,
    };
    let principal = match args.principal {
        Some(principal) => principal,
        None => vouch_gss_mit::host_principal(&args.keytab, &host)
            .map_err(|fault| Failure::input("--keytab", fault))?,
    };
    let config = AgentConfig {
        broker: args.broker,
        node,
        principal,
        keytab: args.keytab,
        cache: args.cache,
        state: args.state,
        poll: args.poll,
    };
    let listener = listen(&args.socket, 0o600)?;
    let page = StatusPage::open(DaemonKind::JobsAgent, args.metrics)?;
    let agent = Arc::new(Agent::open(config)?);
    interrupt::watch().at("signals")?;
    let text = format!("serving prologs on {}", args.socket.display());
    output::text(&format!("{text}{}\n", page.text()))?;
    service_manager::ready(&text);
    page.answer_during(AgentReport(agent.clone()), || {
        Ok(agent.run(&listener, interrupt::requested)?)
    })
}

fn parse_broker(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => {
            (host, port.parse().map_err(|_| "write HOST or HOST:PORT".to_owned())?)
        }
        None => (text, PORT_DEFAULT),
    };
    match host.is_empty() || host.contains([':', '/', '@']) {
        true => Err("write the broker's host name: its principal is vouch-jobs/HOST".into()),
        false => Ok((host.to_owned(), port)),
    }
}
