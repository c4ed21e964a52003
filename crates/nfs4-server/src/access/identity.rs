//! The seam to the system's users and groups: the driver implements it with the name service,
//! caches and static maps.

use std::net::SocketAddr;
use std::sync::Arc;

use vouch_vfs::{Caller, Patience};

use crate::{Principal, Squash};

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It would have to wait for a name service, and [`Patience::None`] was asked.
    WouldWait,
    /// The name service fails, which says nothing of what it was asked.
    Silent,
}

/// Maps principals to local rights, and owners to names and back. Called on the hot path: answers
/// that were given a short while ago must come from memory without allocation.
pub trait Identity: Send + Sync {
    /// The local rights of a principal after squashing; none if it has no account here and isn't
    /// mapped to anybody. For `sec=sys` more than 16 groups may come from the name service.
    /// `client` is whence the principal calls, for the log: it decides nothing.
    fn caller(
        &self,
        principal: &Principal,
        client: SocketAddr,
        squash: &Squash,
        patience: Patience,
    ) -> Result<Option<Arc<Caller>>, Unanswered>;

    /// Name of a user without domain.
    fn user_name(&self, uid: u32, patience: Patience) -> Result<Option<Arc<str>>, Unanswered>;

    /// Name of a group without domain.
    fn group_name(&self, gid: u32, patience: Patience) -> Result<Option<Arc<str>>, Unanswered>;

    /// Number of the user of this name, without domain.
    fn uid(&self, name: &str, patience: Patience) -> Result<Option<u32>, Unanswered>;

    /// Number of the group of this name, without domain.
    fn gid(&self, name: &str, patience: Patience) -> Result<Option<u32>, Unanswered>;
}
