use std::sync::Arc;

use vouch_nfs4::Stateid;
use vouch_nfs4::op::DelegationType;

use crate::state::delegation::record::{Granted, Want};
use crate::state::id::{ClientKey, FileKey};
use crate::state::open::share::{READ, Share, WRITE};
use crate::state::stateid::entry::{Open, Terms};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    New,
    Previous(DelegationType),
    Delegated(Stateid),
    DelegatedPrevious,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenCall<'a> {
    pub client: ClientKey,
    pub owner: &'a [u8],
    pub file: FileKey,
    pub share: Share,
    pub claim: Claim,
    pub want: Want,
    /// False with `no_delegations` of the export.
    pub may_delegate: bool,
    pub extensions: DelegationExtensions,
    pub truncate: bool,
    pub terms: Terms,
    pub opener: Option<&'a Arc<str>>,
}

impl OpenCall<'_> {
    /// Nobody can have denied what others than this server's clients do too.
    pub(in crate::state) fn only_reads_tree(&self) -> bool {
        self.file.is_of_tree() && self.share.access & WRITE == 0 && self.share.deny & READ == 0
    }
}

/// RFC 9754.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DelegationExtensions {
    /// §5.
    pub times: bool,
    /// §4.
    pub for_open: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct OpenPlan<F> {
    pub union: Share,
    /// The owner's open file, sufficient if its access includes `union`.
    pub existing: Option<F>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub stateid: Stateid,
    pub confirm: bool,
    pub delegation: Granted,
    /// With `for_open` there is no open, and `stateid` is the anonymous one.
    pub extensions: DelegationExtensions,
}

impl<F> Open<F> {
    pub(in crate::state) fn share(&self) -> Share {
        Share { access: self.access, deny: self.deny }
    }
}
