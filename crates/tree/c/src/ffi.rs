#![allow(unsafe_code, reason = "the C interface; the header says what callers must pass")]
#![allow(unreachable_pub, reason = "exported to C")]
#![allow(clippy::missing_safety_doc, reason = "include/vouch.h documents each function")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vouch_tree::{FileType, Inode};
use vouch_tree_client::{Listing, Position, TreeOptions, VerifyEvent};
use vouch_tree_reader::{
    Found, NOT_INTERRUPTED, ReadFile, ReadTree, Result, RevisionChoice, Session, SessionOptions,
    TreeSelection,
};

use crate::status::{INVALID, failed, message, refuse};

/// `struct vouch_options`.
#[repr(C)]
pub struct Options {
    size: usize,
    revision: u64,
    timeout_ms: u32,
    flags: u32,
    replicas: *const c_char,
    policy: *const c_char,
    cache: *const c_char,
    state: *const c_char,
}

/// `struct vouch_stat`.
#[repr(C)]
pub struct Stat {
    size: u64,
    mtime_s: i64,
    mtime_ns: u32,
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    reserved: u32,
}

/// `struct vouch_tree`.
pub struct Tree(Arc<ReadTree>);

/// `struct vouch_file`.
pub struct File(ReadFile);

/// `struct vouch_list`.
pub struct List {
    tree: Arc<ReadTree>,
    directory: Found,
    state: Mutex<ListState>,
}

struct ListState {
    page: Listing,
    at: usize,
    name: CString,
}

const ONLY_REPLICAS: u32 = 1;
const NO_CACHE: u32 = 2;
const REPLICA_TLS: u32 = 4;
const STATE_REQUIRED: u32 = 8;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_open(
    name: *const c_char,
    options: *const Options,
    tree: *mut *mut Tree,
) -> c_int {
    // SAFETY: the caller passes NUL-terminated text, a structure or NULL, and a place for the tree.
    let (name, options) = unsafe { (text(name), options.as_ref()) };
    let Some(name) = name.filter(|_| !tree.is_null()) else {
        return refuse("vouch_open: name and tree must not be NULL", INVALID);
    };
    if options.is_some_and(|options| options.size != size_of::<Options>()) {
        return refuse("vouch_open: set size to sizeof (struct vouch_options)", INVALID);
    }
    guarded(|| {
        // SAFETY: its texts end with NUL or are NULL.
        let (session, selection) = unsafe { choices(options) };
        let name = name.to_string_lossy().parse()?;
        let opened = Session::new(session)?.open(&name, &selection, NOT_INTERRUPTED)?;
        // SAFETY: not NULL.
        unsafe { tree.write(Box::into_raw(Box::new(Tree(opened)))) };
        Ok(0)
    })
}

unsafe fn choices(options: Option<&Options>) -> (SessionOptions, TreeSelection) {
    let mut session = SessionOptions::default();
    let mut selection = TreeSelection::default();
    let Some(options) = options else { return (session, selection) };
    // SAFETY: by the caller.
    let read = |given| unsafe { text(given) }.map(|text| text.to_string_lossy().into_owned());
    if options.timeout_ms > 0 {
        session.timeout = Duration::from_millis(options.timeout_ms.into());
    }
    session.cache = read(options.cache).map(PathBuf::from).or(session.cache);
    if options.flags & NO_CACHE != 0 {
        session.cache = None;
    }
    session.state = read(options.state).map(PathBuf::from).or(session.state);
    session.state_required = options.flags & STATE_REQUIRED != 0;
    session.replica_tls = options.flags & REPLICA_TLS != 0;
    session.policies.extend(read(options.policy).map(PathBuf::from));
    let replicas = read(options.replicas).unwrap_or_default();
    selection.options = TreeOptions {
        replicas: replicas.split_whitespace().map(str::to_owned).collect(),
        only_replicas: options.flags & ONLY_REPLICAS != 0,
        refuse_forwarding: false,
    };
    if options.revision > 0 {
        selection.revision = RevisionChoice::Number(options.revision);
    }
    (session, selection)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_close(tree: *mut Tree) {
    // SAFETY: from `vouch_open`, not closed before.
    unsafe { close(tree) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_revision(tree: *const Tree) -> u64 {
    // SAFETY: an open tree.
    unsafe { tree.as_ref() }.map_or(0, |tree| tree.0.revision().number())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_stat(
    tree: *const Tree,
    path: *const c_char,
    stat: *mut Stat,
) -> c_int {
    // SAFETY: an open tree, text, and a place for the attributes.
    let (tree, path) = unsafe { (tree.as_ref(), text(path)) };
    let (Some(tree), Some(path), false) = (tree, path, stat.is_null()) else {
        return refuse("vouch_stat: no argument may be NULL", INVALID);
    };
    guarded(|| {
        let found = tree.0.stat(path.to_bytes(), true, NOT_INTERRUPTED)?;
        // SAFETY: not NULL.
        unsafe { stat.write(Stat::new(&found.inode)) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_list_open(
    tree: *const Tree,
    path: *const c_char,
    list: *mut *mut List,
) -> c_int {
    // SAFETY: an open tree, text, and a place for the list.
    let (tree, path) = unsafe { (tree.as_ref(), text(path)) };
    let (Some(tree), Some(path), false) = (tree, path, list.is_null()) else {
        return refuse("vouch_list_open: no argument may be NULL", INVALID);
    };
    guarded(|| {
        let directory = tree.0.stat(path.to_bytes(), true, NOT_INTERRUPTED)?;
        let page = tree.0.list(&directory, Position::Start, NOT_INTERRUPTED)?;
        let state = Mutex::new(ListState { page, at: 0, name: CString::default() });
        let opened = List { tree: Arc::clone(&tree.0), directory, state };
        // SAFETY: not NULL.
        unsafe { list.write(Box::into_raw(Box::new(opened))) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_list_next(
    list: *mut List,
    name: *mut *const c_char,
    stat: *mut Stat,
) -> c_int {
    // SAFETY: an open list and places for the results.
    let Some(list) = (unsafe { list.as_ref() }).filter(|_| !name.is_null()) else {
        return refuse("vouch_list_next: list and name must not be NULL", INVALID);
    };
    guarded(|| {
        let mut state = list.state.lock();
        if list.directory.is_opaque() {
            return Ok(0);
        }
        if state.at == state.page.entries().len() && !state.page.last {
            state.page = list.tree.list(&list.directory, state.page.next(), NOT_INTERRUPTED)?;
            state.at = 0;
        }
        let state = &mut *state;
        let Some(entry) = state.page.entries().get(state.at) else { return Ok(0) };
        state.at += 1;
        state.name = CString::new(entry.name.as_bytes()).unwrap_or_default();
        // SAFETY: `name` is not NULL; `stat` may be.
        unsafe {
            name.write(state.name.as_ptr());
            if !stat.is_null() {
                stat.write(Stat::new(&entry.inode));
            }
        }
        Ok(1)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_list_close(list: *mut List) {
    // SAFETY: from `vouch_list_open`, not closed before.
    unsafe { close(list) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_file_open(
    tree: *const Tree,
    path: *const c_char,
    file: *mut *mut File,
) -> c_int {
    // SAFETY: an open tree, text, and a place for the file.
    let (tree, path) = unsafe { (tree.as_ref(), text(path)) };
    let (Some(tree), Some(path), false) = (tree, path, file.is_null()) else {
        return refuse("vouch_file_open: no argument may be NULL", INVALID);
    };
    guarded(|| {
        let opened = tree.0.open_file(path.to_bytes(), NOT_INTERRUPTED)?;
        // SAFETY: not NULL.
        unsafe { file.write(Box::into_raw(Box::new(File(opened)))) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_file_size(file: *const File) -> u64 {
    // SAFETY: an open file.
    unsafe { file.as_ref() }.map_or(0, |file| file.0.size())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_pread(
    file: *const File,
    buffer: *mut c_void,
    len: usize,
    offset: u64,
) -> isize {
    // SAFETY: an open file.
    let Some(file) = (unsafe { file.as_ref() }).filter(|_| !buffer.is_null() || len == 0) else {
        return refuse("vouch_pread: file and buffer must not be NULL", INVALID) as isize;
    };
    let mut copied = 0;
    let status = guarded(|| {
        for piece in file.0.read(offset, len.min(isize::MAX as usize), NOT_INTERRUPTED)? {
            // SAFETY: the buffer has `len` bytes, and the pieces together no more.
            unsafe {
                let target = buffer.cast::<u8>().add(copied);
                target.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            }
            copied += piece.len();
        }
        Ok(0)
    });
    if status < 0 { status as isize } else { copied as isize }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_file_close(file: *mut File) {
    // SAFETY: from `vouch_file_open`, not closed before.
    unsafe { close(file) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vouch_verify(tree: *const Tree, bad: *mut u64) -> c_int {
    // SAFETY: an open tree and a place for the number.
    let Some(tree) = (unsafe { tree.as_ref() }).filter(|_| !bad.is_null()) else {
        return refuse("vouch_verify: no argument may be NULL", INVALID);
    };
    guarded(|| {
        let mut found = 0;
        tree.0.verify(NOT_INTERRUPTED, |event| {
            if let VerifyEvent::Done { bad, .. } = event {
                found = bad;
            }
        })?;
        // SAFETY: not NULL.
        unsafe { bad.write(found) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn vouch_message() -> *const c_char {
    message()
}

impl Stat {
    fn new(inode: &Inode) -> Self {
        let kind = match inode.file_type() {
            FileType::Regular => 0o100_000,
            FileType::Directory => 0o040_000,
            FileType::Symlink => 0o120_000,
            FileType::Fifo => 0o010_000,
            FileType::Socket => 0o140_000,
            FileType::CharDevice => 0o020_000,
            FileType::BlockDevice => 0o060_000,
        };
        Self {
            size: inode.size(),
            mtime_s: inode.mtime.s,
            mtime_ns: inode.mtime.ns,
            mode: kind | u32::from(inode.mode),
            uid: inode.uid,
            gid: inode.gid,
            nlink: inode.nlink,
            reserved: 0,
        }
    }
}

/// No panic crosses into C.
fn guarded(work: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => failed(&error),
        Err(_) => refuse("an internal error of libvouch", -12),
    }
}

/// The text must end with NUL and live as long as the result.
unsafe fn text<'a>(given: *const c_char) -> Option<&'a CStr> {
    // SAFETY: by the caller.
    (!given.is_null()).then(|| unsafe { CStr::from_ptr(given) })
}

/// The value must come from `Box::into_raw`, or be NULL.
unsafe fn close<T>(value: *mut T) {
    if !value.is_null() {
        // SAFETY: by the caller.
        drop(unsafe { Box::from_raw(value) });
    }
}
