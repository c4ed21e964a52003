//! Functions of libgssapi_krb5, each behind a safe one; libkrb5's are in `krb5`. The crate's only
//! `unsafe` code. Types follow RFC 2744 and MIT's headers, unchanged since version 1.11.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use libloading::Library;
use zeroize::Zeroizing;

use raw::{Buffer, Functions, Handle, KeyValue, KeyValues, LucidContext, Oid, OidSet};

use crate::error::printable;

mod krb5;
mod raw;
mod s4u;

pub(crate) use krb5::{MemoryCache, Opened, OpenedTicket, default_keytab, holds_key, opens_ticket};
pub(crate) use s4u::{ServiceCreds, TicketCache, full_name, secret_buffer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

pub(crate) struct Gss {
    functions: Functions,
}

/// 1.2.840.113554.1.2.2 (RFC 1964 §1).
const KRB5_OID: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
/// 1.2.840.113554.1.2.2.1: a principal as text (RFC 1964 §2.1.1).
const PRINCIPAL_OID: [u8; 10] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 0x01];
/// 1.2.840.113554.1.2.1.4: service@host (RFC 2743 §4.1).
const HOST_BASED_OID: [u8; 10] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04];

const CONTINUE_NEEDED: u32 = 1;
/// Calling and routine errors in a major status (RFC 2744 §3.9.1).
const FAILED: u32 = 0xffff_0000;

/// Routine error in a major status, and `GSS_S_CONTEXT_EXPIRED` (RFC 2744 §3.9.1).
const ROUTINE: u32 = 0x00ff_0000;
pub(crate) const CONTEXT_EXPIRED: u32 = 12 << 16;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameForm {
    Principal,
    HostBased,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    Initiate = 1,
    Accept = 2,
}

pub(crate) struct Cred {
    handle: Handle,
    gss: &'static Gss,
}

// SAFETY: MIT's library locks credentials itself (its documentation, "Thread safety").
unsafe impl Send for Cred {}
// SAFETY: as above.
unsafe impl Sync for Cred {}

pub(crate) struct Name {
    handle: Handle,
    gss: &'static Gss,
}

// SAFETY: plain memory of the library's, used by one thread at a time.
unsafe impl Send for Name {}

pub(crate) struct Context {
    handle: Handle,
    gss: &'static Gss,
}

// SAFETY: plain memory of the library's, used by one thread at a time.
unsafe impl Send for Context {}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exchange {
    Complete,
    Continue,
}

pub(crate) struct Lucid {
    pub(crate) enctype: i32,
    pub(crate) key: Zeroizing<Vec<u8>>,
    pub(crate) acceptor_subkey: bool,
    /// The protocol of RFC 1964 (DES and RC4), without a key here.
    pub(crate) old: bool,
    pub(crate) send_seq: u64,
    /// Seconds since 1970.
    pub(crate) end_s: u64,
}

impl Gss {
    /// Loads the library at the first call. A failure is permanent.
    pub(crate) fn get() -> Result<&'static Gss, &'static str> {
        static LIBRARY: OnceLock<Result<Gss, String>> = OnceLock::new();
        let loaded = LIBRARY.get_or_init(|| {
            let mut failure = String::new();
            for name in ["libgssapi_krb5.so.2", "libgssapi_krb5.so"] {
                // SAFETY: the initializers of the system's own Kerberos library have no
                // preconditions.
                match unsafe { Library::new(name) } {
                    Ok(library) => {
                        let library: &'static Library = Box::leak(Box::new(library));
                        return Functions::load(library)
                            .map(|functions| Gss { functions })
                            .map_err(|error| error.to_string());
                    }
                    Err(error) => failure = error.to_string(),
                }
            }
            Err(failure)
        });
        loaded.as_ref().map_err(String::as_str)
    }

    pub(crate) fn acquire(
        &'static self,
        name: Option<&Name>,
        usage: Usage,
        stores: &[(&str, CString)],
    ) -> Result<Cred, Status> {
        let keys: Vec<CString> = stores
            .iter()
            .map(|(key, _)| CString::new(*key).expect("our own words hold no zero byte"))
            .collect();
        let elements: Vec<KeyValue> = keys
            .iter()
            .zip(stores)
            .map(|(key, (_, value))| KeyValue { key: key.as_ptr(), value: value.as_ptr() })
            .collect();
        let values = KeyValues { count: elements.len() as u32, elements: elements.as_ptr() };
        let oid = krb5_oid();
        let mechanisms = OidSet { count: 1, elements: &oid };
        let (mut minor, mut handle) = (0, null_mut());
        let name = name.map_or(null_mut(), |name| name.handle);
        let store: *const KeyValues = if elements.is_empty() { null() } else { &values };
        // SAFETY: pointers outlive the call, or are null where RFC 2744 §5.2 allows it.
        let major = unsafe {
            (self.functions.acquire_cred_from)(
                &mut minor,
                name,
                u32::MAX,
                &mechanisms,
                usage as c_int,
                store,
                &mut handle,
                null_mut(),
                null_mut(),
            )
        };
        check(major, minor).map(|_| Cred { handle, gss: self })
    }

    pub(crate) fn name(&'static self, text: &str, form: NameForm) -> Result<Name, Status> {
        let oid = match form {
            NameForm::Principal => oid(&PRINCIPAL_OID),
            NameForm::HostBased => oid(&HOST_BASED_OID),
        };
        let (mut minor, mut handle) = (0, null_mut());
        // SAFETY: buffer and identifier outlive the call, which copies them.
        let major = unsafe {
            (self.functions.import_name)(&mut minor, &buffer(text.as_bytes()), &oid, &mut handle)
        };
        check(major, minor).map(|_| Name { handle, gss: self })
    }

    pub(crate) fn accept(
        &'static self,
        context: &mut Option<Context>,
        cred: &Cred,
        token: &[u8],
    ) -> (Result<Exchange, Status>, Vec<u8>, Option<Name>) {
        let (mut minor, mut handle) = (0, context.take().map_or(null_mut(), Context::into_handle));
        let (mut answer, mut initiator) = (empty(), null_mut());
        // SAFETY: the handle is null or the library's; pointers outlive the call; null where RFC
        // 2744 §5.1 allows it.
        let major = unsafe {
            (self.functions.accept)(
                &mut minor,
                &mut handle,
                cred.handle,
                &buffer(token),
                null(),
                &mut initiator,
                null_mut(),
                &mut answer,
                null_mut(),
                null_mut(),
                null_mut(),
            )
        };
        let initiator = (!initiator.is_null()).then_some(Name { handle: initiator, gss: self });
        let (outcome, answer) = self.exchanged(handle, context, major, minor, answer);
        (outcome, answer, initiator)
    }

    /// `token` is none at first. `flags`: RFC 2744 §5.19.
    pub(crate) fn init(
        &'static self,
        context: &mut Option<Context>,
        cred: &Cred,
        target: &Name,
        flags: u32,
        token: Option<&[u8]>,
    ) -> (Result<Exchange, Status>, Vec<u8>) {
        let (mut minor, mut handle) = (0, context.take().map_or(null_mut(), Context::into_handle));
        let (mut answer, input) = (empty(), token.map(buffer));
        let input = input.as_ref().map_or(null(), |input| input as *const Buffer);
        // SAFETY: as in `accept`; null where RFC 2744 §5.19 allows it.
        let major = unsafe {
            (self.functions.init)(
                &mut minor,
                cred.handle,
                &mut handle,
                target.handle,
                &krb5_oid(),
                flags,
                0,
                null(),
                input,
                null_mut(),
                &mut answer,
                null_mut(),
                null_mut(),
            )
        };
        self.exchanged(handle, context, major, minor, answer)
    }

    fn exchanged(
        &'static self,
        handle: Handle,
        context: &mut Option<Context>,
        major: u32,
        minor: u32,
        answer: Buffer,
    ) -> (Result<Exchange, Status>, Vec<u8>) {
        let answer = self.take(answer);
        if !handle.is_null() {
            *context = Some(Context { handle, gss: self });
        }
        let outcome = check(major, minor).map(|major| {
            if major & CONTINUE_NEEDED != 0 { Exchange::Continue } else { Exchange::Complete }
        });
        (outcome, answer)
    }

    /// Must run on the thread that got the status.
    pub(crate) fn explain(&'static self, status: Status) -> String {
        const GSS_CODE: c_int = 1;
        const MECH_CODE: c_int = 2;
        let mut parts: Vec<String> = Vec::new();
        for (code, kind) in [(status.major, GSS_CODE), (status.minor, MECH_CODE)] {
            // A mechanism without details says "Success" or repeats itself: then only the major
            // status is useful.
            if code == 0 || (kind == MECH_CODE && status.major & ROUTINE == CONTEXT_EXPIRED) {
                continue;
            }
            let mut more = 0;
            loop {
                let (mut minor, mut text) = (0, empty());
                // SAFETY: pointers outlive the call.
                let major = unsafe {
                    (self.functions.display_status)(
                        &mut minor,
                        code,
                        kind,
                        &krb5_oid(),
                        &mut more,
                        &mut text,
                    )
                };
                let text = printable(&String::from_utf8_lossy(&self.take(text)));
                if major & FAILED != 0 {
                    // The status of a call to libkrb5, which GSS-API does not know.
                    parts.extend((kind == MECH_CODE).then(|| self.krb5_message(code)));
                    break;
                }
                parts.push(text);
                if more == 0 {
                    break;
                }
            }
        }
        // The mechanism's text is clearer.
        parts.pop().unwrap_or_else(|| format!("status {:#x}, {}", status.major, status.minor))
    }

    fn krb5_message(&self, code: u32) -> String {
        // SAFETY: both calls take no context; the text lives until it is freed.
        unsafe {
            let text = (self.functions.error_message)(null_mut(), code as i32);
            let message = printable(&CStr::from_ptr(text).to_string_lossy());
            (self.functions.free_error_message)(null_mut(), text);
            message
        }
    }

    fn take(&self, mut buffer: Buffer) -> Vec<u8> {
        let bytes = match buffer.value.is_null() {
            true => Vec::new(),
            // SAFETY: the library filled in a buffer of its own with this length.
            false => {
                unsafe { std::slice::from_raw_parts(buffer.value.cast::<u8>(), buffer.length) }
                    .to_vec()
            }
        };
        let mut minor = 0;
        // SAFETY: the buffer is the library's or empty, which RFC 2744 §5.27 allows.
        unsafe { (self.functions.release_buffer)(&mut minor, &mut buffer) };
        bytes
    }
}

impl Name {
    /// [`crate::error::name_text`] requires UTF-8.
    pub(crate) fn display(&self) -> Result<Vec<u8>, Status> {
        let (mut minor, mut text) = (0, empty());
        // SAFETY: the name is the library's; pointers outlive the call.
        let major = unsafe {
            (self.gss.functions.display_name)(&mut minor, self.handle, &mut text, null_mut())
        };
        let bytes = self.gss.take(text);
        check(major, minor).map(|_| bytes)
    }

    /// By the rules of krb5.conf (`auth_to_local`).
    pub(crate) fn local(&self) -> Result<String, Status> {
        let (mut minor, mut text) = (0, empty());
        // SAFETY: the name is the library's; pointers outlive the call.
        let major = unsafe {
            (self.gss.functions.localname)(&mut minor, self.handle, &krb5_oid(), &mut text)
        };
        let bytes = self.gss.take(text);
        // A name that is not text belongs to no account.
        check(major, minor).map(|_| String::from_utf8(bytes).unwrap_or_default())
    }
}

impl Context {
    fn into_handle(self) -> Handle {
        let handle = self.handle;
        std::mem::forget(self);
        handle
    }

    /// `GSS_S_CONTEXT_EXPIRED` if the ticket has ended, although the library allows for clock skew.
    pub(crate) fn acceptor(&self) -> Result<Vec<u8>, Status> {
        let (mut minor, mut acceptor) = (0, null_mut());
        // SAFETY: the context is the library's; pointers outlive the call; null where RFC 2744
        // §5.21 allows it.
        let major = unsafe {
            (self.gss.functions.inquire_context)(
                &mut minor,
                self.handle,
                null_mut(),
                &mut acceptor,
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
            )
        };
        check(major, minor)?;
        Name { handle: acceptor, gss: self.gss }.display()
    }

    pub(crate) fn export(self) -> Result<Lucid, Status> {
        let gss = self.gss;
        let (mut minor, mut handle, mut lucid) = (0, self.into_handle(), null_mut());
        // SAFETY: the context is the library's, which takes it and sets the handle to null.
        let major = unsafe { (gss.functions.export_lucid)(&mut minor, &mut handle, 1, &mut lucid) };
        if !handle.is_null() {
            drop(Context { handle, gss });
        }
        check(major, minor)?;
        // SAFETY: this is the structure of version 1 (gssapi_krb5.h), until it is freed below.
        let context = unsafe { &*lucid.cast::<LucidContext>() };
        let key = match context.cfx.have_acceptor_subkey {
            0 => &context.cfx.key,
            _ => &context.cfx.acceptor_subkey,
        };
        let old = context.protocol == 0;
        let key = if old { &context.rfc1964.key } else { key };
        let bytes = match old || key.data.is_null() {
            true => Vec::new(),
            // SAFETY: the key has this length.
            false => {
                unsafe { std::slice::from_raw_parts(key.data.cast::<u8>(), key.length as usize) }
                    .to_vec()
            }
        };
        let lucid_context = Lucid {
            enctype: key.kind as i32,
            key: Zeroizing::new(bytes),
            acceptor_subkey: !old && context.cfx.have_acceptor_subkey != 0,
            old,
            send_seq: context.send_seq,
            end_s: context.endtime.into(),
        };
        // SAFETY: it is the library's, and nothing borrows from it.
        unsafe { (gss.functions.free_lucid)(&mut minor, lucid) };
        Ok(lucid_context)
    }
}

impl Drop for Cred {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the credential is the library's and is not used again.
        unsafe { (self.gss.functions.release_cred)(&mut minor, &mut self.handle) };
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the name is the library's or null, which it takes, and is not used again.
        unsafe { (self.gss.functions.release_name)(&mut minor, &mut self.handle) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the context is the library's and is not used again; no token is wanted.
        unsafe { (self.gss.functions.delete_context)(&mut minor, &mut self.handle, null_mut()) };
    }
}

fn check(major: u32, minor: u32) -> Result<u32, Status> {
    match major & FAILED {
        0 => Ok(major),
        _ => Err(Status { major, minor }),
    }
}

fn oid(bytes: &'static [u8]) -> Oid {
    Oid { length: bytes.len() as u32, elements: bytes.as_ptr().cast() }
}

fn krb5_oid() -> Oid {
    oid(&KRB5_OID)
}

fn buffer(bytes: &[u8]) -> Buffer {
    Buffer { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast() }
}

fn empty() -> Buffer {
    Buffer { length: 0, value: null_mut() }
}
