//! 4.0 callbacks arrive on connections that the server opens (RFC 7530 §3.3.3).

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use vouch_oncrpc::RecordReader;
use vouch_xdr::Writer;

use crate::{BackChannel, CallbackHandler};

const RECORD_LEN_MAX: usize = 64 * 1024;

/// Executes 4.0 callbacks from `listener`, one connection at a time, until the task is cancelled.
/// [`crate::Identity::callback_address`] tells the server the listener's address.
///
/// ```no_run
/// # async fn example(address: std::net::SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
/// use vouch_nfs4::Verifier;
/// use vouch_nfs4_client::{Client, Config, Identity, NoCallbacks, Plain, serve_callbacks, universal_address};
///
/// let listener = tokio::net::TcpListener::bind("192.0.2.7:0").await?;
/// let mut identity = Identity::new("example client", Verifier([1; 8]));
/// identity.callback_address = universal_address(listener.local_addr()?);
/// // `NoCallbacks` refuses all callbacks. A real program passes a closure that executes them.
/// tokio::spawn(serve_callbacks(listener, identity.callback_program, NoCallbacks));
/// let client = Client::connect(Config::new(address, 0, identity, Plain::none())).await?;
/// # Ok(())
/// # }
/// ```
pub async fn serve_callbacks(
    listener: TcpListener,
    program: u32,
    mut handler: impl CallbackHandler,
) -> std::io::Result<()> {
    let mut channel = BackChannel::new(program, 0, 1);
    loop {
        let (stream, _) = listener.accept().await?;
        // After a failure the server opens a new connection.
        let _ = serve(stream, &mut channel, &mut handler).await;
    }
}

/// Network identifier and universal address (RFC 5665 §5.2.3) for
/// [`crate::Identity::callback_address`].
pub fn universal_address(address: std::net::SocketAddr) -> (String, String) {
    let (netid, address) = vouch_nfs4::universal_address(address);
    (netid.into(), address)
}

async fn serve(
    mut stream: TcpStream,
    channel: &mut BackChannel,
    handler: &mut dyn CallbackHandler,
) -> std::io::Result<()> {
    let mut reader = RecordReader::new(RECORD_LEN_MAX);
    let mut bytes = [0; 4096];
    loop {
        let n = stream.read(&mut bytes).await?;
        let mut input = &bytes[..n];
        if n == 0 {
            return Ok(());
        }
        let mut out = Writer::new();
        while let Some(record) = reader.next(&mut input).map_err(std::io::Error::other)? {
            channel.answer(&record, handler, &mut out);
        }
        stream.write_all(out.as_bytes()).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_address_ends_with_port_bytes() {
        let address = "192.0.2.1:2049".parse().unwrap();
        assert_eq!(universal_address(address), ("tcp".into(), "192.0.2.1.8.1".into()));
    }
}
