//! GETFSINFO and GETDATA over ONC RPC (SFSRO paper, §3.1): messages and limits.

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::fsinfo::SIGNED_LEN_MAX;
use crate::statement::{OFFERED_LEN_MAX, STATEMENT_LEN_MAX, STATEMENTS_MAX};
use crate::{BlockHandle, FRAME_LEN_MAX, HostId};

/// Reserved for local use (RFC 5531 §13). "VOU" in ASCII.
pub const PROGRAM: u32 = 0x2056_4f55;

/// Of the protocol.
pub const VERSION: u32 = 1;

/// 64 leaves are 8 MiB, which keeps a fast link busy.
pub const HANDLES_MAX: usize = 64;

/// Frames of one GETFSINFO reply.
pub const COMPANIONS_MAX: usize = 8;

/// Bytes of one GETFSINFO reply.
pub const COMPANIONS_LEN_MAX: usize = 64 * 1024;

/// Longest results of GETDATA, in bytes.
pub const DATA_LEN_MAX: usize = 4 + HANDLES_MAX * (8 + FRAME_LEN_MAX.next_multiple_of(4));

/// The procedures, with their arguments and results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Procedure {
    /// `void` to `void`.
    Null = 0,
    /// [`GetFsinfoArgs`] to [`GetFsinfoResult`].
    GetFsinfo = 1,
    /// [`GetDataArgs`] to [`GetDataResult`].
    GetData = 2,
    /// A [`crate::statement::KeyStatement`] as `opaque<>` to [`PutStatementResult`].
    PutStatement = 3,
}

impl Procedure {
    /// `None` for an unknown procedure: PROC_UNAVAIL.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::GetFsinfo,
            2 => Self::GetData,
            3 => Self::PutStatement,
            _ => return None,
        })
    }
}

/// Arguments of GETFSINFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetFsinfoArgs {
    /// The tree.
    pub hostid: HostId,
    /// Asks for the frames that a client needs first.
    pub companions: bool,
}

impl Xdr for GetFsinfoArgs {
    fn encode(&self, w: &mut Writer) {
        self.hostid.encode(w);
        w.bool(self.companions);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self { hostid: HostId::decode(r)?, companions: r.bool()? })
    }
}

/// Result of GETFSINFO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GetFsinfoResult {
    /// The newest revision of the replica.
    Ok(FsinfoOffer),
    /// The replica has no complete revision of the tree.
    NoTree,
}

/// Not verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsinfoOffer {
    /// [`crate::SignedFsinfo`]; empty if the replica has only statements.
    pub signed_fsinfo: Vec<u8>,
    /// [`crate::statement::KeyStatement`]s about the tree's key, and other evidence. Clients ignore
    /// what they do not know.
    pub statements: Vec<Vec<u8>>,
    /// Frames that a client needs next; at most [`COMPANIONS_LEN_MAX`] bytes in total.
    pub companions: Vec<Vec<u8>>,
}

impl Xdr for GetFsinfoResult {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Ok(offer) => {
                w.u32(0);
                w.opaque(&offer.signed_fsinfo);
                for list in [&offer.statements, &offer.companions] {
                    w.count(list.len());
                    list.iter().for_each(|item| w.opaque(item));
                }
            }
            Self::NoTree => w.u32(1),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => {
                let signed_fsinfo = r.opaque(SIGNED_LEN_MAX)?.to_vec();
                let count = r.count(STATEMENTS_MAX)?;
                let statements = (0..count)
                    .map(|_| Ok(r.opaque(OFFERED_LEN_MAX)?.to_vec()))
                    .collect::<Result<_, XdrError>>()?;
                let count = r.count(COMPANIONS_MAX)?;
                let companions = (0..count)
                    .map(|_| Ok(r.opaque(FRAME_LEN_MAX)?.to_vec()))
                    .collect::<Result<_, XdrError>>()?;
                Ok(Self::Ok(FsinfoOffer { signed_fsinfo, statements, companions }))
            }
            1 => Ok(Self::NoTree),
            value => Err(XdrError::Unknown { what: "GETFSINFO status", value }),
        }
    }
}

/// Arguments of GETDATA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetDataArgs {
    /// The tree.
    pub hostid: HostId,
    /// At most [`HANDLES_MAX`].
    pub handles: Vec<BlockHandle>,
}

impl Xdr for GetDataArgs {
    fn encode(&self, w: &mut Writer) {
        self.hostid.encode(w);
        w.count(self.handles.len());
        self.handles.iter().for_each(|handle| w.opaque_fixed(handle.as_bytes()));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let hostid = HostId::decode(r)?;
        let count = r.count(HANDLES_MAX)?;
        let handles = (0..count)
            .map(|_| Ok(BlockHandle::from_bytes(r.opaque_fixed()?)))
            .collect::<Result<_, XdrError>>()?;
        Ok(Self { hostid, handles })
    }
}

/// Arguments of PUTSTATEMENT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutStatementArgs {
    /// At most [`STATEMENT_LEN_MAX`] bytes.
    pub statement: Vec<u8>,
}

impl Xdr for PutStatementArgs {
    fn encode(&self, w: &mut Writer) {
        w.opaque(&self.statement);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self { statement: r.opaque(STATEMENT_LEN_MAX)?.to_vec() })
    }
}

/// What a replica did with a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum PutStatementResult {
    /// Durably, and served from now on.
    Stored = 0,
    /// Already served, or overridden by one that is.
    Known = 1,
    /// The replica takes no statements.
    NotAccepted = 2,
    /// The replica serves no tree of this key.
    NoTree = 3,
    /// Wrong signature, or not a statement.
    Invalid = 4,
    /// Too many statements at once, or the disk failed.
    TryLater = 5,
}

impl Xdr for PutStatementResult {
    fn encode(&self, w: &mut Writer) {
        w.u32(*self as u32);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(match r.u32()? {
            0 => Self::Stored,
            1 => Self::Known,
            2 => Self::NotAccepted,
            3 => Self::NoTree,
            4 => Self::Invalid,
            5 => Self::TryLater,
            value => return Err(XdrError::Unknown { what: "PUTSTATEMENT status", value }),
        })
    }
}

/// Precedes a frame.
pub const FOUND: u32 = 1;

/// In the place of a frame that the replica does not have.
pub const NOT_FOUND: u32 = 0;

/// A count, then for each handle [`FOUND`] and the frame, or [`NOT_FOUND`]. Borrows from the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetDataResult<'a> {
    /// One result per requested handle, in order.
    pub frames: Vec<Option<&'a [u8]>>,
}

impl<'a> GetDataResult<'a> {
    /// Appends the results of the call.
    pub fn encode(&self, w: &mut Writer) {
        w.count(self.frames.len());
        for frame in &self.frames {
            match frame {
                Some(frame) => {
                    w.u32(FOUND);
                    w.opaque(frame);
                }
                None => w.u32(NOT_FOUND),
            }
        }
    }

    /// `bytes` must hold nothing else.
    pub fn from_xdr(bytes: &'a [u8]) -> Result<Self, XdrError> {
        let mut r = Reader::new(bytes);
        let count = r.count(HANDLES_MAX)?;
        let mut frames = Vec::with_capacity(count);
        for _ in 0..count {
            frames.push(match r.u32()? {
                FOUND => Some(r.opaque(FRAME_LEN_MAX)?),
                NOT_FOUND => None,
                value => return Err(XdrError::Unknown { what: "GETDATA status", value }),
            });
        }
        r.finish()?;
        Ok(Self { frames })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_messages() {
        let hostid = HostId::from_bytes([4; 32]);
        let args = GetFsinfoArgs { hostid, companions: true };
        assert_eq!(GetFsinfoArgs::from_xdr(&args.to_xdr()).unwrap(), args);
        let offer = FsinfoOffer {
            signed_fsinfo: vec![1; 5],
            statements: vec![vec![2]],
            companions: vec![vec![3; 9], vec![]],
        };
        for result in [GetFsinfoResult::Ok(offer), GetFsinfoResult::NoTree] {
            assert_eq!(GetFsinfoResult::from_xdr(&result.to_xdr()).unwrap(), result);
        }
        let args =
            GetDataArgs { hostid, handles: vec![BlockHandle::from_bytes([1; 32]); HANDLES_MAX] };
        assert_eq!(args.to_xdr().len(), 32 + 4 + HANDLES_MAX * BlockHandle::LEN);
        assert_eq!(GetDataArgs::from_xdr(&args.to_xdr()).unwrap(), args);
        let data = GetDataResult { frames: vec![Some(b"frame"), None] };
        let mut w = Writer::new();
        data.encode(&mut w);
        assert_eq!(GetDataResult::from_xdr(w.as_bytes()).unwrap(), data);
    }

    #[test]
    fn refuses_too_many_handles() {
        let args = GetDataArgs {
            hostid: HostId::from_bytes([4; 32]),
            handles: vec![BlockHandle::from_bytes([1; 32]); HANDLES_MAX + 1],
        };
        assert!(GetDataArgs::from_xdr(&args.to_xdr()).is_err());
    }
}
