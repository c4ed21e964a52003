use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::runtime_directory;
use crate::status::DaemonStatus;
use crate::status_socket::sockets_in;

pub type Answer = (PathBuf, io::Result<DaemonStatus>);

/// Status of all daemons that this user may ask. Takes no longer than the time-out of one daemon.
/// Daemons of root and of this user come first, so that a look-up finds them before what others claim.
pub fn all() -> io::Result<Vec<Answer>> {
    let sockets: Vec<PathBuf> =
        runtime_directory::all().iter().flat_map(|directory| sockets_in(directory)).collect();
    blocking(async {
        let mut asking = JoinSet::new();
        for socket in sockets {
            asking.spawn(async move {
                let status = status(&socket).await;
                (socket, status)
            });
        }
        let mut answers = asking.join_all().await;
        answers.retain(|(_, answer)| !matches!(answer, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused));
        answers.sort_by_cached_key(|(socket, _)| (!is_trusted(socket), socket.clone()));
        Ok(answers)
    })
}

/// Only daemons of root and of this user. Any other user can make a socket that looks like another
/// daemon's, and would get this user's orders or keep them from the right daemon.
pub fn trusted() -> io::Result<Vec<Answer>> {
    let mut answers = all()?;
    answers.retain(|(socket, _)| is_trusted(socket));
    Ok(answers)
}

/// A symbolic link counts as its maker's.
fn is_trusted(socket: &Path) -> bool {
    std::fs::symlink_metadata(socket).is_ok_and(|metadata| {
        metadata.uid() == 0 || metadata.uid() == rustix::process::geteuid().as_raw()
    })
}

pub fn ask(socket: &Path) -> io::Result<DaemonStatus> {
    blocking(status(socket))
}

/// In Prometheus' text format.
pub fn metrics(socket: &Path) -> io::Result<String> {
    let (_, body) = blocking(request(socket, Method::GET, "/metrics", STATUS_WAIT_MAX))?;
    String::from_utf8(body).map_err(io::Error::other)
}

#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The daemon does not run, or does not answer in time.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The old configuration stays in force.
    #[error("{0}")]
    Refused(String),
}

/// Returns warnings.
pub fn reload(socket: &Path) -> Result<Vec<String>, ReloadError> {
    let (status, body) = blocking(request(socket, Method::POST, "/reload", RELOAD_WAIT_MAX))?;
    if status == StatusCode::OK {
        Ok(serde_json::from_slice(&body).map_err(io::Error::from)?)
    } else {
        Err(ReloadError::Refused(String::from_utf8_lossy(&body).trim().to_owned()))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The daemon does not run, does not answer in time, or takes no orders.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The sender may not give this order.
    #[error("{0}")]
    Denied(String),
    /// The order names something that does not exist.
    #[error("{0}")]
    NotFound(String),
    /// Nothing has changed.
    #[error("{0}")]
    Refused(String),
}

/// Sends an order and returns the answer, both in JSON.
pub fn order(socket: &Path, order: Vec<u8>) -> Result<Vec<u8>, OrderError> {
    let (status, body) =
        blocking(request_with(socket, Method::POST, "/order", order, RELOAD_WAIT_MAX))?;
    let text = || String::from_utf8_lossy(&body).trim().to_owned();
    match status {
        StatusCode::OK => Ok(body),
        StatusCode::UNPROCESSABLE_ENTITY => Err(OrderError::NotFound(text())),
        StatusCode::CONFLICT => Err(OrderError::Refused(text())),
        status => Err(io::Error::other(format!("the daemon answered {status}: {}", text())).into()),
    }
}

async fn status(socket: &Path) -> io::Result<DaemonStatus> {
    let (status, body) = request(socket, Method::GET, "/status", STATUS_WAIT_MAX).await?;
    if status != StatusCode::OK {
        return Err(io::Error::other(format!("the daemon answered {status}")));
    }
    Ok(serde_json::from_slice(&body)?)
}

async fn request(
    socket: &Path,
    method: Method,
    path: &str,
    wait_max: Duration,
) -> io::Result<(StatusCode, Vec<u8>)> {
    request_with(socket, method, path, Vec::new(), wait_max).await
}

async fn request_with(
    socket: &Path,
    method: Method,
    path: &str,
    body: Vec<u8>,
    wait_max: Duration,
) -> io::Result<(StatusCode, Vec<u8>)> {
    let exchange = async {
        let stream = UnixStream::connect(socket).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", "vouch")
            .body(Full::new(Bytes::from(body)));
        let response = sender
            .send_request(request.map_err(io::Error::other)?)
            .await
            .map_err(io::Error::other)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_LEN_MAX)
            .collect()
            .await
            .map_err(io::Error::other)?;
        connection.abort();
        Ok((status, body.to_bytes().to_vec()))
    };
    let late = |_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer within {} s", wait_max.as_secs()),
        )
    };
    tokio::time::timeout(wait_max, exchange).await.map_err(late)?
}

/// Uses a thread of its own: the caller may be within a runtime.
fn blocking<T: Send>(work: impl Future<Output = io::Result<T>> + Send) -> io::Result<T> {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work);
    std::thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err(io::Error::other("asking a daemon failed")))
}

const STATUS_WAIT_MAX: Duration = Duration::from_secs(5);

/// A reload resolves the names of hosts.
const RELOAD_WAIT_MAX: Duration = Duration::from_secs(120);

/// An export with 65,536 clients.
const BODY_LEN_MAX: usize = 64 << 20;
