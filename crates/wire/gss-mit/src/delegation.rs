//! Constrained delegation (MS-SFU: S4U2Self and S4U2Proxy). Needs no password, key or
//! ticket-granting ticket of a user: the KDC decides by the policy of this process's own principal.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use vouch_krb5_seal::wipe_stack;
use zeroize::Zeroizing;

use crate::KerberosError;
use crate::error::{Side, name_text};
use crate::ffi::{self, Gss, ServiceCreds, TicketCache, secret_buffer};

/// The KDC must allow the principal of the keytab to delegate. Calls may block on the KDC for
/// seconds.
pub struct Delegation {
    gss: &'static Gss,
    principal: CString,
    keytab: CString,
    own_ticket: Option<OwnTicket>,
}

struct OwnTicket {
    cache: TicketCache,
    renew_s: u64,
}

/// Tickets of one user.
pub struct DelegatedTickets {
    /// The principal that the ticket speaks for.
    pub client: String,
    /// A credential cache file (format version 4) with only these tickets.
    pub cache: Zeroizing<Vec<u8>>,
    /// End of the ticket that ends first, seconds since 1970.
    pub end_s: u64,
}

impl Delegation {
    /// `principal`: this process's own, with a key in the keytab.
    pub fn new(principal: &str, keytab: &Path) -> Result<Self, KerberosError> {
        let gss = Gss::get().map_err(KerberosError::no_library)?;
        Ok(Self {
            gss,
            principal: text(principal)?,
            keytab: text_of_bytes(keytab.as_os_str().as_bytes())?,
            own_ticket: None,
        })
    }

    /// Tickets of `user` for each of `services` (principals), until `end_s` at most.
    pub fn tickets(
        &mut self,
        user: &str,
        services: &[String],
        end_s: u64,
    ) -> Result<DelegatedTickets, KerberosError> {
        let minted = self.mint(user, services, end_s);
        if minted.is_err() {
            // A key or policy may have changed since.
            self.own_ticket = None;
        }
        wipe_stack();
        minted
    }

    /// A separate frame, as in the acceptor.
    #[inline(never)]
    fn mint(
        &mut self,
        user: &str,
        services: &[String],
        end_s: u64,
    ) -> Result<DelegatedTickets, KerberosError> {
        let gss = self.gss;
        let failed = |doing: &str, status| KerberosError::of(gss, doing, status, Side::Client);
        let own_name = self.principal.clone();
        let own_text = own_name.to_string_lossy();
        let cache = self.own_ticket()?;
        let own = cache.principal(&own_name).map_err(|status| failed(&own_text, status))?;
        let client = cache.principal(&text(user)?).map_err(|status| failed(user, status))?;
        let evidence =
            cache.for_user(&own, &client).map_err(|status| failed(user, status).of_user())?;
        if !evidence.is_forwardable() {
            let what = format!(
                "{user}: the KDC lets {own_text} get no ticket in this user's name that can be delegated"
            );
            return Err(KerberosError::refused(what, NOT_FORWARDABLE));
        }
        let mut tickets = Vec::new();
        for service in services {
            let doing = format!("{user} for {service}");
            let target =
                cache.principal(&text(service)?).map_err(|status| failed(service, status))?;
            let end_s = u32::try_from(end_s).unwrap_or(u32::MAX);
            let ticket = cache
                .for_service(&own, &evidence, &target, end_s)
                .map_err(|status| failed(&doing, status).of_delegation())?;
            tickets.push(ticket);
        }
        cache_file(&evidence, &tickets)
    }

    fn own_ticket(&mut self) -> Result<&TicketCache, KerberosError> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.own_ticket.as_ref().is_none_or(|own| own.renew_s <= now_s) {
            let cache = TicketCache::with_keytab(self.gss, &self.principal, &self.keytab).map_err(
                |status| {
                    KerberosError::of(
                        self.gss,
                        &self.principal.to_string_lossy(),
                        status,
                        Side::Server,
                    )
                },
            )?;
            let renew_s = now_s + cache.end_s.saturating_sub(now_s) / 2;
            self.own_ticket = Some(OwnTicket { cache, renew_s });
        }
        Ok(&self.own_ticket.as_ref().expect("set above").cache)
    }
}

fn cache_file(
    evidence: &ServiceCreds<'_>,
    tickets: &[ServiceCreds<'_>],
) -> Result<DelegatedTickets, KerberosError> {
    /// Format version 4, without header fields.
    const HEADER: [u8; 4] = [5, 4, 0, 0];
    let len_max = tickets.iter().map(ServiceCreds::written_len_max).sum::<usize>()
        + evidence.written_len_max();
    let mut cache = secret_buffer(len_max);
    let capacity = cache.capacity();
    cache.extend_from_slice(&HEADER);
    evidence.write_client(&mut cache);
    for ticket in tickets {
        ticket.write_credential(&mut cache);
    }
    // A moved buffer would leave keys in freed memory.
    if cache.capacity() != capacity {
        return Err(KerberosError::refused(
            "a principal's name is too long".into(),
            "use names below a kilobyte",
        ));
    }
    let end_s = tickets.iter().map(ServiceCreds::end_s).min().unwrap_or(0);
    Ok(DelegatedTickets { client: name_text(evidence.client())?, cache, end_s })
}

/// A principal with its realm, the default realm of krb5.conf if it names none.
pub fn full_name(principal: &str) -> Result<String, KerberosError> {
    let gss = Gss::get().map_err(KerberosError::no_library)?;
    let name = ffi::full_name(gss, &text(principal)?)
        .map_err(|status| KerberosError::of(gss, principal, status, Side::Client))?;
    name_text(name)
}

fn text(name: &str) -> Result<CString, KerberosError> {
    text_of_bytes(name.as_bytes())
}

fn text_of_bytes(bytes: &[u8]) -> Result<CString, KerberosError> {
    CString::new(bytes).map_err(|_| {
        KerberosError::refused("a name or path holds a zero byte".into(), "name another")
    })
}

const NOT_FORWARDABLE: &str = "set +ok_to_auth_as_delegate for the broker's principal (kadmin: modprinc), and look whether the user has disallow_forwardable, which forbids delegation";
