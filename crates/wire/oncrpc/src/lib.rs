//! ONC RPC version 2 (RFC 5531): calls, replies, record marking, AUTH_NONE and AUTH_SYS. No I/O and
//! no clock. Other flavours are opaque bytes.
//!
//! A server calls [`RecordReader::next`] to cut records, [`Call::decode`] to decode one, and
//! [`CallError::reply`] for the answer to an invalid one. Replies: [`begin_record`],
//! [`Reply::encode`], [`end_record`].

mod auth;
mod call;
mod record;
mod reply;

pub use auth::{AUTH_BODY_LEN_MAX, AuthSys, Flavor, OpaqueAuth};
pub use call::{Call, CallError};
pub use record::{
    FRAGMENT_COUNT_MAX, Next, RECORD_MARK_LEN, RecordError, RecordMarks, RecordReader,
    begin_record, end_record, record, record_mark, write_record,
};
pub use reply::{Accepted, AuthStat, Denied, Reply, ReplyBody};

/// Version of the RPC protocol itself (RFC 5531 §9).
pub const RPC_VERSION: u32 = 2;

const CALL: u32 = 0;
const REPLY: u32 = 1;
