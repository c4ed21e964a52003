//! `@HOST[:PORT],HOSTID/a/b`, or by a short name of the configuration: `tools/a/b`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use vouch_tree::{Content, Inode, TreeName};
use vouch_tree_client::{Client, ResolvedPath, Revision, Tree, TreeOptions};

use crate::client_options::ClientArgs;
use crate::config::{self, Config};
use crate::exit::{Failure, Outcome};
use crate::revision_options::RevisionArgs;
use vouch_daemon::printable::printable;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreePath {
    pub(crate) name: TreeName,
    pub(crate) path: Vec<u8>,
}

impl TreePath {
    /// Knows the short names of this process's configuration.
    pub(crate) fn parse(argument: &OsStr) -> Outcome<TreePath> {
        TreePath::parse_with(argument, config::loaded())
    }

    fn parse_with(argument: &OsStr, config: &Config) -> Outcome<TreePath> {
        let bytes = argument.as_bytes();
        let (name, path) = match bytes.iter().position(|&b| b == b'/') {
            Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
            None => (bytes, &b""[..]),
        };
        let name = std::str::from_utf8(name)
            .map_err(|_| Failure::input(printable(bytes), "is not a self-certifying name"))?;
        let name = match config.tree(name) {
            Some(tree) => tree.name.clone(),
            None if name.starts_with('@') => name.parse()?,
            None => return Err(unknown(name, config)),
        };
        Ok(TreePath { name, path: path.to_vec() })
    }

    /// `None` for the root.
    pub(crate) fn last(&self) -> Option<&[u8]> {
        self.path.split(|&b| b == b'/').rfind(|part| !part.is_empty() && *part != b".")
    }
}

fn unknown(name: &str, config: &Config) -> Failure {
    let known: Vec<&str> =
        config.trees.keys().map(String::as_str).take(SHORT_NAMES_SHOWN).collect();
    let known = if known.is_empty() {
        String::new()
    } else {
        format!("; short names: {}", known.join(", "))
    };
    Failure::input(
        printable(name.as_bytes()),
        "is neither a self-certifying name nor a short name of the configuration",
    )
    .cure(format!(
        "a name looks like @HOST[:PORT],HOSTID, a short name has a table [tree.NAME]{known}"
    ))
}

const SHORT_NAMES_SHOWN: usize = 8;

#[derive(Clone)]
pub(crate) struct OpenTree {
    client: Arc<Client>,
    first: (Arc<Tree>, Arc<Revision>),
    pub(crate) tree: Arc<Tree>,
    pub(crate) revision: Arc<Revision>,
    is_chosen: bool,
}

impl OpenTree {
    pub(crate) async fn open(
        client: &Arc<Client>,
        name: &TreeName,
        args: &ClientArgs,
        which: &RevisionArgs,
    ) -> Outcome<OpenTree> {
        let tree = client.open(name, &args.tree_options(name)).await?;
        let revision = which.find(&tree).await?;
        Ok(OpenTree::new(client, tree, revision, !which.is_newest()))
    }

    fn new(
        client: &Arc<Client>,
        tree: Arc<Tree>,
        revision: Arc<Revision>,
        is_chosen: bool,
    ) -> OpenTree {
        OpenTree {
            client: client.clone(),
            first: (tree.clone(), revision.clone()),
            tree,
            revision,
            is_chosen,
        }
    }

    pub(crate) async fn at(&self, number: u64) -> Outcome<OpenTree> {
        let revision = RevisionArgs::number(number).find(&self.tree).await?;
        Ok(OpenTree::new(&self.client, self.tree.clone(), revision, true))
    }

    /// Opens a newer revision if `error` means that replicas dropped this one.
    pub(crate) async fn moves_on(&mut self, error: &vouch_tree_client::Error) -> bool {
        let is_first = Arc::ptr_eq(&self.tree, &self.first.0);
        if (self.is_chosen && is_first)
            || !matches!(error, vouch_tree_client::Error::Missing { .. })
        {
            return false;
        }
        let _ = self.tree.refresh().await;
        let newer =
            self.tree.revision().ok().filter(|newest| newest.order() > self.revision.order());
        let Some(newer) = newer else { return false };
        tracing::info!("the replicas have moved on to revision {}", newer.number());
        if is_first {
            self.first.1 = newer.clone();
        }
        self.revision = newer;
        true
    }

    /// Follows symbolic links, also into other trees: [`OpenTree::tree`] is then the last one.
    pub(crate) async fn follow(&mut self, path: &[u8]) -> Outcome<(Vec<u8>, Inode)> {
        (self.tree, self.revision) = self.first.clone();
        let mut path = path.to_vec();
        let mut chain = Vec::new();
        loop {
            let resolved = self.resolve(&path).await;
            let (link, target, rest) = match resolved
                .map_err(|failure| in_last_tree(&chain, self.tree.name(), failure))?
            {
                ResolvedPath::Inside { path, inode } => return Ok((path, inode)),
                ResolvedPath::Outside { link, target, rest } => (link, target, rest),
            };
            let shown = format!("{}/{}", self.tree.name(), printable(&link));
            let Some(next) = tree_of_link(&target, &rest) else {
                let why = format_args!(
                    "a symbolic link that leads out of the tree, to {}",
                    printable(&target)
                )
                .to_string();
                return Err(with_link_chain(&chain, Failure::input(shown, why)));
            };
            chain.push(shown);
            if chain.len() > TREES_MAX {
                let why = format!("more than {TREES_MAX} links from tree to tree");
                return Err(with_link_chain(&chain[..3], Failure::input(next.name, why)));
            }
            // The options of replicas belong to the named tree.
            let in_next =
                |error: vouch_tree_client::Error| in_last_tree(&chain, &next.name, error.into());
            self.tree =
                self.client.open(&next.name, &TreeOptions::default()).await.map_err(in_next)?;
            self.revision = self.tree.revision().map_err(in_next)?;
            path = next.path;
        }
    }

    async fn resolve(&mut self, path: &[u8]) -> Outcome<ResolvedPath> {
        loop {
            match self.tree.resolve_path(self.revision.root(), path).await {
                Err(error) if self.moves_on(&error).await => {}
                resolved => return Ok(resolved?),
            }
        }
    }

    pub(crate) async fn follow_inside(&mut self, path: &[u8]) -> Outcome<(Vec<u8>, Inode)> {
        match self.resolve(path).await? {
            ResolvedPath::Inside { path, inode } => Ok((path, inode)),
            ResolvedPath::Outside { link, .. } => {
                Err(Failure::input(printable(&link), "has become a link out of the tree"))
            }
        }
    }

    /// Follows a final symbolic link only if it leads into another tree.
    pub(crate) async fn enter(&mut self, path: &[u8]) -> Outcome<Inode> {
        let inode = self.find(path).await?;
        match &inode.content {
            Content::Symlink(target) if tree_of_link(target, b"").is_some() => {
                Ok(self.follow(path).await?.1)
            }
            _ => Ok(inode),
        }
    }

    /// Does not follow a final symbolic link.
    pub(crate) async fn find(&mut self, path: &[u8]) -> Outcome<Inode> {
        let (above, name) = path
            .iter()
            .rposition(|&b| b == b'/')
            .map_or((&[][..], path), |cut| (&path[..cut], &path[cut + 1..]));
        loop {
            let directory = self.follow(above).await?.1;
            match self.tree.lookup_path(&directory, name).await {
                Err(error) if self.moves_on(&error).await => {}
                found => return Ok(found?),
            }
        }
    }
}

/// The first tree name in its target, as in `/vouch/@HOST,HOSTID/a`.
fn tree_of_link(target: &[u8], rest: &[u8]) -> Option<TreePath> {
    let start = target
        .iter()
        .enumerate()
        .find(|(at, byte)| **byte == b'@' && (*at == 0 || target[at - 1] == b'/'))?
        .0;
    let mut found = TreePath::parse(OsStr::from_bytes(&target[start..])).ok()?;
    if !rest.is_empty() {
        found.path.extend_from_slice(b"/");
        found.path.extend_from_slice(rest);
    }
    Some(found)
}

fn in_last_tree(chain: &[String], tree: &TreeName, failure: Failure) -> Failure {
    if chain.is_empty() {
        failure
    } else {
        with_link_chain(&[chain, &[tree.to_string()]].concat(), failure)
    }
}

fn with_link_chain(chain: &[String], failure: Failure) -> Failure {
    if chain.is_empty() { failure } else { failure.reached_by(&chain.join(" -> ")) }
}

const TREES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{SystemTime, UNIX_EPOCH};
    use vouch_tree::Iv;
    use vouch_tree::key::{SecretKey, SigningCert};
    use vouch_tree_client::{ClientOptions, LocalConnector, TreeOptions};
    use vouch_tree_publish::{Options, Progress, Signer};
    use vouch_tree_store::{CollectOptions, Database, WriteOptions};

    const HOSTID: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    #[test]
    fn path_begins_at_first_slash() {
        let parsed =
            TreePath::parse(OsStr::new(&format!("@h:1,{HOSTID}/a/b c"))).expect("well formed");
        assert_eq!(parsed.path, b"a/b c");
        assert_eq!(parsed.last(), Some(&b"b c"[..]));
        let root = TreePath::parse(OsStr::new(&format!("@h,{HOSTID}"))).expect("well formed");
        assert_eq!(root.path, b"");
        assert_eq!(root.last(), None);
    }

    #[test]
    fn invalid_names_are_refused() {
        assert!(TreePath::parse(OsStr::new("host/a")).is_err());
        assert!(TreePath::parse(OsStr::from_bytes(b"@h\xff,x/a")).is_err());
    }

    #[tokio::test]
    async fn path_continues_in_next_revision_when_replicas_drop_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let (source, db) = (dir.path().join("source"), dir.path().join("db"));
        let (root, key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let signer =
            Signer { key: &key, cert: SigningCert::issue(&root, key.public(), 1, 0, u64::MAX / 2) };
        let name = TreeName::new("localhost", root.public().hostid()).expect("a name");
        Database::create(&db, *name.hostid(), Iv::from_bytes([7; 32])).expect("a database");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let publish = |age: u64| {
            for n in 0..50 {
                let below = source.join(format!("a/b{n}"));
                fs::create_dir_all(&below).expect("a directory");
                fs::write(below.join("file"), age.to_string()).expect("a file");
            }
            let options = Options {
                keep: Some(1),
                rehash: true,
                ..Options::new(source.clone(), name.clone(), now - age, 3600)
            };
            let writer = Database::open_write(&db, WriteOptions::default()).expect("a writer");
            vouch_tree_publish::publish(&writer, &signer, &options, &Progress::default())
                .expect("a revision");
        };
        publish(9);
        let connector = Arc::new(LocalConnector::open(&db).expect("a replica"));
        let client = Client::new(ClientOptions {
            connector,
            memory_cache_bytes: 1,
            ..ClientOptions::default()
        })
        .expect("a client");
        let tree = client.open(&name, &TreeOptions::default()).await.expect("a tree");
        let open = |is_chosen| OpenTree::new(&client, tree.clone(), tree.newest(), is_chosen);
        let (mut newest, mut chosen) = (open(false), open(true));
        publish(8);
        Database::collect(&db, CollectOptions::default()).expect("a collection");
        assert!(tree.refresh().await.expect("a newer revision"));
        assert_eq!(newest.revision.number(), 1);
        let Content::Regular { blob, .. } =
            newest.find(b"a/b7/file").await.expect("a file").content
        else {
            panic!("no file")
        };
        assert_eq!(&tree.read(&blob, 0, 9).await.expect("its bytes")[..], b"8");
        assert_eq!(newest.revision.number(), 2);
        assert!(
            chosen.follow(b"a/b7/file").await.is_err(),
            "a revision that was asked for is not replaced"
        );
    }
}
