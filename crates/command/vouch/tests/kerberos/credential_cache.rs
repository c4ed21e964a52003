//! Credential cache files in MIT format version 4 (MIT Kerberos documentation, "Credential cache
//! file format"). Tests alter them to send requests that an honest client would not.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) struct CacheFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

const VERSION_4: [u8; 2] = [5, 4];

impl CacheFile {
    pub(crate) fn open(name: &str) -> Self {
        let path = Path::new(name.strip_prefix("FILE:").expect("a cache in a file")).to_owned();
        let bytes = std::fs::read(&path).expect("the cache");
        assert_eq!(bytes[..2], VERSION_4);
        CacheFile { path, bytes }
    }

    pub(crate) fn shift_clock(mut self, seconds: i32) {
        let header_len = usize::from(u16::from_be_bytes([self.bytes[2], self.bytes[3]]));
        // One header field, the KDC time offset: tag, length, seconds, microseconds.
        let mut header = vec![0, 12, 0, 1, 0, 8];
        header.extend_from_slice(&seconds.to_be_bytes());
        header.extend_from_slice(&0i32.to_be_bytes());
        self.bytes.splice(2..4 + header_len, header);
        std::fs::write(&self.path, &self.bytes).expect("the cache");
    }

    /// Adds an hour to the end times of tickets that last at most a minute, so that the client
    /// keeps using them.
    pub(crate) fn extend_tickets(mut self) {
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as u32;
        let word = |bytes: &[u8], at: usize| {
            u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
        };
        let (mut at, mut count) = (0, 0);
        while at + 12 <= self.bytes.len() {
            let [issued, begins, ends] = [0, 4, 8].map(|off| word(&self.bytes, at + off));
            if issued.abs_diff(now) < 300
                && begins.abs_diff(now) < 300
                && begins <= ends
                && ends - begins <= 60
            {
                self.bytes[at + 8..at + 12].copy_from_slice(&(ends + 3600).to_be_bytes());
                (at, count) = (at + 12, count + 1);
            } else {
                at += 1;
            }
        }
        assert!(count >= 2, "the ticket for tickets and the service's: {count}");
        std::fs::write(&self.path, &self.bytes).expect("the cache");
    }
}
