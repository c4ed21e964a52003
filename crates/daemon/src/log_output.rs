//! Standard error, or for background processes the system's log.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;

/// Sends later lines to the system's log: standard error belongs to a command that ends.
pub fn leave_standard_error() {
    let connect = || {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SYSTEM_LOG)?;
        socket.set_nonblocking(true)?;
        io::Result::Ok(socket)
    };
    let _ = SYSTEM.set(connect().ok());
}

/// systemd.exec(5), JOURNAL_STREAM.
pub fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let numbers =
        named.as_deref().and_then(|text| text.split_once(':')).and_then(|(dev, inode)| Some((dev.parse().ok()?, inode.parse().ok()?)));
    rustix::fs::fstat(io::stderr()).is_ok_and(|stat| numbers == Some((stat.st_dev, stat.st_ino)))
}

/// To the system's log after [`leave_standard_error`].
pub struct LogOutput;

impl io::Write for LogOutput {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        match SYSTEM.get() {
            None => io::stderr().write_all(record)?,
            Some(Some(socket)) => {
                // RFC 3164 §4.1.1 and 4.1.3: facility daemon, severity warning; the receiver adds
                // time and host.
                let mut message = format!("<28>vouch[{}]: ", std::process::id()).into_bytes();
                message.extend_from_slice(record.trim_ascii_end());
                let _ = socket.send(&message);
            }
            Some(None) => {}
        }
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

static SYSTEM: OnceLock<Option<UnixDatagram>> = OnceLock::new();

const SYSTEM_LOG: &str = "/dev/log";
