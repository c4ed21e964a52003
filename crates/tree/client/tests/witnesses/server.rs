//! Witnesses (C2SP tlog-witness) over HTTP/1.1, honest and otherwise.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use vouch_log::key::{Algorithm, Signer, VerifierKey};
use vouch_log::merkle::{Hash, verify_consistency};
use vouch_log::witness::{AddCheckpoint, SIZE_CONTENT_TYPE, monitor_path};

/// Status, content type and body.
pub(crate) type Answer = (u16, &'static str, String);

pub(crate) struct WitnessServer {
    pub(crate) url: String,
}

impl WitnessServer {
    /// The closure gets the body of a request to cosign, or `GET PATH` below the prefix.
    pub(crate) fn start(answer: impl FnMut(&[u8]) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/prefix", listener.local_addr().expect("an address"));
        let answer = Arc::new(Mutex::new(answer));
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = answer.clone();
                std::thread::spawn(move || serve(&stream, &*answer));
            }
        });
        Self { url }
    }

    /// Takes connections and never answers.
    pub(crate) fn silent() -> Self {
        Self::start(|_| {
            loop {
                std::thread::park();
            }
        })
    }

    /// `latency`: of each answer.
    pub(crate) fn honest(witness: HonestWitness, latency: Duration) -> Self {
        let mut witness = witness;
        Self::start(move |body| {
            std::thread::sleep(latency);
            witness.answer(body)
        })
    }
}

fn serve(stream: &TcpStream, answer: &Mutex<impl FnMut(&[u8]) -> Answer>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        let mut is_first = true;
        let mut shown = None;
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if is_first {
                let path = line.strip_prefix("GET /prefix").and_then(|rest| rest.split(' ').next());
                shown = path.map(|path| format!("GET {path}"));
                let is_post = line.starts_with("POST /prefix/add-checkpoint HTTP/1.1");
                assert!(is_post || shown.is_some(), "{line}");
            }
            is_first = false;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body");
        let body = shown.map_or(body, String::into_bytes);
        let (status, kind, text) = (answer.lock().expect("no panic"))(&body);
        let head = format!(
            "HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        let mut stream = stream;
        if stream.write_all((head + &text).as_bytes()).is_err() {
            return;
        }
    }
}

/// Follows one log, whose key it knows.
pub(crate) struct HonestWitness {
    pub(crate) signer: Signer,
    pub(crate) log: VerifierKey,
    pub(crate) seen: (u64, Hash),
    pub(crate) time: fn() -> u64,
    /// For monitors. `None`: it shows no heads.
    pub(crate) shown: Option<String>,
}

impl HonestWitness {
    pub(crate) fn new(seed: u8, log: VerifierKey, time: fn() -> u64) -> Self {
        Self { signer: signer(seed), log, seen: (0, Hash::EMPTY_TREE), time, shown: None }
    }

    /// One that shows its newest head.
    pub(crate) fn open(self) -> Self {
        Self { shown: Some(String::new()), ..self }
    }

    pub(crate) fn answer(&mut self, body: &[u8]) -> Answer {
        if let Some(path) = body.strip_prefix(b"GET ") {
            let shown = self.shown.clone().filter(|head| !head.is_empty());
            let is_found = path == monitor_path(self.log.name()).as_bytes();
            return match shown.filter(|_| is_found) {
                Some(head) => (200, "text/plain", head),
                None => refused(404),
            };
        }
        let Ok(request) = AddCheckpoint::parse(body) else { return refused(400) };
        let head = request.checkpoint.checkpoint();
        if head.origin != self.log.name() {
            return refused(404);
        }
        if request.checkpoint.note().verify(&[&self.log]).is_err() {
            return refused(403);
        }
        if request.old_size > head.size {
            return refused(400);
        }
        if request.old_size != self.seen.0 {
            return (409, SIZE_CONTENT_TYPE, format!("{}\n", self.seen.0));
        }
        let now = (head.size, head.root);
        let is_consistent = match self.seen.0 {
            0 => request.proof.is_empty(),
            _ => verify_consistency(self.seen, now, &request.proof).is_ok(),
        };
        if !is_consistent {
            return refused(422);
        }
        self.seen = now;
        let cosignature = self.signer.sign(request.checkpoint.note().text(), (self.time)());
        let cosignature = cosignature.expect("a checkpoint");
        if let Some(shown) = &mut self.shown {
            let mut head = request.checkpoint.clone();
            head.note_mut().add(cosignature.clone()).expect("a cosignature");
            *shown = head.to_text();
        }
        (200, "text/plain", cosignature.line())
    }
}

pub(crate) fn refused(status: u16) -> Answer {
    (status, "text/plain", "no\n".to_owned())
}

/// The witness `wSEED.example`.
pub(crate) fn signer(seed: u8) -> Signer {
    let name = format!("w{seed}.example");
    Signer::from_seed(&name, Algorithm::CosignatureEd25519, &[seed; 32]).expect("a key")
}
