//! Replies are opened together, then completed one by one in order.

use vouch_oncrpc::{Accepted, Reply as RpcReply, ReplyBody as RpcBody};

use super::{CallKind, Completion, Core, denial_error, not_accepted};
use crate::{Error, IncomingReply};

pub(crate) enum OpenedReply<'a> {
    Malformed { xid: Option<u32>, error: Error },
    Unexpected,
    Reply { xid: u32, results: Result<&'a [u8], Error> },
}

impl OpenedReply<'_> {
    pub(crate) const fn xid(&self) -> Option<u32> {
        match self {
            Self::Malformed { xid, .. } => *xid,
            Self::Unexpected => None,
            Self::Reply { xid, .. } => Some(*xid),
        }
    }
}

pub(crate) struct MatchedReplies<'a> {
    opened: Vec<OpenedReply<'a>>,
    pub(crate) received: Vec<IncomingReply<'a>>,
    places: Vec<(usize, u32)>,
}

impl<'a> MatchedReplies<'a> {
    pub(crate) fn into_opened(self) -> Vec<OpenedReply<'a>> {
        let MatchedReplies { mut opened, received, places } = self;
        for (IncomingReply { record, results, .. }, (at, xid)) in received.into_iter().zip(places) {
            let record: &'a [u8] = record;
            opened[at] = OpenedReply::Reply {
                xid,
                results: results.map(|range| &record[range]).map_err(Error::from),
            };
        }
        opened
    }
}

impl Core {
    pub(crate) fn open_replies<'a>(&mut self, records: Vec<&'a mut [u8]>) -> Vec<OpenedReply<'a>> {
        let mut matched = self.match_replies(records);
        self.protection.open_many(&mut matched.received);
        matched.into_opened()
    }

    pub(crate) fn match_replies<'a>(&mut self, records: Vec<&'a mut [u8]>) -> MatchedReplies<'a> {
        let mut opened: Vec<OpenedReply<'a>> = Vec::with_capacity(records.len());
        let mut received: Vec<IncomingReply<'a>> = Vec::with_capacity(records.len());
        let mut places = Vec::with_capacity(records.len());
        for record in records {
            let (xid, verifier, body_len) = match RpcReply::decode(record) {
                Err(error) => {
                    let xid = record.first_chunk().copied().map(u32::from_be_bytes);
                    opened.push(OpenedReply::Malformed { xid, error: error.into() });
                    continue;
                }
                Ok(RpcReply {
                    xid,
                    body: RpcBody::Accepted { verf, outcome: Accepted::Success(body) },
                }) => (xid, (verf.flavor, VERIFIER_AT..VERIFIER_AT + verf.body.len()), body.len()),
                Ok(RpcReply { xid, body: RpcBody::Accepted { verf, outcome } }) => {
                    let verified =
                        self.find_call(xid).map(|(_, call)| self.protection.verify(call.tag, verf));
                    opened.push(match verified {
                        None => OpenedReply::Unexpected,
                        Some(Ok(())) => OpenedReply::Reply {
                            xid,
                            results: Err(Error::NotAccepted(not_accepted(&outcome))),
                        },
                        Some(Err(error)) => OpenedReply::Reply { xid, results: Err(error.into()) },
                    });
                    continue;
                }
                Ok(RpcReply { xid, body: RpcBody::Denied(denied) }) => {
                    opened.push(OpenedReply::Reply { xid, results: Err(denial_error(denied)) });
                    continue;
                }
            };
            let Some((_, call)) = self.find_call(xid) else {
                opened.push(OpenedReply::Unexpected);
                continue;
            };
            let results = Ok(record.len() - body_len..record.len());
            received.push(IncomingReply { tag: call.tag, record, verifier, results });
            places.push((opened.len(), xid));
            opened.push(OpenedReply::Unexpected);
        }
        MatchedReplies { opened, received, places }
    }

    /// Ends a call without a usable reply. The server has probably executed it.
    pub(crate) fn fail_call(
        &mut self,
        xid: Option<u32>,
        error: Error,
    ) -> Option<Completion<'static>> {
        let (at, call) = self.find_call(xid?)?;
        self.remove_call(at);
        if call.kind != CallKind::Sessionless {
            self.slots.release_in_doubt(at);
        }
        Some(Completion { token: call.token, outcome: Err(error), is_repeatable: false })
    }

    /// `None` if no call waits for the reply. After an error the call keeps waiting.
    pub(crate) fn complete_reply<'a>(
        &mut self,
        opened: OpenedReply<'a>,
    ) -> Result<Option<Completion<'a>>, Error> {
        match opened {
            OpenedReply::Malformed { error, .. } => Err(error),
            OpenedReply::Unexpected => Ok(None),
            OpenedReply::Reply { xid, results } => match self.find_call(xid) {
                Some((at, call)) => self.complete(at, call, results).map(Some),
                None => Ok(None),
            },
        }
    }
}

/// After transaction id, type, status, flavour and length (RFC 5531 §9).
const VERIFIER_AT: usize = 20;
