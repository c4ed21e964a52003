//! Statuses: `nfsstat4` of RFC 7530, RFC 8881 (section 15), RFC 7862 (section 11) and RFC 8276. A
//! peer may send any number; those that the RFCs know have names.

use crate::macros::wire_newtype;

wire_newtype! {
    /// How an operation or a compound went.
    pub struct Status(pub u32);
}

macro_rules! statuses {
    ($( $(#[$meta:meta])* $name:ident = $value:literal, )*) => {
        impl Status {
            $( $(#[$meta])* pub const $name: Self = Self($value); )*

            /// The name in the RFCs without `NFS4ERR_`; none for a number that they don't know.
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
    /// Whether all went well.
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
    /// Done.
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
    /// Exists already.
    EXIST = 17,
    /// Crosses file systems.
    XDEV = 18,
    /// Not a directory.
    NOTDIR = 20,
    /// A directory.
    ISDIR = 21,
    /// An argument is not valid.
    INVAL = 22,
    /// Larger than a file can be.
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
    /// Over the quota.
    DQUOT = 69,
    /// The file is gone.
    STALE = 70,
    /// Not a filehandle of this server.
    BADHANDLE = 10001,
    /// A READDIR cookie that no longer means anything.
    BAD_COOKIE = 10003,
    /// Not supported.
    NOTSUPP = 10004,
    /// The limit of the response is too small.
    TOOSMALL = 10005,
    /// A fault of the server.
    SERVERFAULT = 10006,
    /// A type that CREATE can not make.
    BADTYPE = 10007,
    /// Try again later.
    DELAY = 10008,
    /// NVERIFY: the attributes are the same.
    SAME = 10009,
    /// Another holds the lock.
    DENIED = 10010,
    /// The lease has expired.
    EXPIRED = 10011,
    /// A mandatory lock forbids it.
    LOCKED = 10012,
    /// The server is in grace.
    GRACE = 10013,
    /// The filehandle has expired.
    FHEXPIRED = 10014,
    /// A share reservation forbids it.
    SHARE_DENIED = 10015,
    /// Another security flavour is asked for.
    WRONGSEC = 10016,
    /// Another principal uses the client identifier.
    CLID_INUSE = 10017,
    /// Out of resources (4.0).
    RESOURCE = 10018,
    /// The file system is elsewhere.
    MOVED = 10019,
    /// No current filehandle.
    NOFILEHANDLE = 10020,
    /// The minor version is not supported.
    MINOR_VERS_MISMATCH = 10021,
    /// The client id is of another instance of the server.
    STALE_CLIENTID = 10022,
    /// The stateid is of another instance of the server.
    STALE_STATEID = 10023,
    /// The stateid has been succeeded.
    OLD_STATEID = 10024,
    /// The stateid means nothing here.
    BAD_STATEID = 10025,
    /// Out of order for its owner (4.0).
    BAD_SEQID = 10026,
    /// VERIFY: the attributes differ.
    NOT_SAME = 10027,
    /// The range does not match that of the lock.
    LOCK_RANGE = 10028,
    /// A symbolic link.
    SYMLINK = 10029,
    /// No saved filehandle.
    RESTOREFH = 10030,
    /// A lease has moved with its file system.
    LEASE_MOVED = 10031,
    /// The attribute is not supported.
    ATTRNOTSUPP = 10032,
    /// A reclaim outside of grace.
    NO_GRACE = 10033,
    /// Nothing to reclaim.
    RECLAIM_BAD = 10034,
    /// The reclaim conflicts.
    RECLAIM_CONFLICT = 10035,
    /// The arguments can not be read.
    BADXDR = 10036,
    /// Locks are held.
    LOCKS_HELD = 10037,
    /// The open does not allow it.
    OPENMODE = 10038,
    /// The owner can not be translated.
    BADOWNER = 10039,
    /// A character is not supported.
    BADCHAR = 10040,
    /// The name is not supported.
    BADNAME = 10041,
    /// The lock range is not supported.
    BAD_RANGE = 10042,
    /// The lock can not be up- or downgraded at once.
    LOCK_NOTSUPP = 10043,
    /// No such operation.
    OP_ILLEGAL = 10044,
    /// The lock would never be granted.
    DEADLOCK = 10045,
    /// The file is open.
    FILE_OPEN = 10046,
    /// An administrator has revoked the state.
    ADMIN_REVOKED = 10047,
    /// Callbacks do not get through.
    CB_PATH_DOWN = 10048,
    /// The I/O mode of a layout is not right.
    BADIOMODE = 10049,
    /// The layout is not right.
    BADLAYOUT = 10050,
    /// The digest of SET_SSV does not fit.
    BAD_SESSION_DIGEST = 10051,
    /// No such session.
    BADSESSION = 10052,
    /// No such slot.
    BADSLOT = 10053,
    /// RECLAIM_COMPLETE came before.
    COMPLETE_ALREADY = 10054,
    /// The connection is not bound to the session.
    CONN_NOT_BOUND_TO_SESSION = 10055,
    /// The delegation is already wanted.
    DELEG_ALREADY_WANTED = 10056,
    /// Callbacks are outstanding.
    BACK_CHAN_BUSY = 10057,
    /// No layout for now.
    LAYOUTTRYLATER = 10058,
    /// No layout for this.
    LAYOUTUNAVAILABLE = 10059,
    /// No such layout.
    NOMATCHING_LAYOUT = 10060,
    /// A recall is on its way.
    RECALLCONFLICT = 10061,
    /// The layout type is not known.
    UNKNOWN_LAYOUTTYPE = 10062,
    /// The slot awaits another sequence number.
    SEQ_MISORDERED = 10063,
    /// SEQUENCE stands elsewhere than first.
    SEQUENCE_POS = 10064,
    /// The request is larger than the session allows.
    REQ_TOO_BIG = 10065,
    /// The reply would be larger than the session allows.
    REP_TOO_BIG = 10066,
    /// The reply would be larger than the session caches.
    REP_TOO_BIG_TO_CACHE = 10067,
    /// A retry whose reply was not cached.
    RETRY_UNCACHED_REP = 10068,
    /// A retry or recovery of the compound would be too hard.
    UNSAFE_COMPOUND = 10069,
    /// More operations than the session allows.
    TOO_MANY_OPS = 10070,
    /// The operation needs a SEQUENCE before it.
    OP_NOT_IN_SESSION = 10071,
    /// The hash algorithm is not supported.
    HASH_ALG_UNSUPP = 10072,
    /// The client id has state.
    CLIENTID_BUSY = 10074,
    /// I/O to a hole of a sparse layout.
    PNFS_IO_HOLE = 10075,
    /// A retry that differs from the original.
    SEQ_FALSE_RETRY = 10076,
    /// The highest slot named is not right.
    BAD_HIGH_SLOT = 10077,
    /// The session is dead.
    DEADSESSION = 10078,
    /// The cipher is not supported.
    ENCR_ALG_UNSUPP = 10079,
    /// I/O without a layout.
    PNFS_NO_LAYOUT = 10080,
    /// The operation must be alone.
    NOT_ONLY_OP = 10081,
    /// Another credential is asked for.
    WRONG_CRED = 10082,
    /// An object of another type is asked for.
    WRONG_TYPE = 10083,
    /// No delegation of this directory.
    DIRDELEG_UNAVAIL = 10084,
    /// The client rejects the delegation.
    REJECT_DELEG = 10085,
    /// A layout is asked for before another is returned.
    RETURNCONFLICT = 10086,
    /// The delegation was revoked.
    DELEG_REVOKED = 10087,
    /// Copies between servers are not supported.
    PARTNER_NOTSUPP = 10088,
    /// Copies between these servers are not authorised.
    PARTNER_NO_AUTH = 10089,
    /// This arm of the union is not supported.
    UNION_NOTSUPP = 10090,
    /// The destination does not allow the copy.
    OFFLOAD_DENIED = 10091,
    /// The label format is not supported.
    WRONG_LFS = 10092,
    /// The label is not right.
    BADLABEL = 10093,
    /// The destination does not meet the requirements.
    OFFLOAD_NO_REQS = 10094,
    /// No such extended attribute.
    NOXATTR = 10095,
    /// The extended attribute is too large.
    XATTR2BIG = 10096,
}
