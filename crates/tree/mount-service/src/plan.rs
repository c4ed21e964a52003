use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use vouch_daemon::audit_trail::{TrailConfig, TrailError};
use vouch_daemon::failure::Failure;
use vouch_tree::TreeName;
use vouch_tree_client::{Client, Error as ClientError, FaultObserver, Revision, Tree, TreeOptions};
use vouch_tree_mount::{MountError, MountOptions, NamespaceTrees};

pub struct MountPlan {
    /// The tree; without it, the namespace of all trees.
    pub tree: Option<PlannedTree>,
    pub namespace: NamespaceTrees,
    pub point: PathBuf,
    pub options: MountOptions,
    pub trail: Option<TrailConfig>,
    pub metrics: Option<SocketAddr>,
    /// Whether standard error belongs to a command that has ended.
    pub is_detached: bool,
    pub program: &'static str,
}

pub struct PlannedTree {
    pub name: TreeName,
    pub options: TreeOptions,
}

/// The command knows the options of clients and revisions, and standard output.
pub trait MountSource {
    type Error: Display + From<Failure> + From<ClientError> + From<MountError> + From<TrailError>;

    fn client(
        &self,
        observer: Option<Arc<dyn FaultObserver>>,
    ) -> impl Future<Output = Result<Arc<Client>, Self::Error>>;

    /// The revision to stay at; none to follow the newest one.
    fn revision(
        &self,
        tree: &Arc<Tree>,
    ) -> impl Future<Output = Result<Option<Arc<Revision>>, Self::Error>>;

    /// Prints a line that says that the mount is there.
    fn announce(&self, line: &str) -> Result<(), Self::Error>;
}

impl MountPlan {
    pub(crate) fn label(&self) -> String {
        self.tree.as_ref().map_or_else(|| "all trees".into(), |tree| tree.name.to_string())
    }

    pub(crate) fn tree_options(&self, name: &TreeName) -> TreeOptions {
        self.namespace.by_key.get(name.hostid()).unwrap_or(&self.namespace.options).clone()
    }
}
