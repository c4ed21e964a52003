//! Calls in flight through the load driver are protected and verified in batches, and replies match
//! their calls.

use vouch_nfs4::op::{PutfhArgs, ReadArgs, Results, StableHow, WriteArgs};
use vouch_nfs4::{Bytes, Filehandle, Stateid};
use vouch_nfs4_client::Pipeline;

use crate::prelude::*;

/// In a batch the long ones occupy a lane for long, the short ones only for a block or two.
const LENGTHS: [usize; 7] = [1 << 20, 4096, 300_000, 64, 65_536, 1 << 20, 1 << 20];
const PIECES: usize = 28;

fn pieces() -> Vec<(u64, usize)> {
    let lengths = (0..PIECES).map(|at| LENGTHS[at % LENGTHS.len()]);
    let mut at = 0;
    lengths
        .map(|len| {
            let piece = (at, len);
            at += len as u64;
            piece
        })
        .collect()
}

pub(crate) fn content() -> Vec<u8> {
    let len = pieces().iter().map(|(_, len)| len).sum::<usize>();
    (0..len as u64).map(|at| (at.wrapping_mul(at | 1) >> 11) as u8).collect()
}

pub(crate) fn write_and_read(
    address: SocketAddr,
    name: &str,
    handle: Filehandle,
    connections: usize,
    protection: Box<dyn Protection>,
) {
    let identity = Identity { slots: 32, ..Identity::new(name.as_bytes(), Verifier([9; 8])) };
    let (content, pieces) = (content(), pieces());
    let mut pipeline =
        Pipeline::connect(address, 1, connections, &identity, protection).expect("a session");
    for writing in [true, false] {
        let (mut next, mut done, end) = (0, 0, Instant::now() + Duration::from_secs(120));
        while done < PIECES {
            while next < PIECES {
                let (offset, len) = pieces[next];
                let submitted = pipeline.submitter().submit(next as u64, |call, w| {
                    call.op(w, &Args::Putfh(PutfhArgs { handle }));
                    let stateid = Stateid::ANONYMOUS;
                    let data = &content[offset as usize..][..len];
                    match writing {
                        true => call.op(
                            w,
                            &Args::Write(WriteArgs {
                                stateid,
                                offset,
                                stable: StableHow::Unstable,
                                data: Bytes(data),
                            }),
                        ),
                        false => {
                            call.op(w, &Args::Read(ReadArgs { stateid, offset, count: len as u32 }))
                        }
                    }
                });
                if !submitted.expect("a call") {
                    break;
                }
                next += 1;
            }
            let turn = pipeline.poll(Some(Duration::from_secs(60)), |_, token, body| {
                let (offset, len) = pieces[token as usize];
                let mut body = body.expect("a reply");
                body.next_ok().expect("PUTFH's result");
                match body.next_ok().expect("a result") {
                    Results::Write(Ok(ok)) => assert_eq!(ok.count as usize, len),
                    Results::Read(Ok(ok)) => assert!(
                        ok.data[..] == content[offset as usize..][..len],
                        "{name} at {offset}"
                    ),
                    other => panic!("{other:?}"),
                }
                done += 1;
            });
            // A turn may also end because the socket is writable.
            turn.expect("the connections");
            assert!(Instant::now() < end, "{name}: {done} answers");
        }
    }
}
