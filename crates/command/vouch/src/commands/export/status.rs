use std::io;
use std::path::{Path, PathBuf};

use super::running::Running;
use crate::exit::{Code, Failure, Outcome};
use crate::{output, when};
use vouch_daemon::printable::printable;
use vouch_daemon::status::DaemonKind;
use vouch_daemon::status_client;
use vouch_export::{
    AwaitedStatus, ClientStatus, ErrorStatus, ExportStatus, HeadRole, HeadStatus, QosStatus,
    QuotaStatus, Status, TlsStatus, control_path,
};

/// Show clients, sessions, opens, locks, delegations and recent errors of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print nothing. Exit with 0 if the server answers clients, and with 1 if it is a standby: a
    /// check for keepalived and others that move an address.
    #[arg(long, conflicts_with = "json")]
    is_active: bool,
}

pub(super) fn ask(socket: &Path) -> Outcome<Status> {
    let status =
        status_client::ask(socket).map_err(|error| Failure::new(socket.display(), error))?;
    serde_json::from_value(status.detail).map_err(|error| {
        Failure::input("server", format_args!("cannot read its answer: {error}"))
            .cure("is it of another version?")
    })
}

pub(super) fn run(args: &Args, running: Running<'_>) -> Outcome {
    let status = running.connect()?.status()?;
    if args.is_active {
        let is_standby = status.head.is_some_and(|head| head.role == HeadRole::Standby);
        return if is_standby { Err(Failure::silent(Code::Differs)) } else { Ok(()) };
    }
    if args.json { output::json(&status) } else { output::text(&table(&status)) }
}

pub(super) fn socket(running: Running<'_>) -> Outcome<PathBuf> {
    let Running { state, head, .. } = running;
    if let Some(state) = state {
        let own = control_path(state, Some(head.unwrap_or(&super::host_name())));
        let path = if head.is_some() || own.exists() { own } else { control_path(state, None) };
        return match std::os::unix::net::UnixStream::connect(&path) {
            Ok(_) => Ok(path),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                Err(Failure::not_found(
                    path.display(),
                    "no server is running with this state directory",
                )
                .cure("leave out --state to ask the server of this machine, or start it"))
            }
            Err(error) => Err(Failure::new(path.display(), error)),
        };
    }
    let answers =
        status_client::trusted().map_err(|error| Failure::new("status sockets", error))?;
    let mut servers: Vec<PathBuf> = answers
        .into_iter()
        .filter(|(_, answer)| answer.as_ref().is_ok_and(|status| status.kind == DaemonKind::Export))
        .map(|(socket, _)| socket)
        .collect();
    if let ([], Ok(default_state)) = (&*servers, super::default_state()) {
        return socket(Running { state: Some(&default_state), ..running }).map_err(|failure| {
            failure.cure("start it; run as root to ask the server of this machine")
        });
    }
    match servers.len() {
        1 => Ok(servers.remove(0)),
        count => {
            Err(Failure::usage("--state", format_args!("{count} servers run on this machine"))
                .cure("name the state directory of one; `vouch status` lists them"))
        }
    }
}

fn head_line(head: &HeadStatus) -> String {
    match head.role {
        HeadRole::Active => format!("head {}: active in epoch {}\n\n", head.head, head.epoch),
        HeadRole::Standby => {
            let holder = head
                .holder
                .as_ref()
                .map_or_else(String::new, |holder| format!("; {holder} has epoch {}", head.epoch));
            format!("head {}: standby{holder}\n\n", head.head)
        }
    }
}

fn table(status: &Status) -> String {
    let mut text = format!(
        "vouch {}: {} connections, {} clients, {} calls waiting{}{}\n\n",
        status.version,
        status.connections,
        status.clients.len(),
        status.waiting_calls,
        if status.grace_left_ms > 0 {
            format!(
                ", grace for {} s more, or until {} clients have reclaimed",
                status.grace_left_ms.div_ceil(1000),
                status.awaited.len()
            )
        } else {
            String::new()
        },
        if status.draining { ", draining: new clients wait" } else { "" },
    );
    text.extend(status.head.as_ref().map(head_line));
    if let Some(tls) = &status.tls {
        text.push_str(&tls_line(tls));
    }
    if let Some(silent_ms) = status.name_service.silent_ms {
        text.push_str(&format!(
            "the name service has not answered for {} s; {} calls got NFS4ERR_DELAY\n\n",
            silent_ms / 1000,
            status.name_service.refused
        ));
    }
    let pressed = [
        (
            status.held_back,
            "pauses of reading because too many calls of an address, or in all, were waiting",
        ),
        (status.clients_displaced, "idle or expired clients evicted to make room"),
        (status.clients_refused, "clients refused for lack of room"),
        (
            status.name_conflicts,
            "clients refused or ended because another client uses their name; see nfs4_unique_id in the log",
        ),
        (
            status.delegations_revoked,
            "delegations revoked because their holder did not return them",
        ),
    ];
    for (count, what) in pressed.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("{count} {what}\n"));
    }
    if pressed.iter().any(|(count, _)| *count > 0) {
        text.push('\n');
    }
    text.push_str(&exports(&status.exports));
    if !status.clients.is_empty() {
        text.push('\n');
        text.push_str(&clients(&status.clients));
    }
    if !status.awaited.is_empty() {
        let mut rows = vec![heading("AWAITED | ADDRESS | CLIENT NAME")];
        rows.extend(status.awaited.iter().map(awaited));
        text.push('\n');
        text.push_str(&output::table(&rows, &[]));
    }
    if !status.qos.is_empty() {
        let mut rows = vec![heading(
            "EXPORT | CLIENT | OPS/S | BYTES/S | WEIGHT | CALLS | BYTES | HELD | HELD FOR | HELD BY",
        )];
        rows.extend(status.qos.iter().map(account));
        text.push('\n');
        text.push_str(&output::table(&rows, &[2, 3, 4, 5, 6, 7, 8]));
    }
    if !status.recent_errors.is_empty() {
        let mut rows = vec![heading("TIME | CLIENT ADDRESS | OPERATION | NFS STATUS | ERROR")];
        rows.extend(status.recent_errors.iter().map(error));
        text.push('\n');
        text.push_str(&output::table(&rows, &[3]));
    }
    text
}

fn exports(exports: &[ExportStatus]) -> String {
    let mut rows = vec![heading("PATH | SOURCE | EXPORT ID")];
    let has_quotas = exports.iter().any(|export| export.quota.is_some());
    if has_quotas {
        rows[0].extend(["USED", "QUOTA", "ENFORCED BY"].map(str::to_owned));
    }
    for export in exports {
        let mut shown = row([
            &printable(export.pseudo_path.as_bytes()),
            &printable(export.source.as_bytes()),
            &export.id.to_string(),
        ]);
        if has_quotas {
            shown.extend(match &export.quota {
                Some(QuotaStatus { used, limit, enforced_by }) => {
                    [output::bytes(*used), output::bytes(*limit), enforced_by.clone()]
                }
                None => ["-"; 3].map(str::to_owned),
            });
        }
        rows.push(shown);
    }
    output::table(&rows, &[3, 4])
}

fn tls_line(tls: &TlsStatus) -> String {
    let left = match tls.days_left {
        ..0 => "has expired".to_owned(),
        days => format!("expires in {days} days"),
    };
    let list =
        if tls.revocation_overdue { "; a list of revoked certificates is overdue" } else { "" };
    format!(
        "TLS certificate {} {left}{list}; {} connections tls, {} mtls; {} handshakes, {} refused\n\n",
        printable(tls.certificate.as_bytes()),
        tls.tls,
        tls.mtls,
        tls.handshakes,
        tls.refused
    )
}

fn xprtsec(client: &ClientStatus) -> String {
    match (&client.xprtsec, &client.certificate) {
        (Some(transport), Some(name)) => {
            format!("{transport} {}", printable(name.as_bytes()))
        }
        (Some(transport), None) => transport.clone(),
        (None, _) => "-".to_owned(),
    }
}

pub(super) fn clients(clients: &[ClientStatus]) -> String {
    let mut rows = vec![heading(
        "CLIENT ID | ADDRESS | NFS | LAST CALL | SESSIONS | OPENS | LOCKS | DELEGATIONS | CALLBACKS | XPRTSEC | CLIENT NAME",
    )];
    rows.extend(clients.iter().map(client));
    output::table(&rows, &[3, 4, 5, 6, 7])
}

fn client(client: &ClientStatus) -> Vec<String> {
    row([
        &client.id,
        client.address.as_deref().unwrap_or("-"),
        &format!("4.{}", client.minor_version),
        &format!(
            "{} s ago{}",
            client.silent_ms / 1000,
            if client.courtesy { ", lease expired" } else { "" }
        ),
        &client.sessions.to_string(),
        &client.opens.to_string(),
        &client.locks.to_string(),
        &client.delegations.to_string(),
        if client.callbacks { "yes" } else { "no" },
        &xprtsec(client),
        &printable(client.owner.as_bytes()),
    ])
}

fn awaited(awaited: &AwaitedStatus) -> Vec<String> {
    row([
        match (awaited.is_back, awaited.is_v40) {
            (false, _) => "not back yet",
            (true, false) => "reclaims",
            (true, true) => "back (4.0: until the end)",
        },
        awaited.address.as_deref().unwrap_or("-"),
        &printable(awaited.owner.as_bytes()),
    ])
}

fn account(account: &QosStatus) -> Vec<String> {
    let rate = |rate: Option<u64>| rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
    row([
        &printable(account.export.as_bytes()),
        &printable(account.client.as_bytes()),
        &rate(account.ops_per_second),
        &rate(account.bytes_per_second),
        &account.weight.to_string(),
        &account.operations.to_string(),
        &account.bytes.to_string(),
        &account.held.to_string(),
        &format!("{:.1} s", account.held_ms as f64 / 1000.0),
        account.held_by.as_deref().unwrap_or("-"),
    ])
}

fn error(error: &ErrorStatus) -> Vec<String> {
    row([
        &when::utc(error.at_seconds.unsigned_abs()),
        &error.address,
        &error.operation,
        &error.status.to_string(),
        &printable(error.message.as_bytes()),
    ])
}

fn heading(names: &str) -> Vec<String> {
    names.split(" | ").map(str::to_owned).collect()
}

pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}
