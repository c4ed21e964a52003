//! Many clients that do nothing: each with a connection, a client id and a session of its own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use vouch_nfs4::Verifier;
use vouch_nfs4_client::{Core, Error, Handshake, Identity, Plain};
use vouch_oncrpc::RecordReader;
use vouch_xdr::Writer;

use super::superuser;
use crate::OrStop as _;

/// Connects so many clients, many at a time; they stay for as long as the value.
pub fn connect(port: u16, clients: usize) -> Vec<TcpStream> {
    let share = |at: usize| (at..clients).step_by(AT_ONCE).map(|number| one(port, number).or_stop(format!("client {number}"))).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|at| scope.spawn(move || -> Vec<TcpStream> { share(at) })).collect();
        threads.into_iter().flat_map(|thread| thread.join().map_err(|_| "a client failed").or_stop("clients")).collect()
    })
}

/// Clients that introduce themselves at the same time.
const AT_ONCE: usize = 64;

fn one(port: u16, number: usize) -> Result<TcpStream, Error> {
    // Loopback addresses enough that ports never run out.
    let address = SocketAddr::from(([127, 0, 0, (number % 32) as u8 + 1], port));
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let identity = Identity { slots: 64, ..Identity::new(format!("idle client {number}"), Verifier([1; 8])) };
    let mut core = Core::new(1, Box::new(Plain::sys(&superuser())), number as u32);
    let mut handshake = Handshake::new(1);
    let (mut scratch, mut bytes) = (Vec::new(), [0; 4096]);
    while let Some((kind, args)) = handshake.request(&identity) {
        let mut w = Writer::new();
        let mut call = core.begin(0, kind, &mut w)?.ok_or(Error::Lost)?;
        call.op(&mut w, &args);
        core.end(call, &mut w)?;
        stream.write_all(w.as_bytes())?;
        let mut reader = RecordReader::new(bytes.len());
        let record = loop {
            let n = stream.read(&mut bytes)?;
            if n == 0 {
                return Err(Error::Lost);
            }
            if let Some(record) = reader.next(&mut &bytes[..n])? {
                break record.into_owned();
            }
        };
        let completion = core.reply(&record, &mut scratch)?.ok_or(Error::Mismatch("a reply to no call"))?;
        handshake.accept(&identity, completion.outcome?, &mut core)?;
    }
    Ok(stream)
}
