//! One bit of a call, or of a reply, is another one on its way, at each position in turn: nobody
//! believes it, and nothing is done. Where bodies are not proven, at each of the header: of a call
//! what its verifier is over, and that; of a reply what is up to its verifier's end (RFC 2203,
//! sections 5.3.1 and 5.3.3.2).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use vouch_nfs4::{Status, Verifier};
use vouch_nfs4_client::{CallBuilder, CallKind, Core, Identity, Protection};
use vouch_xdr::Writer;

use crate::retry::{introduce, write_remove};

/// What is proven of each message.
#[derive(Clone, Copy)]
pub(crate) enum Proven {
    All,
    Header,
}

impl Proven {
    /// Bits of a message that are: its words up to the first opaque item that are neither flavour
    /// nor length, and `items` of those.
    fn bits(self, message: &[u8], words: usize, items: usize) -> usize {
        8 * match self {
            Self::All => message.len(),
            Self::Header => (0..items).fold(4 * words, |at, _| {
                let len = u32::from_be_bytes(message[at + 4..at + 8].try_into().expect("four bytes"));
                at + 8 + (len as usize).next_multiple_of(4)
            }),
        }
    }
}

/// A record's mark, which is the transport's: where a record ends is nobody's secret, and another
/// end is another record.
const MARK_LEN: usize = 4;

/// Removes this file of the export with a call that arrives altered many times before it arrives as
/// it was sent.
pub(crate) fn remove_at_last(address: SocketAddr, protection: Box<dyn Protection>, proven: Proven, name: &str) {
    let identity = Identity::new(format!("altered {name}").into_bytes(), Verifier([9; 8]));
    let mut core = introduce(&identity, protection, |record| exchange(address, record).expect("an answer"));
    let write = |call: CallBuilder, core: &mut Core, w: &mut Writer| write_remove(call, core, w, name);
    let mut w = Writer::new();
    let call = core.begin(9, CallKind::Session { cache: true }, &mut w).expect("a context").expect("a slot");
    write(call, &mut core, &mut w);
    // Who was refused at once, by an answer that is proved, asks anew.
    let again = |core: &mut Core| {
        let mut w = Writer::new();
        let call = match core.begin_again(9, &mut w).expect("a context") {
            Some(call) => call,
            None => core.begin(9, CallKind::Session { cache: true }, &mut w).expect("a context").expect("a slot"),
        };
        write(call, core, &mut w);
        w
    };
    // Transaction, direction, versions, program and procedure; credential and verifier.
    let bits = proven.bits(&w.as_bytes()[MARK_LEN..], 6, 2);
    for bit in 0..bits {
        // Each with its own number: an altered one is not a replay of the one before.
        let w = again(&mut core);
        let mut record = w.as_bytes().to_vec();
        record[MARK_LEN + bit / 8] ^= 1 << (bit % 8);
        // The end of the connection is an answer too.
        if let Some(answer) = exchange(address, &record) {
            let mut scratch = Vec::new();
            let believed = core.reply(&answer, &mut scratch);
            assert!(
                !matches!(&believed, Ok(Some(completion)) if completion.outcome.is_ok()),
                "bit {bit} of {bits} of a call: {believed:?}"
            );
        }
    }
    let w = again(&mut core);
    let answer = exchange(address, w.as_bytes()).expect("an answer");
    // Transaction, direction and whether it is accepted; the verifier.
    let bits = proven.bits(&answer, 3, 1);
    for bit in 0..bits {
        let mut altered = answer.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        let mut scratch = Vec::new();
        let believed = core.reply(&altered, &mut scratch);
        assert!(!matches!(&believed, Ok(Some(_))), "bit {bit} of {bits} of a reply: {believed:?}");
    }
    let mut scratch = Vec::new();
    let completion = core.reply(&answer, &mut scratch).expect("its proof holds").expect("a reply to the call");
    // Had one of the altered calls been done, it would be NOENT.
    assert_eq!(completion.outcome.expect("it is accepted").status, Status::OK);
}

/// Sends a record on a connection of its own; the answer, if there is one before the end.
fn exchange(address: SocketAddr, record: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    stream.write_all(record).expect("it is sent");
    let mut mark = [0; MARK_LEN];
    match stream.read_exact(&mut mark) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("neither an answer nor an end"),
        Err(_) => return None,
        Ok(()) => (),
    }
    let mut answer = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut answer).expect("the answer is whole");
    Some(answer)
}
