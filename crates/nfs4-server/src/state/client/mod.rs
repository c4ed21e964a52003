//! Client records.

pub(in crate::state) mod credential;
pub(in crate::state) mod end;
pub(in crate::state) mod exchange_id;
pub(in crate::state) mod principal;
pub(in crate::state) mod protection;
pub(in crate::state) mod record;
pub(in crate::state) mod setclientid;
pub(in crate::state) mod table;
pub(in crate::state) mod v40_principals;
