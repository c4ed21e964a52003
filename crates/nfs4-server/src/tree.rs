//! The pseudo file system (RFC 8881, section 7.3): one tree of names that joins all exports. Made anew whenever the exports change; never altered.
//!
//! A node stands for a path that leads to exports and lies in none. An export below another hangs in a directory of the upper one: a junction.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use vouch_nfs4::Fsid;
use vouch_vfs::{Attributes, Caller, FileId, Name, Patience, Traits};

use crate::filehandle::{Named, PseudoId};
use crate::{Export, ExportId, Exports};

/// The pseudo file system's own fsid: the letters VOUCH, which no export's number is.
pub(crate) const PSEUDO_FSID: Fsid = Fsid { major: 0x0056_4f55_4348, minor: 0 };

/// The root of the pseudo file system.
pub(crate) const ROOT: PseudoId = PseudoId(1);

/// All that the exports amount to.
pub(crate) struct Tree {
    nodes: HashMap<PseudoId, Node>,
    sites: HashMap<ExportId, Arc<Site>>,
    /// Exports in the order of the configuration.
    order: Vec<ExportId>,
    junctions: HashMap<(ExportId, FileId), BTreeMap<Vec<u8>, ExportId>>,
    /// The export at the root, if there is one; the root node is never seen then.
    root_export: Option<ExportId>,
    /// Change attribute of all nodes: they change together, when the exports do.
    pub(crate) change: u64,
    /// When the tree was made, as the nodes' times.
    pub(crate) made: vouch_vfs::Time,
    /// Tells trees apart: what was resolved with another one must be resolved again.
    pub(crate) generation: u64,
}

/// A directory of the pseudo file system.
pub(crate) struct Node {
    pub(crate) id: PseudoId,
    parent: Option<PseudoId>,
    children: BTreeMap<Vec<u8>, Child>,
    /// Exports anywhere below: the node is shown to those who may see one of them.
    below: Vec<ExportId>,
}

/// What a name in a node leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Node(PseudoId),
    Export(ExportId),
}

/// An export in its place.
pub(crate) struct Site {
    pub(crate) export: Export,
    pub(crate) root: FileId,
    pub(crate) traits: Traits,
    /// Whether quotas can be told.
    pub(crate) quotas: bool,
    /// The file system's own number at the root: another one is behind a mount point.
    root_fsid: Option<u64>,
    /// What LOOKUPP at the root leads to.
    pub(crate) above: Option<Named>,
    /// File number of the directory that the export covers, for `mounted_on_fileid`.
    pub(crate) mounted_on: u64,
}

impl Tree {
    /// The tree of these exports. Asks their file systems for roots and for directories that nested exports hang in, and waits for the answers.
    pub(crate) fn new(exports: &Exports, generation: u64, change: u64, made: vouch_vfs::Time) -> Self {
        let mut tree = Tree {
            nodes: HashMap::new(),
            sites: HashMap::new(),
            order: Vec::new(),
            junctions: HashMap::new(),
            root_export: None,
            change,
            made,
            generation,
        };
        tree.nodes.insert(ROOT, Node { id: ROOT, parent: None, children: BTreeMap::new(), below: Vec::new() });
        let mut ordered: Vec<&Arc<Export>> = exports.all().iter().collect();
        // Upper exports first, so that those below find them.
        ordered.sort_by_key(|export| export.pseudo_path.len());
        for export in ordered {
            let place = tree.place(export, exports);
            let Some((above, mounted_on)) = place else { continue };
            let root = export.file_system.root();
            let root_fsid = export.file_system.attributes(&root, Patience::Any).ok().map(|attributes| attributes.fsid);
            let traits = export.file_system.traits();
            let quotas = export.file_system.space(&Caller::root(), &root, Patience::Any).is_ok_and(|space| space.quota.is_some());
            let site = Site { export: Export::clone(export), root, traits, quotas, root_fsid, above, mounted_on };
            tree.sites.insert(export.id, Arc::new(site));
        }
        tree.order = exports.all().iter().map(|export| export.id).filter(|id| tree.sites.contains_key(id)).collect();
        tree
    }

    /// Enters the export's path. None if a directory that it should hang in isn't there: then nothing leads to it, and its filehandles are stale.
    fn place(&mut self, export: &Export, exports: &Exports) -> Option<(Option<Named>, u64)> {
        let path = &export.pseudo_path;
        let Some((last, parents)) = path.split_last() else {
            self.root_export = Some(export.id);
            return Some((None, ROOT.0));
        };
        let upper = exports
            .all()
            .iter()
            .filter(|upper| upper.pseudo_path.len() < path.len() && path.starts_with(&upper.pseudo_path))
            .max_by_key(|upper| upper.pseudo_path.len());
        if let Some(upper) = upper {
            let (caller, files) = (Caller::root(), &upper.file_system);
            let mut directory = files.root();
            for part in &parents[upper.pseudo_path.len()..] {
                directory = files.lookup(&caller, &directory, Name::new(part)?, Patience::Any).ok()?.0;
            }
            let covered = files.lookup(&caller, &directory, Name::new(last)?, Patience::Any);
            self.junctions.entry((upper.id, directory)).or_default().insert(last.clone(), export.id);
            let mounted_on = covered.map_or_else(|_| node_id(path).0, |(_, attributes)| attributes.file_number);
            return Some((Some(Named::File(upper.id, directory)), mounted_on));
        }
        let mut at = ROOT;
        for depth in 0..parents.len() {
            let id = node_id(&path[..=depth]);
            self.nodes.get_mut(&at)?.below.push(export.id);
            self.nodes.get_mut(&at)?.children.entry(path[depth].clone()).or_insert(Child::Node(id));
            self.nodes.entry(id).or_insert(Node { id, parent: Some(at), children: BTreeMap::new(), below: Vec::new() });
            at = id;
        }
        let node = self.nodes.get_mut(&at)?;
        node.below.push(export.id);
        node.children.insert(last.clone(), Child::Export(export.id));
        Some((Some(Named::Pseudo(at)), node_id(path).0))
    }

    /// What PUTROOTFH leads to.
    pub(crate) fn root(&self) -> Named {
        match self.root_export.and_then(|id| self.sites.get(&id)) {
            Some(site) => site.handle(),
            None => Named::Pseudo(ROOT),
        }
    }

    pub(crate) fn node(&self, id: PseudoId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    pub(crate) fn site(&self, id: ExportId) -> Option<&Arc<Site>> {
        self.sites.get(&id)
    }

    /// All exports, in the order of the configuration.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.order.iter().filter_map(|id| self.site(*id))
    }

    /// The export that hangs in a directory of another under this name.
    pub(crate) fn junction(&self, export: ExportId, directory: &FileId, name: &[u8]) -> Option<&Arc<Site>> {
        // Nearly always there is none at all: no hashing then.
        if self.junctions.is_empty() {
            return None;
        }
        self.site(*self.junctions.get(&(export, *directory))?.get(name)?)
    }

    /// Whether exports hang in this directory.
    pub(crate) fn has_junctions(&self, export: ExportId, directory: &FileId) -> bool {
        !self.junctions.is_empty() && self.junctions.contains_key(&(export, *directory))
    }

    /// Whether a client may know of what a name leads to.
    pub(crate) fn visible(&self, child: Child, peer: SocketAddr) -> bool {
        let sees = |id: &ExportId| self.site(*id).is_some_and(|site| site.export.clients.access_for(peer).is_some());
        match child {
            Child::Export(id) => sees(&id),
            Child::Node(id) => self.node(id).is_some_and(|node| node.below.iter().any(sees)),
        }
    }
}

impl Node {
    pub(crate) fn child(&self, name: &[u8]) -> Option<Child> {
        self.children.get(name).copied()
    }

    /// Names and what they lead to, in the order of names.
    pub(crate) fn children(&self) -> impl Iterator<Item = (&[u8], Child)> {
        self.children.iter().map(|(name, child)| (&name[..], *child))
    }

    /// The node above; none for the root.
    pub(crate) fn parent(&self) -> Option<PseudoId> {
        self.parent
    }

    /// Directories in it, and the two links that every directory has.
    pub(crate) fn links(&self) -> u32 {
        u32::try_from(self.children.len()).unwrap_or(u32::MAX).saturating_add(2)
    }
}

impl Site {
    /// What names the root.
    pub(crate) fn handle(&self) -> Named {
        Named::File(self.export.id, self.root)
    }

    /// The fsid of a file with these attributes: the export's, or one of its own where a mount point was crossed inside (RFC 8881, section 7.7).
    pub(crate) fn fsid(&self, attributes: &Attributes) -> Fsid {
        let crossed = self.root_fsid.is_some_and(|root| root != attributes.fsid);
        match (self.export.fsid, crossed) {
            (Some((major, minor)), false) => Fsid { major, minor },
            (None, false) => Fsid { major: self.export.id.0.into(), minor: 0 },
            (_, true) => Fsid { major: u64::from(self.export.id.0) | 1 << 32, minor: attributes.fsid },
        }
    }
}

/// A node's number: from its path, so that filehandles live as long as the path does.
fn node_id(path: &[Vec<u8>]) -> PseudoId {
    let mut hasher = blake3::Hasher::new();
    for part in path {
        hasher.update(b"/").update(part);
    }
    let hash = hasher.finalize();
    let word = u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a BLAKE3 hash has 32 bytes"));
    // Below 2^63, as some clients want file numbers, and never the root's.
    PseudoId((word >> 1) | 2)
}
