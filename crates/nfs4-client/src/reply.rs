//! Replies of compounds: results, read one by one.

use vouch_nfs4::Status;
use vouch_nfs4::op::{Op, Results, SequenceOk};
use vouch_xdr::Reader;

use crate::Error;

/// The results of a compound, after SEQUENCE's. Borrows from the record.
#[derive(Debug, Clone)]
pub struct ReplyBody<'a> {
    /// The status of the last operation that was executed.
    pub status: Status,
    /// What SEQUENCE said, if the call went through a slot.
    pub sequence: Option<SequenceOk>,
    left: u32,
    r: Reader<'a>,
}

impl<'a> ReplyBody<'a> {
    pub(crate) const fn new(status: Status, count: u32, r: Reader<'a>) -> Self {
        Self { status, sequence: None, left: count, r }
    }

    /// The next result, whatever it says.
    pub(crate) fn next_result(&mut self) -> Result<Results<'a>, Error> {
        if self.left == 0 {
            // The server stopped before the operation that the caller asks about.
            return match self.status {
                Status::OK => Err(Error::Mismatch("fewer results than operations")),
                status => Err(Error::Refused { op: Op(vouch_nfs4::op::ILLEGAL), status }),
            };
        }
        self.left -= 1;
        Ok(Results::decode(&mut self.r)?)
    }

    /// The next result if it is a success; the operation's refusal as an error.
    pub fn next_ok(&mut self) -> Result<Results<'a>, Error> {
        let results = self.next_result()?;
        match results.status() {
            Status::OK => Ok(results),
            status => Err(Error::Refused { op: results.op(), status }),
        }
    }

    /// Passes over the results of operations whose success is all that matters.
    pub fn skip(&mut self, ops: &[Op]) -> Result<(), Error> {
        ops.iter().try_for_each(|&op| match self.next_ok()?.op() == op {
            true => Ok(()),
            false => Err(Error::Mismatch("the result is of another operation")),
        })
    }

    /// Results not yet read.
    pub const fn left(&self) -> u32 {
        self.left
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.r.rest()
    }
}

/// A reply that owns its bytes.
#[derive(Debug, Clone)]
pub struct Reply {
    status: Status,
    sequence: Option<SequenceOk>,
    count: u32,
    bytes: Vec<u8>,
}

impl Reply {
    pub(crate) fn of(body: &ReplyBody<'_>) -> Self {
        Self { status: body.status, sequence: body.sequence, count: body.left(), bytes: body.rest().to_vec() }
    }

    /// The status of the last operation that was executed.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// What SEQUENCE said.
    pub const fn sequence(&self) -> Option<SequenceOk> {
        self.sequence
    }

    /// The results, from the first after SEQUENCE's.
    pub fn results(&self) -> ReplyBody<'_> {
        ReplyBody { status: self.status, sequence: self.sequence, left: self.count, r: Reader::new(&self.bytes) }
    }

    /// All results, to the end or to the first that can't be read.
    pub fn to_vec(&self) -> Result<Vec<Results<'_>>, Error> {
        let mut body = self.results();
        (0..self.count).map(|_| body.next_result()).collect()
    }
}
