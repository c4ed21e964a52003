//! Waits for the other system's acknowledgement of all written data and of the stream's end.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use vouch_daemon::unacknowledged::unacknowledged_len;

/// Call it when both sides have ended the stream. A stopped collector may end its side while
/// records are on their way. Its system acknowledges our end only on a readable socket, and resets
/// the connection otherwise.
pub(super) fn wait(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let left = unacknowledged_len(stream)?;
        // After the check, so that a reset in between is noticed.
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        if left == 0 {
            return Ok(());
        }
        if begun.elapsed() > limit {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(STEP);
    }
}

const STEP: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    #[test]
    fn data_read_before_the_end_is_acknowledged() {
        let (mut ours, mut theirs) = pair();
        ours.write_all(b"records").unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
        theirs.read_to_end(&mut Vec::new()).unwrap();
        drop(theirs);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        wait(&ours, Duration::from_secs(30)).unwrap();
    }

    #[test]
    fn early_end_by_receiver_is_no_acknowledgement() {
        let (mut ours, theirs) = pair();
        drop(theirs);
        // Our own system accepts the first write after the other side's end.
        ours.write_all(b"records").unwrap();
        let ended = ours
            .shutdown(Shutdown::Write)
            .and_then(|()| ours.read(&mut [0]))
            .and_then(|_| wait(&ours, Duration::from_secs(30)));
        assert!(ended.is_err());
    }
}
