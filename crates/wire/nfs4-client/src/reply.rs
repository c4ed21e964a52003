use vouch_nfs4::Status;
use vouch_nfs4::op::{Op, Results, SequenceOk};
use vouch_xdr::Reader;

use crate::Error;

/// After SEQUENCE, borrowed from the record.
#[derive(Debug, Clone)]
pub struct ReplyBody<'a> {
    /// Of the last executed operation.
    pub status: Status,
    /// If the call used a slot.
    pub sequence: Option<SequenceOk>,
    left: u32,
    r: Reader<'a>,
}

impl<'a> ReplyBody<'a> {
    pub(crate) const fn new(status: Status, count: u32, r: Reader<'a>) -> Self {
        Self { status, sequence: None, left: count, r }
    }

    pub(crate) fn next_result(&mut self) -> Result<Results<'a>, Error> {
        if self.left == 0 {
            // The server stopped before this operation.
            return match self.status {
                Status::OK => Err(Error::Mismatch("fewer results than operations")),
                status => Err(Error::Refused { op: Op(vouch_nfs4::op::ILLEGAL), status }),
            };
        }
        self.left -= 1;
        Ok(Results::decode(&mut self.r)?)
    }

    /// Errors: the failure of the operation.
    pub fn next_ok(&mut self) -> Result<Results<'a>, Error> {
        let results = self.next_result()?;
        match results.status() {
            Status::OK => Ok(results),
            status => Err(Error::Refused { op: results.op(), status }),
        }
    }

    /// Takes results of these operations, which must have succeeded.
    pub fn skip(&mut self, ops: &[Op]) -> Result<(), Error> {
        ops.iter().try_for_each(|&op| match self.next_ok()?.op() == op {
            true => Ok(()),
            false => Err(Error::Mismatch("result of another operation")),
        })
    }

    /// Results that were not taken.
    pub const fn left(&self) -> u32 {
        self.left
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.r.rest()
    }
}

/// Owns its bytes.
#[derive(Debug, Clone)]
pub struct Reply {
    status: Status,
    sequence: Option<SequenceOk>,
    count: u32,
    bytes: Vec<u8>,
}

impl Reply {
    pub(crate) fn of(body: &ReplyBody<'_>) -> Self {
        Self {
            status: body.status,
            sequence: body.sequence,
            count: body.left(),
            bytes: body.rest().to_vec(),
        }
    }

    /// Status of the last executed operation.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Result of SEQUENCE (4.1).
    pub const fn sequence(&self) -> Option<SequenceOk> {
        self.sequence
    }

    /// The results after SEQUENCE.
    pub fn results(&self) -> ReplyBody<'_> {
        ReplyBody {
            status: self.status,
            sequence: self.sequence,
            left: self.count,
            r: Reader::new(&self.bytes),
        }
    }

    /// The result that follows those of these operations; all must have succeeded.
    pub fn result_after(&self, ops: &[Op]) -> Result<Results<'_>, Error> {
        let mut results = self.results();
        results.skip(ops)?;
        results.next_ok()
    }

    /// Decodes all results after SEQUENCE.
    pub fn to_vec(&self) -> Result<Vec<Results<'_>>, Error> {
        let mut body = self.results();
        (0..self.count).map(|_| body.next_result()).collect()
    }
}
