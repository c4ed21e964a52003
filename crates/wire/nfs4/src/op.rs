//! A table of all operation numbers, and a module for each operation or group.

mod attributes;
mod copy;
mod create;
mod create_session;
mod exchange_id;
mod filehandles;
mod layout;
mod lock;
mod names;
mod open;
mod outcome;
mod ranges;
mod read;
mod read_plus;
mod readdir;
mod secinfo;
mod sequence;
mod session_control;
mod setclientid;
mod state_control;
mod write;
mod xattr;

use vouch_xdr::{Error, Reader, Writer};

pub use attributes::{
    Access, AccessArgs, AccessOk, GetattrArgs, GetattrOk, SetattrArgs, SetattrFailure, SetattrOk,
    VerifyArgs,
};
pub use copy::{
    CopyArgs, CopyFailure, CopyNotifyArgs, CopyNotifyOk, CopyOk, CopyRequirements,
    OffloadCancelArgs, OffloadStatusArgs, OffloadStatusOk, WriteResponse,
};
pub use create::{CreateArgs, CreateOk, CreateType, LINK_TEXT_LEN_MAX};
pub use create_session::{ChannelAttrs, CreateSessionArgs, CreateSessionFlags, CreateSessionOk};
pub use exchange_id::{ExchangeIdArgs, ExchangeIdFlags, ExchangeIdOk, ImplId};
pub use filehandles::{GetfhOk, PutfhArgs};
pub use layout::{
    DeviceAddr, DeviceError, GetdeviceinfoArgs, GetdeviceinfoFailure, GetdeviceinfoOk,
    GetdevicelistArgs, GetdevicelistOk, IoInfo, Layout, LayoutIoMode, LayoutReturn,
    LayoutReturnFile, LayoutcommitArgs, LayoutcommitOk, LayouterrorArgs, LayoutgetArgs,
    LayoutgetFailure, LayoutgetOk, LayoutreturnArgs, LayoutreturnOk, LayoutstatsArgs,
};
pub use lock::{
    LockArgs, LockDenied, LockFailure, LockOk, LockType, Locker, LocktArgs, LockuArgs, LockuOk,
    NewLockOwner, OldLockOwner, ReleaseLockownerArgs,
};
pub use names::{
    LinkArgs, LinkOk, LookupArgs, ReadlinkOk, RemoveArgs, RemoveOk, RenameArgs, RenameOk,
};
pub use open::{
    CreateHow, CreateVerifierAttrs, DelegateCur, Delegation, DelegationType, NoDelegation,
    OpenArgs, OpenClaim, OpenHow, OpenOk, OpenResultFlags, ReadDelegation, ShareAccess, ShareDeny,
    SpaceBlocks, SpaceLimit, WriteDelegation,
};
pub use outcome::Failure;
#[cfg(test)]
pub(crate) use outcome::sample_outcome;
pub(crate) use outcome::{decode_outcome, encode_outcome, outcome_status};
pub use ranges::{
    AllocateArgs, AppDataBlock, CloneArgs, CommitArgs, CommitOk, DataContent, DeallocateArgs,
    IoAdvice, IoAdviseArgs, IoAdviseOk, SeekArgs, SeekOk, WriteSameArgs,
};
pub use read::{ReadArgs, ReadOk, ReadWriter};
pub use read_plus::{Content, DataSegment, HoleSegment, ReadPlusArgs, ReadPlusOk, ReadPlusWriter};
pub use readdir::{DirEntries, DirEntry, ReaddirArgs, ReaddirOk, ReaddirWriter};
pub use secinfo::{SecinfoArgs, SecinfoNoNameArgs, SecinfoOk, SecinfoStyle};
pub use sequence::{SequenceArgs, SequenceFlags, SequenceOk};
pub use session_control::{
    BackchannelCtlArgs, BindConnArgs, BindConnOk, ChannelDirClient, ChannelDirServer,
    DestroyClientidArgs, DestroySessionArgs, ReclaimCompleteArgs, SetSsvArgs, SetSsvOk,
};
pub use setclientid::{
    CallbackClient, RenewArgs, SetclientidArgs, SetclientidConfirmArgs, SetclientidFailure,
    SetclientidOk,
};
pub use state_control::{
    CloseArgs, CloseOk, DelegClaim, DelegpurgeArgs, DelegreturnArgs, FreeStateidArgs,
    GetDirDelegationArgs, GetDirDelegationOk, GetDirDelegationReply, OpenConfirmArgs,
    OpenConfirmOk, OpenDowngradeArgs, OpenDowngradeOk, OpenattrArgs, TestStateidArgs,
    TestStateidOk, WantDelegationArgs,
};
pub use write::{StableHow, WriteArgs, WriteOk};
pub use xattr::{
    GetxattrArgs, GetxattrOk, ListxattrsArgs, ListxattrsOk, RemovexattrArgs, SetxattrArgs,
    SetxattrOption, XATTR_NAMES_MAX, XattrChange,
};

use crate::Status;
use crate::macros::operations;

/// `nfs_opnum4`. Any value can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Op(pub u32);

/// `OP_ILLEGAL`: the number in the result of an unknown operation.
pub const ILLEGAL: u32 = 10044;

/// The part of a file system that an operation touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Filehandles, clients, sessions and callbacks: no file.
    Protocol,
    /// A stateid, whatever its file.
    Stateid,
    /// Asks about a file.
    Look,
    /// Opens, locks and delegations of a file.
    State,
    /// Content, names or extended attributes are read.
    Read,
    /// Content or names are changed.
    Write,
    Attributes,
}

impl Op {
    pub const fn touches_file(self) -> bool {
        !matches!(self.effect(), None | Some(Effect::Protocol | Effect::Stateid))
    }

    /// It must run once, however often its call is repeated.
    pub const fn changes_something(self) -> bool {
        matches!(
            self.effect(),
            Some(Effect::State | Effect::Stateid | Effect::Write | Effect::Attributes)
        )
    }

    /// A server answers NOTSUPP (RFC 8881 §17).
    pub const fn removed_in_4_1(self) -> bool {
        matches!(
            self,
            Self::OPEN_CONFIRM
                | Self::RENEW
                | Self::SETCLIENTID
                | Self::SETCLIENTID_CONFIRM
                | Self::RELEASE_LOCKOWNER
        )
    }
}

operations! { 'a, "nfs_opnum4";
    3 ACCESS Access(args: AccessArgs) -> Result<AccessOk, Status>, 0, Look;
    4 CLOSE Close(args: CloseArgs) -> Result<CloseOk, Status>, 0, State;
    5 COMMIT Commit(args: CommitArgs) -> Result<CommitOk, Status>, 0, Look;
    6 CREATE Create(args: CreateArgs<'a>) -> Result<CreateOk, Status>, 0, Write;
    7 DELEGPURGE Delegpurge(args: DelegpurgeArgs) -> Result<(), Status>, 0, Protocol;
    8 DELEGRETURN Delegreturn(args: DelegreturnArgs) -> Result<(), Status>, 0, State;
    9 GETATTR Getattr(args: GetattrArgs) -> Result<GetattrOk<'a>, Status>, 0, Look;
    10 GETFH Getfh -> Result<GetfhOk, Status>, 0, Protocol;
    11 LINK Link(args: LinkArgs<'a>) -> Result<LinkOk, Status>, 0, Write;
    12 LOCK Lock(args: LockArgs<'a>) -> Result<LockOk, LockFailure<'a>>, 0, State;
    13 LOCKT Lockt(args: LocktArgs<'a>) -> Result<(), LockFailure<'a>>, 0, Look;
    14 LOCKU Locku(args: LockuArgs) -> Result<LockuOk, Status>, 0, State;
    15 LOOKUP Lookup(args: LookupArgs<'a>) -> Result<(), Status>, 0, Look;
    16 LOOKUPP Lookupp -> Result<(), Status>, 0, Look;
    17 NVERIFY Nverify(args: VerifyArgs<'a>) -> Result<(), Status>, 0, Look;
    18 OPEN Open(args: OpenArgs<'a>) -> Result<OpenOk<'a>, Status>, 0, State;
    19 OPENATTR Openattr(args: OpenattrArgs) -> Result<(), Status>, 0, Protocol;
    20 OPEN_CONFIRM OpenConfirm(args: OpenConfirmArgs) -> Result<OpenConfirmOk, Status>, 0, Stateid;
    21 OPEN_DOWNGRADE OpenDowngrade(args: OpenDowngradeArgs) -> Result<OpenDowngradeOk, Status>, 0, State;
    22 PUTFH Putfh(args: PutfhArgs) -> Result<(), Status>, 0, Protocol;
    23 PUTPUBFH Putpubfh -> Result<(), Status>, 0, Protocol;
    24 PUTROOTFH Putrootfh -> Result<(), Status>, 0, Protocol;
    25 READ Read(args: ReadArgs) -> Result<ReadOk<'a>, Status>, 0, Read;
    26 READDIR Readdir(args: ReaddirArgs) -> Result<ReaddirOk<'a>, Status>, 0, Read;
    27 READLINK Readlink -> Result<ReadlinkOk<'a>, Status>, 0, Read;
    28 REMOVE Remove(args: RemoveArgs<'a>) -> Result<RemoveOk, Status>, 0, Write;
    29 RENAME Rename(args: RenameArgs<'a>) -> Result<RenameOk, Status>, 0, Write;
    30 RENEW Renew(args: RenewArgs) -> Result<(), Status>, 0, Protocol;
    31 RESTOREFH Restorefh -> Result<(), Status>, 0, Protocol;
    32 SAVEFH Savefh -> Result<(), Status>, 0, Protocol;
    33 SECINFO Secinfo(args: SecinfoArgs<'a>) -> Result<SecinfoOk<'a>, Status>, 0, Protocol;
    34 SETATTR Setattr(args: SetattrArgs<'a>) -> Result<SetattrOk, SetattrFailure>, 0, Attributes;
    35 SETCLIENTID Setclientid(args: SetclientidArgs<'a>) -> Result<SetclientidOk, SetclientidFailure<'a>>, 0, Protocol;
    36 SETCLIENTID_CONFIRM SetclientidConfirm(args: SetclientidConfirmArgs) -> Result<(), Status>, 0, Protocol;
    37 VERIFY Verify(args: VerifyArgs<'a>) -> Result<(), Status>, 0, Look;
    38 WRITE Write(args: WriteArgs<'a>) -> Result<WriteOk, Status>, 0, Write;
    39 RELEASE_LOCKOWNER ReleaseLockowner(args: ReleaseLockownerArgs<'a>) -> Result<(), Status>, 0, Protocol;
    40 BACKCHANNEL_CTL BackchannelCtl(args: BackchannelCtlArgs<'a>) -> Result<(), Status>, 1, Protocol;
    41 BIND_CONN_TO_SESSION BindConnToSession(args: BindConnArgs) -> Result<BindConnOk, Status>, 1, Protocol;
    42 EXCHANGE_ID ExchangeId(args: ExchangeIdArgs<'a>) -> Result<ExchangeIdOk<'a>, Status>, 1, Protocol;
    43 CREATE_SESSION CreateSession(args: CreateSessionArgs<'a>) -> Result<CreateSessionOk, Status>, 1, Protocol;
    44 DESTROY_SESSION DestroySession(args: DestroySessionArgs) -> Result<(), Status>, 1, Protocol;
    45 FREE_STATEID FreeStateid(args: FreeStateidArgs) -> Result<(), Status>, 1, Stateid;
    46 GET_DIR_DELEGATION GetDirDelegation(args: GetDirDelegationArgs) -> Result<GetDirDelegationReply, Status>, 1, Protocol;
    47 GETDEVICEINFO Getdeviceinfo(args: GetdeviceinfoArgs) -> Result<GetdeviceinfoOk<'a>, GetdeviceinfoFailure>, 1, Protocol;
    48 GETDEVICELIST Getdevicelist(args: GetdevicelistArgs) -> Result<GetdevicelistOk, Status>, 1, Protocol;
    49 LAYOUTCOMMIT Layoutcommit(args: LayoutcommitArgs<'a>) -> Result<LayoutcommitOk, Status>, 1, Protocol;
    50 LAYOUTGET Layoutget(args: LayoutgetArgs) -> Result<LayoutgetOk<'a>, LayoutgetFailure>, 1, Protocol;
    51 LAYOUTRETURN Layoutreturn(args: LayoutreturnArgs<'a>) -> Result<LayoutreturnOk, Status>, 1, Protocol;
    52 SECINFO_NO_NAME SecinfoNoName(args: SecinfoNoNameArgs) -> Result<SecinfoOk<'a>, Status>, 1, Protocol;
    53 SEQUENCE Sequence(args: SequenceArgs) -> Result<SequenceOk, Status>, 1, Protocol;
    54 SET_SSV SetSsv(args: SetSsvArgs<'a>) -> Result<SetSsvOk<'a>, Status>, 1, Protocol;
    55 TEST_STATEID TestStateid(args: TestStateidArgs) -> Result<TestStateidOk, Status>, 1, Protocol;
    56 WANT_DELEGATION WantDelegation(args: WantDelegationArgs) -> Result<Delegation<'a>, Status>, 1, Protocol;
    57 DESTROY_CLIENTID DestroyClientid(args: DestroyClientidArgs) -> Result<(), Status>, 1, Protocol;
    58 RECLAIM_COMPLETE ReclaimComplete(args: ReclaimCompleteArgs) -> Result<(), Status>, 1, Protocol;
    59 ALLOCATE Allocate(args: AllocateArgs) -> Result<(), Status>, 2, Write;
    60 COPY Copy(args: CopyArgs<'a>) -> Result<CopyOk, CopyFailure>, 2, Write;
    61 COPY_NOTIFY CopyNotify(args: CopyNotifyArgs<'a>) -> Result<CopyNotifyOk<'a>, Status>, 2, Protocol;
    62 DEALLOCATE Deallocate(args: DeallocateArgs) -> Result<(), Status>, 2, Write;
    63 IO_ADVISE IoAdvise(args: IoAdviseArgs) -> Result<IoAdviseOk, Status>, 2, Protocol;
    64 LAYOUTERROR Layouterror(args: LayouterrorArgs) -> Result<(), Status>, 2, Protocol;
    65 LAYOUTSTATS Layoutstats(args: LayoutstatsArgs<'a>) -> Result<(), Status>, 2, Protocol;
    66 OFFLOAD_CANCEL OffloadCancel(args: OffloadCancelArgs) -> Result<(), Status>, 2, Protocol;
    67 OFFLOAD_STATUS OffloadStatus(args: OffloadStatusArgs) -> Result<OffloadStatusOk, Status>, 2, Protocol;
    68 READ_PLUS ReadPlus(args: ReadPlusArgs) -> Result<ReadPlusOk<'a>, Status>, 2, Read;
    69 SEEK Seek(args: SeekArgs) -> Result<SeekOk, Status>, 2, Look;
    70 WRITE_SAME WriteSame(args: WriteSameArgs<'a>) -> Result<WriteResponse, Status>, 2, Protocol;
    71 CLONE Clone(args: CloneArgs) -> Result<(), Status>, 2, Write;
    72 GETXATTR Getxattr(args: GetxattrArgs<'a>) -> Result<GetxattrOk<'a>, Status>, 2, Read;
    73 SETXATTR Setxattr(args: SetxattrArgs<'a>) -> Result<XattrChange, Status>, 2, Attributes;
    74 LISTXATTRS Listxattrs(args: ListxattrsArgs) -> Result<ListxattrsOk<'a>, Status>, 2, Read;
    75 REMOVEXATTR Removexattr(args: RemovexattrArgs<'a>) -> Result<XattrChange, Status>, 2, Attributes;
}
