//! Numbers of linux/fuse.h, version 7.41.

macro_rules! opcodes {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// A request that the kernel may send.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Opcode { $($name),* }

        impl Opcode {
            pub(crate) const fn of(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    Lookup = 1, Forget = 2, Getattr = 3, Setattr = 4, Readlink = 5, Symlink = 6, Mknod = 8,
    Mkdir = 9, Unlink = 10, Rmdir = 11, Rename = 12, Link = 13, Open = 14, Read = 15, Write = 16,
    Statfs = 17, Release = 18, Fsync = 20, Setxattr = 21, Getxattr = 22, Listxattr = 23,
    Removexattr = 24, Flush = 25, Init = 26, Opendir = 27, Readdir = 28, Releasedir = 29,
    Fsyncdir = 30, Getlk = 31, Setlk = 32, Setlkw = 33, Access = 34, Create = 35, Interrupt = 36,
    Destroy = 38, BatchForget = 42, Fallocate = 43, Readdirplus = 44, Rename2 = 45, Lseek = 46,
    CopyFileRange = 47, Syncfs = 50,
}

impl Opcode {
    /// Content, attributes or names. A new file is none that was known before.
    pub(crate) const fn changes_files(self) -> bool {
        matches!(
            self,
            Self::Setattr
                | Self::Write
                | Self::Link
                | Self::Unlink
                | Self::Rename
                | Self::Rename2
                | Self::Setxattr
                | Self::Removexattr
                | Self::Fallocate
                | Self::CopyFileRange
        )
    }
}

pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 41;
/// `max_pages` and `fuse_init_in` of 64 bytes exist since.
pub(crate) const MINOR_MIN: u32 = 36;

/// Features of FUSE_INIT.
pub(crate) struct InitFlags;

impl InitFlags {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const ABORT_ERROR: u64 = 1 << 21;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    /// The server clears set-user-id bits on writes, so the kernel asks for no capability.
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const ALLOW_IDMAP: u64 = 1 << 40;
}

/// `valid` of `fuse_setattr_in`.
pub(crate) struct AttrFlags;

impl AttrFlags {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
}

pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
pub(crate) const FOPEN_CACHE_DIR: u32 = 1 << 3;
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;

pub(crate) const FALLOC_KEEP_SIZE: u32 = 1;
pub(crate) const FALLOC_PUNCH_HOLE: u32 = 2;

pub(crate) const IN_HEADER_LEN: usize = 40;
pub(crate) const OUT_HEADER_LEN: usize = 16;

/// `fuse_in_header` and `fuse_write_in`.
pub(crate) const WRITE_HEAD_LEN: usize = IN_HEADER_LEN + 40;

pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
pub(crate) const NOTIFY_INVAL_ENTRY: i32 = 3;
