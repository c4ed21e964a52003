//! On loopback; records a client's calls in order.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use vouch_oncrpc::RecordReader;

use crate::Error;

pub(crate) struct RecordingProxy {
    address: SocketAddr,
    calls: Arc<Mutex<Vec<Vec<u8>>>>,
    over: Arc<AtomicBool>,
}

impl Drop for RecordingProxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl RecordingProxy {
    pub(crate) fn begin(server: SocketAddr) -> Result<Self, Error> {
        let failed = || Error::io("proxy on loopback");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed())?;
        listener.set_nonblocking(true).map_err(failed())?;
        let address = listener.local_addr().map_err(failed())?;
        let recorder = Self { address, calls: Arc::default(), over: Arc::default() };
        let (calls, over) = (recorder.calls.clone(), recorder.over.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((client, _)) => drop(relay(client, server, calls.clone())),
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Ok(recorder)
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn calls(&self) -> Vec<Vec<u8>> {
        self.calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

fn relay(
    mut client: TcpStream,
    server: SocketAddr,
    calls: Arc<Mutex<Vec<Vec<u8>>>>,
) -> std::io::Result<()> {
    client.set_nonblocking(false)?;
    let mut server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (mut back_from, mut back_to) = (server.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut back_from, &mut back_to);
        let _ = back_to.shutdown(Shutdown::Write);
    });
    std::thread::spawn(move || {
        let (mut reader, mut bytes) = (RecordReader::new(CALL_LEN_MAX), vec![0; 64 * 1024]);
        while let Ok(n @ 1..) = client.read(&mut bytes) {
            let mut input = &bytes[..n];
            while let Ok(Some(call)) = reader.next(&mut input) {
                calls
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .push(vouch_oncrpc::record(|w| w.raw(&call)));
            }
            if server.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Write);
    });
    Ok(())
}

const CALL_LEN_MAX: usize = 4 << 20;
