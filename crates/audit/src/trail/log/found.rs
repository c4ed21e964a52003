//! Scans an existing segment up to where its hash chain breaks.

use super::aside;
use crate::chain::{Chain, Hash};
use crate::frame::{self, FrameError, Header, Kind, MAGIC};
use crate::merkle::Frontier;
use crate::seal::Seal;

/// The intact content of a segment.
pub(super) struct Found {
    pub(super) header: Option<Header>,
    pub(super) seal: Option<Seal>,
    pub(super) chain: Chain,
    pub(super) next_seq: u64,
    pub(super) tree: Frontier,
    pub(super) len: usize,
    /// Length up to the last seal.
    pub(super) sealed_len: usize,
    pub(super) is_closed: bool,
    /// Quarantine files that its records name.
    pub(super) told: Vec<String>,
}

impl Found {
    pub(super) fn of(bytes: &[u8]) -> Found {
        let mut found = Found {
            header: None,
            seal: None,
            chain: Chain::START,
            next_seq: 0,
            tree: Frontier::default(),
            len: MAGIC.len().min(bytes.len()),
            sealed_len: 0,
            is_closed: false,
            told: Vec::new(),
        };
        if !bytes.starts_with(&MAGIC) {
            found.len = 0;
            return found;
        }
        while !found.is_closed {
            match frame::parse(&bytes[found.len..]) {
                Ok(frame) if found.take(&frame) => {
                    found.len += frame.len();
                    if matches!(frame.kind, Kind::Checkpoint | Kind::Close) {
                        found.sealed_len = found.len;
                    }
                }
                Ok(_) | Err(FrameError::Cut | FrameError::Malformed) => break,
            }
        }
        found
    }

    pub(super) fn take(&mut self, frame: &frame::Frame<'_>) -> bool {
        let leaf: Hash = frame.leaf();
        if let Kind::Header = frame.kind {
            let Some(header) = Header::decode(frame.body).filter(|_| self.header.is_none()) else { return false };
            self.chain = Chain(header.previous);
            self.next_seq = header.first_seq;
            self.header = Some(header);
        } else if self.header.is_none() {
            return false;
        }
        let chain = self.chain.then(&leaf);
        if chain.tag() != frame.tag {
            if frame.kind == Kind::Header {
                self.header = None;
            }
            return false;
        }
        self.chain = chain;
        match frame.kind {
            Kind::Header => self.tree.push(leaf),
            Kind::Record => {
                self.tree.push(leaf);
                self.next_seq += 1;
                self.told.extend(aside::told(frame.body));
            }
            Kind::Checkpoint | Kind::Close => {
                self.seal = Seal::decode(frame.body);
                self.is_closed = frame.kind == Kind::Close;
            }
        }
        true
    }
}
