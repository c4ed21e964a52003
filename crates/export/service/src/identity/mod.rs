mod cache;
mod idmap;
mod kerberos;
mod lookup;
mod mapper;
mod names;
mod nss;
mod nsswitch;
pub(crate) mod principal_map;
mod service;

pub(crate) use idmap::Idmap;
pub use kerberos::UnknownPrincipal;
pub(crate) use lookup::set_origin;
pub use mapper::GroupSource;
pub use names::IdentityLives;
pub(crate) use names::{AccountRules, Accounts};
pub(crate) use principal_map::PrincipalMap;
#[cfg(test)]
pub(crate) use service::{LocalName, NameServiceDown, UserRecord};
pub(crate) use service::{NameService, System, as_ourselves};
pub use service::{UserLookup, look_up_user};
