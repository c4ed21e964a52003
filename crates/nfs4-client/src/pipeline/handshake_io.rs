use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::tls::Stream;
use crate::{Error, TlsClient};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn connect_with(address: SocketAddr, tls: Option<&TlsClient>) -> Result<Stream, Error> {
    let stream = connect(address, HANDSHAKE_TIMEOUT)?;
    match tls {
        None => Ok(Stream::Plain(stream)),
        Some(tls) => tls.upgrade(stream),
    }
}

fn connect(address: SocketAddr, timeout: Duration) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

pub(crate) fn exchange(stream: &mut (impl Read + Write), call: &[u8], record_len_max: usize) -> Result<Vec<u8>, Error> {
    let late = |error: io::Error| if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error };
    stream.write_all(call).map_err(late)?;
    let mut reader = vouch_oncrpc::RecordReader::new(record_len_max);
    let mut bytes = [0; 4096];
    loop {
        let n = match stream.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(late)?,
        };
        if n == 0 {
            return Err(Error::Lost);
        }
        if let Some(record) = reader.next(&mut &bytes[..n])? {
            return Ok(record.into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchange_times_out_when_server_is_silent() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut stream =
            connect(listener.local_addr().expect("a port"), Duration::from_millis(50)).expect("the system accepts the connection");
        let silent = exchange(&mut stream, b"a call", 4096);
        assert!(matches!(&silent, Err(Error::Io(error)) if error.kind() == io::ErrorKind::TimedOut), "{silent:?}");
    }
}
