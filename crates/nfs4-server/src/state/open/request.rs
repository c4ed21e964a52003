//! What OPEN asks of state, and what it gets.

use std::sync::Arc;

use vouch_nfs4::Stateid;
use vouch_nfs4::op::DelegationType;

use crate::state::delegation::record::{Granted, Want};
use crate::state::id::{ClientKey, FileKey};
use crate::state::open::share::Share;
use crate::state::stateid::entry::{Open, Terms};

/// On what grounds a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// None: CLAIM_NULL, CLAIM_FH.
    New,
    /// It was open before the server restarted, with such a delegation: CLAIM_PREVIOUS.
    Previous(DelegationType),
    /// The client holds this delegation of it: CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH.
    Delegated(Stateid),
    /// It held one before it restarted: CLAIM_DELEGATE_PREV, CLAIM_DELEG_PREV_FH. Delegations don't
    /// outlive their client here: NOTSUPP.
    DelegatedPrevious,
}

/// An OPEN.
#[derive(Clone, Copy, Debug)]
pub struct OpenCall<'a> {
    /// The client.
    pub client: ClientKey,
    /// The open owner's name.
    pub owner: &'a [u8],
    /// The file.
    pub file: FileKey,
    /// What the open allows and denies.
    pub share: Share,
    /// On what grounds.
    pub claim: Claim,
    /// Which delegation is wanted.
    pub want: Want,
    /// What it shall be beyond RFC 8881.
    pub extra: Extra,
    /// The file is cut to nothing by it, which is a change of data whatever the share says.
    pub truncate: bool,
    /// How it came.
    pub terms: Terms,
    /// In 4.0: the principal that opens, where that is proven. Sessions tell in 4.1.
    pub opener: Option<&'a Arc<str>>,
}

/// What a delegation shall be by RFC 9754.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// It covers the file's times of access and of change (section 5).
    pub times: bool,
    /// It stands in the place of an open (section 4).
    pub for_open: bool,
}

/// What is to be opened.
#[derive(Clone, Debug)]
pub struct OpenPlan<F> {
    /// What the owner's open of the file will allow and deny: this call and what it had before.
    pub union: Share,
    /// The owner's open file, if it has one. It serves if it was opened for what `union` allows.
    pub existing: Option<F>,
}

/// An open made or widened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its stateid.
    pub stateid: Stateid,
    /// Whether the owner must confirm it (4.0).
    pub confirm: bool,
    /// The delegation that comes with it.
    pub delegation: Granted,
    /// What the delegation is beyond RFC 8881. With `for_open` there is no open, and `stateid` is
    /// the anonymous one.
    pub extra: Extra,
}

impl<F> Open<F> {
    pub(in crate::state) fn share(&self) -> Share {
        Share { access: self.access, deny: self.deny }
    }
}
