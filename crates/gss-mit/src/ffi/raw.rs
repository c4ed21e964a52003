//! The library's own types and functions, as its headers have them.

use std::ffi::{c_char, c_int, c_void};

use libloading::Library;

#[repr(C)]
pub(super) struct Buffer {
    pub(super) length: usize,
    pub(super) value: *mut c_void,
}

#[repr(C)]
pub(super) struct Oid {
    pub(super) length: u32,
    pub(super) elements: *const c_void,
}

#[repr(C)]
pub(super) struct OidSet {
    pub(super) count: usize,
    pub(super) elements: *const Oid,
}

#[repr(C)]
pub(super) struct KeyValue {
    pub(super) key: *const c_char,
    pub(super) value: *const c_char,
}

#[repr(C)]
pub(super) struct KeyValues {
    pub(super) count: u32,
    pub(super) elements: *const KeyValue,
}

#[repr(C)]
pub(super) struct LucidKey {
    pub(super) kind: u32,
    pub(super) length: u32,
    pub(super) data: *const c_void,
}

#[repr(C)]
pub(super) struct LucidContext {
    pub(super) version: u32,
    pub(super) initiate: u32,
    pub(super) endtime: u32,
    pub(super) send_seq: u64,
    pub(super) recv_seq: u64,
    pub(super) protocol: u32,
    pub(super) rfc1964: Rfc1964,
    pub(super) cfx: Cfx,
}

#[repr(C)]
pub(super) struct Rfc1964 {
    pub(super) sign_alg: u32,
    pub(super) seal_alg: u32,
    pub(super) key: LucidKey,
}

#[repr(C)]
pub(super) struct Cfx {
    pub(super) have_acceptor_subkey: u32,
    pub(super) key: LucidKey,
    pub(super) acceptor_subkey: LucidKey,
}

pub(super) type Handle = *mut c_void;

/// Declares the functions that are looked up, and how.
macro_rules! functions {
    ($($field:ident: $symbol:literal fn($($argument:ty),* $(,)?);)*) => {
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl Functions {
            pub(super) fn load(library: &'static Library) -> Result<Functions, libloading::Error> {
                $(
                    // SAFETY: the symbol has this type in every release of MIT's library since 1.11 (see the head of this file), and the
                    // library stays loaded for the life of the process.
                    let $field = unsafe { *library.get::<unsafe extern "C" fn($($argument),*) -> u32>($symbol)? };
                )*
                Ok(Functions { $($field),* })
            }
        }
    };
}

functions! {
    acquire_cred_from: b"gss_acquire_cred_from\0"
        fn(*mut u32, Handle, u32, *const OidSet, c_int, *const KeyValues, *mut Handle, *mut *mut OidSet, *mut u32);
    release_cred: b"gss_release_cred\0" fn(*mut u32, *mut Handle);
    import_name: b"gss_import_name\0" fn(*mut u32, *const Buffer, *const Oid, *mut Handle);
    display_name: b"gss_display_name\0" fn(*mut u32, Handle, *mut Buffer, *mut *const Oid);
    release_name: b"gss_release_name\0" fn(*mut u32, *mut Handle);
    release_buffer: b"gss_release_buffer\0" fn(*mut u32, *mut Buffer);
    localname: b"gss_localname\0" fn(*mut u32, Handle, *const Oid, *mut Buffer);
    accept: b"gss_accept_sec_context\0"
        fn(*mut u32, *mut Handle, Handle, *const Buffer, *const c_void, *mut Handle, *mut *const Oid, *mut Buffer, *mut u32, *mut u32, *mut Handle);
    init: b"gss_init_sec_context\0"
        fn(*mut u32, Handle, *mut Handle, Handle, *const Oid, u32, u32, *const c_void, *const Buffer, *mut *const Oid, *mut Buffer, *mut u32, *mut u32);
    inquire_context: b"gss_inquire_context\0"
        fn(*mut u32, Handle, *mut Handle, *mut Handle, *mut u32, *mut *const Oid, *mut u32, *mut c_int, *mut c_int);
    delete_context: b"gss_delete_sec_context\0" fn(*mut u32, *mut Handle, *mut Buffer);
    display_status: b"gss_display_status\0" fn(*mut u32, u32, c_int, *const Oid, *mut u32, *mut Buffer);
    export_lucid: b"gss_krb5_export_lucid_sec_context\0" fn(*mut u32, *mut Handle, u32, *mut *mut c_void);
    free_lucid: b"gss_krb5_free_lucid_sec_context\0" fn(*mut u32, *mut c_void);
}
