use super::quarantine;
use crate::chain::{Chain, Hash};
use crate::frame::{self, FrameError, Header, Kind, MAGIC};
use crate::merkle::Frontier;
use crate::seal::Seal;

pub(super) struct SegmentScan {
    pub(super) header: Option<Header>,
    pub(super) seal: Option<Seal>,
    pub(super) chain: Chain,
    pub(super) next_seq: u64,
    pub(super) tree: Frontier,
    pub(super) len: usize,
    pub(super) sealed_len: usize,
    pub(super) is_closed: bool,
    pub(super) reported_names: Vec<String>,
}

impl SegmentScan {
    pub(super) fn of(bytes: &[u8]) -> SegmentScan {
        let mut scan = SegmentScan {
            header: None,
            seal: None,
            chain: Chain::START,
            next_seq: 0,
            tree: Frontier::default(),
            len: MAGIC.len().min(bytes.len()),
            sealed_len: 0,
            is_closed: false,
            reported_names: Vec::new(),
        };
        if !bytes.starts_with(&MAGIC) {
            scan.len = 0;
            return scan;
        }
        while !scan.is_closed {
            match frame::parse(&bytes[scan.len..]) {
                Ok(frame) if scan.take(&frame) => {
                    scan.len += frame.len();
                    if matches!(frame.kind, Kind::Checkpoint | Kind::Close) {
                        scan.sealed_len = scan.len;
                    }
                }
                Ok(_) | Err(FrameError::Truncated | FrameError::Malformed) => break,
            }
        }
        scan
    }

    pub(super) fn take(&mut self, frame: &frame::Frame<'_>) -> bool {
        let leaf: Hash = frame.leaf_hash();
        if let Kind::Header = frame.kind {
            let Some(header) = Header::decode(frame.body).filter(|_| self.header.is_none()) else {
                return false;
            };
            self.chain = Chain(header.previous);
            self.next_seq = header.first_seq;
            self.header = Some(header);
        } else if self.header.is_none() {
            return false;
        }
        let chain = self.chain.extend(&leaf);
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
                self.reported_names.extend(quarantine::reported_names(frame.body));
            }
            Kind::Checkpoint | Kind::Close => {
                self.seal = Seal::decode(frame.body);
                self.is_closed = frame.kind == Kind::Close;
            }
        }
        true
    }
}
