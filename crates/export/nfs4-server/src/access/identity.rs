use std::net::SocketAddr;
use std::sync::Arc;

use vouch_vfs::{Blocking, Caller};

use crate::{Principal, Squash};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    WouldWait,
    Silent,
}

/// Maps principals to local identities, and owner names to numbers and back. On the hot path.
pub trait Identity: Send + Sync {
    /// After squashing; `None` without an account. For `sec=sys`, groups may come from the name
    /// service.
    fn caller(
        &self,
        principal: &Principal,
        client: SocketAddr,
        squash: &Squash,
        blocking: Blocking,
    ) -> Result<Option<Arc<Caller>>, Unanswered>;

    fn user_name(&self, uid: u32, blocking: Blocking) -> Result<Option<Arc<str>>, Unanswered>;

    fn group_name(&self, gid: u32, blocking: Blocking) -> Result<Option<Arc<str>>, Unanswered>;

    fn uid(&self, name: &str, blocking: Blocking) -> Result<Option<u32>, Unanswered>;

    fn gid(&self, name: &str, blocking: Blocking) -> Result<Option<u32>, Unanswered>;
}
