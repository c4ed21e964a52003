//! Functions of libkrb5: private credential caches, keytabs, and details of refused tickets.

use std::ffi::{CStr, CString, c_int};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use zeroize::Zeroizing;

use super::raw::{Data, EncData, EncTicketPart, Handle, Keyblock, KeytabEntry};
use super::{Gss, Status};
use crate::error::FAILURE;
use crate::ticket::Request;

pub(super) struct Krb5 {
    pub(super) handle: Handle,
    pub(super) gss: &'static Gss,
}

// SAFETY: a context may be used by any thread, one at a time (MIT's documentation, "Thread
// safety").
unsafe impl Send for Krb5 {}

impl Krb5 {
    pub(super) fn new(gss: &'static Gss) -> Result<Self, Status> {
        let mut handle = null_mut();
        // SAFETY: the pointer outlives the call.
        check(unsafe { (gss.functions.init_context)(&mut handle) })?;
        Ok(Self { handle, gss })
    }

    pub(super) fn name(&self, principal: Handle) -> Option<Vec<u8>> {
        let mut text = null_mut();
        // SAFETY: the principal is of a ticket that lives.
        check(unsafe { (self.gss.functions.unparse_name)(self.handle, principal, &mut text) })
            .ok()?;
        // SAFETY: a text of the library's with a terminator, freed below.
        let name = unsafe { CStr::from_ptr(text) }.to_bytes().to_vec();
        // SAFETY: it is the library's, and nothing borrows from it.
        unsafe { (self.gss.functions.free_unparsed_name)(self.handle, text) };
        Some(name)
    }
}

pub(crate) fn default_keytab(gss: &'static Gss) -> Option<Vec<u8>> {
    let krb5 = Krb5::new(gss).ok()?;
    let mut name = [0u8; KEYTAB_NAME_LEN_MAX];
    let len = c_int::try_from(name.len()).ok()?;
    // SAFETY: the library writes at most `len` bytes with the terminator, and fails if they are too
    // few.
    check(unsafe { (gss.functions.kt_default_name)(krb5.handle, name.as_mut_ptr().cast(), len) })
        .ok()?;
    CStr::from_bytes_until_nul(&name).ok().map(|name| name.to_bytes().to_vec())
}

pub(super) struct Keytab<'a> {
    pub(super) handle: Handle,
    krb5: &'a Krb5,
}

impl<'a> Keytab<'a> {
    pub(super) fn new(krb5: &'a Krb5, name: Option<&CStr>) -> Result<Self, Status> {
        let mut handle = null_mut();
        let functions = &krb5.gss.functions;
        // SAFETY: name and pointer outlive the call.
        check(unsafe {
            match name {
                Some(name) => (functions.kt_resolve)(krb5.handle, name.as_ptr(), &mut handle),
                None => (functions.kt_default)(krb5.handle, &mut handle),
            }
        })?;
        Ok(Self { handle, krb5 })
    }
}

impl Drop for Keytab<'_> {
    fn drop(&mut self) {
        // SAFETY: the keytab is the library's and is not used again.
        unsafe { (self.krb5.gss.functions.kt_close)(self.krb5.handle, self.handle) };
    }
}

/// `keytab`: default is the system's. `is_such` gets the principal and the type of each key. The
/// library wipes keys, but not the stack.
pub(crate) fn holds_key(
    gss: &'static Gss,
    keytab: Option<&CStr>,
    is_such: impl Fn(&[u8], i32) -> bool,
) -> Result<bool, Status> {
    any_entry(gss, keytab, |krb5, entry| {
        krb5.name(entry.principal).is_some_and(|name| is_such(&name, entry.key.enctype))
    })
}

/// True: a key of a principal that `is_such` accepts decrypts this part of a ticket.
pub(crate) fn opens_ticket(
    gss: &'static Gss,
    keytab: Option<&CStr>,
    (enctype, cipher): (i32, &[u8]),
    is_such: impl Fn(&[u8]) -> bool,
) -> Result<bool, Status> {
    any_entry(gss, keytab, |krb5, entry| {
        entry.key.enctype == enctype
            && krb5.name(entry.principal).is_some_and(|name| is_such(&name))
            && krb5.opens(&entry.key, cipher)
    })
}

fn any_entry(
    gss: &'static Gss,
    keytab: Option<&CStr>,
    is_such: impl Fn(&Krb5, &KeytabEntry) -> bool,
) -> Result<bool, Status> {
    const END: i32 = -1_765_328_202;
    let krb5 = Krb5::new(gss)?;
    let keytab = Keytab::new(&krb5, keytab)?;
    let functions = &gss.functions;
    let mut cursor = null_mut();
    // SAFETY: the keytab lives; the pointer outlives the call.
    check(unsafe { (functions.kt_start_seq_get)(krb5.handle, keytab.handle, &mut cursor) })?;
    let found = loop {
        let mut entry = MaybeUninit::<KeytabEntry>::zeroed();
        // SAFETY: the cursor is of this keytab and not ended; pointers outlive the call.
        match unsafe {
            (functions.kt_next_entry)(krb5.handle, keytab.handle, entry.as_mut_ptr(), &mut cursor)
        } {
            0 => {}
            END => break Ok(false),
            code => break check(code).map(|()| false),
        }
        // SAFETY: the library has filled it in.
        let is_found = is_such(&krb5, unsafe { entry.assume_init_ref() });
        // SAFETY: the contents are the library's, and nothing borrows from them.
        unsafe { (functions.free_keytab_entry_contents)(krb5.handle, entry.as_mut_ptr()) };
        if is_found {
            break Ok(true);
        }
    };
    // SAFETY: the cursor is of this keytab, and is not used again.
    unsafe { (functions.kt_end_seq_get)(krb5.handle, keytab.handle, &mut cursor) };
    found
}

const KEYTAB_NAME_LEN_MAX: usize = 4096 + 16;

impl Drop for Krb5 {
    fn drop(&mut self) {
        // SAFETY: the context is the library's and is not used again.
        unsafe { (self.gss.functions.free_context)(self.handle) };
    }
}

/// Dropping it wipes tickets and keys, which the library would keep for the life of the process.
pub(crate) struct MemoryCache {
    name: CString,
    pub(super) handle: Handle,
    pub(super) krb5: Krb5,
}

// SAFETY: as for the context; the cache has a lock of its own.
unsafe impl Send for MemoryCache {}

impl MemoryCache {
    pub(crate) fn new(gss: &'static Gss) -> Result<Self, Status> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let krb5 = Krb5::new(gss)?;
        let name = CString::new(format!("MEMORY:vouch-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
            .expect("our own words hold no zero byte");
        let mut handle = null_mut();
        // SAFETY: the call copies the name; the pointer outlives it.
        check(unsafe { (gss.functions.cc_resolve)(krb5.handle, name.as_ptr(), &mut handle) })?;
        Ok(Self { name, handle, krb5 })
    }

    pub(crate) fn name(&self) -> CString {
        self.name.clone()
    }
}

impl Drop for MemoryCache {
    fn drop(&mut self) {
        // SAFETY: the cache is not used again through this handle. Another holder finds it empty.
        unsafe { (self.krb5.gss.functions.cc_destroy)(self.krb5.handle, self.handle) };
    }
}

/// Contents of a ticket and its authenticator (RFC 4120 §5.3 and 5.5.1). The sender has the
/// ticket's session key.
pub(crate) struct OpenedTicket {
    pub(crate) client: Vec<u8>,
    pub(crate) start_s: u64,
    pub(crate) end_s: u64,
    pub(crate) authenticator: Zeroizing<Vec<u8>>,
    #[cfg(test)]
    pub(crate) session: Zeroizing<Vec<u8>>,
}

pub(crate) enum Opened {
    Nothing,
    /// The ticket alone: the sender need not be its owner.
    TicketAlone,
    All(OpenedTicket),
}

impl Opened {
    pub(crate) fn of(gss: &'static Gss, keytab: Option<&CStr>, request: &Request<'_>) -> Self {
        Self::try_of(gss, keytab, request).unwrap_or(Self::Nothing)
    }

    fn try_of(gss: &'static Gss, keytab: Option<&CStr>, request: &Request<'_>) -> Option<Self> {
        let krb5 = Krb5::new(gss).ok()?;
        let functions = &gss.functions;
        let mut ticket = null_mut();
        // SAFETY: the bytes outlive the call, which only reads them.
        check(unsafe { (functions.decode_ticket)(&data(request.ticket)?, &mut ticket) }).ok()?;
        let opened = Keytab::new(&krb5, keytab).ok().and_then(|keys| {
            // SAFETY: ticket and keytab are the library's, and live.
            let decrypted =
                check(unsafe { (functions.decrypt_ticket)(krb5.handle, keys.handle, ticket) });
            // SAFETY: the library filled in a structure of its own, which lives as long as the
            // ticket.
            let part = decrypted.ok().and_then(|()| unsafe { (*ticket).enc_part2.as_ref() })?;
            Some(krb5.read(part, request).map_or(Self::TicketAlone, Self::All))
        });
        // SAFETY: the ticket is the library's and is not used again; its plaintext is wiped.
        unsafe { (functions.free_ticket)(krb5.handle, ticket) };
        opened
    }
}

impl Krb5 {
    fn opens(&self, key: &Keyblock, cipher: &[u8]) -> bool {
        /// RFC 4120 §7.5.1.
        const TICKET: i32 = 2;
        self.decrypt(key, TICKET, (key.enctype, cipher)).is_some()
    }

    fn decrypt(
        &self,
        key: *const Keyblock,
        usage: i32,
        (enctype, cipher): (i32, &[u8]),
    ) -> Option<Zeroizing<Vec<u8>>> {
        let sealed = EncData { magic: 0, enctype, kvno: 0, ciphertext: data(cipher)? };
        let mut text = Zeroizing::new(vec![0; cipher.len()]);
        let mut plain =
            Data { magic: 0, length: text.len() as u32, data: text.as_mut_ptr().cast() };
        // SAFETY: the caller's key lives; pointers outlive the call, and the output has its stated
        // length.
        check(unsafe {
            (self.gss.functions.decrypt)(self.handle, key, usage, null(), &sealed, &mut plain)
        })
        .ok()?;
        text.truncate(plain.length as usize);
        Some(text)
    }

    fn read(&self, part: &EncTicketPart, request: &Request<'_>) -> Option<OpenedTicket> {
        /// RFC 4120 §7.5.1.
        const AUTHENTICATOR: i32 = 11;
        if part.session.is_null() {
            return None;
        }
        let authenticator = self.decrypt(part.session, AUTHENTICATOR, request.authenticator)?;
        Some(OpenedTicket {
            client: self.name(part.client)?,
            start_s: u64::from(if part.start_s == 0 { part.auth_s } else { part.start_s }),
            end_s: part.end_s.into(),
            authenticator,
            #[cfg(test)]
            // SAFETY: the key has this length, and lives as long as the ticket.
            session: unsafe { part.session.as_ref().map(|key| std::slice::from_raw_parts(key.contents, key.length as usize).to_vec()) }?.into(),
        })
    }
}

fn data(bytes: &[u8]) -> Option<Data> {
    Some(Data {
        magic: 0,
        length: bytes.len().try_into().ok()?,
        data: bytes.as_ptr().cast_mut().cast(),
    })
}

pub(super) fn check(code: i32) -> Result<(), Status> {
    match code {
        0 => Ok(()),
        code => Err(Status { major: FAILURE, minor: code as u32 }),
    }
}
