//! Accepts clients' tokens with the keys of a keytab.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use vouch_krb5_seal::{ContextKeys, Enctype, Role, wipe_stack};
use vouch_rpcsec_gss::{Accept, Acceptor, EstablishedContext};

use crate::KerberosError;
use crate::error::{EXPIRED, NOT_YET_VALID, SKEW, Side, name_text};
use crate::ffi::{
    Context, Cred, Exchange, Gss, Lucid, Name, Opened, OpenedTicket, Status, Usage, holds_key,
    opens_ticket,
};
use crate::ticket::{Request, Ticket, made_s, old_name};

/// Uses any key of a keytab for the given service, so that one server answers to several host names
/// and realms. A rewritten keytab is read again.
pub struct MitAcceptor {
    gss: &'static Gss,
    cred: Cred,
    service: String,
    keytab: Option<CString>,
}

/// A context whose client has to send another token.
pub struct Partial(Context);

impl MitAcceptor {
    /// `keytab`: default is the system's (`KRB5_KTNAME`, `default_keytab_name` of krb5.conf). Fails
    /// without the library or a key of a principal `service/...`.
    pub fn new(keytab: Option<&Path>, service: &str) -> Result<Self, KerberosError> {
        let gss = Gss::get().map_err(KerberosError::no_library)?;
        let (of, named) = place(keytab)?;
        let stores: Vec<_> = named.iter().map(|path| ("keytab", path.clone())).collect();
        let cred = gss
            .acquire(None, Usage::Accept, &stores)
            .map_err(|status| KerberosError::of(gss, &of, status, Side::Server))?;
        Ok(Self { gss, cred, service: format!("{service}/"), keytab: named })
    }

    fn established(
        &self,
        context: Context,
        initiator: Option<Name>,
        token: &[u8],
    ) -> Result<EstablishedContext, KerberosError> {
        let failed =
            |doing: &str, status: Status| KerberosError::of(self.gss, doing, status, Side::Server);
        let initiator = initiator
            .map_or(Ok(Vec::new()), |name| name.display())
            .map_err(|status| failed("a caller's name", status))?;
        let initiator = name_text(initiator)?;
        let acceptor = context
            .acceptor()
            .map_err(|status| failed(&format!("{initiator} with {}", error_text(token)), status))?;
        let acceptor = name_text(acceptor)?;
        if !acceptor.starts_with(&self.service) && !self.shares_key_of_service(&acceptor, token) {
            let what = format!("{initiator} called {acceptor}, which is not {}HOST", self.service);
            return Err(KerberosError::refused(
                what,
                "mount by a name whose nfs/HOST the keytab has",
            ));
        }
        let lucid = context
            .export()
            .map_err(|status| failed(&format!("the keys of {initiator}'s context"), status))?;
        let (token_seq, lifetime_s) = (lucid.send_seq, lifetime_s(&lucid));
        let keys = keys(lucid, Role::Acceptor).map_err(|old| {
            let what = format!("{initiator} called {acceptor} with {old}, which is not accepted");
            KerberosError::refused(
                what,
                "allow AES: give nfs/HOST AES keys (kadmin: cpw -randkey -e aes256-cts-hmac-sha1-96:normal nfs/HOST, then ktadd), and the client too",
            )
        })?;
        Ok(EstablishedContext {
            keys: Arc::new(keys),
            principal: initiator.into(),
            service: acceptor.into(),
            lifetime_s,
            token_seq,
        })
    }
}

impl MitAcceptor {
    /// The services of an account of Active Directory share its key. The library may then name
    /// another of them, or the account `HOST$`: the first in the keytab whose key opens the ticket. A
    /// key of `nfs/HOST` of the same realm must open it too.
    fn shares_key_of_service(&self, acceptor: &str, token: &[u8]) -> bool {
        let Some((_, realm)) = acceptor.rsplit_once('@') else { return false };
        let Some(sealed) = Request::of_token(token).and_then(|request| request.sealed_ticket())
        else {
            return false;
        };
        let realm = format!("@{realm}");
        let is_of_service = |name: &[u8]| {
            name.starts_with(self.service.as_bytes()) && name.ends_with(realm.as_bytes())
        };
        opens_ticket(self.gss, self.keytab.as_deref(), sealed, is_of_service).unwrap_or(false)
    }
}

/// Fails unless the keytab has a key of a principal `service/...`: without it every client is
/// refused.
pub fn check_keytab(keytab: Option<&Path>, service: &str) -> Result<(), KerberosError> {
    let gss = Gss::get().map_err(KerberosError::no_library)?;
    let (of, named) = place(keytab)?;
    let prefix = format!("{service}/");
    // Types of keys that contexts refuse: DES, 3DES, RC4.
    let old = RefCell::new(Vec::new());
    let found = holds_key(gss, named.as_deref(), |name, enctype| {
        let is_of_service = name.starts_with(prefix.as_bytes());
        let is_good = Enctype::try_from(enctype).is_ok();
        if is_of_service && !is_good && !old.borrow().contains(&enctype) {
            old.borrow_mut().push(enctype);
        }
        is_of_service && is_good
    });
    wipe_stack();
    let found =
        found.map_err(|status| KerberosError::of(gss, &of, status, Side::Server).of_no_keytab())?;
    let old: Vec<String> = old.into_inner().into_iter().map(old_name).collect();
    match (found, &old[..]) {
        (true, _) => Ok(()),
        (false, []) => Err(KerberosError::refused(
            format!("{of} holds no key of {prefix}HOST"),
            "write them to it (kadmin: ktadd -k KEYTAB nfs/HOST)",
        )),
        (false, old) => Err(KerberosError::refused(
            format!("{of} holds keys of {prefix}HOST of refused types only: {}", old.join(", ")),
            "write AES keys to it (kadmin: ktadd -k KEYTAB -e aes256-cts-hmac-sha1-96:normal nfs/HOST)",
        )),
    }
}

/// The first principal `host/NAME` or `host/NAME.DOMAIN` of the keytab, where NAME is the host's name
/// up to its first dot.
pub fn host_principal(keytab: &Path, host: &str) -> Result<String, KerberosError> {
    let gss = Gss::get().map_err(KerberosError::no_library)?;
    let (of, named) = place(Some(keytab))?;
    let prefix = format!("host/{}", host.split('.').next().unwrap_or_default());
    let first = Cell::new(None);
    let is_of_host = |name: &[u8], _| {
        let is_it = name
            .strip_prefix(prefix.as_bytes())
            .is_some_and(|rest| rest.starts_with(b"@") || rest.starts_with(b"."));
        if is_it {
            first.set(String::from_utf8(name.to_vec()).ok());
        }
        is_it
    };
    let found = holds_key(gss, named.as_deref(), is_of_host);
    wipe_stack();
    found.map_err(|status| KerberosError::of(gss, &of, status, Side::Server).of_no_keytab())?;
    let cure = "write it to the keytab (kadmin: ktadd -k KEYTAB host/NODE), or name another by --principal";
    first
        .take()
        .ok_or_else(|| KerberosError::refused(format!("{of} holds no key of {prefix}"), cure))
}

fn place(keytab: Option<&Path>) -> Result<(String, Option<CString>), KerberosError> {
    let Some(path) = keytab else { return Ok(("the system's keytab".into(), None)) };
    let bytes = CString::new(path.as_os_str().as_bytes());
    let bytes = bytes.map_err(|_| {
        KerberosError::refused("the keytab's path holds a zero byte".into(), "name another")
    })?;
    Ok((path.display().to_string(), Some(bytes)))
}

impl Acceptor for MitAcceptor {
    type Partial = Partial;

    fn accept(&self, partial: Option<Partial>, token: &[u8]) -> Accept<Partial> {
        let outcome = self.take(partial, token);
        // The library's functions left keys on the stack.
        wipe_stack();
        outcome
    }
}

impl MitAcceptor {
    fn has_keys(&self) -> bool {
        holds_key(self.gss, self.keytab.as_deref(), |_, _| true).unwrap_or(false)
    }

    /// A separate frame, so that the stack below it can be wiped.
    #[inline(never)]
    fn take(&self, partial: Option<Partial>, token: &[u8]) -> Accept<Partial> {
        let is_first = partial.is_none();
        let mut context = partial.map(|partial| partial.0);
        let (outcome, answer, initiator) = self.gss.accept(&mut context, &self.cred, token);
        let mut principal = initiator
            .as_ref()
            .and_then(|name| name.display().ok())
            .and_then(|name| name_text(name).ok())
            .unwrap_or_default();
        let error = match (outcome, context) {
            (Ok(Exchange::Complete), Some(context)) => {
                match self.established(context, initiator, token) {
                    Ok(context) => return Accept::Established { context, token: answer },
                    Err(error) => error,
                }
            }
            (Ok(Exchange::Continue), Some(context)) => {
                return Accept::Continue { partial: Partial(context), token: answer };
            }
            (Ok(_), None) => {
                KerberosError::refused("the Kerberos library gave no context".into(), "report it")
            }
            (Err(status), _) => {
                // The library names no client when it refuses.
                let opened = Request::of_token(token).map_or(Opened::Nothing, |request| {
                    Opened::of(self.gss, self.keytab.as_deref(), &request)
                });
                let mut doing = error_text(token);
                if let Opened::All(opened) = &opened
                    && let Ok(client) = name_text(opened.client.clone())
                {
                    doing = format!("{client} with {doing}");
                    principal = client;
                }
                let error = KerberosError::of(self.gss, &doing, status, Side::Server);
                let error = match &opened {
                    Opened::All(opened) => times(&error, opened, now_s())
                        .map_or(error.clone(), |times| error.and(&times)),
                    Opened::TicketAlone => error.of_altered(),
                    // The library has one code for a missing key and a missing keytab.
                    Opened::Nothing if error.is_of_keytab() && !self.has_keys() => {
                        error.of_no_keytab()
                    }
                    Opened::Nothing => error,
                };
                match Ticket::of_token(token) {
                    Some(ticket) if Enctype::try_from(ticket.enctype).is_err() => {
                        error.of_old_enctype()
                    }
                    None if is_first => error.of_no_ticket(),
                    _ => error,
                }
            }
        };
        let enctype = Ticket::of_token(token).and_then(|ticket| u32::try_from(ticket.enctype).ok());
        Accept::Failed {
            major: error.major,
            minor: error.minor,
            token: answer,
            reason: error.to_string(),
            principal,
            enctype,
        }
    }
}

fn error_text(token: &[u8]) -> String {
    Ticket::of_token(token)
        .map_or_else(|| "a token without a ticket".into(), |ticket| ticket.to_string())
}

fn times(error: &KerberosError, opened: &OpenedTicket, now_s: u64) -> Option<String> {
    match error.code() {
        SKEW => {
            let made_s = made_s(&opened.authenticator)?;
            let way = if made_s > now_s { "ahead of" } else { "behind" };
            Some(format!("its clock is {} s {way} this machine's", made_s.abs_diff(now_s)))
        }
        EXPIRED => Some(format!("it ended {} s ago", now_s.checked_sub(opened.end_s)?)),
        NOT_YET_VALID => Some(format!("it begins in {} s", opened.start_s.checked_sub(now_s)?)),
        _ => None,
    }
}

/// Lifetime of the ticket. The library's figure includes the allowed clock skew.
pub(crate) fn lifetime_s(lucid: &Lucid) -> u64 {
    lucid.end_s.saturating_sub(now_s())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub(crate) fn keys(lucid: Lucid, role: Role) -> Result<ContextKeys, String> {
    if lucid.old {
        return Err(old_name(lucid.enctype));
    }
    let enctype = Enctype::try_from(lucid.enctype).map_err(|_| old_name(lucid.enctype))?;
    ContextKeys::new(enctype, &lucid.key, role, lucid.acceptor_subkey)
        .map_err(|error| error.to_string())
}
