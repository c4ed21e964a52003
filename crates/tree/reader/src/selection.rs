use std::fmt;
use std::sync::Arc;

use vouch_tree_client::{Revision, Tree, TreeOptions};

use crate::{Error, Result};

/// A tree's replicas and revision.
#[derive(Debug, Clone, Default)]
pub struct TreeSelection {
    /// Replicas beside the host in the name.
    pub options: TreeOptions,
    /// The revision to read.
    pub revision: RevisionChoice,
}

/// Which revision of a tree is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RevisionChoice {
    /// The newest one now.
    #[default]
    Newest,
    /// By its number.
    Number(u64),
    /// The newest one with this tag.
    Tag(String),
}

impl RevisionChoice {
    /// `None`: no replica has it, or it never existed. O(newer revisions).
    pub async fn find(&self, tree: &Arc<Tree>) -> vouch_tree_client::Result<Option<Arc<Revision>>> {
        match self {
            Self::Newest => tree.revision().map(Some),
            Self::Number(number) => tree.revision_at(*number).await,
            Self::Tag(tag) => tree.revision_with_tag(tag).await,
        }
    }

    pub(crate) async fn require(&self, tree: &Arc<Tree>) -> Result<Arc<Revision>> {
        self.find(tree).await?.ok_or_else(|| Error::NoRevision { choice: self.to_string() })
    }
}

impl fmt::Display for RevisionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => f.write_str("the newest revision"),
            Self::Number(number) => write!(f, "revision {number}"),
            Self::Tag(tag) => write!(f, "tag {tag}"),
        }
    }
}
