//! The Controlled Access Protection Profile (CAPP), as in the sample rules of the Linux audit
//! project, with the calls on files, IPC, processes and modules that the sample has as comments.
//! Rules for tracing and containers are left out. Paths are those of Debian.

use std::path::Path;

pub(super) fn capp_rules() -> Vec<Vec<String>> {
    let calls = CALLS.iter().flat_map(|group| {
        [("b64", group.b64), ("b32", group.b32)]
            .map(|(arch, more)| calls_rule(arch, group.both.iter().chain(more)))
    });
    // The kernel watches a missing file, but not below a missing directory.
    let has_parent = |path: &&(&str, &str)| Path::new(path.0).parent().is_some_and(Path::exists);
    let watches = WATCHES.iter().filter(has_parent).map(|(path, rights)| watch(path, rights));
    calls.chain(watches).collect()
}

pub(super) fn calls_rule<'a>(arch: &str, calls: impl Iterator<Item = &'a &'a str>) -> Vec<String> {
    ["-a", "always,exit", "-F", &format!("arch={arch}")]
        .into_iter()
        .map(str::to_owned)
        .chain(calls.flat_map(|call| ["-S".to_owned(), (*call).to_owned()]))
        .collect()
}

pub(super) fn watch(path: &str, rights: &str) -> Vec<String> {
    ["-w", path, "-p", rights].map(str::to_owned).into()
}

struct Calls {
    both: &'static [&'static str],
    b64: &'static [&'static str],
    b32: &'static [&'static str],
}

const CALLS: [Calls; 12] = [
    Calls {
        both: &["chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat"],
        b64: &[],
        b32: &["chown32", "fchown32", "lchown32"],
    },
    Calls {
        both: &[
            "creat",
            "open",
            "openat",
            "openat2",
            "open_by_handle_at",
            "truncate",
            "ftruncate",
            "fallocate",
        ],
        b64: &[],
        b32: &["truncate64", "ftruncate64"],
    },
    Calls { both: &["mkdir", "mkdirat", "rmdir"], b64: &[], b32: &[] },
    Calls { both: &["unlink", "unlinkat", "rename", "renameat", "renameat2"], b64: &[], b32: &[] },
    Calls { both: &["link", "linkat", "symlink", "symlinkat"], b64: &[], b32: &[] },
    Calls {
        both: &[
            "setxattr",
            "lsetxattr",
            "fsetxattr",
            "removexattr",
            "lremovexattr",
            "fremovexattr",
        ],
        b64: &[],
        b32: &[],
    },
    Calls { both: &["mknod", "mknodat"], b64: &[], b32: &[] },
    Calls {
        both: &["mount", "umount2", "init_module", "finit_module", "delete_module"],
        b64: &[],
        b32: &["umount"],
    },
    Calls {
        both: &["adjtimex", "settimeofday", "clock_settime", "sethostname", "setdomainname"],
        b64: &[],
        b32: &["stime"],
    },
    // `ipc` is all calls on IPC of 32-bit programs; the sample picks eight of them.
    Calls {
        both: &["msgctl", "msgget", "semctl", "semget", "shmctl", "shmget"],
        b64: &["semop", "semtimedop"],
        b32: &["ipc"],
    },
    Calls { both: &["clone", "clone3", "fork", "vfork"], b64: &[], b32: &[] },
    Calls { both: &["umask"], b64: &[], b32: &[] },
];

const WATCHES: [(&str, &str); 63] = [
    ("/var/log/audit", "rwxa"),
    ("/etc/audit", "wa"),
    ("/etc/default/auditd", "wa"),
    ("/etc/libaudit.conf", "wa"),
    ("/etc/audisp", "wa"),
    ("/etc/cups", "wa"),
    ("/etc/init.d/cups", "wa"),
    ("/etc/netlabel.rules", "wa"),
    ("/etc/selinux/config", "wa"),
    ("/etc/selinux/semanage.conf", "wa"),
    ("/usr/sbin/stunnel", "x"),
    ("/etc/stunnel/stunnel.conf", "rwxa"),
    ("/etc/stunnel/stunnel.pem", "rwxa"),
    ("/etc/aide.conf", "wa"),
    ("/etc/at.allow", "wa"),
    ("/etc/at.deny", "wa"),
    ("/var/spool/at", "wa"),
    ("/etc/cron.allow", "wa"),
    ("/etc/cron.deny", "wa"),
    ("/etc/cron.d", "wa"),
    ("/etc/cron.daily", "wa"),
    ("/etc/cron.hourly", "wa"),
    ("/etc/cron.monthly", "wa"),
    ("/etc/cron.weekly", "wa"),
    ("/etc/crontab", "wa"),
    ("/var/spool/cron/crontabs/root", "rwxa"),
    ("/etc/group", "wa"),
    ("/etc/passwd", "wa"),
    ("/etc/gshadow", "rwxa"),
    ("/etc/shadow", "rwxa"),
    ("/etc/security/opasswd", "rwxa"),
    ("/etc/login.defs", "wa"),
    ("/etc/securetty", "wa"),
    ("/run/faillock", "wa"),
    ("/var/log/faillog", "wa"),
    ("/var/log/lastlog", "wa"),
    ("/var/log/tallylog", "wa"),
    ("/etc/hosts", "wa"),
    ("/etc/network", "wa"),
    ("/etc/init", "wa"),
    ("/etc/inittab", "wa"),
    ("/etc/init.d", "wa"),
    ("/etc/ld.so.conf", "wa"),
    ("/etc/localtime", "wa"),
    ("/etc/sysctl.conf", "wa"),
    ("/etc/modprobe.d", "wa"),
    ("/etc/pam.d", "wa"),
    ("/etc/security/access.conf", "wa"),
    ("/etc/security/limits.conf", "wa"),
    ("/etc/security/pam_env.conf", "wa"),
    ("/etc/security/namespace.conf", "wa"),
    ("/etc/security/namespace.d", "wa"),
    ("/etc/security/namespace.init", "wa"),
    ("/etc/security/sepermit.conf", "wa"),
    ("/etc/security/time.conf", "wa"),
    ("/etc/aliases", "wa"),
    ("/etc/postfix", "wa"),
    ("/etc/screenrc", "wa"),
    ("/etc/ssh/sshd_config", "rwxa"),
    ("/etc/sudoers", "rwxa"),
    ("/etc/sudoers.d", "rwxa"),
    ("/etc/issue", "wa"),
    ("/etc/issue.net", "wa"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_a_rule_for_both_abis() {
        let rules = capp_rules();
        let of = |arch: &str| {
            rules.iter().filter(|rule| rule.contains(&format!("arch={arch}"))).collect::<Vec<_>>()
        };
        assert_eq!((of("b64").len(), of("b32").len()), (CALLS.len(), CALLS.len()));
        for (wide, narrow) in of("b64").into_iter().zip(of("b32")) {
            assert!(
                wide[4..]
                    .iter()
                    .all(|word| narrow.contains(word)
                        || matches!(word.as_str(), "semop" | "semtimedop")),
                "{wide:?}, {narrow:?}"
            );
        }
        assert!(of("b32").iter().any(|rule| rule.contains(&"chown32".to_owned())));
        assert!(rules.iter().any(|rule| rule[..2] == ["-w", "/etc/shadow"]));
    }
}
