//! Client side: tokens from a credential cache or a keytab.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use vouch_krb5_seal::{Role, wipe_stack};
use vouch_rpcsec_gss::{EstablishedClient, InitStep, Initiator};

use crate::KerberosError;
use crate::acceptor::{keys, lifetime_s};
use crate::error::Side;
use crate::ffi::{Context, Cred, Exchange, Gss, MemoryCache, Name, NameForm, Usage};

/// Identity and ticket source of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSource {
    /// `alice@EXAMPLE.ORG`; if none, the principal of the cache, or the keytab's first.
    pub principal: Option<String>,
    /// As in `KRB5CCNAME`; the system's if none.
    pub ccache: Option<String>,
    /// For tickets, instead of a cache.
    pub keytab: Option<PathBuf>,
}

/// Asks the KDC, so it may block for seconds.
pub struct MitInitiator {
    gss: &'static Gss,
    cred: Cred,
    target: Name,
    context: Option<Context>,
    doing: String,
    _cache: Option<MemoryCache>,
}

impl MitInitiator {
    /// `service`: a principal if it contains a slash, else `nfs@host.example.org`. Fails without
    /// the library or a ticket.
    pub fn new(service: &str, source: &ClientSource) -> Result<Self, KerberosError> {
        let gss = Gss::get().map_err(KerberosError::no_library)?;
        let form = if service.contains('/') { NameForm::Principal } else { NameForm::HostBased };
        let failed = |doing: &str, status| KerberosError::of(gss, doing, status, Side::Client);
        let target = gss.name(service, form).map_err(|status| failed(service, status))?;
        let zero =
            |_| KerberosError::refused("a name or path holds a zero byte".into(), "name another");
        let mut stores = Vec::new();
        if let Some(keytab) = &source.keytab {
            stores.push((
                "client_keytab",
                CString::new(keytab.as_os_str().as_bytes()).map_err(zero)?,
            ));
        }
        let mut cache = None;
        match (&source.ccache, &source.keytab) {
            (Some(ccache), _) => {
                stores.push(("ccache", CString::new(ccache.as_str()).map_err(zero)?))
            }
            (None, Some(keytab)) => {
                // A private cache: the system's may belong to another principal.
                let own = MemoryCache::new(gss)
                    .map_err(|status| failed(&keytab.display().to_string(), status))?;
                stores.push(("ccache", own.name()));
                cache = Some(own);
            }
            (None, None) => {}
        }
        let who = source.principal.as_deref().unwrap_or("the ticket at hand");
        let name = source.principal.as_deref().map(|text| gss.name(text, NameForm::Principal));
        let name = name.transpose().map_err(|status| failed(who, status))?;
        let cred = gss
            .acquire(name.as_ref(), Usage::Initiate, &stores)
            .map_err(|status| failed(who, status))?;
        Ok(Self {
            gss,
            cred,
            target,
            context: None,
            doing: format!("{who} for {service}"),
            _cache: cache,
        })
    }
}

impl Initiator for MitInitiator {
    type Error = KerberosError;

    fn step(&mut self, token: Option<&[u8]>) -> Result<InitStep, KerberosError> {
        let step = self.take(token);
        wipe_stack();
        step
    }
}

impl MitInitiator {
    /// A separate frame, as in the acceptor.
    #[inline(never)]
    fn take(&mut self, token: Option<&[u8]>) -> Result<InitStep, KerberosError> {
        // RFC 2743 §1.2.9: mutual authentication, confidentiality and integrity. RPC detects
        // replays itself (RFC 2203 §5.2.2).
        const FLAGS: u32 = 2 | 16 | 32;
        let (outcome, answer) =
            self.gss.init(&mut self.context, &self.cred, &self.target, FLAGS, token);
        let failed = |status| KerberosError::of(self.gss, &self.doing, status, Side::Client);
        if outcome.map_err(failed)? == Exchange::Continue {
            return Ok(InitStep::Continue { token: answer });
        }
        let none =
            || KerberosError::refused("the Kerberos library gave no context".into(), "report it");
        let context = self.context.take().ok_or_else(none)?;
        let lucid = context.export().map_err(failed)?;
        let (token_seq, lifetime_s) = (lucid.send_seq, lifetime_s(&lucid));
        let keys = keys(lucid, Role::Initiator).map_err(|old| {
            KerberosError::refused(
                format!("{}: the KDC issued a key of {old}, which is not accepted", self.doing),
                "give the service AES keys",
            )
        })?;
        let token = Some(answer).filter(|token| !token.is_empty());
        Ok(InitStep::Established {
            context: EstablishedClient { keys: Arc::new(keys), lifetime_s, token_seq },
            token,
        })
    }
}
