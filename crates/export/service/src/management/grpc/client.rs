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
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Service, http};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;
use vouch_daemon::failure;
use vouch_daemon::printable::printable;
use vouch_rpc_tls::credentials::{ClientFiles, CredentialError, http2_client_config};
use vouch_rpc_tls::{ClientConfig, ServerName};

use super::convert::Convert as _;
use super::export_v1 as v1;
use super::export_v1::Call;
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

pub(crate) type Called<T> = std::result::Result<T, tonic::Status>;

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
            let mut status: Status = unary(&mut client, v1::GetStatusRequest {}).await?.convert();
            let parts = all_parts(&mut client, v1::ListClientsRequest {}).await?;
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
            for part in all_parts(&mut remote, request).await? {
                checked.exports.extend::<Vec<_>>(part.exports.convert());
                checked.warnings.extend::<Vec<String>>(part.warnings.convert());
                checked.left_out.extend::<Vec<String>>(part.left_out.convert());
            }
            Ok(checked)
        })
    }

    fn call<T>(&self, work: impl AsyncFnOnce(Grpc<Sender>) -> Called<T>) -> Result<T> {
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

    pub(crate) async fn connect(&self) -> io::Result<(Grpc<Sender>, Connection)> {
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
        let client =
            Grpc::with_origin(Sender(sender), origin).max_decoding_message_size(MESSAGE_LEN_MAX);
        Ok((client, connection))
    }
}

async fn send(client: &mut Grpc<Sender>, order: Order) -> Called<Answer> {
    let warned =
        |warnings: Vec<String>| Answer { warnings: warnings.convert(), ..Answer::default() };
    let ended = |ended: u64| Answer { ended: Some(ended.convert()), ..Answer::default() };
    Ok(match order {
        Order::ListExports => {
            let mut answer = Answer { exports: Some(Vec::new()), ..Answer::default() };
            for part in all_parts(client, v1::ListExportsRequest {}).await? {
                answer.exports.get_or_insert_default().extend::<Vec<_>>(part.exports.convert());
                answer.hidden.extend::<Vec<String>>(part.hidden.convert());
            }
            answer
        }
        Order::ListState { client: of } => {
            let request = v1::ListStatesRequest { client: of };
            let mut answer = Answer { states: Some(Vec::new()), ..Answer::default() };
            for part in all_parts(client, request).await? {
                answer.states.get_or_insert_default().extend::<Vec<_>>(part.states.convert());
                answer.warnings.extend::<Vec<String>>(part.warnings.convert());
            }
            answer
        }
        Order::AddExport { path, clients, keep } => {
            let request = v1::AddExportRequest { path, clients, keep };
            warned(unary(client, request).await?.warnings)
        }
        Order::SetExport { path, clients, keep } => {
            let request = v1::SetExportRequest { path, clients, keep };
            warned(unary(client, request).await?.warnings)
        }
        Order::RemoveExport { path, keep } => {
            let request = v1::RemoveExportRequest { path, keep };
            warned(unary(client, request).await?.warnings)
        }
        order @ (Order::Reload | Order::DiscardChanges) => {
            let discard_changes = order == Order::DiscardChanges;
            let request = v1::ReloadExportsRequest { discard_changes };
            warned(unary(client, request).await?.warnings)
        }
        Order::EvictClient { client: named } => {
            let request = v1::EvictClientRequest { client: named };
            ended(unary(client, request).await?.ended)
        }
        Order::Unlock { path } => ended(unary(client, v1::UnlockRequest { path }).await?.ended),
        Order::Drain { on } => {
            unary(client, v1::SetDrainingRequest { draining: on }).await?;
            Answer::default()
        }
    })
}

pub(crate) async fn unary<Q: Call + Message + 'static>(
    client: &mut Grpc<Sender>,
    request: Q,
) -> Called<Q::Answer>
where
    Q::Answer: Message + Default + 'static,
{
    await_ready(client).await?;
    let (path, codec) = (PathAndQuery::from_static(Q::PATH), ProstCodec::default());
    Ok(client.unary(Request::new(request), path, codec).await?.into_inner())
}

/// The parts of a stream.
pub(crate) async fn all_parts<Q: Call + Message + 'static>(
    client: &mut Grpc<Sender>,
    request: Q,
) -> Called<Vec<Q::Answer>>
where
    Q::Answer: Message + Default + 'static,
{
    await_ready(client).await?;
    let (path, codec) = (PathAndQuery::from_static(Q::PATH), ProstCodec::default());
    let mut parts = client.server_streaming(Request::new(request), path, codec).await?.into_inner();
    let mut all = Vec::new();
    while let Some(part) = parts.message().await? {
        all.push(part);
    }
    Ok(all)
}

async fn await_ready(client: &mut Grpc<Sender>) -> Called<()> {
    let unready = |error| tonic::Status::unknown(format!("the connection is not ready: {error}"));
    client.ready().await.map_err(unready)
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
