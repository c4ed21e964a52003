//! The modules of the name service switch, whose own failures the C library hides (see
//! `nsswitch.rs`). nscd(8) is not asked.
#![allow(unsafe_code, reason = "the modules have a C interface only")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use parking_lot::Mutex;

use super::nsswitch::{Nsswitch, Outcome, ServiceFailed, all, first};
use super::service::UserRecord;

pub(super) fn user(uid: u32) -> Result<Option<UserRecord>, ServiceFailed> {
    let switch = Switch::current();
    first(&switch.nsswitch.passwd, |service| {
        by_id(&switch, service, "getpwuid_r", uid, PASSWD_LEN, read_user)
    })
}

pub(super) fn user_by_name(name: &str) -> Result<Option<UserRecord>, ServiceFailed> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let switch = Switch::current();
    first(&switch.nsswitch.passwd, |service| {
        by_name(&switch, service, "getpwnam_r", &name, PASSWD_LEN, read_user)
    })
}

pub(super) fn group(gid: u32) -> Result<Option<String>, ServiceFailed> {
    let switch = Switch::current();
    first(&switch.nsswitch.group, |service| {
        by_id(&switch, service, "getgrgid_r", gid, GROUP_LEN, |group| read_group(group).0)
    })
}

pub(super) fn group_by_name(name: &str) -> Result<Option<u32>, ServiceFailed> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let switch = Switch::current();
    first(&switch.nsswitch.group, |service| {
        by_name(&switch, service, "getgrnam_r", &name, GROUP_LEN, |group| read_group(group).1)
    })
}

pub(super) fn groups(user: &str, gid: u32) -> Result<Vec<u32>, ServiceFailed> {
    let Ok(user) = CString::new(user) else { return Ok(Vec::new()) };
    let switch = Switch::current();
    let mut groups = all(&switch.nsswitch, |service| {
        switch.symbol(service, "initgroups_dyn").map(|address| member_of(address, &user, gid))
    })?;
    groups.push(gid);
    Ok(groups)
}

struct Switch {
    nsswitch: Nsswitch,
    stamp: Option<Stamp>,
    symbols: Mutex<HashMap<(String, &'static str), Option<usize>>>,
}

type Stamp = (u64, u64, i64, i64);

impl Switch {
    fn current() -> Arc<Switch> {
        static CURRENT: Mutex<Option<Arc<Switch>>> = Mutex::new(None);
        let stamp = std::fs::metadata(PATH)
            .ok()
            .map(|file| (file.ino(), file.size(), file.ctime(), file.ctime_nsec()));
        let mut current = CURRENT.lock();
        if let Some(switch) = current.as_ref().filter(|switch| switch.stamp == stamp) {
            return switch.clone();
        }
        let nsswitch = Nsswitch::parse(&std::fs::read_to_string(PATH).unwrap_or_default());
        current.insert(Arc::new(Switch { nsswitch, stamp, symbols: Mutex::default() })).clone()
    }

    fn symbol(&self, service: &str, function: &'static str) -> Option<usize> {
        let find = || find_symbol(service, function);
        *self.symbols.lock().entry((service.to_owned(), function)).or_insert_with(find)
    }
}

/// The C library contains the module `files` itself.
fn find_symbol(service: &str, function: &str) -> Option<usize> {
    if !service.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
        return None;
    }
    let name = CString::new(format!("_nss_{service}_{function}")).ok()?;
    // SAFETY: the name is NUL-terminated.
    let builtin = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if !builtin.is_null() {
        return Some(builtin as usize);
    }
    let library = CString::new(format!("libnss_{service}.so.2")).ok()?;
    // SAFETY: the name is NUL-terminated. Every program on the system runs this module, which is
    // never unloaded.
    let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is open, and the name is NUL-terminated.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found as usize)
}

type ByName<R> =
    unsafe extern "C" fn(*const c_char, *mut R, *mut c_char, usize, *mut c_int) -> c_int;
type ById<R> = unsafe extern "C" fn(u32, *mut R, *mut c_char, usize, *mut c_int) -> c_int;
type InitGroups = unsafe extern "C" fn(
    *const c_char,
    libc::gid_t,
    *mut c_long,
    *mut c_long,
    *mut *mut libc::gid_t,
    c_long,
    *mut c_int,
) -> c_int;

fn by_name<R, T>(
    switch: &Switch,
    service: &str,
    function: &'static str,
    name: &CStr,
    len: usize,
    read: impl Fn(&R) -> T,
) -> Option<Outcome<T>> {
    let address = switch.symbol(service, function)?;
    // SAFETY: every module defines its functions of this name with this signature (nss.h of glibc).
    let ask = unsafe { std::mem::transmute::<*const c_void, ByName<R>>(address as *const c_void) };
    // SAFETY: the pointers are valid during the call; `len` is the buffer's.
    Some(with_buffer(len, read, |record, buffer, len, errno| unsafe {
        ask(name.as_ptr(), record, buffer, len, errno)
    }))
}

fn by_id<R, T>(
    switch: &Switch,
    service: &str,
    function: &'static str,
    id: u32,
    len: usize,
    read: impl Fn(&R) -> T,
) -> Option<Outcome<T>> {
    let address = switch.symbol(service, function)?;
    // SAFETY: as in `by_name`.
    let ask = unsafe { std::mem::transmute::<*const c_void, ById<R>>(address as *const c_void) };
    // SAFETY: the pointers are valid during the call; `len` is the buffer's.
    Some(with_buffer(len, read, |record, buffer, len, errno| unsafe {
        ask(id, record, buffer, len, errno)
    }))
}

/// A group comes with its members, so a record may need a larger buffer.
fn with_buffer<R, T>(
    mut len: usize,
    read: impl Fn(&R) -> T,
    mut ask: impl FnMut(*mut R, *mut c_char, usize, *mut c_int) -> c_int,
) -> Outcome<T> {
    loop {
        let mut record = MaybeUninit::<R>::zeroed();
        let mut buffer: Vec<c_char> = Vec::with_capacity(len);
        let mut errno = 0;
        match ask(record.as_mut_ptr(), buffer.as_mut_ptr(), buffer.capacity(), &raw mut errno) {
            // SAFETY: the module has filled the record, whose pointers lead into the living buffer.
            SUCCESS => return Outcome::Found(read(unsafe { record.assume_init_ref() })),
            NOT_FOUND => return Outcome::NotFound,
            TRY_AGAIN if errno == libc::ERANGE && len < BUFFER_LEN_MAX => len *= 4,
            _ => return Outcome::Failed(errno),
        }
    }
}

fn read_user(user: &libc::passwd) -> UserRecord {
    UserRecord { name: text(user.pw_name), uid: user.pw_uid, gid: user.pw_gid }
}

fn read_group(group: &libc::group) -> (String, u32) {
    (text(group.gr_name), group.gr_gid)
}

fn text(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: a NUL-terminated name in the buffer.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

fn member_of(address: usize, user: &CStr, gid: u32) -> Outcome<Vec<u32>> {
    // SAFETY: every module defines `initgroups_dyn` with this signature.
    let ask = unsafe { std::mem::transmute::<*const c_void, InitGroups>(address as *const c_void) };
    let (mut count, mut size, mut errno): (c_long, c_long, c_int) = (0, GROUPS_START, 0);
    // SAFETY: an allocation of the C library, because modules enlarge it by realloc.
    let mut list = unsafe { libc::calloc(GROUPS_START as usize, size_of::<libc::gid_t>()) }
        .cast::<libc::gid_t>();
    if list.is_null() {
        return Outcome::Failed(libc::ENOMEM);
    }
    // SAFETY: the pointers are valid, and the list has room for `size` entries.
    let status = unsafe {
        ask(
            user.as_ptr(),
            gid,
            &raw mut count,
            &raw mut size,
            &raw mut list,
            GROUPS_MAX,
            &raw mut errno,
        )
    };
    let count = usize::try_from(count.min(size)).unwrap_or(0);
    // SAFETY: modules write the first `count` entries and keep `list` valid.
    let groups = unsafe { std::slice::from_raw_parts(list, count) }.to_vec();
    // SAFETY: the list comes from the C library's allocator and is freed once.
    unsafe { libc::free(list.cast()) };
    match status {
        SUCCESS => Outcome::Found(groups),
        NOT_FOUND => Outcome::NotFound,
        _ => Outcome::Failed(errno),
    }
}

const PATH: &str = "/etc/nsswitch.conf";

/// `enum nss_status` of glibc.
const SUCCESS: c_int = 1;
const NOT_FOUND: c_int = 0;
const TRY_AGAIN: c_int = -2;

const PASSWD_LEN: usize = 4 * 1024;
/// A group of 1,000 members needs some 20 KiB.
const GROUP_LEN: usize = 64 * 1024;
/// A million members.
const BUFFER_LEN_MAX: usize = 64 << 20;
const GROUPS_START: c_long = 256;
/// `NGROUPS_MAX` of Linux.
const GROUPS_MAX: c_long = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_root_and_no_stranger() {
        let root = UserRecord { name: "root".into(), uid: 0, gid: 0 };
        assert_eq!((user(0), user_by_name("root")), (Ok(Some(root.clone())), Ok(Some(root))));
        assert_eq!(
            (user_by_name("surely-no-such-user"), user_by_name("nul\0inside"), user(0xfff0_1234)),
            (Ok(None), Ok(None), Ok(None))
        );
        assert_eq!((group(0), group_by_name("root")), (Ok(Some("root".into())), Ok(Some(0))));
        assert_eq!(
            (group(0xfff0_1234), group_by_name("surely-no-such-group")),
            (Ok(None), Ok(None))
        );
        assert!(groups("root", 7).is_ok_and(|groups| groups.contains(&7)));
    }

    #[test]
    fn module_without_library_is_skipped() {
        assert_eq!(
            (find_symbol("surely-none", "getpwnam_r"), find_symbol("../x", "getpwnam_r")),
            (None, None)
        );
        assert!(find_symbol("files", "initgroups_dyn").is_some());
    }

    #[test]
    fn buffer_grows_with_the_record() {
        let mut buffer_lens = Vec::new();
        let found = with_buffer(
            8,
            |record: &u32| *record,
            |record, _, len, errno| {
                buffer_lens.push(len);
                if len < 100 {
                    // SAFETY: `errno` is valid during the call.
                    unsafe { *errno = libc::ERANGE };
                    return TRY_AGAIN;
                }
                // SAFETY: `record` is valid during the call.
                unsafe { *record = 5 };
                SUCCESS
            },
        );
        assert_eq!((found, buffer_lens), (Outcome::Found(5), vec![8, 32, 128]));
    }
}
