//! A tree's name with a path behind it, as people type it: `@HOST[:PORT],HOSTID/a/b`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use vouch_tree::{Inode, TreeName};
use vouch_tree_client::{Client, Revision, Tree, Walked};

use crate::client_options::ClientArgs;
use crate::exit::{Failure, Outcome};
use crate::output::printable;

/// A tree and a path in it; the path may be any bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreePath {
    pub(crate) name: TreeName,
    /// Without the slash in front; empty for the root.
    pub(crate) path: Vec<u8>,
}

impl TreePath {
    /// Parses an argument.
    ///
    /// # Errors
    /// Bad input, with the shape of a name as the cure.
    pub(crate) fn parse(argument: &OsStr) -> Outcome<TreePath> {
        let bytes = argument.as_bytes();
        let (name, path) = match bytes.iter().position(|&b| b == b'/') {
            Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
            None => (bytes, &b""[..]),
        };
        let name = std::str::from_utf8(name).map_err(|_| Failure::input(printable(bytes), "is not a self-certifying name"))?;
        Ok(TreePath { name: name.parse()?, path: path.to_vec() })
    }

    /// The last component, for a copy's own name; `None` for the root.
    pub(crate) fn last(&self) -> Option<&[u8]> {
        self.path.split(|&b| b == b'/').rfind(|part| !part.is_empty() && *part != b".")
    }
}

/// A tree that is open at one revision.
pub(crate) struct OpenTree {
    pub(crate) tree: Arc<Tree>,
    pub(crate) revision: Arc<Revision>,
}

impl OpenTree {
    /// Opens the tree, at its newest revision or at an older one that replicas still keep.
    pub(crate) async fn open(client: &Arc<Client>, name: &TreeName, args: &ClientArgs, number: Option<u64>) -> Outcome<OpenTree> {
        let tree = client.open(name, &args.tree_options()).await?;
        let revision = match number {
            None => tree.revision()?,
            Some(number) => at(&tree, number).await?,
        };
        Ok(OpenTree { tree, revision })
    }

    /// The file at `path`, symbolic links followed.
    pub(crate) async fn follow(&self, path: &[u8]) -> Outcome<(Vec<u8>, Inode)> {
        match self.tree.walk_following(self.revision.root(), path).await? {
            Walked::Inside { path, inode } => Ok((path, inode)),
            Walked::Outside { link, target, .. } => {
                Err(Failure::input(printable(&link), format_args!("a symbolic link that leads out of the tree, to {}", printable(&target))))
            }
        }
    }

    /// The file at `path`, the last symbolic link not followed.
    pub(crate) async fn find(&self, path: &[u8]) -> Outcome<Inode> {
        let Some(cut) = path.iter().rposition(|&b| b == b'/') else {
            return Ok(self.tree.walk(self.revision.root(), path).await?);
        };
        let (_, above) = self.follow(&path[..cut]).await?;
        Ok(self.tree.walk(&above, &path[cut + 1..]).await?)
    }
}

/// A revision by its number.
pub(crate) async fn at(tree: &Arc<Tree>, number: u64) -> Outcome<Arc<Revision>> {
    tree.revision_at(number).await?.ok_or_else(|| {
        Failure::not_found(format_args!("revision {number}"), "no replica keeps it, or there never was one")
            .cure("`vouch log` lists those that are kept")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTID: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    #[test]
    fn the_path_begins_at_the_first_slash() {
        let parsed = TreePath::parse(OsStr::new(&format!("@h:1,{HOSTID}/a/b c"))).expect("well formed");
        assert_eq!(parsed.path, b"a/b c");
        assert_eq!(parsed.last(), Some(&b"b c"[..]));
        let root = TreePath::parse(OsStr::new(&format!("@h,{HOSTID}"))).expect("well formed");
        assert_eq!(root.path, b"");
        assert_eq!(root.last(), None);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        assert!(TreePath::parse(OsStr::new("host/a")).is_err());
        assert!(TreePath::parse(OsStr::from_bytes(b"@h\xff,x/a")).is_err());
    }
}
