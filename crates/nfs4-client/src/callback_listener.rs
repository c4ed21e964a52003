//! Callbacks of 4.0, which come over connections that the server makes (RFC 7530, section 3.3.3).

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use vouch_oncrpc::RecordReader;
use vouch_xdr::Writer;

use crate::{BackChannel, CallbackHandler};

/// Longest callback that is taken.
const RECORD_LEN_MAX: usize = 64 * 1024;

/// Answers callbacks on `listener`, one connection at a time, until the task is ended.
/// [`crate::Identity::callback_address`] tells the server where it is.
pub async fn serve_callbacks(listener: TcpListener, program: u32, mut handler: impl CallbackHandler) -> std::io::Result<()> {
    let mut channel = BackChannel::new(program, 0, 1);
    loop {
        let (stream, _) = listener.accept().await?;
        // A connection that fails is the server's to make anew.
        let _ = serve(stream, &mut channel, &mut handler).await;
    }
}

/// The universal address of a listener (RFC 5665, section 5.2.3), for
/// [`crate::Identity::callback_address`].
pub fn universal_address(address: std::net::SocketAddr) -> (String, String) {
    let netid = if address.is_ipv4() { "tcp" } else { "tcp6" };
    (netid.into(), format!("{}.{}.{}", address.ip(), address.port() >> 8, address.port() & 0xff))
}

async fn serve(mut stream: TcpStream, channel: &mut BackChannel, handler: &mut dyn CallbackHandler) -> std::io::Result<()> {
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
    fn universal_addresses_end_with_the_ports_bytes() {
        let address = "192.0.2.1:2049".parse().unwrap();
        assert_eq!(universal_address(address), ("tcp".into(), "192.0.2.1.8.1".into()));
    }
}
