use std::ffi::{c_char, c_int, c_void};

use libloading::Library;

pub(super) type Handle = *mut c_void;

macro_rules! structures {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => { $(
        #[repr(C)]
        pub(super) struct $name {
            $(pub(super) $field: $type,)*
        }
    )* };
}

structures! {
    Buffer { length: usize, value: *mut c_void }
    Oid { length: u32, elements: *const c_void }
    OidSet { count: usize, elements: *const Oid }
    KeyValue { key: *const c_char, value: *const c_char }
    KeyValues { count: u32, elements: *const KeyValue }
    LucidKey { kind: u32, length: u32, data: *const c_void }
    LucidContext {
        version: u32, initiate: u32, endtime: u32, send_seq: u64, recv_seq: u64, protocol: u32,
        rfc1964: Rfc1964, cfx: Cfx,
    }
    Rfc1964 { sign_alg: u32, seal_alg: u32, key: LucidKey }
    Cfx { have_acceptor_subkey: u32, key: LucidKey, acceptor_subkey: LucidKey }
    Data { magic: i32, length: u32, data: *mut c_char }
    Keyblock { magic: i32, enctype: i32, length: u32, contents: *const u8 }
    KeytabEntry { magic: i32, principal: Handle, written_s: u32, kvno: u32, key: Keyblock }
    EncData { magic: i32, enctype: i32, kvno: u32, ciphertext: Data }
    EncTicketPart {
        magic: i32, flags: i32, session: *const Keyblock, client: Handle, transited: Transited,
        auth_s: u32, start_s: u32, end_s: u32,
    }
    Transited { magic: i32, kind: u8, contents: Data }
    RawTicket { magic: i32, server: Handle, enc_part: EncData, enc_part2: *const EncTicketPart }
    PrincipalData { magic: i32, realm: Data, components: *const Data, length: i32, kind: i32 }
    Creds {
        magic: i32, client: Handle, server: Handle, session: Keyblock, times: TicketTimes,
        is_session_key: u32, flags: i32, addresses: *const c_void, ticket: Data,
        second_ticket: Data, authdata: *const c_void,
    }
    TicketTimes { auth_s: u32, start_s: u32, end_s: u32, renew_till_s: u32 }
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
