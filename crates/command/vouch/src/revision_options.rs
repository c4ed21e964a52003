use std::fmt;
use std::sync::Arc;

use vouch_tree_client::{Revision, Tree};
use vouch_tree_reader::RevisionChoice;

use crate::exit::{Failure, Outcome};
use vouch_daemon::printable::printable;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, clap::Args)]
pub(crate) struct RevisionArgs {
    /// Read this older revision.
    #[arg(long, value_name = "N", conflicts_with = "tag")]
    pub(crate) revision: Option<u64>,
    /// Read the newest revision with this tag.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
}

impl RevisionArgs {
    pub(crate) fn number(number: u64) -> Self {
        Self { revision: Some(number), tag: None }
    }

    pub(crate) fn is_newest(&self) -> bool {
        self.revision.is_none() && self.tag.is_none()
    }

    fn choice(&self) -> RevisionChoice {
        match (self.revision, &self.tag) {
            (Some(number), _) => RevisionChoice::Number(number),
            (None, Some(tag)) => RevisionChoice::Tag(tag.clone()),
            (None, None) => RevisionChoice::Newest,
        }
    }

    /// The newest one by default.
    pub(crate) async fn find(&self, tree: &Arc<Tree>) -> Outcome<Arc<Revision>> {
        let found = self.choice().find(tree).await?;
        found.ok_or_else(|| {
            Failure::not_found(self, "no replica has it, or it never existed")
                .cure("`vouch log` lists the available revisions")
        })
    }
}

impl fmt::Display for RevisionArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(self.choice().to_string().as_bytes()))
    }
}
