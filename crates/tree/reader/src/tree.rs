use std::sync::Arc;

use parking_lot::RwLock;
use vouch_tree::{Content, Inode};
use vouch_tree_client::{Diff, History, Listing, Position, ResolvedPath, Revision, Tree};
use vouch_tree_client::{Verification, VerifyEvent};
use vouch_xdr::{Writer, Xdr as _};

use crate::{Error, Interrupt, ReadFile, Result, Session};

/// One revision of a tree. It stays the same until [`ReadTree::refresh`].
pub struct ReadTree {
    session: Arc<Session>,
    tree: Option<Arc<Tree>>,
    revision: RwLock<Arc<Revision>>,
}

/// A file that a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// From the root, without symbolic links that were followed.
    pub path: Vec<u8>,
    /// Attributes and content.
    pub inode: Inode,
}

impl ReadTree {
    pub(crate) fn new(session: Arc<Session>, tree: Arc<Tree>, revision: Arc<Revision>) -> Self {
        Self { session, tree: Some(tree), revision: RwLock::new(revision) }
    }

    /// Opens trees like this one.
    pub const fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The asynchronous tree below.
    pub fn tree(&self) -> &Arc<Tree> {
        self.tree.as_ref().expect("only `drop` takes the tree")
    }

    /// The revision that is read.
    pub fn revision(&self) -> Arc<Revision> {
        Arc::clone(&self.revision.read())
    }

    /// Asks replicas for a newer revision and moves to it; false if there is none.
    pub fn refresh(&self, interrupt: Interrupt<'_>) -> Result<bool> {
        let newest = self.session.run(interrupt, async {
            self.tree().refresh().await?;
            Ok(self.tree().revision()?)
        })?;
        let mut revision = self.revision.write();
        let is_newer = newest.order() > revision.order();
        if is_newer {
            *revision = newest;
        }
        Ok(is_newer)
    }

    /// Follows symbolic links of the tree on the way, and at the end if `follow` is set. A leading
    /// `/` is the root of the tree. Errors: [`Error::Outside`] for a link out of the tree.
    pub fn stat(&self, path: &[u8], follow: bool, interrupt: Interrupt<'_>) -> Result<Found> {
        let revision = self.revision();
        self.session.run(interrupt, find(self.tree(), &revision, path, follow))
    }

    /// One page of entries, sorted by name; the next one begins at [`Listing::next`].
    pub fn list(
        &self,
        directory: &Found,
        from: Position<'_>,
        interrupt: Interrupt<'_>,
    ) -> Result<Listing> {
        if !directory.inode.is_directory() {
            let path = directory.path.clone();
            return Err(vouch_tree_client::Error::NotADirectory { path }.into());
        }
        self.session.run(interrupt, async { Ok(self.tree().list(&directory.inode, from).await?) })
    }

    /// Opens a regular file, with symbolic links followed.
    pub fn open_file(&self, path: &[u8], interrupt: Interrupt<'_>) -> Result<ReadFile> {
        let found = self.stat(path, true, interrupt)?;
        ReadFile::open(&self.session, self.tree(), found)
    }

    /// Checks each frame of the revision, past all caches. `event` is called by this thread.
    pub fn verify(
        &self,
        interrupt: Interrupt<'_>,
        mut event: impl FnMut(VerifyEvent),
    ) -> Result<()> {
        self.session.check_process()?;
        let mut events: Verification = self.tree().verify_all(&self.revision());
        while let Some(next) =
            self.session.run(interrupt, async { Ok(events.next().await.transpose()?) })?
        {
            event(next);
        }
        Ok(())
    }

    /// The proof of what the revision holds at a path, for `vouch check-proof`. Does not follow
    /// symbolic links. A regular file's proof contains its content.
    pub fn prove(&self, path: &[u8], interrupt: Interrupt<'_>) -> Result<Vec<u8>> {
        let mut proof = self.tree().prove(&self.revision(), path)?;
        let mut out = proof.header().to_xdr();
        self.session.run(interrupt, async {
            while let Some(stored) = proof.next().await {
                let mut item = Writer::new();
                item.opaque(&stored?);
                out.extend_from_slice(item.as_bytes());
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// Revisions from the newest back.
    pub fn history(&self) -> History {
        self.tree().history()
    }

    /// The same tree at another revision.
    pub fn at(
        &self,
        choice: &crate::RevisionChoice,
        interrupt: Interrupt<'_>,
    ) -> Result<Arc<ReadTree>> {
        let revision = self.session.run(interrupt, choice.require(self.tree()))?;
        let tree = Arc::clone(self.tree());
        Ok(Arc::new(Self::new(Arc::clone(&self.session), tree, revision)))
    }

    /// Differences from `old` to this revision.
    pub fn diff(&self, old: &ReadTree) -> Diff {
        Diff::new((old.tree(), &old.revision()), (self.tree(), &self.revision()))
    }
}

impl Drop for ReadTree {
    fn drop(&mut self) {
        let tree = self.tree.take();
        self.session.release(tree);
    }
}

pub(crate) async fn find(
    tree: &Tree,
    revision: &Revision,
    path: &[u8],
    follow: bool,
) -> Result<Found> {
    let root = revision.root();
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    let (above, name) = match trimmed.iter().rposition(|&b| b == b'/') {
        Some(cut) => (&trimmed[..cut], &trimmed[cut + 1..]),
        None => (&b""[..], trimmed),
    };
    let special = name.is_empty() || name == b"." || name == b"..";
    if follow || special {
        return resolve(tree, root, path).await;
    }
    let directory = resolve(tree, root, above).await?;
    let inode = tree.lookup_path(&directory.inode, name).await?;
    Ok(Found { path: join(&directory.path, name), inode })
}

async fn resolve(tree: &Tree, root: &Inode, path: &[u8]) -> Result<Found> {
    match tree.resolve_path(root, path).await? {
        ResolvedPath::Inside { path, inode } => Ok(Found { path, inode }),
        ResolvedPath::Outside { link, target, .. } => Err(Error::Outside { path: link, target }),
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

impl Found {
    /// An entry of this directory.
    pub fn below(&self, entry: &vouch_tree::DirEntry) -> Found {
        let path = join(&self.path, entry.name.as_bytes());
        Found { path, inode: entry.inode.clone() }
    }

    /// Names of a directory that are not listed.
    pub const fn is_opaque(&self) -> bool {
        matches!(self.inode.content, Content::Directory { opaque: true, .. })
    }
}
