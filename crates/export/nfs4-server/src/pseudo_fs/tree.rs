//! Joins all exports in one tree (RFC 8881 §7.3), rebuilt when they change.
//!
//! A node stands for a path that leads to exports. A client that sees an export passes through it:
//! exports below are mounted on its directories (junctions). The export's node serves clients that
//! may not see it.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use vouch_nfs4::Fsid;
use vouch_vfs::{Attributes, Blocking, Caller, FileId, FileType, Name, SystemId, Traits};

use crate::access::admission::Admission;
use crate::filehandle::{HandleTarget, PseudoId};
use crate::name_cookie;
use crate::state::{FileKey, Terms};
use crate::{Export, ExportId, Exports, Transport};

pub(crate) const PSEUDO_FSID: Fsid = Fsid { major: 0x0056_4f55_4348, minor: 0 };

pub(crate) const ROOT: PseudoId = PseudoId(1);

#[derive(Clone)]
pub(crate) struct Tree {
    nodes: HashMap<PseudoId, Node>,
    sites: HashMap<ExportId, Arc<Site>>,
    order: Vec<ExportId>,
    junctions: HashMap<(ExportId, FileId), BTreeMap<Vec<u8>, PseudoNode>>,
    covered_directories: HashMap<PseudoId, (ExportId, FileId)>,
    parents: HashMap<PseudoId, PseudoId>,
    at: HashMap<PseudoId, ExportId>,
    exports_without_directory: Vec<(Arc<str>, Arc<str>)>,
    pub(crate) change: u64,
    pub(crate) made: vouch_vfs::Time,
    /// Grants and caches of another generation are invalid.
    pub(crate) generation: u64,
}

#[derive(Clone, Default)]
pub(crate) struct Node {
    /// In listing order.
    children: BTreeMap<(u64, Vec<u8>), PseudoNode>,
    /// Clients that see one of these exports see the node.
    below: Vec<ExportId>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PseudoNode {
    export: Option<ExportId>,
    node: Option<PseudoId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Node(PseudoId),
    Export(ExportId),
}

pub(crate) struct Site {
    pub(crate) export: Export,
    pub(crate) root: FileId,
    pub(crate) quotas: bool,
    /// Another file system number means a crossed mount point.
    root_fsid: Option<u64>,
    pub(crate) place: PseudoId,
    pub(crate) mounted_on: u64,
}

impl Tree {
    pub(crate) fn new(
        exports: &Exports,
        generation: u64,
        change: u64,
        made: vouch_vfs::Time,
    ) -> Self {
        let mut tree = Tree {
            nodes: HashMap::from([(ROOT, Node::default())]),
            sites: HashMap::new(),
            order: exports.all().iter().map(|export| export.id).collect(),
            junctions: HashMap::new(),
            covered_directories: HashMap::new(),
            parents: HashMap::new(),
            at: HashMap::new(),
            exports_without_directory: Vec::new(),
            change,
            made,
            generation,
        };
        exports.all().iter().for_each(|export| tree.enter(export));
        let by_id: HashMap<ExportId, &Arc<Export>> =
            exports.all().iter().map(|export| (export.id, export)).collect();
        for export in exports.all() {
            let mounted_on = tree.mount_on_tree(export, &by_id);
            let root = export.file_system.root();
            let root_fsid = export
                .file_system
                .attributes(&root, Blocking::Allowed)
                .ok()
                .map(|attributes| attributes.fsid);
            let has_quota = || {
                let space = export.file_system.space(&Caller::root(), &root, Blocking::Allowed);
                space.is_ok_and(|space| space.quota.is_some())
            };
            let quotas = export.quota.is_some() || has_quota();
            let place = id_of(&export.pseudo_path);
            let mounted_on = mounted_on.unwrap_or(place.0);
            let site =
                Site { export: Export::clone(export), root, quotas, root_fsid, place, mounted_on };
            tree.sites.insert(export.id, Arc::new(site));
        }
        tree
    }

    fn enter(&mut self, export: &Export) {
        let path = &export.pseudo_path;
        self.at.insert(id_of(path), export.id);
        for (depth, name) in path.iter().enumerate() {
            let (above, here) = (id_of(&path[..depth]), id_of(&path[..=depth]));
            self.parents.insert(here, above);
            let node = self.nodes.entry(above).or_default();
            node.below.push(export.id);
            let place = node.children.entry(listed(name)).or_default();
            match depth + 1 == path.len() {
                true => place.export = Some(export.id),
                false => place.node = Some(here),
            }
        }
    }

    fn mount_on_tree(
        &mut self,
        export: &Export,
        exports: &HashMap<ExportId, &Arc<Export>>,
    ) -> Option<u64> {
        let path = &export.pseudo_path;
        let above = (0..path.len()).rev().find_map(|depth| self.at.get(&id_of(&path[..depth])))?;
        let upper = exports.get(above)?;
        let (caller, files) = (Caller::root(), &upper.file_system);
        let find = |directory: &FileId, name: &[u8]| {
            let name = Name::new(name)?;
            on_any_thread(|| files.lookup(&caller, directory, name, Blocking::Allowed)).ok()
        };
        let leads = |id: &FileId| files.home(id).system != SystemId::UNKNOWN;
        let mut directory = files.root();
        for depth in upper.pseudo_path.len()..path.len() {
            let found = find(&directory, &path[depth]);
            let last = depth + 1 == path.len();
            match found {
                Some((id, attributes))
                    if !last && attributes.file_type == FileType::Directory && leads(&id) =>
                {
                    directory = id
                }
                found => {
                    let here = id_of(&path[..=depth]);
                    let place = self
                        .junctions
                        .entry((upper.id, directory))
                        .or_default()
                        .entry(path[depth].clone())
                        .or_default();
                    match last {
                        true => place.export = Some(export.id),
                        false => place.node = Some(here),
                    }
                    self.covered_directories.insert(here, (upper.id, directory));
                    if !last {
                        self.exports_without_directory
                            .push((export.source.clone(), upper.source.clone()));
                    }
                    return found.filter(|_| last).map(|(_, attributes)| attributes.file_number);
                }
            }
        }
        None
    }

    /// With the upper export, by source.
    pub(crate) fn exports_without_directory(&self) -> &[(Arc<str>, Arc<str>)] {
        &self.exports_without_directory
    }

    pub(crate) fn root(&self, peer: SocketAddr) -> HandleTarget {
        self.handle_target(ROOT, peer)
    }

    fn handle_target(&self, id: PseudoId, peer: SocketAddr) -> HandleTarget {
        match self
            .at
            .get(&id)
            .filter(|export| self.sees(**export, peer))
            .and_then(|export| self.site(*export))
        {
            Some(site) => site.handle(),
            None => HandleTarget::Pseudo(id),
        }
    }

    /// For LOOKUPP; `None` at the root.
    pub(crate) fn parent_of(&self, id: PseudoId, peer: SocketAddr) -> Option<HandleTarget> {
        match self.covered_directories.get(&id) {
            Some(&(upper, directory)) if self.sees(upper, peer) => {
                Some(HandleTarget::File(upper, directory))
            }
            _ => Some(self.handle_target(*self.parents.get(&id)?, peer)),
        }
    }

    pub(crate) fn node(&self, id: PseudoId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    pub(crate) fn site(&self, id: ExportId) -> Option<&Arc<Site>> {
        self.sites.get(&id)
    }

    pub(crate) fn sites(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.order.iter().filter_map(|id| self.site(*id))
    }

    pub(crate) fn has_layouts(&self) -> bool {
        self.sites.values().any(|site| site.has_layouts())
    }

    pub(crate) fn junction(
        &self,
        export: ExportId,
        directory: &FileId,
        name: &[u8],
    ) -> Option<PseudoNode> {
        if self.junctions.is_empty() {
            return None;
        }
        self.junctions.get(&(export, *directory))?.get(name).copied()
    }

    /// Of the exports whose roots are in the directory, the first on a remote file system.
    pub(crate) fn remote_child(&self, directory: HandleTarget) -> Option<SystemId> {
        let places: Vec<&PseudoNode> = match directory {
            HandleTarget::Pseudo(id) => self.nodes.get(&id)?.children.values().collect(),
            HandleTarget::File(export, id) => self.junctions.get(&(export, id))?.values().collect(),
            HandleTarget::LayoutFile(..) => return None,
        };
        let mut exports = places.into_iter().filter_map(|place| self.sites.get(&place.export?));
        exports.find_map(|site| site.export.file_system.remote_system())
    }

    pub(crate) fn has_junctions(&self, export: ExportId, directory: &FileId) -> bool {
        !self.junctions.is_empty() && self.junctions.contains_key(&(export, *directory))
    }

    pub(crate) fn visible_child(
        &self,
        place: PseudoNode,
        peer: SocketAddr,
        leads: impl FnOnce(PseudoId) -> bool,
    ) -> Option<Child> {
        if let Some(export) = place.export.filter(|&export| self.sees(export, peer)) {
            return Some(Child::Export(export));
        }
        let node = place.node.or_else(|| Some(self.site(place.export?)?.place))?;
        leads(node).then_some(Child::Node(node))
    }

    pub(crate) fn leads_to_visible_export(&self, node: PseudoId, peer: SocketAddr) -> bool {
        self.node(node).is_some_and(|node| node.below.iter().any(|&export| self.sees(export, peer)))
    }

    pub(crate) fn admission(&self, peer: SocketAddr) -> Admission {
        if self.sites.keys().any(|&export| self.sees(export, peer)) {
            return Admission::Admitted;
        }
        if self.is_undecided(peer) { Admission::Undecided } else { Admission::Refused }
    }

    pub(crate) fn is_too_weak(&self, transport: Transport, peer: SocketAddr) -> bool {
        if transport == Transport::MutualTls
            || !self.sites.values().any(|site| site.export.clients.demands_tls())
        {
            return false;
        }
        let mut is_named = false;
        for site in self.sites.values() {
            if let Some(access) = site.export.clients.access_for(peer) {
                is_named = true;
                if access.flavours.iter().any(|under| transport >= under.transport_min) {
                    return false;
                }
            }
        }
        is_named && !self.is_undecided(peer)
    }

    pub(crate) fn is_undecided(&self, peer: SocketAddr) -> bool {
        self.sites.values().any(|site| site.export.clients.is_undecided(peer))
    }

    fn sees(&self, export: ExportId, peer: SocketAddr) -> bool {
        self.site(export).is_some_and(|site| site.export.clients.access_for(peer).is_some())
    }
}

impl PseudoNode {
    pub(crate) fn export(self) -> Option<ExportId> {
        self.export
    }
}

impl Node {
    pub(crate) fn child(&self, name: &[u8]) -> Option<PseudoNode> {
        self.children.get(&listed(name)).copied()
    }

    pub(crate) fn children_after(
        &self,
        cookie: u64,
    ) -> impl Iterator<Item = (u64, &[u8], PseudoNode)> {
        let from = cookie.checked_add(1).map(|next| self.children.range((next, Vec::new())..));
        from.into_iter().flatten().map(|((cookie, name), place)| (*cookie, &name[..], *place))
    }

    pub(crate) fn links(&self) -> u32 {
        u32::try_from(self.children.len()).unwrap_or(u32::MAX).saturating_add(2)
    }
}

impl Site {
    /// A new revision of a published tree may change them.
    pub(crate) fn traits(&self) -> Traits {
        let traits = self.export.file_system.traits();
        let (acls, xattrs) = (self.export.acls, self.export.xattrs);
        Traits {
            acls: traits.acls && acls,
            xattrs: traits.xattrs && xattrs,
            labels: traits.labels && self.export.labels,
            uncacheable: self.export.uncacheable,
            ..traits
        }
    }

    pub(crate) fn shows_same_directory_as(&self, other: &Site) -> bool {
        let key = |site: &Site| {
            FileKey::new(site.export.id, site.root, site.export.file_system.home(&site.root))
        };
        key(self) == key(other)
            && self.export.locations.is_referral == other.export.locations.is_referral
    }

    pub(crate) fn no_longer_shows(&self, before: &Site, file: &FileId) -> bool {
        let system = |id: &FileId| self.export.file_system.home(id).system;
        if !self.is_reopened(before) {
            return false;
        }
        // It may be below a mount point that nobody has crossed yet.
        let _ = on_any_thread(|| self.export.file_system.attributes(file, Blocking::Allowed));
        system(&self.root) != SystemId::UNKNOWN && system(file) == SystemId::UNKNOWN
    }

    pub(crate) fn is_reopened(&self, before: &Site) -> bool {
        !Arc::ptr_eq(&self.export.file_system, &before.export.file_system)
    }

    /// Also true if the answer is unknown. Port 0: there is no connection now.
    pub(crate) fn admits(&self, peers: &[SocketAddr], terms: Terms) -> bool {
        let clients = &self.export.clients;
        peers.iter().any(|&peer| {
            let port = match peer.port() {
                0 if terms.reserved_port => 0,
                0 => u16::MAX,
                port => port,
            };
            let access = clients.access_for(peer);
            access.is_some_and(|access| {
                access.under(terms.flavour).is_some()
                    && !access.refuses_port(terms.flavour, port)
                    && !access.refuses_transport(terms.flavour, terms.transport)
            }) || !clients.is_certain(peer)
        })
    }

    pub(crate) fn handle(&self) -> HandleTarget {
        HandleTarget::File(self.export.id, self.root)
    }

    /// Clients can read files from several servers (pNFS).
    pub(crate) fn has_layouts(&self) -> bool {
        !self.export.data_servers.is_empty()
    }

    /// Section 7.7: an own fsid behind a crossed mount point.
    pub(crate) fn fsid(&self, attributes: &Attributes) -> Fsid {
        let crossed = self.root_fsid.is_some_and(|root| root != attributes.fsid);
        match (self.export.fsid, crossed) {
            (Some((major, minor)), false) => Fsid { major, minor },
            (None, false) => Fsid { major: self.export.id.0.into(), minor: 0 },
            (_, true) => {
                Fsid { major: u64::from(self.export.id.0) | 1 << 32, minor: attributes.fsid }
            }
        }
    }
}

fn listed(name: &[u8]) -> (u64, Vec<u8>) {
    (name_cookie::of_name(name), name.to_vec())
}

fn id_of(path: &[Vec<u8>]) -> PseudoId {
    if path.is_empty() {
        return ROOT;
    }
    let mut hasher = blake3::Hasher::new();
    for part in path {
        hasher.update(b"/").update(part);
    }
    let hash = hasher.finalize();
    let word =
        u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a BLAKE3 hash has 32 bytes"));
    // Below 2^63, for clients with signed file numbers; never the root's number.
    PseudoId((word >> 1) | 2)
}

/// Once a file system knows that it must wait for a remote one, it stops the call, so that calls of
/// clients can move to threads for that. A reload waits on its own thread.
fn on_any_thread<T>(call: impl Fn() -> vouch_vfs::Result<T>) -> vouch_vfs::Result<T> {
    match call() {
        Err(vouch_vfs::Error::WouldBlock) => call(),
        result => result,
    }
}
