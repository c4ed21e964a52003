//! Paths of files, from names that operations have told: each file's directory and its name there,
//! so that a directory that is renamed takes all below it along. What no operation has named is
//! asked of the file system once.

mod at_hand;
mod moved;
mod naming;
mod node;
mod stamps;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::Arc;

use quick_cache::sync::Cache;
use vouch_audit::operations::number;
use vouch_audit::rules::Rules;
use vouch_nfs4_server::{Details, Export, NameOrder, Observation};
use vouch_vfs::{FileId, FileType, Patience};

use at_hand::AtHand;
pub(super) use moved::{MOVED, Moved};
use node::{Child, Link, Name, Node};
use stamps::{Stamped, Stamps};

/// What is known of names. Bounded: what is forgotten is asked for again.
pub(super) struct Names {
    links: Cache<Node, Link>,
    /// Names that a file has beside that: hard links.
    others: Cache<Node, Arc<Links>>,
    /// The same the other way round: a rename tells names only.
    children: Cache<Link, Node>,
    /// Paths as the file system told them.
    told: Cache<Node, Arc<Stamped>>,
    /// Paths that were put together.
    whole: Cache<Node, Arc<Stamped>>,
    at_hand: AtHand,
    stamps: Stamps,
    pub(super) moved: Arc<Moved>,
    /// How many names files have.
    counts: Cache<Node, u32>,
    /// Of exports, by their numbers: some share one.
    orders: Box<[NameOrder]>,
}

/// Further names of a file, the newest last.
#[derive(Clone, Default)]
struct Links {
    links: Vec<Link>,
    /// There were more than are remembered.
    are_more: bool,
}

/// How sure it is that a name leads to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearsay {
    /// It does now.
    No,
    /// It did a moment ago.
    Yes,
}

/// A path, or none. It is empty where there is none: an empty slice that is shared would be counted
/// by all threads in one place.
#[derive(Clone, Default)]
pub(super) struct Path(Option<Arc<[u8]>>);

impl std::ops::Deref for Path {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl From<Arc<[u8]>> for Path {
    fn from(path: Arc<[u8]>) -> Path {
        Path(Some(path))
    }
}

/// The paths of an operation; empty where there is none, or none is known. Where a directory's is
/// not known, `/...` stands for it.
#[derive(Default)]
pub(super) struct Paths {
    pub(super) path: Path,
    pub(super) new_path: Path,
    /// The file that the operation was about, where it is known: not the directory of its name.
    pub(super) file: Option<FileId>,
    /// What is called by `path` is or was called so, too.
    pub(super) others: Others,
    /// And what is or was called by `new_path`.
    pub(super) new_others: Others,
}

/// Other names of one file.
#[derive(Default)]
pub(super) struct Others {
    /// Links.
    pub(super) links: Vec<Arc<[u8]>>,
    /// What it, or what it lies in, was called before it was moved.
    pub(super) former: Vec<Arc<[u8]>>,
    /// And perhaps more.
    pub(super) are_more: bool,
}

impl Others {
    pub(super) const NONE: Others = Others { links: Vec::new(), former: Vec::new(), are_more: false };
}

impl Names {
    pub(super) fn new(moved: Moved) -> Self {
        let mut seed = [0; 8];
        // Without randomness the paths are as right, and somebody may make them slow.
        let _ = getrandom::fill(&mut seed);
        Names::seeded(u64::from_le_bytes(seed), moved)
    }

    fn seeded(seed: u64, moved: Moved) -> Self {
        let (links, children) = (Cache::new(FILES_MAX), Cache::new(FILES_MAX));
        Names {
            links,
            children,
            others: Cache::new(FILES_MAX),
            told: Cache::new(FILES_MAX),
            whole: Cache::new(FILES_MAX),
            at_hand: AtHand::new(),
            stamps: Stamps::new(seed),
            moved: Arc::new(moved),
            counts: Cache::new(FILES_MAX),
            orders: (0..ORDERS).map(|_| NameOrder::default()).collect(),
        }
    }

    /// The paths that an operation was about, at this moment; learns where its name leads to. What
    /// becomes of names is told otherwise.
    pub(super) fn paths(&self, seen: &Observation<'_>, told: &Details<'_>, rules: &Rules) -> Paths {
        let Some(export) = told.export else { return Paths::default() };
        let (asked, current, after) = (&told.arguments, seen.file, told.after);
        let done = seen.status == 0;
        let op = u16::try_from(seen.op).unwrap_or(u16::MAX);
        let below = |directory: Option<&FileId>, name: &[u8]| Path::from(self.below(export, directory, name));
        let path = |file: Option<&FileId>| file.map(|file| self.path(export, file).into()).unwrap_or_default();
        let named = |directory: Option<&FileId>, name: &[u8]| self.child(export, directory?, name);
        let others = |file: Option<&FileId>, path: &[u8]| self.others(export, file, path, rules, op);
        let mut paths = Paths::default();
        match (op, asked.name, asked.new_name) {
            (number::RENAME, Some(old), Some(new)) => {
                paths.path = below(told.saved, old);
                paths.new_path = below(current, new);
                paths.file = named(told.saved, old);
                paths.new_others = others(named(current, new).as_ref(), &paths.new_path);
            }
            (number::LINK, _, Some(new)) => {
                paths.path = path(told.saved);
                paths.new_path = below(current, new);
                paths.file = told.saved.copied();
            }
            // The saved file is the source.
            (number::COPY | number::CLONE, ..) => {
                (paths.path, paths.new_path, paths.file) = (path(told.saved), path(current), told.saved.copied());
                paths.new_others = others(current, &paths.new_path);
            }
            // Above all exports: what was looked up is one.
            (_, Some(_), _) if current.is_none() && after.is_some() => {
                paths.path = path(after);
                paths.file = after.copied();
            }
            (_, Some(name), _) => {
                let moves = self.stamps.moves();
                paths.path = below(current, name);
                if done
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
                let file = if op == number::LOOKUPP && done { after } else { current.or(after) };
                paths.path = path(file);
                paths.file = file.copied();
            }
        }
        paths.others = others(paths.file.as_ref(), &paths.path);
        paths
    }

    /// What a file that an operation was about is and was called beside this.
    pub(super) fn others(&self, export: &Export, file: Option<&FileId>, path: &[u8], rules: &Rules, op: u16) -> Others {
        let mut others = Others::default();
        if !rules.has_path_rules() {
            return others;
        }
        if let Some(file) = file {
            let known = self.others.get(&Node::of(export.id, file));
            let links = known.iter().flat_map(|known| &known.links);
            others.links =
                links.map(|(directory, name)| self.below_node(export, directory, name)).filter(|other| **other != *path).collect();
            others.are_more = known.is_some_and(|known| known.are_more) || self.count(export, file, op) as usize > others.links.len() + 1;
        }
        others.are_more |= self.moved.former(path, &mut others.former);
        for link in 0..others.links.len() {
            self.moved.former(&others.links[link].clone(), &mut others.former);
        }
        others
    }

    /// How many names a file has that is no directory. Asked anew where that is likely to have
    /// changed, or matters most.
    fn count(&self, export: &Export, file: &FileId, op: u16) -> u32 {
        let key = Node::of(export.id, file);
        if !COUNTED.contains(&op)
            && let Some(count) = self.counts.get(&key)
        {
            return count;
        }
        let count = match export.file_system.attributes(file, Patience::None) {
            Ok(attributes) if attributes.file_type == FileType::Directory => 1,
            Ok(attributes) => attributes.links,
            // It may have any.
            Err(vouch_vfs::Error::WouldBlock) => return u32::MAX,
            // It is gone.
            Err(_) => return 0,
        };
        self.counts.insert(key, count);
        count
    }

    /// What has a name, as far as it is known.
    fn child(&self, export: &Export, directory: &FileId, name: &[u8]) -> Option<FileId> {
        self.children.get(&Child(&Node::of(export.id, directory), name)).map(|file| file.file())
    }

    /// The path of a name.
    fn below(&self, export: &Export, directory: Option<&FileId>, name: &[u8]) -> Arc<[u8]> {
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

    /// A name that a file has beside the one by which it is known.
    fn also(&self, export: &Export, file: &FileId, directory: &FileId, name: &[u8], rules: &Rules) {
        let (key, link) = (Node::of(export.id, file), (Node::of(export.id, directory), Name::from(name)));
        match self.links.get(&key) {
            None => {
                self.learn(export, file, directory, name, rules, Hearsay::No);
            }
            Some(known) if known == link => {}
            Some(_) => {
                self.children.insert(link.clone(), key.clone());
                self.put_by(key, link, None);
            }
        }
    }

    /// Remembers a further name of a file, and that another is none of these any more.
    fn put_by(&self, key: Node, link: Link, not: Option<&Link>) {
        let mut others = self.others.get(&key).map_or_else(Links::default, |others| (*others).clone());
        others.links.retain(|known| *known != link && Some(known) != not);
        others.links.push(link);
        if others.links.len() > OTHERS_MAX {
            others.links.remove(0);
            others.are_more = true;
        }
        self.others.insert(key, Arc::new(others));
    }

    /// A name is no more, or another file's.
    fn forget(&self, export: &Export, directory: &FileId, name: &[u8]) {
        let directory = Node::of(export.id, directory);
        if let Some((_, file)) = self.children.remove(&Child(&directory, name)) {
            self.unlink(export, &file, &directory, name);
        }
    }

    /// A name is no more, and was the end of this path. What had it has nothing below it.
    fn forget_removed(&self, export: &Export, directory: &FileId, name: &[u8], path: &[u8]) {
        let directory = Node::of(export.id, directory);
        if let Some((_, file)) = self.children.remove(&Child(&directory, name)) {
            self.unlink_from(&file, &directory, name, || self.stamps.moved(path));
        }
    }

    fn unlink(&self, export: &Export, file: &Node, directory: &Node, name: &[u8]) {
        if !self.links.get(file).is_some_and(|link| link.0 == *directory && *link.1 == *name) {
            // Hardly: it would have to become that meanwhile.
            return self.unlink_from(file, directory, name, || self.stamps.all_moved());
        }
        let path = self.path_of(export, file);
        self.unlink_from(file, directory, name, || self.stamps.moved(&path));
    }

    /// `moved`: called when it can be seen that the name was that by which the file was known.
    fn unlink_from(&self, file: &Node, directory: &Node, name: &[u8], moved: impl FnOnce()) {
        let is_it = |link: &Link| link.0 == *directory && *link.1 == *name;
        let known = self.others.get(file);
        let Some(known) = known else {
            // As most files it had no other name.
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

    /// A name, and so a path that was put together after so many moves, led to a file.
    fn found(&self, export: &Export, file: &FileId, (directory, name): (&FileId, &[u8]), (path, moves): (&Path, u64), rules: &Rules) {
        if self.learn(export, file, directory, name, rules, Hearsay::Yes)
            && let Some(path) = &path.0
            && !Rules::is_partial(path)
        {
            self.at_hand.put(Node::of(export.id, file), moves, path.clone(), None);
        }
    }

    /// Whether this is the name by which it is known, which it was or is the first.
    fn learn(&self, export: &Export, file: &FileId, directory: &FileId, name: &[u8], rules: &Rules, hearsay: Hearsay) -> bool {
        let key = Node::of(export.id, file);
        let link = (Node::of(export.id, directory), Name::from(name));
        let before = self.links.get(&key);
        let known = before.as_ref().is_some_and(|before| *before == link);
        if known || file == directory {
            return known;
        }
        // Another name of the file, or of a directory that was renamed on the server itself: then what lies
        // below has other paths, too. Whoever looks up the names of one file in turn makes old that
        // file's path and nobody else's.
        let old = before.is_some().then(|| self.path_of(export, &key));
        // What has one name alone, and has the one by which it is known, had this one before somebody
        // renamed it.
        if let (Hearsay::Yes, Some(old)) = (hearsay, &old)
            && **old != *self.below(export, Some(directory), name)
            && self.count(export, file, number::RENAME) == 1
            && self.ask(export, file).as_ref() == Some(old)
        {
            return false;
        }
        self.links.insert(key.clone(), link.clone());
        self.children.insert(link.clone(), key.clone());
        match before.zip(old) {
            Some((before, old)) => {
                self.put_by(key, before, Some(&link));
                self.stamps.moved(&old);
                self.moved.found(rules, &old, &self.below(export, Some(directory), name));
                false
            }
            None => {
                if let Some((_, stale)) = self.whole.remove(&key) {
                    // Threads may have it at hand.
                    self.stamps.moved(&stale.path);
                }
                true
            }
        }
    }

    /// The path of a file; of one that nobody knows a name of, the export's and its identity's
    /// place in `file`.
    pub(super) fn path(&self, export: &Export, file: &FileId) -> Arc<[u8]> {
        self.path_of(export, &Node::of(export.id, file))
    }

    fn path_of(&self, export: &Export, file: &Node) -> Arc<[u8]> {
        let moves = self.stamps.moves();
        if let Some(path) = self.at_hand.get(file, moves, &self.stamps) {
            return path;
        }
        if let Some(known) = self.whole.get(file)
            && self.stamps.is_good(&known)
        {
            let path = known.path.clone();
            if !Rules::is_partial(&path) {
                self.at_hand.put(file.clone(), moves, path.clone(), Some(known));
            }
            return path;
        }
        let path = self.put_together(export, file);
        if !path.is_empty()
            && let Some(stamped) = self.stamps.stamp(path.clone(), moves)
        {
            self.whole.insert(file.clone(), stamped);
        }
        path
    }

    fn put_together(&self, export: &Export, file: &Node) -> Arc<[u8]> {
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
                    match self.asked(export, &at) {
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

    /// The path as the file system tells it.
    fn asked(&self, export: &Export, file: &Node) -> Option<Arc<[u8]>> {
        if let Some(known) = self.told.get(file)
            && self.stamps.is_good(&known)
        {
            return Some(known.path.clone());
        }
        let moves = self.stamps.moves();
        let path = self.ask(export, &file.file())?;
        if let Some(stamped) = self.stamps.stamp(path.clone(), moves) {
            self.told.insert(file.clone(), stamped);
        }
        Some(path)
    }

    /// Likewise, at this moment.
    fn ask(&self, export: &Export, file: &FileId) -> Option<Arc<[u8]>> {
        let below = export.file_system.path(file)?;
        let mut path = export.source.as_bytes().to_vec();
        if !below.starts_with(b"/") && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(&below);
        Some(path.into())
    }
}

/// A path that is put together in a place that the thread keeps for that.
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

/// Files whose names are remembered.
const FILES_MAX: usize = 65_536;
/// Further names of one file that are remembered.
const OTHERS_MAX: usize = 16;
/// Operations at which it is asked anew how many names a file has.
const COUNTED: [u16; 6] = [number::OPEN, number::LINK, number::RENAME, number::REMOVE, number::COPY, number::CLONE];
/// Operations that lead to the file of a name.
const FOLLOWS: [u16; 3] = [number::LOOKUP, number::OPEN, number::CREATE];
/// Deepest path that is put together.
const DEPTH_MAX: usize = 256;
/// Orders of changes of names: so many that hardly two exports have one together, where the one's
/// file system would have the other's changes wait.
const ORDERS: usize = 4096;
