//! A call or reply with any single flipped bit is rejected and has no effect.
//!
//! Without integrity only the protected header is altered: of a call the words that its verifier
//! covers and the verifier; of a reply everything up to its verifier's end (RFC 2203, sections
//! 5.3.1 and 5.3.3.2).

use std::io::{Read as _, Write as _};

use vouch_nfs4_client::{CallBuilder, CallKind, Core};

use crate::prelude::*;
use crate::retransmission::{introduce, write_remove};

#[derive(Clone, Copy)]
pub(crate) enum ProtectedPart {
    All,
    Header,
}

impl ProtectedPart {
    fn bits(self, message: &[u8], words: usize, items: usize) -> usize {
        8 * match self {
            Self::All => message.len(),
            Self::Header => (0..items).fold(4 * words, |at, _| {
                let len =
                    u32::from_be_bytes(message[at + 4..at + 8].try_into().expect("four bytes"));
                at + 8 + (len as usize).next_multiple_of(4)
            }),
        }
    }
}

const MARK_LEN: usize = 4;

pub(crate) fn remove_after_bit_flips(
    address: SocketAddr,
    protection: Box<dyn Protection>,
    protected: ProtectedPart,
    name: &str,
) {
    let identity = Identity::new(format!("altered {name}").into_bytes(), Verifier([9; 8]));
    let mut core =
        introduce(&identity, protection, |record| exchange(address, record).expect("an answer"));
    let write =
        |call: CallBuilder, core: &mut Core, w: &mut Writer| write_remove(call, core, w, name);
    let mut w = Writer::new();
    let call = core
        .begin(9, CallKind::Session { cache: true }, &mut w)
        .expect("a context")
        .expect("a slot");
    write(call, &mut core, &mut w);
    // After an authenticated refusal the call needs a new sequence number.
    let next_attempt = |core: &mut Core| {
        let mut w = Writer::new();
        let call = match core.begin_again(9, &mut w).expect("a context") {
            Some(call) => call,
            None => core
                .begin(9, CallKind::Session { cache: true }, &mut w)
                .expect("a context")
                .expect("a slot"),
        };
        write(call, core, &mut w);
        w
    };
    // Six words (xid, message type, RPC version, program, version, procedure), then credential and
    // verifier.
    let bits = protected.bits(&w.as_bytes()[MARK_LEN..], 6, 2);
    for bit in 0..bits {
        // A new sequence number, so that the call is no replay.
        let w = next_attempt(&mut core);
        let mut record = w.as_bytes().to_vec();
        record[MARK_LEN + bit / 8] ^= 1 << (bit % 8);
        if let Some(answer) = exchange(address, &record) {
            let mut scratch = Vec::new();
            let accepted = core.reply(&answer, &mut scratch);
            assert!(
                !matches!(&accepted, Ok(Some(completion)) if completion.outcome.is_ok()),
                "bit {bit} of {bits} of a call: {accepted:?}"
            );
        }
    }
    let w = next_attempt(&mut core);
    let answer = exchange(address, w.as_bytes()).expect("an answer");
    // Three words (xid, message type, reply status), then the verifier.
    let bits = protected.bits(&answer, 3, 1);
    for bit in 0..bits {
        let mut altered = answer.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        let mut scratch = Vec::new();
        let accepted = core.reply(&altered, &mut scratch);
        assert!(!matches!(&accepted, Ok(Some(_))), "bit {bit} of {bits} of a reply: {accepted:?}");
    }
    let mut scratch = Vec::new();
    let completion = core
        .reply(&answer, &mut scratch)
        .expect("the reply verifies")
        .expect("a reply to the call");
    // An executed altered call would give NFS4ERR_NOENT.
    assert_eq!(completion.outcome.expect("the server accepts the call").status, Status::OK);
}

fn exchange(address: SocketAddr, record: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    stream.write_all(record).expect("the record is sent");
    let mut mark = [0; MARK_LEN];
    match stream.read_exact(&mut mark) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            panic!("no reply within the time-out")
        }
        Err(_) => return None,
        Ok(()) => (),
    }
    let mut answer = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut answer).expect("the reply is complete");
    Some(answer)
}
