//! AUTH_SYS numbers and Kerberos principals become local identities.

mod cache;
mod idmap;
mod kerberos;
mod names;
mod principal_map;
mod service;
mod would_wait;

pub(crate) use idmap::Idmap;
pub use kerberos::UnknownPrincipal;
pub(crate) use names::Accounts;
pub use names::GroupSource;
pub(crate) use principal_map::PrincipalMap;
#[cfg(test)]
pub(crate) use service::{LocalName, NameServiceDown, UserRecord};
pub(crate) use service::{NameService, System, as_ourselves};
pub(crate) use would_wait::take_would_wait;
