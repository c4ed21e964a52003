use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use vouch_tree_reader::{Error, ErrorKind};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// `VOUCH_INVALID`.
pub(crate) const INVALID: c_int = -4;

/// Keeps the message, and returns the number of the kind.
pub(crate) fn failed(error: &Error) -> c_int {
    let status = match error.kind() {
        ErrorKind::NotFound => -1,
        ErrorKind::NotADirectory => -2,
        ErrorKind::IsADirectory => -3,
        ErrorKind::Input => INVALID,
        ErrorKind::Tampered => -5,
        ErrorKind::Rollback => -6,
        ErrorKind::Revoked => -7,
        ErrorKind::Expired => -8,
        ErrorKind::Unwitnessed => -9,
        ErrorKind::Unreachable => -10,
        ErrorKind::Damaged => -11,
        ErrorKind::Local | ErrorKind::Interrupted => -12,
        ErrorKind::Forked => -13,
        ErrorKind::NoRevision => -14,
    };
    refuse(&error.to_string(), status)
}

pub(crate) fn refuse(message: &str, status: c_int) -> c_int {
    let text = CString::new(message.replace('\0', "")).unwrap_or_default();
    MESSAGE.set(text);
    status
}

/// Valid until the next call of this thread.
pub(crate) fn message() -> *const c_char {
    MESSAGE.with_borrow(|text| CStr::as_ptr(text))
}
