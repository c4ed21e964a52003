//! Requests and results of OPEN.

use std::sync::Arc;

use vouch_nfs4::Stateid;
use vouch_nfs4::op::DelegationType;

use crate::state::delegation::record::{Granted, Want};
use crate::state::id::{ClientKey, FileKey};
use crate::state::open::share::Share;
use crate::state::stateid::entry::{Open, Terms};

/// Claim of an OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// CLAIM_NULL, CLAIM_FH.
    New,
    /// CLAIM_PREVIOUS with this delegation: reclaim after a restart of the server.
    Previous(DelegationType),
    /// CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH with this delegation.
    Delegated(Stateid),
    /// CLAIM_DELEGATE_PREV, CLAIM_DELEG_PREV_FH. Delegations end with their client here: NOTSUPP.
    DelegatedPrevious,
}

/// An OPEN request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenCall<'a> {
    /// Client.
    pub client: ClientKey,
    /// Open owner.
    pub owner: &'a [u8],
    /// File.
    pub file: FileKey,
    /// Access and denial.
    pub share: Share,
    /// Claim.
    pub claim: Claim,
    /// Requested delegation.
    pub want: Want,
    /// Extensions of RFC 9754.
    pub extra: Extra,
    /// Whether the file is truncated, which changes data whatever the share says.
    pub truncate: bool,
    /// Export terms of the request.
    pub terms: Terms,
    /// Proven principal in 4.0; in 4.1 the session identifies it.
    pub opener: Option<&'a Arc<str>>,
}

/// Delegation extensions of RFC 9754.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// The delegation covers access and modification times (section 5).
    pub times: bool,
    /// The delegation replaces the open (section 4).
    pub for_open: bool,
}

/// Plan for opening the file.
#[derive(Clone, Debug)]
pub(crate) struct OpenPlan<F> {
    /// Union of this call's share and the owner's present share.
    pub union: Share,
    /// The owner's open file, if any. Sufficient if its access includes `union`.
    pub existing: Option<F>,
}

/// A new or widened open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Stateid.
    pub stateid: Stateid,
    /// Whether the owner must confirm (4.0).
    pub confirm: bool,
    /// Granted delegation.
    pub delegation: Granted,
    /// Extensions of the delegation. With `for_open` there is no open, and `stateid` is the
    /// anonymous one.
    pub extra: Extra,
}

impl<F> Open<F> {
    pub(in crate::state) fn share(&self) -> Share {
        Share { access: self.access, deny: self.deny }
    }
}
