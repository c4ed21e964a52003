use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    FlippedByte,
    RangeIgnored,
    EndlessBody,
    Stall,
    Closed,
    RedirectLoop,
    Garbage,
}

impl Fault {
    pub(crate) const ALL: [Fault; 7] = [
        Fault::FlippedByte,
        Fault::RangeIgnored,
        Fault::EndlessBody,
        Fault::Stall,
        Fault::Closed,
        Fault::RedirectLoop,
        Fault::Garbage,
    ];
}

pub(crate) struct WebServer {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
    is_stopped: Arc<AtomicBool>,
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

impl WebServer {
    pub(crate) fn start(root: &Path, fault: Fault, at: usize, place: u64) -> WebServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let (root, counter) = (root.to_owned(), requests.clone());
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = is_stopped.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), root, counter) = (stream, root.clone(), counter.clone()) else {
                    return;
                };
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::spawn(move || {
                    let mut input = BufReader::new(stream.try_clone().unwrap());
                    let mut output = stream;
                    while let Some((path, range)) = request(&mut input) {
                        let number = counter.fetch_add(1, Ordering::SeqCst);
                        let fault = if number >= at { fault } else { Fault::None };
                        if answer(&mut output, &root, &path, range, fault, place).is_none() {
                            return;
                        }
                    }
                });
            }
        });
        WebServer { address, requests, is_stopped }
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn request(input: &mut BufReader<TcpStream>) -> Option<(String, Option<(u64, u64)>)> {
    let (mut path, mut range) = (None, None);
    loop {
        let mut line = String::new();
        if input.by_ref().take(4096).read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            return path.map(|path| (path, range));
        }
        if let Some(rest) = line.strip_prefix("GET ") {
            path = rest.split([' ', '?']).next().map(str::to_owned);
        } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            let (first, last) = value.split_once('-')?;
            range = Some((first.parse().ok()?, last.parse::<u64>().ok()? + 1));
        }
    }
}

fn answer(
    output: &mut TcpStream,
    root: &Path,
    path: &str,
    range: Option<(u64, u64)>,
    fault: Fault,
    place: u64,
) -> Option<()> {
    let reply = match fault {
        Fault::RedirectLoop => {
            format!("HTTP/1.1 302 Found\r\nLocation: {path}\r\nContent-Length: 0\r\n\r\n")
                .into_bytes()
        }
        Fault::Garbage => b"\x16\x03\x01 not HTTP at all\r\n\r\n".to_vec(),
        Fault::Closed => return None,
        Fault::Stall => {
            std::thread::sleep(Duration::from_secs(5));
            return None;
        }
        Fault::EndlessBody => {
            output.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n").ok()?;
            loop {
                output.write_all(&[0x5a; 65_536]).ok()?;
            }
        }
        _ => file_reply(&root.join(path.trim_start_matches('/')), range, fault, place),
    };
    output.write_all(&reply).ok()
}

fn file_reply(file: &Path, range: Option<(u64, u64)>, fault: Fault, place: u64) -> Vec<u8> {
    let Ok(whole) = std::fs::read(file) else {
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
    };
    let len = whole.len() as u64;
    let range = range.filter(|_| fault != Fault::RangeIgnored);
    let (start, end) = range.map_or((0, len), |(start, end)| (start.min(len), end.min(len)));
    let mut body = whole[start as usize..end as usize].to_vec();
    if fault == Fault::FlippedByte && !body.is_empty() {
        let at = place as usize % body.len();
        body[at] ^= 1 << (place % 8);
    }
    let head = if range.is_some() {
        format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-{}/{len}\r\nContent-Length: {}\r\n\r\n",
            end - 1,
            body.len()
        )
    } else {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())
    };
    [head.as_bytes(), &body].concat()
}
