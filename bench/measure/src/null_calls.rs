//! RPC NULL calls in a plain loop: the highest rate of one core as a client.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vouch_oncrpc::{Accepted, Call, RECORD_MARK_LEN, RecordReader, Reply, write_record};
use vouch_xdr::Writer;

use crate::{Error, cpu};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NullCallRate {
    pub calls: u64,
    pub seconds: f64,
    /// CPU seconds of the calling thread.
    pub thread_s: f64,
}

impl NullCallRate {
    pub fn calls_a_core(&self) -> f64 {
        self.calls as f64 / self.thread_s
    }
}

/// `depth` calls in flight on one connection. Without an address, a thread of this process answers.
pub fn measure(
    address: Option<SocketAddr>,
    program: (u32, u32),
    depth: u32,
    time: Duration,
) -> Result<NullCallRate, Error> {
    let address = match address {
        Some(address) => address,
        None => start_null_server()?,
    };
    let failed = || Error::io(format!("NULL of {address}"));
    let mut stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)
        .map_err(|error| Error::Unreachable(format!("{address}: {error}")))?;
    stream.set_nodelay(true).map_err(failed())?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).map_err(failed())?;
    let mut reader = RecordReader::new(RECORD_LEN_MAX);
    let (mut w, mut bytes) = (Writer::new(), vec![0; 256 * 1024]);
    let (mut outstanding, mut calls) = (depth, 0u64);
    let mut lanes: Vec<u32> = (0..depth).collect();
    lanes.iter().for_each(|&xid| call(&mut w, xid, program));
    let (start, thread) = (Instant::now(), cpu::thread_s());
    while outstanding > 0 {
        stream.write_all(w.as_bytes()).map_err(failed())?;
        w.truncate(0);
        let n = stream.read(&mut bytes).map_err(failed())?;
        if n == 0 {
            return Err(Error::Unreachable(format!("{address}: the server closed the connection")));
        }
        let more = start.elapsed() < time;
        let mut input = &bytes[..n];
        while let Some(record) = reader
            .next(&mut input)
            .map_err(|error| Error::Refused(format!("{address}: {error}")))?
        {
            let reply = Reply::decode(&record)
                .map_err(|error| Error::Refused(format!("{address}: {error}")))?;
            let fits = matches!(
                reply.body,
                vouch_oncrpc::ReplyBody::Accepted { outcome: Accepted::Success(_), .. }
            );
            let lane = lanes
                .get_mut((reply.xid % depth) as usize)
                .filter(|lane| fits && **lane == reply.xid);
            let lane = lane.ok_or_else(|| {
                Error::Refused(format!("{address}: the answer does not match a NULL call"))
            })?;
            calls += 1;
            if more {
                *lane = lane.checked_add(depth).unwrap_or(*lane % depth);
                call(&mut w, *lane, program);
            } else {
                outstanding -= 1;
            }
        }
    }
    Ok(NullCallRate {
        calls,
        seconds: start.elapsed().as_secs_f64(),
        thread_s: cpu::thread_s() - thread,
    })
}

fn call(w: &mut Writer, xid: u32, (program, version): (u32, u32)) {
    write_record(w, |w| Call::new(xid, (program, version), 0, &[]).encode(w));
}

fn start_null_server() -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("a port of loopback"))?;
    let address = listener.local_addr().map_err(Error::io("a port of loopback"))?;
    let answer = move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let (mut reader, mut w, mut bytes) =
            (RecordReader::new(RECORD_LEN_MAX), Writer::new(), vec![0; 256 * 1024]);
        loop {
            let n = stream.read(&mut bytes)?;
            if n == 0 {
                return Ok(());
            }
            let mut input = &bytes[..n];
            while let Ok(Some(record)) = reader.next(&mut input) {
                let Some(xid) = record.first_chunk::<4>() else { return Ok(()) };
                let reply = Reply::accepted(u32::from_be_bytes(*xid), Accepted::Success(&[]));
                write_record(&mut w, |w| reply.encode(w));
            }
            stream.write_all(w.as_bytes())?;
            w.truncate(0);
        }
    };
    std::thread::Builder::new()
        .name("null".into())
        .spawn(move || drop(answer()))
        .map_err(Error::io("a thread"))?;
    Ok(address)
}

const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
const RECORD_LEN_MAX: usize = 64 * 1024 + RECORD_MARK_LEN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_answered() {
        let ceiling =
            measure(None, (100_003, 4), 64, Duration::from_millis(200)).expect("loopback");
        assert!(
            ceiling.calls >= 64 && ceiling.thread_s > 0.0 && ceiling.calls_a_core() > 0.0,
            "{ceiling:?}"
        );
    }

    #[test]
    fn answers_may_come_in_any_order() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("a port");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream
                .set_read_timeout(Some(Duration::from_millis(20)))
                .expect("a time that is not zero");
            let (mut reader, mut bytes) = (RecordReader::new(RECORD_LEN_MAX), [0; 4096]);
            let mut waiting: Vec<u32> = Vec::new();
            loop {
                let kept = match stream.read(&mut bytes) {
                    Ok(0) => return,
                    Ok(n) => {
                        let mut input = &bytes[..n];
                        while let Ok(Some(record)) = reader.next(&mut input) {
                            waiting
                                .push(u32::from_be_bytes(*record.first_chunk().expect("a number")));
                        }
                        waiting.len().min(1)
                    }
                    Err(_) => 0,
                };
                let mut w = Writer::new();
                for xid in waiting.drain(kept..).rev() {
                    let reply = Reply::accepted(xid, Accepted::Success(&[]));
                    write_record(&mut w, |w| reply.encode(w));
                }
                let _ = stream.write_all(w.as_bytes());
            }
        });
        let ceiling = measure(Some(address), (100_003, 4), 8, Duration::from_millis(100))
            .expect("answers, in another order");
        assert!(ceiling.calls >= 8, "{ceiling:?}");
        server.join().expect("the server ends");
    }

    #[test]
    fn detects_wrong_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("a port");
        let liar = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.write_all(&[0x80, 0, 0, 4, 1, 2, 3, 4]);
        });
        assert!(measure(Some(address), (100_003, 4), 4, Duration::from_millis(200)).is_err());
        liar.join().expect("the fake server ends");
    }
}
