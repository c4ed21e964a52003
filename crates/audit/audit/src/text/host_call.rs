//! Events of hosts with a system call, as SYSCALL, CWD and PATH lines. The original lines are not
//! kept: arguments are zero, and relative names are joined with their directory.

use std::fmt::Write as _;

use super::{field, head, id, number, vouch_fields};
use crate::Record;
use crate::host::detail;

const HOST_CALLS: [u16; 2] = [1300, 1336];

/// An event with a system call, or a part of one whose first line was lost.
pub(super) fn has_call(record: &Record<'_>) -> bool {
    HOST_CALLS.contains(&record.operation)
        || detail::parse(record.detail).iter().any(|(name, _)| *name == b"syscall")
}

pub(super) fn write(record: &Record<'_>, out: &mut String) {
    let detail = detail::parse(record.detail);
    let of = |wanted: &str| {
        detail.iter().find(|(name, _)| *name == wanted.as_bytes()).map(|(_, value)| &value[..])
    };
    let by_name = |call: &[u8]| {
        std::str::from_utf8(call).ok().and_then(crate::host::call_number).map(u32::from)
    };
    let call = of("number")
        .and_then(number)
        .or_else(|| of("syscall").and_then(|call| number(call).or_else(|| by_name(call))));
    let is_arch = |arch: &&[u8]| arch.iter().all(u8::is_ascii_hexdigit);
    let arch = of("arch").filter(is_arch).map_or("c000003e".into(), String::from_utf8_lossy);
    let success = if record.result == 0 { "yes" } else { "no" };
    let paths = [(record.path, host_nametype(call)), (record.path2, "CREATE")];
    let items = paths.iter().filter(|(path, _)| !path.is_empty()).count();
    head(record, "SYSCALL", out);
    let id_of = |name: &str, otherwise: u32| of(name).and_then(number).unwrap_or(otherwise);
    let (call, exit) = (call.unwrap_or(u32::MAX), -record.errno());
    let (ppid, pid) = (id_of("ppid", 0), record.pid.unwrap_or_else(|| id_of("pid", 0)));
    let _ = write!(
        out,
        "arch={arch} syscall={call} success={success} exit={exit} a0=0 a1=0 a2=0 a3=0 items={items} ppid={ppid} pid={pid} "
    );
    let (auid, uid, gid) =
        (record.login.unwrap_or_else(|| id_of("auid", u32::MAX)), id(record.uid), id(record.gid));
    let _ = write!(
        out,
        "auid={auid} uid={uid} gid={gid} euid={uid} suid={uid} fsuid={uid} egid={gid} sgid={gid} fsgid={gid} "
    );
    let tty = of("tty")
        .and_then(|tty| std::str::from_utf8(tty).ok())
        .filter(|tty| tty.bytes().all(|byte| byte.is_ascii_graphic()));
    let _ = write!(out, "tty={} ses={} ", tty.unwrap_or("(none)"), id_of("ses", u32::MAX));
    for name in ["comm", "exe"] {
        field(out, name, of(name).unwrap_or(b"?"));
        out.push(' ');
    }
    match record.key {
        b"" => out.push_str("key=(null)"),
        key => field(out, "key", key),
    }
    out.push_str(" op=");
    match crate::host::record_type_name(record.operation) {
        Some(name) => out.push_str(&name.to_ascii_lowercase()),
        None => drop(write!(out, "host-{}", record.operation)),
    }
    vouch_fields(record, out);
    for (name, text) in [
        ("port", record.port.map(|port| port.to_string())),
        ("peer", record.address.map(|peer| peer.to_string())),
    ] {
        if let Some(text) = text {
            let _ = write!(out, " {name}=\"{text}\"");
        }
    }
    out.push('\n');
    head(record, "CWD", out);
    out.push_str("cwd=\"/\"\n");
    // Device and inode belong to the first path.
    let file = std::str::from_utf8(record.file).ok().and_then(|file| file.rsplit_once(':'));
    let is_file = |(device, inode): &(&str, &str)| {
        device.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
            && inode.bytes().all(|byte| byte.is_ascii_digit())
    };
    for (item, (path, nametype)) in paths.iter().filter(|(path, _)| !path.is_empty()).enumerate() {
        head(record, "PATH", out);
        let _ = write!(out, "item={item} ");
        field(out, "name", path);
        if let Some((device, inode)) = file.filter(|file| item == 0 && is_file(file)) {
            let _ = write!(out, " inode={inode} dev={device}");
        }
        let _ = writeln!(
            out,
            " nametype={nametype} cap_fp=0 cap_fi=0 cap_fe=0 cap_fver=0 cap_frootid=0"
        );
    }
}

/// rename, renameat, renameat2; unlink, unlinkat, rmdir of x86-64; mkdir, symlink, mknod and so on.
fn host_nametype(call: Option<u32>) -> &'static str {
    match call {
        Some(82 | 264 | 316 | 87 | 263 | 84) => "DELETE",
        Some(83 | 258 | 88 | 266 | 133 | 259 | 85) => "CREATE",
        _ => "NORMAL",
    }
}
