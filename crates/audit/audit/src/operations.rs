//! Numbers and names of NFSv4 operations, and equivalent system calls.

pub use vouch_nfs4::op::number;
use vouch_nfs4::op::{Effect, Op};

use number::*;

/// One more than the highest number.
pub const COUNT: usize = Op::ALL[Op::ALL.len() - 1].0 as usize + 1;

/// A bit mask by operation number.
pub type Set = u128;

/// The set of one operation; empty for 128 and above.
pub fn single(number: u16) -> Set {
    if number < 128 { 1 << number } else { 0 }
}

/// Of `-S all`: without operations on filehandles and sessions.
pub(crate) fn file_operations() -> Set {
    Op::ALL.iter().filter(|op| op.touches_file()).fold(0, |set, op| set | single(op.0 as u16))
}

pub(crate) fn effect(number: u16) -> Option<Effect> {
    Op(number.into()).effect()
}

/// The number in records.
pub fn code(op: Op) -> u16 {
    u16::try_from(op.0).unwrap_or(u16::MAX)
}

/// As in the RFCs; `ILLEGAL` for an unknown number.
pub fn name(number: u16) -> &'static str {
    Op(number.into()).name().unwrap_or("ILLEGAL")
}

pub(crate) fn number_of_name(name: &str) -> Option<u16> {
    Op::ALL
        .iter()
        .find(|op| op.name().is_some_and(|known| known.eq_ignore_ascii_case(name)))
        .map(|op| op.0 as u16)
}

/// True if the operation behind system call `word` also serves calls that `named` lacks.
pub(crate) fn serves_other_calls(word: &str, named: &[String]) -> bool {
    if let Some((_, equivalents)) = UNUSUAL_CALLS.iter().find(|(unusual, _)| *unusual == word) {
        return !equivalents.iter().any(|call| named.iter().any(|name| name == call));
    }
    let group = CALLS_SHARING_OPERATION
        .iter()
        .find(|group| group.iter().any(|calls| calls.contains(&word)));
    group.is_some_and(|group| {
        group.iter().any(|calls| !calls.iter().any(|call| named.iter().any(|name| name == call)))
    })
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
        "stat" | "lstat" | "fstat" | "newfstatat" | "statx" | "file_getattr"
        | "name_to_handle_at" => &[GETATTR, LOOKUP],
        "access" | "faccessat" | "faccessat2" => &[ACCESS],
        "getdents" | "getdents64" => &[READDIR],
        "readlink" | "readlinkat" => &[READLINK],
        "mkdir" | "mkdirat" | "mknod" | "mknodat" | "symlink" | "symlinkat" => &[CREATE],
        "unlink" | "unlinkat" | "rmdir" => &[REMOVE],
        "rename" | "renameat" | "renameat2" => &[RENAME],
        "link" | "linkat" => &[LINK],
        "chmod" | "fchmod" | "fchmodat" | "fchmodat2" | "chown" | "fchown" | "lchown"
        | "fchownat" | "truncate" | "ftruncate" | "utime" | "utimes" | "utimensat"
        | "futimesat" | "file_setattr" => &[SETATTR],
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
        for op in Op::ALL {
            let (number, text) = (op.0 as u16, name(op.0 as u16));
            assert_eq!(
                (number_of_name(text), number_of_name(&text.to_lowercase())),
                (Some(number), Some(number))
            );
        }
        assert_eq!(name(2), "ILLEGAL");
        let mut named: Vec<i64> = ERRNOS.iter().map(|(number, _)| -i64::from(*number)).collect();
        let mut all: Vec<i64> = possible_results().filter(|result| *result != 0).collect();
        for list in [&mut named, &mut all] {
            list.sort_unstable();
            list.dedup();
        }
        assert_eq!(all, named);
        assert!(
            (0..20_000)
                .all(|status| possible_results().any(|result| result == -i64::from(errno(status))))
        );
        assert_eq!((errno_of_name("ENODATA"), errno_of_name("ENOSYS")), (Some(61), None));
        assert_eq!(parse_operations("unlinkat"), Some(single(REMOVE)));
        assert_eq!(parse_operations("execve"), None);
        assert_eq!(parse_operations("all").map(Set::count_ones), Some(33));
    }
}
