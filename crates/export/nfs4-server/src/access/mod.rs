pub(crate) mod admission;
pub(crate) mod grant;
pub(crate) mod identity;
pub(crate) mod machine_credential;
pub(crate) mod network;
pub(crate) mod principal;
