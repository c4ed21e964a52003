//! Attributes of files, readable and settable.

/// A time stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC; negative before it.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanos: u32,
}

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Block device.
    BlockDevice,
    /// Character device.
    CharDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// Attributes of a file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type.
    pub file_type: FileType,
    /// Permission bits with set-uid, set-gid and sticky: 12 bits.
    pub mode: u16,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes allocated.
    pub space_used: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Identifies the file system of the file; differs across mount points.
    pub fsid: u64,
    /// Inode number.
    pub file_number: u64,
    /// Last read.
    pub accessed: Time,
    /// Last write.
    pub modified: Time,
    /// Last change of attributes or data.
    pub changed: Time,
    /// Creation time, if known.
    pub created: Option<Time>,
    /// Moves with every change of data or attributes, even within a clock tick; never returns to an
    /// earlier value.
    pub change: u64,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's time.
    Now,
    /// This time.
    To(Time),
}

/// Attributes to set; `None` leaves a value unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits, 12.
    pub mode: Option<u16>,
    /// Mode bits to change (mode_set_masked); all if none.
    pub mode_mask: Option<u16>,
    /// For a new file: mask for `mode` unless the directory has a default ACL (RFC 8275).
    pub umask: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: truncates, or extends by a hole.
    pub size: Option<u64>,
    /// Last read.
    pub accessed: Option<SetTime>,
    /// Last write.
    pub modified: Option<SetTime>,
}

impl SetAttributes {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == SetAttributes::default()
    }
}
