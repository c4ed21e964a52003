use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use vouch_oncrpc::{RECORD_MARK_LEN, RecordReader};
use vouch_xdr::Writer;

use crate::back_channel::is_call;
use crate::record_buffer::fragment_len;
use crate::tls::Stream;
use crate::{Error, TlsClient};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
const OTHER_RECORDS_MAX: usize = 256;

pub(super) fn connect_with(
    address: SocketAddr,
    source: Option<IpAddr>,
    tls: Option<&TlsClient>,
) -> Result<Stream, Error> {
    let stream = connect(address, source, HANDSHAKE_TIMEOUT)?;
    match tls {
        None => Ok(Stream::Plain(stream)),
        Some(tls) => tls.upgrade(stream),
    }
}

fn connect(
    address: SocketAddr,
    source: Option<IpAddr>,
    timeout: Duration,
) -> Result<TcpStream, Error> {
    let stream = match source {
        None => TcpStream::connect_timeout(&address, timeout)?,
        Some(source) => connect_from(source, address, timeout)?,
    };
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

/// The standard library cannot bind a socket before it connects.
fn connect_from(source: IpAddr, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::bind(&socket, &SocketAddr::new(source, 0))?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    net::connect(&socket, &address)?;
    Ok(socket.into())
}

/// Reads no byte after the reply: a call of the server may follow it. `answer_call` appends the
/// replies to such calls (RFC 8881 §2.10.3). Replies to other calls are skipped, as NFS-Ganesha 15.2
/// sends them.
pub(crate) fn exchange(
    stream: &mut (impl Read + Write),
    call: &[u8],
    record_len_max: usize,
    mut answer_call: impl FnMut(&[u8], &mut Writer),
) -> Result<Vec<u8>, Error> {
    stream.write_all(call).map_err(late)?;
    let xid = call.get(RECORD_MARK_LEN..RECORD_MARK_LEN + 4);
    for _ in 0..OTHER_RECORDS_MAX {
        let record = read_record(stream, record_len_max)?;
        if is_call(&record) {
            let mut answers = Writer::new();
            answer_call(&record, &mut answers);
            stream.write_all(answers.as_bytes()).map_err(late)?;
        } else if record.get(..4) == xid {
            return Ok(record);
        }
    }
    Err(Error::Mismatch("too many records before the reply"))
}

fn read_record(stream: &mut impl Read, record_len_max: usize) -> Result<Vec<u8>, Error> {
    let mut reader = RecordReader::new(record_len_max);
    let mut bytes = [0; 4096];
    loop {
        let mut mark = [0; RECORD_MARK_LEN];
        stream.read_exact(&mut mark).map_err(late)?;
        let mut left = fragment_len(mark);
        let mut record = reader.next(&mut &mark[..])?.map(Cow::into_owned);
        while left > 0 {
            let part = &mut bytes[..left.min(4096)];
            stream.read_exact(part).map_err(late)?;
            left -= part.len();
            record = reader.next(&mut &*part)?.map(Cow::into_owned);
        }
        if let Some(record) = record {
            return Ok(record);
        }
    }
}

fn late(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::from(io::ErrorKind::TimedOut).into(),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchange_times_out_when_server_is_silent() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut stream =
            connect(listener.local_addr().expect("a port"), None, Duration::from_millis(50))
                .expect("the system accepts the connection");
        let silent = exchange(&mut stream, b"a call", 4096, |_, _| {});
        assert!(
            matches!(&silent, Err(Error::Io(error)) if error.kind() == io::ErrorKind::TimedOut),
            "{silent:?}"
        );
    }
}
