//! Each file is stored with its directory and name, so a renamed directory moves all files below
//! it. An unknown name costs one file system call.

pub(crate) mod moved_paths;
mod name_changes;
mod node;
mod stamps;
#[cfg(test)]
mod tests;
mod thread_cache;

use std::cell::RefCell;
use std::sync::Arc;

use quick_cache::sync::Cache;
use vouch_audit::operations::{self, number};
use vouch_audit::rules::Rules;
use vouch_nfs4_server::{
    Arguments, CompletedOp, EventPaths, Export, NameOrder, OtherNames, SharedPath,
};
use vouch_vfs::{Blocking, FileId, FileType};

pub(super) use moved_paths::{MOVED, MovedPaths};
use node::{Child, Link, Name, Node};
use stamps::{Stamped, Stamps};
use thread_cache::ThreadPathCache;

/// Bounded: a forgotten name is looked up again.
pub(super) struct Names {
    links: Cache<Node, Link>,
    others: Cache<Node, Arc<Links>>,
    children: Cache<Link, Node>,
    file_system_paths: Cache<Node, Arc<Stamped>>,
    whole: Cache<Node, Arc<Stamped>>,
    thread_cache: ThreadPathCache,
    stamps: Stamps,
    pub(super) moved: Arc<MovedPaths>,
    counts: Cache<Node, u32>,
    /// Locks by export number. Exports may share one.
    orders: Box<[NameOrder]>,
}

#[derive(Clone, Default)]
struct Links {
    links: Vec<Link>,
    are_more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkCertainty {
    No,
    Yes,
}

impl Names {
    pub(super) fn new(moved: MovedPaths) -> Self {
        let mut seed = [0; 8];
        // Without randomness, paths are right but a client might slow them down.
        let _ = getrandom::fill(&mut seed);
        Names::seeded(u64::from_le_bytes(seed), moved)
    }

    fn seeded(seed: u64, moved: MovedPaths) -> Self {
        let (links, children) = (Cache::new(FILES_MAX), Cache::new(FILES_MAX));
        Names {
            links,
            children,
            others: Cache::new(FILES_MAX),
            file_system_paths: Cache::new(FILES_MAX),
            whole: Cache::new(FILES_MAX),
            thread_cache: ThreadPathCache::new(),
            stamps: Stamps::new(seed),
            moved: Arc::new(moved),
            counts: Cache::new(FILES_MAX),
            orders: (0..ORDERS).map(|_| NameOrder::default()).collect(),
        }
    }

    pub(super) fn paths(
        &self,
        done: &CompletedOp<'_>,
        arguments: &Arguments<'_>,
        rules: &Rules,
    ) -> EventPaths {
        let Some(export) = done.export_or_entered() else { return EventPaths::default() };
        let (saved, current, after) = (done.saved_file(), done.file(), done.file_after());
        let (op, is_ok) = (operations::code(done.op), done.status.is_ok());
        let below = |directory: Option<&FileId>, name: &[u8]| {
            SharedPath::from(self.path_below(export, directory, name))
        };
        let path = |file: Option<&FileId>| {
            file.map(|file| self.path(export, file).into()).unwrap_or_default()
        };
        let named = |directory: Option<&FileId>, name: &[u8]| self.child(export, directory?, name);
        let others =
            |file: Option<&FileId>, path: &[u8]| self.others(export, file, path, rules, op);
        let mut paths = EventPaths::default();
        match (op, arguments.name.as_deref(), arguments.new_name.as_deref()) {
            (number::RENAME, Some(old), Some(new)) => {
                paths.path = below(saved, old);
                paths.new_path = below(current, new);
                paths.file = named(saved, old);
                paths.new_others = others(named(current, new).as_ref(), &paths.new_path);
            }
            (number::LINK, _, Some(new)) => {
                paths.path = path(saved);
                paths.new_path = below(current, new);
                paths.file = saved.copied();
            }
            (number::COPY | number::CLONE, ..) => {
                (paths.path, paths.new_path, paths.file) =
                    (path(saved), path(current), saved.copied());
                paths.new_others = others(current, &paths.new_path);
            }
            (_, Some(_), _) if current.is_none() && after.is_some() => {
                paths.path = path(after);
                paths.file = after.copied();
            }
            (_, Some(name), _) => {
                let moves = self.stamps.moves();
                paths.path = below(current, name);
                if is_ok
                    && FOLLOWS.contains(&op)
                    && let (Some(directory), Some(file)) = (current, after)
                {
                    self.found(export, file, (directory, name), (&paths.path, moves), rules);
                    paths.file = Some(*file);
                } else {
                    paths.file = named(current, name);
                }
            }
            _ => {
                let file = if op == number::LOOKUPP && is_ok { after } else { current.or(after) };
                paths.path = path(file);
                paths.file = file.copied();
            }
        }
        paths.others = others(paths.file.as_ref(), &paths.path);
        paths
    }

    pub(super) fn others(
        &self,
        export: &Export,
        file: Option<&FileId>,
        path: &[u8],
        rules: &Rules,
        op: u16,
    ) -> OtherNames {
        let mut others = OtherNames::default();
        if !rules.has_path_rules() {
            return others;
        }
        if let Some(file) = file {
            let known = self.others.get(&Node::of(export.id, file));
            let links = known.iter().flat_map(|known| &known.links);
            others.links = links
                .map(|(directory, name)| self.below_node(export, directory, name))
                .filter(|other| **other != *path)
                .collect();
            others.are_more = known.is_some_and(|known| known.are_more)
                || self.count(export, file, op) as usize > others.links.len() + 1;
        }
        others.are_more |= self.moved.former(path, &mut others.former);
        for link in 0..others.links.len() {
            self.moved.former(&others.links[link].clone(), &mut others.former);
        }
        others
    }

    fn count(&self, export: &Export, file: &FileId, op: u16) -> u32 {
        let key = Node::of(export.id, file);
        if !COUNTED.contains(&op)
            && let Some(count) = self.counts.get(&key)
        {
            return count;
        }
        let count = match export.file_system.attributes(file, Blocking::Forbidden) {
            Ok(attributes) if attributes.file_type == FileType::Directory => 1,
            Ok(attributes) => attributes.links,
            Err(vouch_vfs::Error::WouldBlock) => return u32::MAX,
            Err(_) => return 0,
        };
        self.counts.insert(key, count);
        count
    }

    fn child(&self, export: &Export, directory: &FileId, name: &[u8]) -> Option<FileId> {
        self.children.get(&Child(&Node::of(export.id, directory), name)).map(|file| file.file())
    }

    fn path_below(&self, export: &Export, directory: Option<&FileId>, name: &[u8]) -> Arc<[u8]> {
        match directory {
            Some(directory) => self.below_node(export, &Node::of(export.id, directory), name),
            None => [b"/", name].concat().into(),
        }
    }

    fn below_node(&self, export: &Export, directory: &Node, name: &[u8]) -> Arc<[u8]> {
        let above = self.path_of(export, directory);
        with_path(|path| {
            path.extend_from_slice(&above);
            if above.is_empty() {
                path.extend_from_slice(export.source.as_bytes());
                path.extend_from_slice(b"/...");
            }
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        })
    }

    fn add_name(
        &self,
        export: &Export,
        file: &FileId,
        directory: &FileId,
        name: &[u8],
        rules: &Rules,
    ) {
        let (key, link) =
            (Node::of(export.id, file), (Node::of(export.id, directory), Name::from(name)));
        match self.links.get(&key) {
            None => {
                self.learn(export, file, directory, name, rules, LinkCertainty::No);
            }
            Some(known) if known == link => {}
            Some(_) => {
                self.children.insert(link.clone(), key.clone());
                self.put_by(key, link, None);
            }
        }
    }

    fn put_by(&self, key: Node, link: Link, not: Option<&Link>) {
        let mut others =
            self.others.get(&key).map_or_else(Links::default, |others| (*others).clone());
        others.links.retain(|known| *known != link && Some(known) != not);
        others.links.push(link);
        if others.links.len() > OTHERS_MAX {
            others.links.remove(0);
            others.are_more = true;
        }
        self.others.insert(key, Arc::new(others));
    }

    fn forget(&self, export: &Export, directory: &FileId, name: &[u8]) {
        let directory = Node::of(export.id, directory);
        if let Some((_, file)) = self.children.remove(&Child(&directory, name)) {
            self.unlink(export, &file, &directory, name);
        }
    }

    fn forget_removed(&self, export: &Export, directory: &FileId, name: &[u8], path: &[u8]) {
        let directory = Node::of(export.id, directory);
        if let Some((_, file)) = self.children.remove(&Child(&directory, name)) {
            self.unlink_from(&file, &directory, name, || self.stamps.moved(path));
        }
    }

    fn unlink(&self, export: &Export, file: &Node, directory: &Node, name: &[u8]) {
        if !self.links.get(file).is_some_and(|link| link.0 == *directory && *link.1 == *name) {
            return self.unlink_from(file, directory, name, || self.stamps.all_moved());
        }
        let path = self.path_of(export, file);
        self.unlink_from(file, directory, name, || self.stamps.moved(&path));
    }

    fn unlink_from(&self, file: &Node, directory: &Node, name: &[u8], moved: impl FnOnce()) {
        let is_it = |link: &Link| link.0 == *directory && *link.1 == *name;
        let known = self.others.get(file);
        let Some(known) = known else {
            if self.links.remove_if(file, is_it).is_some() {
                self.whole.remove(file);
                moved();
            }
            return;
        };
        let mut others = (*known).clone();
        others.links.retain(|link| !is_it(link));
        if self.links.get(file).is_some_and(|link| is_it(&link)) {
            match others.links.pop() {
                Some(other) => self.links.insert(file.clone(), other),
                None => drop(self.links.remove(file)),
            }
            self.whole.remove(file);
            moved();
        }
        match others.links.is_empty() && !others.are_more {
            true => drop(self.others.remove(file)),
            false => self.others.insert(file.clone(), Arc::new(others)),
        }
    }

    fn found(
        &self,
        export: &Export,
        file: &FileId,
        (directory, name): (&FileId, &[u8]),
        (path, moves): (&SharedPath, u64),
        rules: &Rules,
    ) {
        if self.learn(export, file, directory, name, rules, LinkCertainty::Yes)
            && let Some(path) = &path.0
            && !Rules::is_partial(path)
        {
            self.thread_cache.put(Node::of(export.id, file), moves, path.clone(), None);
        }
    }

    fn learn(
        &self,
        export: &Export,
        file: &FileId,
        directory: &FileId,
        name: &[u8],
        rules: &Rules,
        certainty: LinkCertainty,
    ) -> bool {
        let key = Node::of(export.id, file);
        let link = (Node::of(export.id, directory), Name::from(name));
        let before = self.links.get(&key);
        let known = before.as_ref().is_some_and(|before| *before == link);
        if known || file == directory {
            return known;
        }
        // A hard link, or a directory renamed outside of NFS. Alternating look-ups of two hard
        // links invalidate only that file's path.
        let old = before.is_some().then(|| self.path_of(export, &key));
        if let (LinkCertainty::Yes, Some(old)) = (certainty, &old)
            && **old != *self.path_below(export, Some(directory), name)
            && self.count(export, file, number::RENAME) == 1
            && self.ask_file_system(export, file).as_ref() == Some(old)
        {
            return false;
        }
        self.links.insert(key.clone(), link.clone());
        self.children.insert(link.clone(), key.clone());
        match before.zip(old) {
            Some((before, old)) => {
                self.put_by(key, before, Some(&link));
                self.stamps.moved(&old);
                self.moved.found(rules, &old, &self.path_below(export, Some(directory), name));
                false
            }
            None => {
                if let Some((_, stale)) = self.whole.remove(&key) {
                    self.stamps.moved(&stale.path);
                }
                true
            }
        }
    }

    pub(super) fn path(&self, export: &Export, file: &FileId) -> Arc<[u8]> {
        self.path_of(export, &Node::of(export.id, file))
    }

    /// Without the file system, which may not answer. Empty if unknown.
    pub(super) fn known_path(&self, export: &Export, file: &FileId) -> Arc<[u8]> {
        let file = Node::of(export.id, file);
        match self.whole.get(&file) {
            Some(known) if self.stamps.is_good(&known) => known.path.clone(),
            _ => self.put_together(export, &file, |at| self.known_file_system_path(at)),
        }
    }

    fn path_of(&self, export: &Export, file: &Node) -> Arc<[u8]> {
        let moves = self.stamps.moves();
        if let Some(path) = self.thread_cache.get(file, moves, &self.stamps) {
            return path;
        }
        if let Some(known) = self.whole.get(file)
            && self.stamps.is_good(&known)
        {
            let path = known.path.clone();
            if !Rules::is_partial(&path) {
                self.thread_cache.put(file.clone(), moves, path.clone(), Some(known));
            }
            return path;
        }
        let path = self.put_together(export, file, |at| self.path_from_file_system(export, at));
        if !path.is_empty()
            && let Some(stamped) = self.stamps.stamp(path.clone(), moves)
        {
            self.whole.insert(file.clone(), stamped);
        }
        path
    }

    fn put_together(
        &self,
        export: &Export,
        file: &Node,
        path_of: impl Fn(&Node) -> Option<Arc<[u8]>>,
    ) -> Arc<[u8]> {
        let root = Node::of(export.id, &export.file_system.root());
        let mut parts: Vec<Name> = Vec::new();
        let mut at = file.clone();
        let mut path = export.source.as_bytes().to_vec();
        while at != root && parts.len() < DEPTH_MAX {
            match self.links.get(&at) {
                Some((parent, name)) => {
                    parts.push(name);
                    at = parent;
                }
                None => {
                    match path_of(&at) {
                        Some(above) => path = above.to_vec(),
                        None if parts.is_empty() => return Arc::default(),
                        None => path.extend_from_slice(b"/..."),
                    }
                    break;
                }
            }
        }
        if at != root && parts.len() == DEPTH_MAX {
            path.extend_from_slice(b"/...");
        }
        for part in parts.iter().rev() {
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        path.into()
    }

    fn known_file_system_path(&self, file: &Node) -> Option<Arc<[u8]>> {
        let known = self.file_system_paths.get(file)?;
        self.stamps.is_good(&known).then(|| known.path.clone())
    }

    fn path_from_file_system(&self, export: &Export, file: &Node) -> Option<Arc<[u8]>> {
        if let Some(known) = self.known_file_system_path(file) {
            return Some(known);
        }
        let moves = self.stamps.moves();
        let path = self.ask_file_system(export, &file.file())?;
        if let Some(stamped) = self.stamps.stamp(path.clone(), moves) {
            self.file_system_paths.insert(file.clone(), stamped);
        }
        Some(path)
    }

    fn ask_file_system(&self, export: &Export, file: &FileId) -> Option<Arc<[u8]>> {
        let below = export.file_system.path(file)?;
        let mut path = export.source.as_bytes().to_vec();
        if !below.starts_with(b"/") && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(&below);
        Some(path.into())
    }
}

fn with_path(put: impl FnOnce(&mut Vec<u8>)) -> Arc<[u8]> {
    thread_local! {
        static PATH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    PATH.with_borrow_mut(|path| {
        path.clear();
        put(path);
        Arc::from(&path[..])
    })
}

const FILES_MAX: usize = 65_536;
const OTHERS_MAX: usize = 16;
const COUNTED: [u16; 6] =
    [number::OPEN, number::LINK, number::RENAME, number::REMOVE, number::COPY, number::CLONE];
const FOLLOWS: [u16; 3] = [number::LOOKUP, number::OPEN, number::CREATE];
const DEPTH_MAX: usize = 256;
/// Two exports rarely share one and wait for each other's file system.
const ORDERS: usize = 4096;
