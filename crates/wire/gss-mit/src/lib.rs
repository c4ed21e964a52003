//! Kerberos V5 contexts from the system's MIT library, with its keytabs, replay cache, name rules
//! and policy. Contexts are exported to `vouch-krb5-seal`, which protects messages.
//!
//! The library is loaded at run time: builds need no headers, and programs start without Kerberos.
//! Every call may block: it reads files, and a client asks the KDC.

mod acceptor;
mod delegation;
mod error;
mod ffi;
mod initiator;
#[cfg(test)]
mod tests;
mod ticket;

pub use acceptor::{MitAcceptor, Partial, check_keytab, host_principal};
pub use delegation::{DelegatedTickets, Delegation, full_name};
pub use error::{KerberosError, TICKET_REFUSED, fault_of};
pub use initiator::{ClientSource, MitInitiator};

use ffi::{Gss, NameForm};

/// Loads the library. The error names the package to install.
pub fn available() -> Result<(), KerberosError> {
    Gss::get().map(drop).map_err(KerberosError::no_library)
}

/// By the rules of krb5.conf (`auth_to_local`, plugins).
pub fn local_name(principal: &str) -> Result<Option<String>, KerberosError> {
    let gss = Gss::get().map_err(KerberosError::no_library)?;
    let name = gss
        .name(principal, NameForm::Principal)
        .map_err(|status| KerberosError::of(gss, principal, status, error::Side::Server))?;
    Ok(name.local().ok().filter(|local| !local.is_empty()))
}

/// `KRB5_KTNAME`, `default_keytab_name` of krb5.conf, or the library's default. None without the
/// library.
pub fn default_keytab() -> Option<Vec<u8>> {
    ffi::default_keytab(Gss::get().ok()?)
}

#[doc(hidden)]
pub fn describe_token(token: &[u8]) -> Option<String> {
    let made_s = ticket::Request::of_token(token)
        .and_then(|request| ticket::made_s(request.authenticator.1))
        .or(ticket::made_s(token));
    ticket::Ticket::of_token(token).map(|ticket| format!("{ticket}{made_s:?}"))
}
