pub(crate) use std::net::SocketAddr;
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, mpsc};
pub(crate) use std::thread;
pub(crate) use std::time::Duration;

pub(crate) use parking_lot::Mutex;
pub(crate) use vouch_nfs4::op::{
    self, Args, CreateHow, Op, OpenClaim, OpenHow, Results, ShareAccess,
};
pub(crate) use vouch_nfs4::{
    Attributes, Bytes, ClientId, Cookie, Filehandle, Name, OwnerSeq, StateOwner, StateProtect,
    Stateid, Status, Verifier,
};
pub(crate) use vouch_nfs4_server::{
    BlockedOn, ClientAccess, ClientMatcher, Compound, Connection, Effect, Export, ExportId,
    Exports, Flavour, FlavourAccess, MayBlock, Principal, Progress, ReplyKind, RunResult,
};
pub(crate) use vouch_vfs::memory::Call;
pub(crate) use vouch_vfs::{Blocking, Caller};
pub(crate) use vouch_xdr::{Reader, Writer};

pub(crate) use crate::fixture::{
    Client, Fixture, MemoryFs, attributes, compound, expect_ok, export, flavour_access, name_of,
    results, sys_access, user,
};
pub(crate) use crate::flavours::{flavours_access, gss};
pub(crate) use crate::ops::{
    Packed, close, commit, copy, exchange_id, getattr, lock, lookup, mkdir, mode, open, open_as,
    open_by_name, putfh, read, readdir, remove, rename, setattr, setclientid, size, write,
    write_as, write_stable,
};
