//! The server that a command talks to: of this machine by its socket, or another by gRPC.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use vouch_daemon::failure::Why;
use vouch_daemon::status_client::{self, ReloadError};
use vouch_export::management::{
    self, Answer, ClientFiles, Order, OrderError, RemoteServer, RemoteServerError,
};
use vouch_export::{CheckedList, Status};

use super::status;
use crate::exit::{Failure, Outcome};

/// Options of the commands for a running server.
#[derive(Debug, Default, clap::Args)]
pub(super) struct ServerArgs {
    /// Manage this server over the network instead of the one of this machine. HOST is in its
    /// certificate. Needs the three options below.
    #[arg(long, value_name = "HOST:PORT", global = true, help_heading = "Another server")]
    server: Option<String>,
    /// Authorities (PEM) of the server's certificate.
    #[arg(long, value_name = "FILE", global = true, help_heading = "Another server")]
    server_ca: Option<PathBuf>,
    /// Certificate of the administrator (PEM).
    #[arg(long, value_name = "FILE", global = true, help_heading = "Another server")]
    admin_cert: Option<PathBuf>,
    /// Private key of this certificate (PEM).
    #[arg(long, value_name = "FILE", global = true, help_heading = "Another server")]
    admin_key: Option<PathBuf>,
}

/// By these, a command finds the server that it talks to.
#[derive(Clone, Copy)]
pub(super) struct Running<'a> {
    pub(super) state: Option<&'a Path>,
    /// One of several that share the state directory on this machine.
    pub(super) head: Option<&'a str>,
    pub(super) server: &'a ServerArgs,
}

pub(super) enum Connection {
    Socket(PathBuf),
    Remote { name: String, server: RemoteServer },
}

impl ServerArgs {
    pub(super) fn is_given(&self) -> bool {
        self.server.is_some()
    }
}

impl Running<'_> {
    pub(super) fn connect(self) -> Outcome<Connection> {
        let ServerArgs { server: Some(name), server_ca, admin_cert, admin_key } = self.server
        else {
            return status::socket(self).map(Connection::Socket);
        };
        let required = |file: &Option<PathBuf>| {
            file.clone().ok_or_else(|| {
                Failure::usage("--server", "needs --server-ca, --admin-cert and --admin-key")
            })
        };
        let files = ClientFiles {
            authorities: required(server_ca)?,
            certificate: Some((required(admin_cert)?, required(admin_key)?)),
        };
        let server = RemoteServer::new(name, &files).map_err(|error| match error {
            RemoteServerError::Address(_) => Failure::usage("--server", error),
            RemoteServerError::Credentials(_) => Failure::input("TLS", error),
        })?;
        Ok(Connection::Remote { name: name.clone(), server })
    }
}

impl Connection {
    pub(super) fn send(&self, order: &Order) -> Outcome<Answer> {
        match self {
            Connection::Socket(socket) => management::send(socket, order),
            Connection::Remote { server, .. } => server.send(order),
        }
        .map_err(|error| self.failure(error))
    }

    pub(super) fn status(&self) -> Outcome<Status> {
        match self {
            Connection::Socket(socket) => status::ask(socket),
            Connection::Remote { server, .. } => {
                server.status().map_err(|error| self.failure(error))
            }
        }
    }

    pub(super) fn reload(&self) -> Outcome<Vec<String>> {
        match self {
            Connection::Socket(socket) => {
                status_client::reload(socket).map_err(|error| match error {
                    ReloadError::Refused(why) => Failure::input("exports", why),
                    ReloadError::Io(error) => Failure::new(socket.display(), error),
                })
            }
            Connection::Remote { .. } => Ok(self.send(&Order::Reload)?.warnings),
        }
    }

    /// The list that another server would load, or what is wrong with it. On this machine, the command
    /// reads the files itself.
    pub(super) fn check(&self, client: Option<IpAddr>) -> Outcome<Result<CheckedList, String>> {
        let Connection::Remote { server, .. } = self else {
            return Err(Failure::usage("--server", "is missing"));
        };
        match server.check(client) {
            Ok(checked) => Ok(Ok(checked)),
            Err(OrderError::Refused(why)) => Ok(Err(why)),
            Err(error) => Err(self.failure(error)),
        }
    }

    fn failure(&self, error: OrderError) -> Failure {
        match (error, self) {
            (OrderError::NotFound(why), _) => Failure::not_found("server", why),
            (OrderError::Refused(why), _) => Failure::input("server", why),
            (OrderError::Denied(why), _) => Failure::refused("server", why),
            (OrderError::Io(error), Connection::Socket(socket)) => {
                Failure::new(socket.display(), error)
            }
            (OrderError::Io(error), Connection::Remote { name, .. }) => {
                Failure::new(name, Why::Unreachable(error.to_string()))
            }
        }
    }
}
