//! `vouch export status`: shows the state of a running server.

use std::io;
use std::path::Path;

use crate::exit::{Failure, Outcome};
use crate::{output, when};
use vouch_export::control::{Answer, Question, ask as ask_socket};
use vouch_export::control_path;
use vouch_export::{ClientStatus, ErrorStatus, Status, TlsStatus};

/// Show clients, sessions, opens, locks, delegations and recent errors of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, state: &Path) -> Outcome {
    match ask(state, Question::Status)? {
        Answer::Status(status) if args.json => output::json(&status),
        Answer::Status(status) => output::text(&table(&status)),
        Answer::Failed(why) => Err(Failure::input("server", why)),
        Answer::Reloaded(_) => Err(Failure::input("server", "unexpected answer; is the server of another version?")),
    }
}

pub(super) fn ask(state: &Path, question: Question) -> Outcome<Answer> {
    let path = control_path(state);
    ask_socket(&path, question).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Failure::not_found(path.display(), "no server is running with this state directory").cure("name its directory with --state")
        }
        _ => Failure::new(path.display(), crate::exit::Cause::Io(error)),
    })
}

fn table(status: &Status) -> String {
    let mut text = format!(
        "vouch {}: {} connections, {} clients, {} calls waiting{}\n\n",
        status.version,
        status.connections,
        status.clients.len(),
        status.waiting_calls,
        if status.grace_left_ms > 0 { format!(", grace for {} s more", status.grace_left_ms.div_ceil(1000)) } else { String::new() },
    );
    if let Some(tls) = &status.tls {
        text.push_str(&tls_line(tls));
    }
    let pressed = [
        (status.held_back, "pauses of reading because too many calls of an address, or in all, were waiting"),
        (status.clients_displaced, "idle or expired clients evicted to make room"),
        (status.clients_refused, "clients refused for lack of room"),
    ];
    for (count, what) in pressed.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("{count} {what}\n"));
    }
    if pressed.iter().any(|(count, _)| *count > 0) {
        text.push('\n');
    }
    let mut rows = vec![row(["EXPORT", "SOURCE", "NUMBER"])];
    rows.extend(status.exports.iter().map(|export| {
        row([
            &vouch_daemon::printable::printable(export.pseudo_path.as_bytes()),
            &vouch_daemon::printable::printable(export.source.as_bytes()),
            &export.id.to_string(),
        ])
    }));
    text.push_str(&output::table(&rows, &[]));
    if !status.clients.is_empty() {
        let mut rows = vec![row([
            "CLIENT",
            "ADDRESS",
            "VERSION",
            "SILENT",
            "SESSIONS",
            "OPENS",
            "LOCKS",
            "DELEGATIONS",
            "CALLBACKS",
            "XPRTSEC",
            "OWNER",
        ])];
        rows.extend(status.clients.iter().map(client));
        text.push('\n');
        text.push_str(&output::table(&rows, &[3, 4, 5, 6, 7]));
    }
    if !status.recent_errors.is_empty() {
        let mut rows = vec![row(["WHEN", "ADDRESS", "OPERATION", "STATUS", "ERROR"])];
        rows.extend(status.recent_errors.iter().map(error));
        text.push('\n');
        text.push_str(&output::table(&rows, &[3]));
    }
    text
}

fn tls_line(tls: &TlsStatus) -> String {
    let left = match tls.days_left {
        ..0 => "has expired".to_owned(),
        days => format!("expires in {days} days"),
    };
    format!(
        "TLS certificate {} {left}; {} connections tls, {} mtls; {} handshakes, {} refused\n\n",
        vouch_daemon::printable::printable(tls.certificate.as_bytes()),
        tls.tls,
        tls.mtls,
        tls.handshakes,
        tls.refused
    )
}

/// With the name of the certificate.
fn xprtsec(client: &ClientStatus) -> String {
    match (&client.xprtsec, &client.certificate) {
        (Some(transport), Some(name)) => format!("{transport} {}", vouch_daemon::printable::printable(name.as_bytes())),
        (Some(transport), None) => transport.clone(),
        (None, _) => "-".to_owned(),
    }
}

fn client(client: &ClientStatus) -> Vec<String> {
    row([
        &client.id,
        client.address.as_deref().unwrap_or("-"),
        &format!("4.{}", client.minor_version),
        &format!("{} s{}", client.silent_ms / 1000, if client.courtesy { " (expired)" } else { "" }),
        &client.sessions.to_string(),
        &client.opens.to_string(),
        &client.locks.to_string(),
        &client.delegations.to_string(),
        if client.callbacks { "yes" } else { "no" },
        &xprtsec(client),
        &vouch_daemon::printable::printable(client.owner.as_bytes()),
    ])
}

fn error(error: &ErrorStatus) -> Vec<String> {
    row([
        &when::utc(error.at_seconds.unsigned_abs()),
        &error.address,
        &error.operation,
        &error.status.to_string(),
        &vouch_daemon::printable::printable(error.message.as_bytes()),
    ])
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}
