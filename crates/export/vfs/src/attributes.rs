#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Since 1970-01-01 UTC; negative before it.
    pub seconds: i64,
    pub nanos: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    Regular,
    Directory,
    Symlink,
    BlockDevice,
    CharDevice,
    Fifo,
    Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub file_type: FileType,
    /// 12 bits, with set-uid, set-gid and sticky.
    pub mode: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub space_used: u64,
    pub device: (u32, u32),
    pub fsid: u64,
    pub file_number: u64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    pub created: Option<Time>,
    /// Moves with every change of data or attributes, even within a clock tick. Never
    /// returns to an earlier value.
    pub change: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    Now,
    To(Time),
}

/// `None` leaves a value unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    pub mode: Option<u16>,
    pub mode_mask: Option<u16>,
    /// For a new file: masks `mode` unless the directory has a default ACL (RFC 8275).
    pub umask: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Bytes: truncates, or extends by a hole.
    pub size: Option<u64>,
    pub accessed: Option<SetTime>,
    pub modified: Option<SetTime>,
}

impl SetAttributes {
    pub fn is_empty(&self) -> bool {
        *self == SetAttributes::default()
    }
}
