//! Constrained delegation by libkrb5.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use zeroize::Zeroizing;

use super::krb5::{Keytab, Krb5, MemoryCache, check};
use super::raw::{Creds, Data, Handle, Keyblock, PrincipalData, TicketTimes};
use super::{Gss, Status};

/// Flags of krb5_get_credentials (krb5.h).
const NO_STORE: i32 = 8;
const CONSTRAINED_DELEGATION: i32 = 64;
/// `TKT_FLG_FORWARDABLE` (RFC 4120 §5.3).
const FORWARDABLE: i32 = 0x4000_0000;

/// A ticket-granting ticket of this process's own principal, in memory.
pub(crate) struct TicketCache {
    cache: MemoryCache,
    pub(crate) end_s: u64,
}

impl TicketCache {
    /// The ticket is forwardable, which delegation needs.
    pub(crate) fn with_keytab(
        gss: &'static Gss,
        principal: &CStr,
        keytab: &CStr,
    ) -> Result<Self, Status> {
        let cache = MemoryCache::new(gss)?;
        let (krb5, functions) = (&cache.krb5, &gss.functions);
        let own = Principal::parse(krb5, principal)?;
        let keys = Keytab::new(krb5, Some(keytab))?;
        let mut options = null_mut();
        // SAFETY: the pointer outlives the call.
        check(unsafe { (functions.init_creds_options)(krb5.handle, &mut options) })?;
        let mut creds = MaybeUninit::<Creds>::zeroed();
        // SAFETY: the options are the library's; null parameters are optional; the call fills in
        // the credentials if it succeeds.
        let code = unsafe {
            (functions.set_forwardable)(options, 1);
            let code = (functions.init_creds_keytab)(
                krb5.handle,
                creds.as_mut_ptr(),
                own.handle,
                keys.handle,
                0,
                std::ptr::null(),
                options,
            );
            (functions.free_init_creds_options)(krb5.handle, options);
            code
        };
        check(code)?;
        // SAFETY: the library has filled them in.
        let end_s = u64::from(unsafe { creds.assume_init_ref() }.times.end_s);
        // SAFETY: all are the library's; the cache copies the credentials.
        let stored = unsafe {
            check((functions.cc_initialize)(krb5.handle, cache.handle, own.handle)).and_then(|()| {
                check((functions.cc_store_cred)(krb5.handle, cache.handle, creds.as_mut_ptr()))
            })
        };
        // SAFETY: the contents are the library's and are not used again; it wipes the key.
        unsafe { (functions.free_cred_contents)(krb5.handle, creds.as_mut_ptr()) };
        drop((own, keys));
        stored.map(|()| Self { cache, end_s })
    }

    pub(crate) fn principal(&self, name: &CStr) -> Result<Principal<'_>, Status> {
        Principal::parse(&self.cache.krb5, name)
    }

    /// S4U2Self: a ticket of the user for our own principal.
    pub(crate) fn for_user(
        &self,
        own: &Principal<'_>,
        user: &Principal<'_>,
    ) -> Result<ServiceCreds<'_>, Status> {
        let mut request = request(user.handle, own.handle);
        let (krb5, mut creds) = (&self.cache.krb5, null_mut());
        // SAFETY: context, cache and principals live; pointers outlive the call, and no certificate
        // is given.
        check(unsafe {
            (krb5.gss.functions.creds_for_user)(
                krb5.handle,
                NO_STORE,
                self.cache.handle,
                &mut request,
                null_mut(),
                &mut creds,
            )
        })?;
        Ok(ServiceCreds { creds, krb5 })
    }

    /// S4U2Proxy: a ticket of the evidence's user for another service, until `end_s` at most.
    pub(crate) fn for_service(
        &self,
        own: &Principal<'_>,
        evidence: &ServiceCreds<'_>,
        service: &Principal<'_>,
        end_s: u32,
    ) -> Result<ServiceCreds<'_>, Status> {
        let mut request = request(own.handle, service.handle);
        request.times.end_s = end_s;
        let ticket = &evidence.get().ticket;
        request.second_ticket =
            Data { magic: ticket.magic, length: ticket.length, data: ticket.data };
        let (krb5, mut creds) = (&self.cache.krb5, null_mut());
        // SAFETY: as above; the call only reads the evidence.
        check(unsafe {
            let flags = CONSTRAINED_DELEGATION | NO_STORE;
            (krb5.gss.functions.get_credentials)(
                krb5.handle,
                flags,
                self.cache.handle,
                &mut request,
                &mut creds,
            )
        })?;
        Ok(ServiceCreds { creds, krb5 })
    }
}

fn request(client: Handle, server: Handle) -> Creds {
    let empty = || Data { magic: 0, length: 0, data: null_mut() };
    Creds {
        magic: 0,
        client,
        server,
        session: Keyblock { magic: 0, enctype: 0, length: 0, contents: std::ptr::null() },
        times: TicketTimes { auth_s: 0, start_s: 0, end_s: 0, renew_till_s: 0 },
        is_session_key: 0,
        flags: 0,
        addresses: std::ptr::null(),
        ticket: empty(),
        second_ticket: empty(),
        authdata: std::ptr::null(),
    }
}

pub(crate) struct Principal<'a> {
    handle: Handle,
    krb5: &'a Krb5,
}

impl<'a> Principal<'a> {
    fn parse(krb5: &'a Krb5, name: &CStr) -> Result<Self, Status> {
        let mut handle = null_mut();
        // SAFETY: the call copies the name; the pointer outlives it.
        check(unsafe { (krb5.gss.functions.parse_name)(krb5.handle, name.as_ptr(), &mut handle) })?;
        Ok(Self { handle, krb5 })
    }
}

impl Drop for Principal<'_> {
    fn drop(&mut self) {
        // SAFETY: the principal is the library's and is not used again.
        unsafe { (self.krb5.gss.functions.free_principal)(self.krb5.handle, self.handle) };
    }
}

pub(crate) fn full_name(gss: &'static Gss, name: &CStr) -> Result<Vec<u8>, Status> {
    let krb5 = Krb5::new(gss)?;
    let principal = Principal::parse(&krb5, name)?;
    Ok(krb5.name(principal.handle).unwrap_or_default())
}

pub(crate) struct ServiceCreds<'a> {
    creds: *mut Creds,
    krb5: &'a Krb5,
}

impl ServiceCreds<'_> {
    fn get(&self) -> &Creds {
        // SAFETY: the library made them; they live until they are dropped.
        unsafe { &*self.creds }
    }

    pub(crate) fn is_forwardable(&self) -> bool {
        self.get().flags & FORWARDABLE != 0
    }

    pub(crate) fn end_s(&self) -> u64 {
        self.get().times.end_s.into()
    }

    pub(crate) fn client(&self) -> Vec<u8> {
        self.krb5.name(self.get().client).unwrap_or_default()
    }

    pub(crate) fn write_client(&self, out: &mut Vec<u8>) {
        write_principal(self.get().client, out);
    }

    /// Format version 4 (MIT Kerberos documentation, "Credential cache file format"), without
    /// addresses and authorization data, which clients do not read.
    pub(crate) fn write_credential(&self, out: &mut Vec<u8>) {
        let creds = self.get();
        write_principal(creds.client, out);
        write_principal(creds.server, out);
        out.extend_from_slice(&(creds.session.enctype as u16).to_be_bytes());
        // SAFETY: the key has this length, and lives as long as the credentials.
        let key = unsafe { bytes(creds.session.contents, creds.session.length) };
        write_counted(key, out);
        let times = &creds.times;
        for word in [times.auth_s, times.start_s, times.end_s, times.renew_till_s] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.push(u8::from(creds.is_session_key != 0));
        out.extend_from_slice(&creds.flags.to_be_bytes());
        out.extend_from_slice(&[0; 8]);
        for data in [&creds.ticket, &creds.second_ticket] {
            // SAFETY: as above.
            write_counted(unsafe { bytes(data.data.cast(), data.length) }, out);
        }
    }

    pub(crate) fn written_len_max(&self) -> usize {
        let creds = self.get();
        4096 + creds.session.length as usize
            + creds.ticket.length as usize
            + creds.second_ticket.length as usize
    }
}

impl Drop for ServiceCreds<'_> {
    fn drop(&mut self) {
        // SAFETY: the credentials are not used again; the library wipes the key.
        unsafe { (self.krb5.gss.functions.free_creds)(self.krb5.handle, self.creds) };
    }
}

fn write_principal(principal: Handle, out: &mut Vec<u8>) {
    // SAFETY: the principal lives as long as its credentials.
    let principal = unsafe { &*principal.cast::<PrincipalData>() };
    let count = u32::try_from(principal.length).unwrap_or(0);
    let components = match principal.components.is_null() {
        true => &[],
        // SAFETY: the array has this many elements.
        false => unsafe { std::slice::from_raw_parts(principal.components, count as usize) },
    };
    out.extend_from_slice(&principal.kind.to_be_bytes());
    out.extend_from_slice(&(components.len() as u32).to_be_bytes());
    for data in std::iter::once(&principal.realm).chain(components) {
        // SAFETY: the text has this length.
        write_counted(unsafe { bytes(data.data.cast(), data.length) }, out);
    }
}

/// The bytes at a pointer that may be null if there are none.
///
/// # Safety
///
/// The pointer must be null, or to `len` bytes that live as long as the result is used.
unsafe fn bytes<'a>(start: *const u8, len: u32) -> &'a [u8] {
    match start.is_null() {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { std::slice::from_raw_parts(start, len as usize) },
    }
}

fn write_counted(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

// Layout of krb5.h on 64-bit machines.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Creds>() == 120);

/// Never moves its contents, so that no copy of a key is left behind.
pub(crate) fn secret_buffer(len_max: usize) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Vec::with_capacity(len_max))
}
