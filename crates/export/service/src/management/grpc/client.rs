//! Orders to a server over the network.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::{Code, Streaming};
use vouch_daemon::failure;
use vouch_daemon::printable::printable;
use vouch_rpc_tls::credentials::{ClientFiles, CredentialError, http2_client_config};
use vouch_rpc_tls::{ClientConfig, ServerName};

use super::convert::Convert as _;
use super::export_v1 as v1;
use super::export_v1::management_client::ManagementClient;
use crate::exports::list_check::CheckedList;
use crate::management::{Answer, Order, OrderError};
use crate::monitoring::status::Status;

/// A server that is managed over the network. Each call opens a connection. All calls block.
pub struct RemoteServer {
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
}

#[derive(Debug, thiserror::Error)]
pub enum RemoteServerError {
    #[error("{0}: not HOST:PORT")]
    Address(String),
    #[error("{0}")]
    Credentials(#[from] CredentialError),
}

type Connection = JoinHandle<hyper::Result<()>>;

type Result<T> = std::result::Result<T, OrderError>;

impl RemoteServer {
    /// `server`: `HOST:PORT`. HOST is in the server's certificate.
    pub fn new(server: &str, files: &ClientFiles) -> std::result::Result<Self, RemoteServerError> {
        let address = || RemoteServerError::Address(server.to_owned());
        let (host, port) = server.rsplit_once(':').ok_or_else(address)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| address())?;
        Ok(RemoteServer {
            host: host.to_owned(),
            port: port.parse().map_err(|_| address())?,
            name,
            tls: http2_client_config(files)?,
        })
    }

    pub fn send(&self, order: &Order) -> Result<Answer> {
        self.call(async |mut client| send(&mut client, order.clone()).await)
    }

    pub fn status(&self) -> Result<Status> {
        self.call(async |mut client| {
            let status = client.get_status(v1::GetStatusRequest {}).await?.into_inner();
            let mut status: Status = status.convert();
            let parts = client.list_clients(v1::ListClientsRequest {}).await?.into_inner();
            let parts = all(parts).await?;
            status.clients =
                parts.into_iter().flat_map(|part| part.clients).collect::<Vec<_>>().convert();
            Ok(status)
        })
    }

    /// Of the lists and TLS files that the server would read now.
    pub fn check(&self, client: Option<IpAddr>) -> Result<CheckedList> {
        let request = v1::CheckExportsRequest { client: client.map(|client| client.to_string()) };
        self.call(async move |mut remote| {
            let mut checked = CheckedList::default();
            for part in all(remote.check_exports(request).await?.into_inner()).await? {
                checked.exports.extend::<Vec<_>>(part.exports.convert());
                checked.warnings.extend::<Vec<String>>(part.warnings.convert());
                checked.left_out.extend::<Vec<String>>(part.left_out.convert());
            }
            Ok(checked)
        })
    }

    fn call<T>(
        &self,
        work: impl AsyncFnOnce(ManagementClient<Sender>) -> std::result::Result<T, tonic::Status>,
    ) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
            let connecting = tokio::time::timeout(CONNECT_MAX, self.connect());
            let (client, connection) = connecting.await.map_err(late)??;
            let answer = tokio::time::timeout(ANSWER_MAX, work(client)).await.map_err(late)?;
            let status = match answer {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            // In TLS 1.3, a client learns by its first read that its certificate is refused.
            if status.source().is_some()
                && let Ok(Ok(Err(cause))) = tokio::time::timeout(CAUSE_MAX, connection).await
            {
                return Err(OrderError::Io(io::Error::other(failure::chain(&cause))));
            }
            Err(error_of(status))
        })
    }

    pub(crate) async fn connect(&self) -> io::Result<(ManagementClient<Sender>, Connection)> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        let connector = TlsConnector::from(self.tls.clone());
        let stream = connector.connect(self.name.clone(), stream).await?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| io::Error::other(failure::chain(&error)))?;
        let connection = tokio::spawn(connection);
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let origin = format!("https://{host}:{}", self.port).parse().map_err(io::Error::other)?;
        let client = ManagementClient::with_origin(Sender(sender), origin)
            .max_decoding_message_size(MESSAGE_LEN_MAX);
        Ok((client, connection))
    }
}

async fn send(
    client: &mut ManagementClient<Sender>,
    order: Order,
) -> std::result::Result<Answer, tonic::Status> {
    let warned =
        |warnings: Vec<String>| Answer { warnings: warnings.convert(), ..Answer::default() };
    let ended = |ended: u64| Answer { ended: Some(ended.convert()), ..Answer::default() };
    Ok(match order {
        Order::ListExports => {
            let parts = client.list_exports(v1::ListExportsRequest {}).await?.into_inner();
            let mut answer = Answer { exports: Some(Vec::new()), ..Answer::default() };
            for part in all(parts).await? {
                answer.exports.get_or_insert_default().extend::<Vec<_>>(part.exports.convert());
                answer.hidden.extend::<Vec<String>>(part.hidden.convert());
            }
            answer
        }
        Order::ListState { client: of } => {
            let request = v1::ListStatesRequest { client: of };
            let mut answer = Answer { states: Some(Vec::new()), ..Answer::default() };
            for part in all(client.list_states(request).await?.into_inner()).await? {
                answer.states.get_or_insert_default().extend::<Vec<_>>(part.states.convert());
                answer.warnings.extend::<Vec<String>>(part.warnings.convert());
            }
            answer
        }
        Order::AddExport { path, clients, keep } => {
            let request = v1::AddExportRequest { path, clients, keep };
            warned(client.add_export(request).await?.into_inner().warnings)
        }
        Order::SetExport { path, clients, keep } => {
            let request = v1::SetExportRequest { path, clients, keep };
            warned(client.set_export(request).await?.into_inner().warnings)
        }
        Order::RemoveExport { path, keep } => {
            let request = v1::RemoveExportRequest { path, keep };
            warned(client.remove_export(request).await?.into_inner().warnings)
        }
        order @ (Order::Reload | Order::DiscardChanges) => {
            let discard_changes = order == Order::DiscardChanges;
            let request = v1::ReloadExportsRequest { discard_changes };
            warned(client.reload_exports(request).await?.into_inner().warnings)
        }
        Order::EvictClient { client: named } => {
            let request = v1::EvictClientRequest { client: named };
            ended(client.evict_client(request).await?.into_inner().ended)
        }
        Order::Unlock { path } => {
            ended(client.unlock(v1::UnlockRequest { path }).await?.into_inner().ended)
        }
        Order::Drain { on } => {
            client.set_draining(v1::SetDrainingRequest { draining: on }).await?;
            Answer::default()
        }
    })
}

async fn all<T>(mut parts: Streaming<T>) -> std::result::Result<Vec<T>, tonic::Status> {
    let mut all = Vec::new();
    while let Some(part) = parts.message().await? {
        all.push(part);
    }
    Ok(all)
}

fn error_of(status: tonic::Status) -> OrderError {
    let message = printable(status.message().as_bytes());
    match status.code() {
        Code::NotFound => OrderError::NotFound(message),
        Code::FailedPrecondition | Code::InvalidArgument => OrderError::Refused(message),
        Code::PermissionDenied | Code::Unauthenticated => OrderError::Denied(message),
        _ => OrderError::Io(io::Error::other(match status.source() {
            Some(source) => failure::chain(source),
            None => message,
        })),
    }
}

#[derive(Clone)]
pub(crate) struct Sender(SendRequest<Body>);

impl Service<http::Request<Body>> for Sender {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future =
        Pin<Box<dyn Future<Output = std::result::Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<std::result::Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

const CONNECT_MAX: Duration = Duration::from_secs(10);

/// For the end of a connection that failed.
const CAUSE_MAX: Duration = Duration::from_secs(1);

/// A reload resolves the names of hosts.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// A status with many exports; other answers come in parts.
const MESSAGE_LEN_MAX: usize = 64 << 20;
