//! Operations: a table of all numbers, and a module for each operation or group of operations.

mod access;
mod allocate;
mod callback_channel;
mod clone;
mod close;
mod commit;
mod copy;
mod create;
mod create_session;
mod delegation;
mod exchange_id;
mod filehandles;
mod getattr;
mod io_advise;
mod layout;
mod link;
mod lock;
mod lookup;
mod open;
mod open_change;
mod outcome;
mod read;
mod read_plus;
mod readdir;
mod readlink;
mod remove;
mod rename;
mod secinfo;
mod seek;
mod sequence;
mod session_end;
mod set_ssv;
mod setattr;
mod setclientid;
mod stateids;
mod verify;
mod write;
mod write_same;
mod xattr;

use vouch_xdr::{Error, Reader, Writer};

pub use access::{Access, AccessArgs, AccessOk};
pub use allocate::{AllocateArgs, DeallocateArgs};
pub use callback_channel::{BackchannelCtlArgs, BindConnArgs, BindConnOk, ChannelDirClient, ChannelDirServer};
pub use clone::CloneArgs;
pub use close::{CloseArgs, CloseOk};
pub use commit::{CommitArgs, CommitOk};
pub use copy::{
    CopyArgs, CopyFailure, CopyNotifyArgs, CopyNotifyOk, CopyOk, CopyRequirements, OffloadCancelArgs, OffloadStatusArgs, OffloadStatusOk,
    WriteResponse,
};
pub use create::{CreateArgs, CreateOk, CreateType, LINK_TEXT_LEN_MAX};
pub use create_session::{ChannelAttrs, CreateSessionArgs, CreateSessionFlags, CreateSessionOk};
pub use delegation::{
    DelegClaim, DelegpurgeArgs, DelegreturnArgs, GetDirDelegationArgs, GetDirDelegationOk, GetDirDelegationReply, WantDelegationArgs,
};
pub use exchange_id::{ExchangeIdArgs, ExchangeIdFlags, ExchangeIdOk, ImplId};
pub use filehandles::{GetfhOk, PutfhArgs};
pub use getattr::{GetattrArgs, GetattrOk};
pub use io_advise::{IoAdvice, IoAdviseArgs, IoAdviseOk};
pub use layout::{
    DeviceAddr, DeviceError, GetdeviceinfoArgs, GetdeviceinfoFailure, GetdeviceinfoOk, GetdevicelistArgs, GetdevicelistOk, IoInfo, Layout,
    LayoutIoMode, LayoutReturn, LayoutReturnFile, LayoutcommitArgs, LayoutcommitOk, LayouterrorArgs, LayoutgetArgs, LayoutgetFailure,
    LayoutgetOk, LayoutreturnArgs, LayoutreturnOk, LayoutstatsArgs,
};
pub use link::{LinkArgs, LinkOk};
pub use lock::{
    LockArgs, LockDenied, LockFailure, LockOk, LockType, Locker, LocktArgs, LockuArgs, LockuOk, NewLockOwner, OldLockOwner,
    ReleaseLockownerArgs,
};
pub use lookup::LookupArgs;
pub use open::{
    CreateHow, CreateVerifierAttrs, DelegateCur, Delegation, DelegationType, NoDelegation, OpenArgs, OpenClaim, OpenHow, OpenOk,
    OpenResultFlags, ReadDelegation, ShareAccess, ShareDeny, SpaceBlocks, SpaceLimit, WriteDelegation,
};
pub use open_change::{OpenConfirmArgs, OpenConfirmOk, OpenDowngradeArgs, OpenDowngradeOk, OpenattrArgs};
pub use outcome::Failure;
#[cfg(test)]
pub(crate) use outcome::sample_outcome;
pub(crate) use outcome::{decode_outcome, encode_outcome, outcome_status};
pub use read::{ReadArgs, ReadOk, ReadWriter};
pub use read_plus::{Content, DataContent, DataSegment, HoleSegment, ReadPlusArgs, ReadPlusOk, ReadPlusWriter};
pub use readdir::{DirEntries, DirEntry, ReaddirArgs, ReaddirOk, ReaddirWriter};
pub use readlink::ReadlinkOk;
pub use remove::{RemoveArgs, RemoveOk};
pub use rename::{RenameArgs, RenameOk};
pub use secinfo::{SecinfoArgs, SecinfoNoNameArgs, SecinfoOk, SecinfoStyle};
pub use seek::{SeekArgs, SeekOk};
pub use sequence::{SequenceArgs, SequenceFlags, SequenceOk};
pub use session_end::{DestroyClientidArgs, DestroySessionArgs, ReclaimCompleteArgs};
pub use set_ssv::{SetSsvArgs, SetSsvOk};
pub use setattr::{SetattrArgs, SetattrFailure, SetattrOk};
pub use setclientid::{CallbackClient, RenewArgs, SetclientidArgs, SetclientidConfirmArgs, SetclientidFailure, SetclientidOk};
pub use stateids::{FreeStateidArgs, TestStateidArgs, TestStateidOk};
pub use verify::VerifyArgs;
pub use write::{StableHow, WriteArgs, WriteOk};
pub use write_same::{AppDataBlock, WriteSameArgs};
pub use xattr::{
    GetxattrArgs, GetxattrOk, ListxattrsArgs, ListxattrsOk, RemovexattrArgs, SetxattrArgs, SetxattrOption, XATTR_NAMES_MAX, XattrChange,
};

use crate::Status;
use crate::macros::operations;

/// An operation number (`nfs_opnum4`). Any value can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Op(pub u32);

/// The number in the result of an unknown operation (`OP_ILLEGAL`).
pub const ILLEGAL: u32 = 10044;

impl Op {
    /// Returns whether 4.1 removed the operation. RFC 8881, section 17: a server must not implement
    /// it and answers NOTSUPP.
    pub const fn removed_in_4_1(self) -> bool {
        matches!(self, Self::OPEN_CONFIRM | Self::RENEW | Self::SETCLIENTID | Self::SETCLIENTID_CONFIRM | Self::RELEASE_LOCKOWNER)
    }
}

operations! { 'a, "nfs_opnum4";
    /// Checks the caller's access rights (RFC 8881, section 18.1).
    3 ACCESS Access(args: AccessArgs) -> Result<AccessOk, Status>, 0;
    /// Closes a file (section 18.2).
    4 CLOSE Close(args: CloseArgs) -> Result<CloseOk, Status>, 0;
    /// Commits unstable writes to stable storage (section 18.3).
    5 COMMIT Commit(args: CommitArgs) -> Result<CommitOk, Status>, 0;
    /// Creates an object that is not a regular file (section 18.4).
    6 CREATE Create(args: CreateArgs<'a>) -> Result<CreateOk, Status>, 0;
    /// Purges delegations that the client will not reclaim (section 18.5).
    7 DELEGPURGE Delegpurge(args: DelegpurgeArgs) -> Result<(), Status>, 0;
    /// Returns a delegation (section 18.6).
    8 DELEGRETURN Delegreturn(args: DelegreturnArgs) -> Result<(), Status>, 0;
    /// Reads attributes (section 18.7).
    9 GETATTR Getattr(args: GetattrArgs) -> Result<GetattrOk<'a>, Status>, 0;
    /// Reads the current filehandle (section 18.8).
    10 GETFH Getfh -> Result<GetfhOk, Status>, 0;
    /// Creates a hard link (section 18.9).
    11 LINK Link(args: LinkArgs<'a>) -> Result<LinkOk, Status>, 0;
    /// Creates a byte-range lock (section 18.10).
    12 LOCK Lock(args: LockArgs<'a>) -> Result<LockOk, LockFailure<'a>>, 0;
    /// Tests for a byte-range lock (section 18.11).
    13 LOCKT Lockt(args: LocktArgs<'a>) -> Result<(), LockFailure<'a>>, 0;
    /// Removes a byte-range lock (section 18.12).
    14 LOCKU Locku(args: LockuArgs) -> Result<LockuOk, Status>, 0;
    /// Looks up an entry of the current directory (section 18.13).
    15 LOOKUP Lookup(args: LookupArgs<'a>) -> Result<(), Status>, 0;
    /// Looks up the parent directory (section 18.14).
    16 LOOKUPP Lookupp -> Result<(), Status>, 0;
    /// Continues the compound if attributes differ (section 18.15).
    17 NVERIFY Nverify(args: VerifyArgs<'a>) -> Result<(), Status>, 0;
    /// Opens a file and can create it (section 18.16).
    18 OPEN Open(args: OpenArgs<'a>) -> Result<OpenOk<'a>, Status>, 0;
    /// Opens the directory of named attributes (section 18.17).
    19 OPENATTR Openattr(args: OpenattrArgs) -> Result<(), Status>, 0;
    /// Confirms an open owner, 4.0 only (RFC 7530, section 16.18).
    20 OPEN_CONFIRM OpenConfirm(args: OpenConfirmArgs) -> Result<OpenConfirmOk, Status>, 0;
    /// Reduces the access of an open (section 18.18).
    21 OPEN_DOWNGRADE OpenDowngrade(args: OpenDowngradeArgs) -> Result<OpenDowngradeOk, Status>, 0;
    /// Sets the current filehandle (section 18.19).
    22 PUTFH Putfh(args: PutfhArgs) -> Result<(), Status>, 0;
    /// Sets the current filehandle to the public filehandle (section 18.20).
    23 PUTPUBFH Putpubfh -> Result<(), Status>, 0;
    /// Sets the current filehandle to the root (section 18.21).
    24 PUTROOTFH Putrootfh -> Result<(), Status>, 0;
    /// Reads data (section 18.22).
    25 READ Read(args: ReadArgs) -> Result<ReadOk<'a>, Status>, 0;
    /// Reads a directory (section 18.23).
    26 READDIR Readdir(args: ReaddirArgs) -> Result<ReaddirOk<'a>, Status>, 0;
    /// Reads a symbolic link (section 18.24).
    27 READLINK Readlink -> Result<ReadlinkOk<'a>, Status>, 0;
    /// Removes an entry (section 18.25).
    28 REMOVE Remove(args: RemoveArgs<'a>) -> Result<RemoveOk, Status>, 0;
    /// Renames an entry (section 18.26).
    29 RENAME Rename(args: RenameArgs<'a>) -> Result<RenameOk, Status>, 0;
    /// Renews the lease, 4.0 only (RFC 7530, section 16.29).
    30 RENEW Renew(args: RenewArgs) -> Result<(), Status>, 0;
    /// Sets the current filehandle to the saved one (section 18.27).
    31 RESTOREFH Restorefh -> Result<(), Status>, 0;
    /// Saves the current filehandle (section 18.28).
    32 SAVEFH Savefh -> Result<(), Status>, 0;
    /// Lists the security flavours for an entry (section 18.29).
    33 SECINFO Secinfo(args: SecinfoArgs<'a>) -> Result<SecinfoOk<'a>, Status>, 0;
    /// Sets attributes (section 18.30).
    34 SETATTR Setattr(args: SetattrArgs<'a>) -> Result<SetattrOk, SetattrFailure>, 0;
    /// Registers a client, 4.0 only (RFC 7530, section 16.33).
    35 SETCLIENTID Setclientid(args: SetclientidArgs<'a>) -> Result<SetclientidOk, SetclientidFailure<'a>>, 0;
    /// Confirms a client, 4.0 only (RFC 7530, section 16.34).
    36 SETCLIENTID_CONFIRM SetclientidConfirm(args: SetclientidConfirmArgs) -> Result<(), Status>, 0;
    /// Continues the compound if attributes are equal (section 18.31).
    37 VERIFY Verify(args: VerifyArgs<'a>) -> Result<(), Status>, 0;
    /// Writes data (section 18.32).
    38 WRITE Write(args: WriteArgs<'a>) -> Result<WriteOk, Status>, 0;
    /// Releases a lock owner, 4.0 only (RFC 7530, section 16.37).
    39 RELEASE_LOCKOWNER ReleaseLockowner(args: ReleaseLockownerArgs<'a>) -> Result<(), Status>, 0;
    /// Changes the parameters of the back channel (section 18.33).
    40 BACKCHANNEL_CTL BackchannelCtl(args: BackchannelCtlArgs<'a>) -> Result<(), Status>, 1;
    /// Binds a connection to a session (section 18.34).
    41 BIND_CONN_TO_SESSION BindConnToSession(args: BindConnArgs) -> Result<BindConnOk, Status>, 1;
    /// Registers a client (section 18.35).
    42 EXCHANGE_ID ExchangeId(args: ExchangeIdArgs<'a>) -> Result<ExchangeIdOk<'a>, Status>, 1;
    /// Creates a session (section 18.36).
    43 CREATE_SESSION CreateSession(args: CreateSessionArgs<'a>) -> Result<CreateSessionOk, Status>, 1;
    /// Destroys a session (section 18.37).
    44 DESTROY_SESSION DestroySession(args: DestroySessionArgs) -> Result<(), Status>, 1;
    /// Frees a stateid (section 18.38).
    45 FREE_STATEID FreeStateid(args: FreeStateidArgs) -> Result<(), Status>, 1;
    /// Requests a delegation of a directory (section 18.39).
    46 GET_DIR_DELEGATION GetDirDelegation(args: GetDirDelegationArgs) -> Result<GetDirDelegationReply, Status>, 1;
    /// Reads the address of a layout's device (section 18.40).
    47 GETDEVICEINFO Getdeviceinfo(args: GetdeviceinfoArgs) -> Result<GetdeviceinfoOk<'a>, GetdeviceinfoFailure>, 1;
    /// Lists all devices (section 18.41).
    48 GETDEVICELIST Getdevicelist(args: GetdevicelistArgs) -> Result<GetdevicelistOk, Status>, 1;
    /// Commits writes made through a layout (section 18.42).
    49 LAYOUTCOMMIT Layoutcommit(args: LayoutcommitArgs<'a>) -> Result<LayoutcommitOk, Status>, 1;
    /// Requests a layout (section 18.43).
    50 LAYOUTGET Layoutget(args: LayoutgetArgs) -> Result<LayoutgetOk<'a>, LayoutgetFailure>, 1;
    /// Returns a layout (section 18.44).
    51 LAYOUTRETURN Layoutreturn(args: LayoutreturnArgs<'a>) -> Result<LayoutreturnOk, Status>, 1;
    /// Lists the security flavours for the current file or its parent (section 18.45).
    52 SECINFO_NO_NAME SecinfoNoName(args: SecinfoNoNameArgs) -> Result<SecinfoOk<'a>, Status>, 1;
    /// Uses a slot of a session (section 18.46).
    53 SEQUENCE Sequence(args: SequenceArgs) -> Result<SequenceOk, Status>, 1;
    /// Changes the secret state verifier (section 18.47).
    54 SET_SSV SetSsv(args: SetSsvArgs<'a>) -> Result<SetSsvOk<'a>, Status>, 1;
    /// Tests whether stateids are valid (section 18.48).
    55 TEST_STATEID TestStateid(args: TestStateidArgs) -> Result<TestStateidOk, Status>, 1;
    /// Requests a delegation (section 18.49).
    56 WANT_DELEGATION WantDelegation(args: WantDelegationArgs) -> Result<Delegation<'a>, Status>, 1;
    /// Destroys a client identifier (section 18.50).
    57 DESTROY_CLIENTID DestroyClientid(args: DestroyClientidArgs) -> Result<(), Status>, 1;
    /// Ends the client's reclaims (section 18.51).
    58 RECLAIM_COMPLETE ReclaimComplete(args: ReclaimCompleteArgs) -> Result<(), Status>, 1;
    /// Reserves space (RFC 7862, section 15.1).
    59 ALLOCATE Allocate(args: AllocateArgs) -> Result<(), Status>, 2;
    /// Copies a range within or between servers (RFC 7862, section 15.2).
    60 COPY Copy(args: CopyArgs<'a>) -> Result<CopyOk, CopyFailure>, 2;
    /// Announces a copy to the source server (RFC 7862, section 15.3).
    61 COPY_NOTIFY CopyNotify(args: CopyNotifyArgs<'a>) -> Result<CopyNotifyOk<'a>, Status>, 2;
    /// Deallocates a range of a file (RFC 7862, section 15.4).
    62 DEALLOCATE Deallocate(args: DeallocateArgs) -> Result<(), Status>, 2;
    /// Describes the expected I/O (RFC 7862, section 15.5).
    63 IO_ADVISE IoAdvise(args: IoAdviseArgs) -> Result<IoAdviseOk, Status>, 2;
    /// Reports errors of layout I/O (RFC 7862, section 15.6).
    64 LAYOUTERROR Layouterror(args: LayouterrorArgs) -> Result<(), Status>, 2;
    /// Reports statistics of layout I/O (RFC 7862, section 15.7).
    65 LAYOUTSTATS Layoutstats(args: LayoutstatsArgs<'a>) -> Result<(), Status>, 2;
    /// Cancels an asynchronous copy (RFC 7862, section 15.8).
    66 OFFLOAD_CANCEL OffloadCancel(args: OffloadCancelArgs) -> Result<(), Status>, 2;
    /// Reads the progress of an asynchronous copy (RFC 7862, section 15.9).
    67 OFFLOAD_STATUS OffloadStatus(args: OffloadStatusArgs) -> Result<OffloadStatusOk, Status>, 2;
    /// Reads data and holes (RFC 7862, section 15.10).
    68 READ_PLUS ReadPlus(args: ReadPlusArgs) -> Result<ReadPlusOk<'a>, Status>, 2;
    /// Finds the next data or hole (RFC 7862, section 15.11).
    69 SEEK Seek(args: SeekArgs) -> Result<SeekOk, Status>, 2;
    /// Writes a repeated pattern (RFC 7862, section 15.12).
    70 WRITE_SAME WriteSame(args: WriteSameArgs<'a>) -> Result<WriteResponse, Status>, 2;
    /// Shares blocks between files (RFC 7862, section 15.13).
    71 CLONE Clone(args: CloneArgs) -> Result<(), Status>, 2;
    /// Reads an extended attribute (RFC 8276, section 8.4.1).
    72 GETXATTR Getxattr(args: GetxattrArgs<'a>) -> Result<GetxattrOk<'a>, Status>, 2;
    /// Sets an extended attribute (RFC 8276, section 8.4.2).
    73 SETXATTR Setxattr(args: SetxattrArgs<'a>) -> Result<XattrChange, Status>, 2;
    /// Lists extended attributes (RFC 8276, section 8.4.3).
    74 LISTXATTRS Listxattrs(args: ListxattrsArgs) -> Result<ListxattrsOk<'a>, Status>, 2;
    /// Removes an extended attribute (RFC 8276, section 8.4.4).
    75 REMOVEXATTR Removexattr(args: RemovexattrArgs<'a>) -> Result<XattrChange, Status>, 2;
}
