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

#[repr(C)]
pub(super) struct Data {
    pub(super) magic: i32,
    pub(super) length: u32,
    pub(super) data: *mut c_char,
}

#[repr(C)]
pub(super) struct Keyblock {
    pub(super) magic: i32,
    pub(super) enctype: i32,
    pub(super) length: u32,
    pub(super) contents: *const u8,
}

#[repr(C)]
pub(super) struct KeytabEntry {
    pub(super) magic: i32,
    pub(super) principal: Handle,
    pub(super) written_s: u32,
    pub(super) kvno: u32,
    pub(super) key: Keyblock,
}

#[repr(C)]
pub(super) struct EncData {
    pub(super) magic: i32,
    pub(super) enctype: i32,
    pub(super) kvno: u32,
    pub(super) ciphertext: Data,
}

#[repr(C)]
pub(super) struct EncTicketPart {
    pub(super) magic: i32,
    pub(super) flags: i32,
    pub(super) session: *const Keyblock,
    pub(super) client: Handle,
    pub(super) transited: Transited,
    pub(super) auth_s: u32,
    pub(super) start_s: u32,
    pub(super) end_s: u32,
}

#[repr(C)]
pub(super) struct Transited {
    pub(super) magic: i32,
    pub(super) kind: u8,
    pub(super) contents: Data,
}

#[repr(C)]
pub(super) struct RawTicket {
    pub(super) magic: i32,
    pub(super) server: Handle,
    pub(super) enc_part: EncData,
    pub(super) enc_part2: *const EncTicketPart,
}

#[repr(C)]
pub(super) struct PrincipalData {
    pub(super) magic: i32,
    pub(super) realm: Data,
    pub(super) components: *const Data,
    pub(super) length: i32,
    pub(super) kind: i32,
}

#[repr(C)]
pub(super) struct Creds {
    pub(super) magic: i32,
    pub(super) client: Handle,
    pub(super) server: Handle,
    pub(super) session: Keyblock,
    pub(super) times: TicketTimes,
    pub(super) is_session_key: u32,
    pub(super) flags: i32,
    pub(super) addresses: *const c_void,
    pub(super) ticket: Data,
    pub(super) second_ticket: Data,
    pub(super) authdata: *const c_void,
}

#[repr(C)]
pub(super) struct TicketTimes {
    pub(super) auth_s: u32,
    pub(super) start_s: u32,
    pub(super) end_s: u32,
    pub(super) renew_till_s: u32,
}

macro_rules! functions {
    ($($field:ident: $symbol:literal fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            pub(super) fn load(library: &'static Library) -> Result<Functions, libloading::Error> {
                $(
                    // SAFETY: the symbol has this type in MIT's library since 1.11, which stays
                    // loaded. Symbols of libkrb5 and libk5crypto are found too.
                    let $field = unsafe { *library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>($symbol)? };
                )*
                Ok(Functions { $($field),* })
            }
        }
    };
}

functions! {
    acquire_cred_from: b"gss_acquire_cred_from\0"
        fn(*mut u32, Handle, u32, *const OidSet, c_int, *const KeyValues, *mut Handle, *mut *mut OidSet, *mut u32) -> u32;
    release_cred: b"gss_release_cred\0" fn(*mut u32, *mut Handle) -> u32;
    import_name: b"gss_import_name\0" fn(*mut u32, *const Buffer, *const Oid, *mut Handle) -> u32;
    display_name: b"gss_display_name\0" fn(*mut u32, Handle, *mut Buffer, *mut *const Oid) -> u32;
    release_name: b"gss_release_name\0" fn(*mut u32, *mut Handle) -> u32;
    release_buffer: b"gss_release_buffer\0" fn(*mut u32, *mut Buffer) -> u32;
    localname: b"gss_localname\0" fn(*mut u32, Handle, *const Oid, *mut Buffer) -> u32;
    accept: b"gss_accept_sec_context\0"
        fn(*mut u32, *mut Handle, Handle, *const Buffer, *const c_void, *mut Handle, *mut *const Oid, *mut Buffer, *mut u32, *mut u32, *mut Handle) -> u32;
    init: b"gss_init_sec_context\0"
        fn(*mut u32, Handle, *mut Handle, Handle, *const Oid, u32, u32, *const c_void, *const Buffer, *mut *const Oid, *mut Buffer, *mut u32, *mut u32) -> u32;
    inquire_context: b"gss_inquire_context\0"
        fn(*mut u32, Handle, *mut Handle, *mut Handle, *mut u32, *mut *const Oid, *mut u32, *mut c_int, *mut c_int) -> u32;
    delete_context: b"gss_delete_sec_context\0" fn(*mut u32, *mut Handle, *mut Buffer) -> u32;
    display_status: b"gss_display_status\0" fn(*mut u32, u32, c_int, *const Oid, *mut u32, *mut Buffer) -> u32;
    export_lucid: b"gss_krb5_export_lucid_sec_context\0" fn(*mut u32, *mut Handle, u32, *mut *mut c_void) -> u32;
    free_lucid: b"gss_krb5_free_lucid_sec_context\0" fn(*mut u32, *mut c_void) -> u32;
    error_message: b"krb5_get_error_message\0" fn(Handle, i32) -> *const c_char;
    free_error_message: b"krb5_free_error_message\0" fn(Handle, *const c_char);
    init_context: b"krb5_init_context\0" fn(*mut Handle) -> i32;
    free_context: b"krb5_free_context\0" fn(Handle);
    cc_resolve: b"krb5_cc_resolve\0" fn(Handle, *const c_char, *mut Handle) -> i32;
    cc_destroy: b"krb5_cc_destroy\0" fn(Handle, Handle) -> i32;
    kt_resolve: b"krb5_kt_resolve\0" fn(Handle, *const c_char, *mut Handle) -> i32;
    kt_default: b"krb5_kt_default\0" fn(Handle, *mut Handle) -> i32;
    kt_default_name: b"krb5_kt_default_name\0" fn(Handle, *mut c_char, c_int) -> i32;
    kt_close: b"krb5_kt_close\0" fn(Handle, Handle) -> i32;
    kt_start_seq_get: b"krb5_kt_start_seq_get\0" fn(Handle, Handle, *mut Handle) -> i32;
    kt_next_entry: b"krb5_kt_next_entry\0" fn(Handle, Handle, *mut KeytabEntry, *mut Handle) -> i32;
    kt_end_seq_get: b"krb5_kt_end_seq_get\0" fn(Handle, Handle, *mut Handle) -> i32;
    free_keytab_entry_contents: b"krb5_free_keytab_entry_contents\0" fn(Handle, *mut KeytabEntry) -> i32;
    decode_ticket: b"krb5_decode_ticket\0" fn(*const Data, *mut *mut RawTicket) -> i32;
    decrypt_ticket: b"krb5_server_decrypt_ticket_keytab\0" fn(Handle, Handle, *mut RawTicket) -> i32;
    free_ticket: b"krb5_free_ticket\0" fn(Handle, *mut RawTicket);
    unparse_name: b"krb5_unparse_name\0" fn(Handle, Handle, *mut *mut c_char) -> i32;
    free_unparsed_name: b"krb5_free_unparsed_name\0" fn(Handle, *mut c_char);
    decrypt: b"krb5_c_decrypt\0" fn(Handle, *const Keyblock, i32, *const Data, *const EncData, *mut Data) -> i32;
    parse_name: b"krb5_parse_name\0" fn(Handle, *const c_char, *mut Handle) -> i32;
    free_principal: b"krb5_free_principal\0" fn(Handle, Handle);
    cc_initialize: b"krb5_cc_initialize\0" fn(Handle, Handle, Handle) -> i32;
    cc_store_cred: b"krb5_cc_store_cred\0" fn(Handle, Handle, *mut Creds) -> i32;
    init_creds_options: b"krb5_get_init_creds_opt_alloc\0" fn(Handle, *mut Handle) -> i32;
    free_init_creds_options: b"krb5_get_init_creds_opt_free\0" fn(Handle, Handle);
    set_forwardable: b"krb5_get_init_creds_opt_set_forwardable\0" fn(Handle, c_int);
    init_creds_keytab: b"krb5_get_init_creds_keytab\0" fn(Handle, *mut Creds, Handle, Handle, i32, *const c_char, Handle) -> i32;
    creds_for_user: b"krb5_get_credentials_for_user\0" fn(Handle, i32, Handle, *mut Creds, *mut Data, *mut *mut Creds) -> i32;
    get_credentials: b"krb5_get_credentials\0" fn(Handle, i32, Handle, *mut Creds, *mut *mut Creds) -> i32;
    free_creds: b"krb5_free_creds\0" fn(Handle, *mut Creds);
    free_cred_contents: b"krb5_free_cred_contents\0" fn(Handle, *mut Creds);
}
