//! Fetches the history once, as far back as requests need it.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Mutex;
use vouch_tree_client::{Error, History, Revision, Tree};

use crate::limits::REVISIONS_MAX;

#[derive(Default)]
pub(crate) struct Revisions {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    newest_first: VecDeque<Arc<Revision>>,
    older: OlderRevisions,
}

#[derive(Default)]
enum OlderRevisions {
    More(History),
    /// No replica keeps older ones.
    End,
    /// A fetch was cancelled or has failed: the next one begins with the newest revision.
    #[default]
    Lost,
}

impl Revisions {
    /// `None` if no replica keeps it.
    pub(crate) async fn by_number(
        &self,
        tree: &Arc<Tree>,
        number: u64,
    ) -> Result<Option<Arc<Revision>>, Error> {
        if number > tree.newest().number() {
            return Ok(None);
        }
        let mut known = self.known.lock().await;
        known.follow(tree).await?;
        known
            .find(|revision| revision.number() <= number)
            .await
            .map(|found| found.filter(|revision| revision.number() == number))
    }

    pub(crate) async fn by_tag(
        &self,
        tree: &Arc<Tree>,
        tag: &str,
    ) -> Result<Option<Arc<Revision>>, Error> {
        let mut known = self.known.lock().await;
        known.follow(tree).await?;
        known.find(|revision| revision.fsinfo.tag == tag).await
    }

    pub(crate) async fn newest(
        &self,
        tree: &Arc<Tree>,
        count: usize,
    ) -> Result<Vec<Arc<Revision>>, Error> {
        let mut known = self.known.lock().await;
        known.follow(tree).await?;
        while known.newest_first.len() < count && known.extend().await? {}
        Ok(known.newest_first.iter().take(count).cloned().collect())
    }
}

impl Known {
    async fn follow(&mut self, tree: &Arc<Tree>) -> Result<(), Error> {
        if matches!(self.older, OlderRevisions::Lost) {
            self.newest_first.clear();
        }
        let newest_known = self.newest_first.front().map(|revision| revision.handle);
        if newest_known == Some(tree.newest().handle) {
            return Ok(());
        }
        let (mut history, mut newer) = (tree.history(), Vec::new());
        while newer.len() < REVISIONS_MAX {
            match history.next().await {
                Some(Ok(revision)) if Some(revision.handle) == newest_known => {
                    newer
                        .into_iter()
                        .rev()
                        .for_each(|revision| self.newest_first.push_front(revision));
                    self.newest_first.truncate(REVISIONS_MAX);
                    return Ok(());
                }
                Some(Ok(revision)) => newer.push(revision),
                Some(Err(Error::Missing { .. })) | None => break,
                Some(Err(error)) => return Err(error),
            }
            if newest_known.is_none() {
                break;
            }
        }
        self.newest_first = newer.into();
        self.older = if newest_known.is_none() {
            OlderRevisions::More(history)
        } else {
            OlderRevisions::End
        };
        Ok(())
    }

    async fn find(
        &mut self,
        is_end: impl Fn(&Revision) -> bool,
    ) -> Result<Option<Arc<Revision>>, Error> {
        let mut next = 0;
        loop {
            while let Some(revision) = self.newest_first.get(next) {
                if is_end(revision) {
                    return Ok(Some(revision.clone()));
                }
                next += 1;
            }
            if !self.extend().await? {
                return Ok(None);
            }
        }
    }

    async fn extend(&mut self) -> Result<bool, Error> {
        if self.newest_first.len() >= REVISIONS_MAX {
            return Ok(false);
        }
        let mut history = match std::mem::take(&mut self.older) {
            OlderRevisions::More(history) => history,
            OlderRevisions::End | OlderRevisions::Lost => {
                self.older = OlderRevisions::End;
                return Ok(false);
            }
        };
        match history.next().await {
            Some(Ok(revision)) => {
                self.newest_first.push_back(revision);
                self.older = OlderRevisions::More(history);
                Ok(true)
            }
            Some(Err(Error::Missing { .. })) | None => {
                self.older = OlderRevisions::End;
                Ok(false)
            }
            Some(Err(error)) => Err(error),
        }
    }
}
