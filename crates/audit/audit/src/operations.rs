//! Numbers and names of NFSv4 operations, and equivalent system calls.

const ALL: [(u16, &str); 73] = [
    (3, "ACCESS"),
    (4, "CLOSE"),
    (5, "COMMIT"),
    (6, "CREATE"),
    (7, "DELEGPURGE"),
    (8, "DELEGRETURN"),
    (9, "GETATTR"),
    (10, "GETFH"),
    (11, "LINK"),
    (12, "LOCK"),
    (13, "LOCKT"),
    (14, "LOCKU"),
    (15, "LOOKUP"),
    (16, "LOOKUPP"),
    (17, "NVERIFY"),
    (18, "OPEN"),
    (19, "OPENATTR"),
    (20, "OPEN_CONFIRM"),
    (21, "OPEN_DOWNGRADE"),
    (22, "PUTFH"),
    (23, "PUTPUBFH"),
    (24, "PUTROOTFH"),
    (25, "READ"),
    (26, "READDIR"),
    (27, "READLINK"),
    (28, "REMOVE"),
    (29, "RENAME"),
    (30, "RENEW"),
    (31, "RESTOREFH"),
    (32, "SAVEFH"),
    (33, "SECINFO"),
    (34, "SETATTR"),
    (35, "SETCLIENTID"),
    (36, "SETCLIENTID_CONFIRM"),
    (37, "VERIFY"),
    (38, "WRITE"),
    (39, "RELEASE_LOCKOWNER"),
    (40, "BACKCHANNEL_CTL"),
    (41, "BIND_CONN_TO_SESSION"),
    (42, "EXCHANGE_ID"),
    (43, "CREATE_SESSION"),
    (44, "DESTROY_SESSION"),
    (45, "FREE_STATEID"),
    (46, "GET_DIR_DELEGATION"),
    (47, "GETDEVICEINFO"),
    (48, "GETDEVICELIST"),
    (49, "LAYOUTCOMMIT"),
    (50, "LAYOUTGET"),
    (51, "LAYOUTRETURN"),
    (52, "SECINFO_NO_NAME"),
    (53, "SEQUENCE"),
    (54, "SET_SSV"),
    (55, "TEST_STATEID"),
    (56, "WANT_DELEGATION"),
    (57, "DESTROY_CLIENTID"),
    (58, "RECLAIM_COMPLETE"),
    (59, "ALLOCATE"),
    (60, "COPY"),
    (61, "COPY_NOTIFY"),
    (62, "DEALLOCATE"),
    (63, "IO_ADVISE"),
    (64, "LAYOUTERROR"),
    (65, "LAYOUTSTATS"),
    (66, "OFFLOAD_CANCEL"),
    (67, "OFFLOAD_STATUS"),
    (68, "READ_PLUS"),
    (69, "SEEK"),
    (70, "WRITE_SAME"),
    (71, "CLONE"),
    (72, "GETXATTR"),
    (73, "SETXATTR"),
    (74, "LISTXATTRS"),
    (75, "REMOVEXATTR"),
];

/// RFC 8881 §16.2.3; RFC 7862; RFC 8276.
#[allow(missing_docs, reason = "the names are those of the RFCs")]
pub mod number {
    pub const ACCESS: u16 = 3;
    pub const CLOSE: u16 = 4;
    pub const COMMIT: u16 = 5;
    pub const CREATE: u16 = 6;
    pub const DELEGRETURN: u16 = 8;
    pub const GETATTR: u16 = 9;
    pub const LINK: u16 = 11;
    pub const LOCK: u16 = 12;
    pub const LOCKT: u16 = 13;
    pub const LOCKU: u16 = 14;
    pub const LOOKUP: u16 = 15;
    pub const LOOKUPP: u16 = 16;
    pub const OPEN: u16 = 18;
    pub const OPEN_DOWNGRADE: u16 = 21;
    pub const READ: u16 = 25;
    pub const READDIR: u16 = 26;
    pub const READLINK: u16 = 27;
    pub const REMOVE: u16 = 28;
    pub const RENAME: u16 = 29;
    pub const SETATTR: u16 = 34;
    pub const VERIFY: u16 = 37;
    pub const NVERIFY: u16 = 17;
    pub const WRITE: u16 = 38;
    pub const ALLOCATE: u16 = 59;
    pub const COPY: u16 = 60;
    pub const DEALLOCATE: u16 = 62;
    pub const READ_PLUS: u16 = 68;
    pub const SEEK: u16 = 69;
    pub const CLONE: u16 = 71;
    pub const GETXATTR: u16 = 72;
    pub const SETXATTR: u16 = 73;
    pub const LISTXATTRS: u16 = 74;
    pub const REMOVEXATTR: u16 = 75;
}

use number::*;

/// `-S all`: without operations on filehandles and sessions.
const FILE_OPERATIONS: [u16; 33] = [
    ACCESS,
    CLOSE,
    COMMIT,
    CREATE,
    8,
    GETATTR,
    LINK,
    LOCK,
    LOCKT,
    LOCKU,
    LOOKUP,
    LOOKUPP,
    NVERIFY,
    OPEN,
    OPEN_DOWNGRADE,
    READ,
    READDIR,
    READLINK,
    REMOVE,
    RENAME,
    SETATTR,
    VERIFY,
    WRITE,
    ALLOCATE,
    COPY,
    DEALLOCATE,
    READ_PLUS,
    SEEK,
    CLONE,
    GETXATTR,
    SETXATTR,
    LISTXATTRS,
    REMOVEXATTR,
];

/// A bit mask by operation number.
pub type Set = u128;

/// The set of one operation; empty for 128 and above.
pub fn single(number: u16) -> Set {
    if number < 128 { 1 << number } else { 0 }
}

pub(crate) fn file_operations() -> Set {
    FILE_OPERATIONS.iter().fold(0, |set, number| set | single(*number))
}

/// As in the RFCs; `ILLEGAL` for an unknown number.
pub fn name(number: u16) -> &'static str {
    ALL.iter().find(|(known, _)| *known == number).map_or("ILLEGAL", |(_, name)| name)
}

pub(crate) fn number_of_name(name: &str) -> Option<u16> {
    ALL.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(number, _)| *number)
}

/// True if the operation behind system call `word` also serves calls that `named` lacks.
pub(crate) fn serves_other_calls(word: &str, named: &[String]) -> bool {
    if let Some((_, usual)) = UNUSUAL_CALLS.iter().find(|(unusual, _)| *unusual == word) {
        return !usual.iter().any(|call| named.iter().any(|name| name == call));
    }
    let group = CALLS_SHARING_OPERATION.iter().find(|group| group.iter().any(|calls| calls.contains(&word)));
    group.is_some_and(|group| group.iter().any(|calls| !calls.iter().any(|call| named.iter().any(|name| name == call))))
}

const CALLS_SHARING_OPERATION: [&[&[&str]]; 4] = [
    &[
        &["chmod", "fchmod", "fchmodat", "fchmodat2"],
        &["chown", "fchown", "lchown", "fchownat"],
        &["truncate", "ftruncate"],
        &["utime", "utimes", "utimensat", "futimesat"],
        &["file_setattr"],
    ],
    &[&["mkdir", "mkdirat"], &["mknod", "mknodat"], &["symlink", "symlinkat"]],
    &[&["unlink", "unlinkat"], &["rmdir"]],
    &[&["flock"], &["fcntl"]],
];

/// Calls that few programs use, and those whose operations serve them too.
const UNUSUAL_CALLS: [(&str, &[&str]); 3] = [
    ("open_by_handle_at", &["open", "openat", "openat2"]),
    ("name_to_handle_at", &["stat", "newfstatat", "statx"]),
    ("file_getattr", &["stat", "newfstatat", "statx"]),
];

/// Calls of usual rule sets that touch no file of an export or a mount.
pub(crate) fn is_without_files(call: &str) -> bool {
    WITHOUT_FILES.contains(&call)
}

const WITHOUT_FILES: [&str; 40] = [
    "accept",
    "accept4",
    "adjtimex",
    "bind",
    "bpf",
    "clock_adjtime",
    "clock_settime",
    "clone",
    "clone3",
    "connect",
    "delete_module",
    "execve",
    "execveat",
    "finit_module",
    "init_module",
    "kexec_file_load",
    "kexec_load",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "listen",
    "lsm_set_self_attr",
    "mount",
    "mount_setattr",
    "perf_event_open",
    "ptrace",
    "reboot",
    "rt_sigreturn",
    "setdomainname",
    "sethostname",
    "setns",
    "setresuid",
    "settimeofday",
    "setuid",
    "socket",
    "stime",
    "swapon",
    "umount",
    "umount2",
    "unshare",
];

/// An NFS operation, a system call (all operations that serve it), or `all`.
pub fn parse_operations(word: &str) -> Option<Set> {
    if word == "all" {
        return Some(file_operations());
    }
    let of_call: &[u16] = match word {
        "open" | "openat" | "openat2" | "creat" | "open_by_handle_at" => &[OPEN],
        "close" => &[CLOSE],
        "read" | "pread64" | "readv" | "preadv" | "preadv2" => &[READ, READ_PLUS],
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => &[WRITE],
        "fsync" | "fdatasync" | "sync_file_range" => &[COMMIT],
        "stat" | "lstat" | "fstat" | "newfstatat" | "statx" | "file_getattr" | "name_to_handle_at" => &[GETATTR, LOOKUP],
        "access" | "faccessat" | "faccessat2" => &[ACCESS],
        "getdents" | "getdents64" => &[READDIR],
        "readlink" | "readlinkat" => &[READLINK],
        "mkdir" | "mkdirat" | "mknod" | "mknodat" | "symlink" | "symlinkat" => &[CREATE],
        "unlink" | "unlinkat" | "rmdir" => &[REMOVE],
        "rename" | "renameat" | "renameat2" => &[RENAME],
        "link" | "linkat" => &[LINK],
        "chmod" | "fchmod" | "fchmodat" | "fchmodat2" | "chown" | "fchown" | "lchown" | "fchownat" | "truncate" | "ftruncate" | "utime"
        | "utimes" | "utimensat" | "futimesat" | "file_setattr" => &[SETATTR],
        "setxattr" | "lsetxattr" | "fsetxattr" | "setxattrat" => &[SETXATTR],
        "getxattr" | "lgetxattr" | "fgetxattr" | "getxattrat" => &[GETXATTR],
        "listxattr" | "llistxattr" | "flistxattr" | "listxattrat" => &[LISTXATTRS],
        "removexattr" | "lremovexattr" | "fremovexattr" | "removexattrat" => &[REMOVEXATTR],
        "fallocate" => &[ALLOCATE, DEALLOCATE],
        "copy_file_range" => &[COPY, CLONE],
        "lseek" => &[SEEK],
        "flock" | "fcntl" => &[LOCK, LOCKT, LOCKU],
        _ => return number_of_name(word).map(single),
    };
    Some(of_call.iter().fold(0, |set, number| set | single(*number)))
}

/// The closest x86-64 system call, for tools that do not know NFS.
pub(crate) fn system_call(number: u16) -> u32 {
    match number {
        READ => 0,
        WRITE => 1,
        CLOSE => 3,
        SEEK => 8,
        READ_PLUS => 17,
        LOCK | LOCKT | LOCKU => 72,
        COMMIT => 74,
        SETXATTR => 188,
        GETXATTR => 191,
        LISTXATTRS => 194,
        REMOVEXATTR => 197,
        READDIR => 217,
        OPEN | OPEN_DOWNGRADE => 257,
        CREATE => 258,
        REMOVE => 263,
        RENAME => 264,
        LINK => 265,
        READLINK => 267,
        SETATTR => 268,
        ACCESS => 269,
        ALLOCATE | DEALLOCATE => 285,
        COPY | CLONE => 326,
        _ => 262,
    }
}

/// Maps an NFSv4 status. Success is 0.
pub fn errno(status: u32) -> i32 {
    match status {
        0..=13 | 17..=22 | 27 | 28 | 30 | 31 => status as i32,
        63 => 36,
        66 => 39,
        69 => 122,
        70 | 10001 | 10014 | 10020 => 116,
        10004 => 95,
        10008 | 10010 | 10012 | 10013 => 11,
        10016 | 10011 | 10025 => 13,
        10029 | 10043 => 40,
        10045 => 35,
        10095 => 61,
        10005 | 10036 | 10040 | 10041 => 22,
        _ => 5,
    }
}

/// By name, such as `ENOENT`.
pub fn errno_of_name(name: &str) -> Option<i32> {
    ERRNOS.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
}

/// `None` if no operation has this errno.
pub fn errno_name(errno: i32) -> Option<&'static str> {
    ERRNOS.iter().find(|(number, _)| *number == errno).map(|(_, name)| *name)
}

/// All statuses of NFSv4.
pub(crate) fn statuses() -> impl Iterator<Item = u32> {
    (1..100).chain(10_001..10_100)
}

pub(crate) fn possible_results() -> impl Iterator<Item = i64> {
    std::iter::once(0).chain(statuses()).map(|status| -i64::from(errno(status)))
}

const ERRNOS: [(i32, &str); 33] = [
    (1, "EPERM"),
    (2, "ENOENT"),
    (3, "ESRCH"),
    (4, "EINTR"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (8, "ENOEXEC"),
    (9, "EBADF"),
    (10, "ECHILD"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (17, "EEXIST"),
    (18, "EXDEV"),
    (19, "ENODEV"),
    (20, "ENOTDIR"),
    (21, "EISDIR"),
    (22, "EINVAL"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (30, "EROFS"),
    (31, "EMLINK"),
    (35, "EDEADLK"),
    (35, "EDEADLOCK"),
    (36, "ENAMETOOLONG"),
    (39, "ENOTEMPTY"),
    (40, "ELOOP"),
    (61, "ENODATA"),
    (95, "EOPNOTSUPP"),
    (95, "ENOTSUP"),
    (116, "ESTALE"),
    (122, "EDQUOT"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_convert_both_ways() {
        for (number, text) in ALL {
            assert_eq!((name(number), number_of_name(text), number_of_name(&text.to_lowercase())), (text, Some(number), Some(number)));
        }
        let mut named: Vec<i64> = ERRNOS.iter().map(|(number, _)| -i64::from(*number)).collect();
        let mut all: Vec<i64> = possible_results().filter(|result| *result != 0).collect();
        for list in [&mut named, &mut all] {
            list.sort_unstable();
            list.dedup();
        }
        assert_eq!(all, named);
        assert!((0..20_000).all(|status| possible_results().any(|result| result == -i64::from(errno(status)))));
        assert_eq!((errno_of_name("ENODATA"), errno_of_name("ENOSYS")), (Some(61), None));
        assert_eq!(parse_operations("unlinkat"), Some(single(REMOVE)));
        assert_eq!(parse_operations("execve"), None);
        assert_eq!(parse_operations("all").map(Set::count_ones), Some(33));
    }
}
