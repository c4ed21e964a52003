//! Replies that came together: looked at side by side, then completed one by one, in their order.

use vouch_oncrpc::{Accepted, Reply as RpcReply, ReplyBody as RpcBody};

use super::{Completion, Core, not_accepted, refusal};
use crate::{Error, Received};

/// A reply that was looked at.
pub(crate) enum Arrived<'a> {
    /// No reply at all: the connection's end.
    Broken(Error),
    /// To no call that waits, as after a retry.
    Unawaited,
    /// To the call of this transaction.
    Reply {
        xid: u32,
        /// The results in clear.
        results: Result<&'a [u8], Error>,
    },
}

/// Replies whose calls are known.
pub(crate) struct Sorted<'a> {
    arrived: Vec<Arrived<'a>>,
    /// Those that wait to be opened, and of each its place above and its transaction.
    pub(crate) received: Vec<Received<'a>>,
    places: Vec<(usize, u32)>,
}

impl<'a> Sorted<'a> {
    /// Those that were opened among the others, in their order.
    pub(crate) fn opened(self) -> Vec<Arrived<'a>> {
        let Sorted { mut arrived, received, places } = self;
        for (Received { record, results, .. }, (at, xid)) in received.into_iter().zip(places) {
            let record: &'a [u8] = record;
            arrived[at] = Arrived::Reply { xid, results: results.map(|range| &record[range]).map_err(Error::from) };
        }
        arrived
    }
}

impl Core {
    /// Looks at replies, which are opened where they lie. Says of each what it is, in their order;
    /// nothing is completed by that.
    pub(crate) fn look<'a>(&mut self, records: Vec<&'a mut [u8]>) -> Vec<Arrived<'a>> {
        let mut sorted = self.sort(records);
        self.protection.open_many(&mut sorted.received);
        sorted.opened()
    }

    /// Finds the calls that replies are to; those that have results wait to be opened.
    pub(crate) fn sort<'a>(&mut self, records: Vec<&'a mut [u8]>) -> Sorted<'a> {
        let mut arrived: Vec<Arrived<'a>> = Vec::with_capacity(records.len());
        let mut received: Vec<Received<'a>> = Vec::with_capacity(records.len());
        let mut places = Vec::with_capacity(records.len());
        for record in records {
            let (xid, verifier, body_len) = match RpcReply::decode(record) {
                Err(error) => {
                    arrived.push(Arrived::Broken(error.into()));
                    continue;
                }
                Ok(RpcReply { xid, body: RpcBody::Accepted { verf, outcome: Accepted::Success(body) } }) => {
                    (xid, (verf.flavor, VERIFIER_AT..VERIFIER_AT + verf.body.len()), body.len())
                }
                Ok(RpcReply { xid, body: RpcBody::Accepted { verf, outcome } }) => {
                    let proven = self.awaiting(xid).map(|(_, flight)| self.protection.verify(flight.tag, verf));
                    arrived.push(match proven {
                        None => Arrived::Unawaited,
                        Some(Ok(())) => Arrived::Reply { xid, results: Err(Error::NotAccepted(not_accepted(&outcome))) },
                        Some(Err(error)) => Arrived::Reply { xid, results: Err(error.into()) },
                    });
                    continue;
                }
                Ok(RpcReply { xid, body: RpcBody::Denied(denied) }) => {
                    arrived.push(Arrived::Reply { xid, results: Err(refusal(denied)) });
                    continue;
                }
            };
            let Some((_, flight)) = self.awaiting(xid) else {
                arrived.push(Arrived::Unawaited);
                continue;
            };
            let results = Ok(record.len() - body_len..record.len());
            received.push(Received { tag: flight.tag, record, verifier, results });
            places.push((arrived.len(), xid));
            arrived.push(Arrived::Unawaited);
        }
        Sorted { arrived, received, places }
    }

    /// Takes a reply that was looked at. None if no call awaits it any more. An error if it is
    /// none, or not believed: then the call goes on waiting.
    pub(crate) fn take<'a>(&mut self, arrived: Arrived<'a>) -> Result<Option<Completion<'a>>, Error> {
        match arrived {
            Arrived::Broken(error) => Err(error),
            Arrived::Unawaited => Ok(None),
            Arrived::Reply { xid, results } => match self.awaiting(xid) {
                Some((at, flight)) => self.complete(at, flight, results).map(Some),
                None => Ok(None),
            },
        }
    }
}

/// Where a verifier's body begins in a reply that is accepted: transaction, type, status, flavour,
/// length (RFC 5531, section 9).
const VERIFIER_AT: usize = 20;
