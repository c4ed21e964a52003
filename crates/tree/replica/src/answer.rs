//! From a record to the pieces of the reply. Frames stay opaque.

use std::sync::Arc;

use vouch_oncrpc::{Accepted, AuthStat, Call, Denied, Flavor, Reply, begin_record, end_record};
use vouch_tree::protocol::{
    GetDataArgs, GetFsinfoArgs, GetFsinfoResult, NOT_FOUND, PROGRAM, Procedure, PutStatementArgs,
    PutStatementResult, VERSION,
};
use vouch_tree_cache::MissingFrames;
use vouch_xdr::{Writer, Xdr as _};

use super::connection::{After, Fault, Fetched, Service};
use super::counters::{Counters, Request};
use super::output::Output;
use super::request::Incoming;
use super::statements::StatementStore;
use super::trees::{Located, ServedFile, Tree, Trees};
use super::wake_queue::Caller;

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) trees: Arc<Trees>,
    pub(super) statements: Option<Arc<StatementStore>>,
    pub(super) counters: Arc<Counters>,
}

pub(super) struct Serving<'a> {
    pub(super) replica: &'a Replica,
    pub(super) caller: Caller<'a>,
}

impl Service for Serving<'_> {
    type File = ServedFile;

    fn answer(
        &self,
        request: &Incoming<'_>,
        fetched: Option<Fetched>,
        output: &mut Output<ServedFile>,
    ) -> Result<After, Fault> {
        let mut fetch = Fetch { caller: &self.caller, fetched };
        match request {
            Incoming::Rpc(record) => self.replica.call(record, &mut fetch, output),
            Incoming::Http(head) => Ok(self.replica.respond(head, &mut fetch, output)),
        }
    }
}

pub(super) struct Fetch<'a> {
    caller: &'a Caller<'a>,
    fetched: Option<Fetched>,
}

impl Fetch<'_> {
    /// The request is answered again afterwards. False after an earlier fetch.
    pub(super) fn start(&mut self, tree: &Tree, wanted: Vec<MissingFrames>) -> bool {
        match (&tree.cache, self.fetched) {
            (Some(cache), None) => {
                cache.fetch(wanted, self.caller.waker());
                true
            }
            _ => false,
        }
    }
}

impl Replica {
    fn call(
        &self,
        record: &[u8],
        fetch: &mut Fetch<'_>,
        output: &mut Output<ServedFile>,
    ) -> Result<After, Fault> {
        let call = match Call::decode(record) {
            Ok(call) => call,
            Err(error) => {
                let reply = error.reply().ok_or(Fault::BadRequest)?;
                self.reject(reply, output);
                return Ok(After::Next);
            }
        };
        let request = match self.dispatch(&call, fetch, output) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(After::Again),
            Err(refusal) => {
                let reply = match refusal {
                    Refusal::Outcome(outcome) => Reply::accepted(call.xid, outcome),
                    Refusal::Denied(denied) => Reply::denied(call.xid, denied),
                };
                self.reject(reply, output);
                return Ok(After::Next);
            }
        };
        self.counters.request(request);
        Ok(After::Next)
    }
}

enum Refusal {
    Outcome(Accepted<'static>),
    Denied(Denied),
}

impl From<vouch_xdr::Error> for Refusal {
    fn from(_: vouch_xdr::Error) -> Self {
        Self::Outcome(Accepted::GarbageArgs)
    }
}

impl Replica {
    /// `None`: answered later.
    fn dispatch(
        &self,
        call: &Call<'_>,
        fetch: &mut Fetch<'_>,
        output: &mut Output<ServedFile>,
    ) -> Result<Option<Request>, Refusal> {
        // All data is public. Refuses flavours that would wrap the answer (RFC 5531 §9).
        if !matches!(call.cred.flavor, Flavor::NONE | Flavor::SYS) {
            return Err(Refusal::Denied(Denied::AuthError(AuthStat::REJECTED_CRED)));
        }
        if call.program != PROGRAM {
            return Err(Refusal::Outcome(Accepted::ProgUnavail));
        }
        if call.version != VERSION {
            return Err(Refusal::Outcome(Accepted::ProgMismatch { low: VERSION, high: VERSION }));
        }
        match Procedure::from_number(call.procedure)
            .ok_or(Refusal::Outcome(Accepted::ProcUnavail))?
        {
            Procedure::Null => {
                if !call.args.is_empty() {
                    return Err(Refusal::Outcome(Accepted::GarbageArgs));
                }
                push_reply(&Reply::accepted(call.xid, Accepted::Success(&[])), output);
                Ok(Some(Request::Null))
            }
            Procedure::GetFsinfo => {
                Ok(Some(self.get_fsinfo(call.xid, &GetFsinfoArgs::from_xdr(call.args)?, output)))
            }
            Procedure::GetData => {
                self.get_data(call.xid, &GetDataArgs::from_xdr(call.args)?, fetch, output)
            }
            Procedure::PutStatement => Ok(Some(self.put_statement(
                call.xid,
                &PutStatementArgs::from_xdr(call.args)?,
                output,
            ))),
        }
    }

    fn get_fsinfo(
        &self,
        xid: u32,
        args: &GetFsinfoArgs,
        output: &mut Output<ServedFile>,
    ) -> Request {
        let offer = self.trees.get(&args.hostid).map(|tree| tree.newest_offer());
        match offer.as_ref().and_then(|offer| offer.record(args.companions)) {
            Some(record) => {
                let mut head = [0; 8];
                head[..4].copy_from_slice(&record[..4]);
                head[4..].copy_from_slice(&xid.to_be_bytes());
                output.push_bytes(&head);
                output.push_shared(record.clone(), head.len());
                Request::FsinfoOk
            }
            None => {
                push_reply(
                    &Reply::accepted(xid, Accepted::Success(&GetFsinfoResult::NoTree.to_xdr())),
                    output,
                );
                Request::FsinfoNoTree
            }
        }
    }

    fn put_statement(
        &self,
        xid: u32,
        args: &PutStatementArgs,
        output: &mut Output<ServedFile>,
    ) -> Request {
        let result = match &self.statements {
            Some(store) => store.put(&self.trees, &args.statement),
            None => PutStatementResult::NotAccepted,
        };
        push_reply(&Reply::accepted(xid, Accepted::Success(&result.to_xdr())), output);
        match result {
            PutStatementResult::Stored | PutStatementResult::Known => Request::StatementOk,
            _ => Request::StatementRefused,
        }
    }

    fn get_data(
        &self,
        xid: u32,
        args: &GetDataArgs,
        fetch: &mut Fetch<'_>,
        output: &mut Output<ServedFile>,
    ) -> Result<Option<Request>, Refusal> {
        let tree = self.trees.get(&args.hostid);
        let mut found = 0;
        let mut len = 0;
        let mut places = Vec::with_capacity(args.handles.len());
        let mut absent = Vec::new();
        for handle in &args.handles {
            let located = match &tree {
                Some(tree) => tree.locate(handle).map_err(|error| {
                    tree.note_unlocatable(handle, &error);
                    self.counters.request(Request::DataFailed);
                    Refusal::Outcome(Accepted::SystemErr)
                })?,
                None => Located::Missing,
            };
            let place = match located {
                Located::Here(span) => Some(span),
                Located::Missing => None,
                Located::Absent(wanted) => {
                    absent.push(wanted);
                    continue;
                }
            };
            found += u64::from(place.is_some());
            len += place.as_ref().map_or(NOT_FOUND_RECORD.len(), |span| span.len as usize);
            places.push(place);
        }
        if let (false, Some(tree)) = (absent.is_empty(), &tree) {
            if fetch.start(tree, absent) {
                return Ok(None);
            }
            self.counters.request(Request::DataFailed);
            return Err(Refusal::Outcome(Accepted::SystemErr));
        }
        self.counters.handles_found.add(found);
        self.counters.handles_missing.add(places.len() as u64 - found);

        let mut w = Writer::append_to(Vec::with_capacity(REPLY_HEAD_LEN));
        let start = begin_record(&mut w);
        Reply::accepted(xid, Accepted::Success(&[])).encode(&mut w);
        w.count(places.len());
        let mut head = w.into_bytes();
        end_record(&mut head, start, len);
        output.push_bytes(&head);
        for place in places {
            match place {
                Some(span) => output.push_span(span),
                None => output.push_bytes(&NOT_FOUND_RECORD),
            }
        }
        Ok(Some(Request::DataOk))
    }

    fn reject(&self, reply: Reply<'_>, output: &mut Output<ServedFile>) {
        self.counters.request(Request::Rejected);
        push_reply(&reply, output);
    }
}

const NOT_FOUND_RECORD: [u8; 4] = NOT_FOUND.to_be_bytes();

const REPLY_HEAD_LEN: usize = 4 + 24 + 4;

fn push_reply(reply: &Reply<'_>, output: &mut Output<ServedFile>) {
    output.push_bytes(&vouch_oncrpc::record(|w| reply.encode(w)));
}
