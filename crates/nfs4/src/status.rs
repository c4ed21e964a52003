//! Status codes: `nfsstat4` of RFC 7530, RFC 8881 (section 15), RFC 7862 (section 11) and RFC 8276.
//! A peer can send any number; the defined numbers have names.

use crate::macros::wire_newtype;

wire_newtype! {
    /// Status of an operation or a compound.
    pub struct Status(pub u32);
}

macro_rules! statuses {
    ($( $(#[$meta:meta])* $name:ident = $value:literal, )*) => {
        impl Status {
            $( $(#[$meta])* pub const $name: Self = Self($value); )*

            /// Returns the name in the RFCs without `NFS4ERR_`, or `None` if the RFCs do not define
            /// the number.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some(stringify!($name)), )*
                    _ => None,
                }
            }
        }
    };
}

impl Status {
    /// Returns whether the status is OK.
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some("OK") => f.write_str("NFS4_OK"),
            Some(name) => write!(f, "NFS4ERR_{name}"),
            None => write!(f, "NFS status {}", self.0),
        }
    }
}

impl std::error::Error for Status {}

statuses! {
    /// Success.
    OK = 0,
    /// The caller is neither privileged nor the owner.
    PERM = 1,
    /// No such file or directory.
    NOENT = 2,
    /// A hard I/O error.
    IO = 5,
    /// No such device, or no such region.
    NXIO = 6,
    /// Access denied.
    ACCESS = 13,
    /// The object already exists.
    EXIST = 17,
    /// The operation would cross file systems.
    XDEV = 18,
    /// The object is not a directory.
    NOTDIR = 20,
    /// The object is a directory.
    ISDIR = 21,
    /// An argument is not valid.
    INVAL = 22,
    /// The file would exceed the maximum size.
    FBIG = 27,
    /// No space left.
    NOSPC = 28,
    /// The file system is read-only.
    ROFS = 30,
    /// Too many hard links.
    MLINK = 31,
    /// The name is too long.
    NAMETOOLONG = 63,
    /// The directory is not empty.
    NOTEMPTY = 66,
    /// The quota is exceeded.
    DQUOT = 69,
    /// The filehandle's file no longer exists.
    STALE = 70,
    /// The server did not create the filehandle.
    BADHANDLE = 10001,
    /// The READDIR cookie is no longer valid.
    BAD_COOKIE = 10003,
    /// The server does not support the operation.
    NOTSUPP = 10004,
    /// The reply does not fit the requested limit.
    TOOSMALL = 10005,
    /// An internal error of the server.
    SERVERFAULT = 10006,
    /// CREATE cannot create this type.
    BADTYPE = 10007,
    /// Try again later.
    DELAY = 10008,
    /// NVERIFY: the attributes are the same.
    SAME = 10009,
    /// Another owner holds a conflicting lock.
    DENIED = 10010,
    /// The lease has expired.
    EXPIRED = 10011,
    /// A mandatory lock prevents the I/O.
    LOCKED = 10012,
    /// The server is in its grace period.
    GRACE = 10013,
    /// The filehandle has expired.
    FHEXPIRED = 10014,
    /// A share reservation prevents the open.
    SHARE_DENIED = 10015,
    /// The security flavour is not allowed here.
    WRONGSEC = 10016,
    /// Another principal uses the client identifier.
    CLID_INUSE = 10017,
    /// The server is out of resources (4.0).
    RESOURCE = 10018,
    /// The file system is at another location.
    MOVED = 10019,
    /// There is no current filehandle.
    NOFILEHANDLE = 10020,
    /// The server does not support the minor version.
    MINOR_VERS_MISMATCH = 10021,
    /// An earlier instance of the server issued the client identifier.
    STALE_CLIENTID = 10022,
    /// An earlier instance of the server issued the stateid.
    STALE_STATEID = 10023,
    /// A newer version of the stateid exists.
    OLD_STATEID = 10024,
    /// The stateid is not valid.
    BAD_STATEID = 10025,
    /// The sequence number is out of order for its owner (4.0).
    BAD_SEQID = 10026,
    /// VERIFY: the attributes differ.
    NOT_SAME = 10027,
    /// The range does not match an existing lock.
    LOCK_RANGE = 10028,
    /// The object is a symbolic link.
    SYMLINK = 10029,
    /// There is no saved filehandle.
    RESTOREFH = 10030,
    /// A lease has moved with its file system.
    LEASE_MOVED = 10031,
    /// The server does not support the attribute.
    ATTRNOTSUPP = 10032,
    /// The client reclaims state outside the grace period.
    NO_GRACE = 10033,
    /// The client reclaims state that it did not hold.
    RECLAIM_BAD = 10034,
    /// The reclaim conflicts with other state.
    RECLAIM_CONFLICT = 10035,
    /// The server cannot decode the arguments.
    BADXDR = 10036,
    /// The client still holds locks.
    LOCKS_HELD = 10037,
    /// The open does not allow this access.
    OPENMODE = 10038,
    /// The server cannot translate the owner.
    BADOWNER = 10039,
    /// The server does not support a character of the name.
    BADCHAR = 10040,
    /// The server does not support the name.
    BADNAME = 10041,
    /// The server does not support the lock range.
    BAD_RANGE = 10042,
    /// The server cannot upgrade or downgrade the lock atomically.
    LOCK_NOTSUPP = 10043,
    /// The operation is not defined.
    OP_ILLEGAL = 10044,
    /// The lock would cause a deadlock.
    DEADLOCK = 10045,
    /// The file is open.
    FILE_OPEN = 10046,
    /// An administrator has revoked the state.
    ADMIN_REVOKED = 10047,
    /// Callbacks do not reach the client.
    CB_PATH_DOWN = 10048,
    /// The I/O mode of the layout is not valid.
    BADIOMODE = 10049,
    /// The layout is not valid.
    BADLAYOUT = 10050,
    /// The digest of SET_SSV does not match.
    BAD_SESSION_DIGEST = 10051,
    /// The session does not exist.
    BADSESSION = 10052,
    /// The slot does not exist.
    BADSLOT = 10053,
    /// The client already sent RECLAIM_COMPLETE.
    COMPLETE_ALREADY = 10054,
    /// The connection is not bound to the session.
    CONN_NOT_BOUND_TO_SESSION = 10055,
    /// The client already requested the delegation.
    DELEG_ALREADY_WANTED = 10056,
    /// Callbacks are still in progress.
    BACK_CHAN_BUSY = 10057,
    /// No layout is available now.
    LAYOUTTRYLATER = 10058,
    /// No layout is available for this file.
    LAYOUTUNAVAILABLE = 10059,
    /// The layout does not exist.
    NOMATCHING_LAYOUT = 10060,
    /// The layout is being recalled.
    RECALLCONFLICT = 10061,
    /// The layout type is unknown.
    UNKNOWN_LAYOUTTYPE = 10062,
    /// The sequence number is not the slot's next or last number.
    SEQ_MISORDERED = 10063,
    /// SEQUENCE is not the first operation.
    SEQUENCE_POS = 10064,
    /// The request exceeds the session's limit.
    REQ_TOO_BIG = 10065,
    /// The reply would exceed the session's limit.
    REP_TOO_BIG = 10066,
    /// The reply would exceed the session's limit for cached replies.
    REP_TOO_BIG_TO_CACHE = 10067,
    /// The server did not cache the reply of the retried request.
    RETRY_UNCACHED_REP = 10068,
    /// The server could not retry or recover the compound safely.
    UNSAFE_COMPOUND = 10069,
    /// The compound has more operations than the session allows.
    TOO_MANY_OPS = 10070,
    /// The operation requires a preceding SEQUENCE.
    OP_NOT_IN_SESSION = 10071,
    /// The server does not support the hash algorithm.
    HASH_ALG_UNSUPP = 10072,
    /// The client identifier still has state.
    CLIENTID_BUSY = 10074,
    /// The I/O addresses a hole of a sparse layout.
    PNFS_IO_HOLE = 10075,
    /// The retry differs from the original request.
    SEQ_FALSE_RETRY = 10076,
    /// The highest slot in the request is not valid.
    BAD_HIGH_SLOT = 10077,
    /// The session is being destroyed.
    DEADSESSION = 10078,
    /// The server does not support the cipher.
    ENCR_ALG_UNSUPP = 10079,
    /// The client performed I/O without a layout.
    PNFS_NO_LAYOUT = 10080,
    /// The operation must be the only operation of its compound.
    NOT_ONLY_OP = 10081,
    /// The operation requires another credential.
    WRONG_CRED = 10082,
    /// The object has the wrong type.
    WRONG_TYPE = 10083,
    /// The server cannot delegate the directory.
    DIRDELEG_UNAVAIL = 10084,
    /// The client rejects the delegation.
    REJECT_DELEG = 10085,
    /// The client requested a layout before it returned another layout.
    RETURNCONFLICT = 10086,
    /// The server revoked the delegation.
    DELEG_REVOKED = 10087,
    /// The server does not support copies between servers.
    PARTNER_NOTSUPP = 10088,
    /// The servers are not authorised to copy between each other.
    PARTNER_NO_AUTH = 10089,
    /// The server does not support this arm of the union.
    UNION_NOTSUPP = 10090,
    /// The destination server refuses the copy.
    OFFLOAD_DENIED = 10091,
    /// The server does not support the label format.
    WRONG_LFS = 10092,
    /// The label is not valid.
    BADLABEL = 10093,
    /// The destination does not meet the requirements of the copy.
    OFFLOAD_NO_REQS = 10094,
    /// The extended attribute does not exist.
    NOXATTR = 10095,
    /// The extended attribute is too large.
    XATTR2BIG = 10096,
}
