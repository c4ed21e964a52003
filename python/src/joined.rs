//! Pieces of a file as one object. `PyBytes::new_with` would clear its memory first, with the
//! interpreter lock held, and the kernel clears pages that are new to the process a second time.

use std::mem::MaybeUninit;

use bytes::Bytes;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

const COPY_WITH_LOCK_MAX: usize = 64 << 10;

/// Copies once, without the interpreter lock if it takes long.
#[expect(unsafe_code, reason = "memory without content")]
pub(crate) fn joined<'py>(py: Python<'py>, pieces: &[Bytes]) -> PyResult<Bound<'py, PyBytes>> {
    let len: usize = pieces.iter().map(Bytes::len).sum();
    let size = ffi::Py_ssize_t::try_from(len)?;
    // SAFETY: without a source the new object has `len` bytes without content, or the call fails.
    // Nobody else has the object before this function returns.
    let (object, target) = unsafe {
        let pointer = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
        let object = Bound::from_owned_ptr_or_err(py, pointer)?.cast_into_unchecked();
        let target = ffi::PyBytes_AsString(pointer).cast::<MaybeUninit<u8>>();
        (object, std::slice::from_raw_parts_mut(target, len))
    };
    let copy = || {
        let mut rest = target;
        for piece in pieces {
            let (now, later) = rest.split_at_mut(piece.len());
            // SAFETY: both have `piece.len()` bytes; the object is new, so they do not overlap.
            unsafe {
                now.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            }
            rest = later;
        }
        assert!(rest.is_empty(), "the pieces have the length of their object");
    };
    if len < COPY_WITH_LOCK_MAX {
        copy()
    } else {
        py.detach(copy)
    }
    Ok(object)
}
