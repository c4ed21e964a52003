//! ONC RPC version 2 (RFC 5531): calls, replies, record marking, and the two flavours that need no
//! cryptography.
//!
//! Owns what stands between a byte stream and a procedure's arguments. Sans-IO: bytes in, values
//! out. Knows no program, reads no clock, and takes every flavour of authentication as opaque
//! bytes, so that RPCSEC_GSS can live above it.
//!
//! A server's way in: [`RecordReader::next`] cuts records, [`Call::decode`] reads one,
//! [`CallError::reply`] says what to answer to one that can't be read. The way out:
//! [`Reply::encode`] after [`begin_record`], closed by [`end_record`].

mod auth;
mod call;
mod record;
mod reply;

pub use auth::{AUTH_BODY_LEN_MAX, AUTH_SYS_GIDS_MAX, AUTH_SYS_NAME_LEN_MAX, AuthSys, Flavor, OpaqueAuth};
pub use call::{Call, CallError};
pub use record::{
    FRAGMENT_COUNT_MAX, FRAGMENT_LEN_MAX, Next, RECORD_MARK_LEN, RecordError, RecordMarks, RecordReader, begin_record, end_record,
    record_mark,
};
pub use reply::{Accepted, AuthStat, Denied, Reply, ReplyBody};

/// The version of the RPC protocol itself (RFC 5531, section 9: "rpcvers" is two).
pub const RPC_VERSION: u32 = 2;

/// Discriminant of a call (RFC 5531, section 9, `msg_type`).
const CALL: u32 = 0;
/// Discriminant of a reply.
const REPLY: u32 = 1;
