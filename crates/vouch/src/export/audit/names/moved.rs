//! Where things lie now that rules name and that were moved: a watch on a directory is on what had the path when it was last there, as the kernel's is, as well as on
//! what has it now. Kept over restarts in a file beside the trail, which is as trustworthy as the trail's directory. Bounded: beyond, any file may be one of these.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use vouch_audit::rules::Rules;

/// Former paths of what was moved.
pub(in crate::export::audit) struct Moved {
    known: RwLock<Known>,
    /// There are any; asked before the lock is taken.
    any: AtomicBool,
    /// It is other than what the file says.
    is_new: AtomicBool,
    /// None: not kept.
    file: Option<PathBuf>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Known {
    /// By the path that it has, those that it had.
    by_path: HashMap<Path, Vec<Path>>,
    /// There were more than are remembered.
    are_more: bool,
}

/// A path's bytes, or those of a piece of one.
type Path = Box<[u8]>;

/// Name of the file, in the trail's directory.
pub(in crate::export::audit) const MOVED: &str = "moved";

impl Moved {
    /// What is known by this file, if it is there.
    pub(in crate::export::audit) fn read(file: Option<PathBuf>) -> Moved {
        let known = match file.as_ref().map(std::fs::read_to_string) {
            Some(Ok(text)) => Known::parse(&text),
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "what was moved of watched directories is not known any more: all files are taken for what may be watched");
                Known { are_more: true, ..Known::default() }
            }
            _ => Known::default(),
        };
        let any = AtomicBool::new(known.any());
        Moved { known: RwLock::new(known), any, is_new: AtomicBool::new(false), file }
    }

    /// Puts the former paths of what has this path behind `into`, the same path not among them; whether there may be more.
    pub(super) fn former(&self, path: &[u8], into: &mut Vec<Arc<[u8]>>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let known = self.known.read();
        known.former(path, |former| {
            if former != path {
                into.push(former.into());
            }
        });
        known.are_more
    }

    /// What had one path has another now, and has not got the one before.
    pub(super) fn renamed(&self, rules: &Rules, from: &[u8], to: &[u8]) {
        if from == to || from.is_empty() {
            return;
        }
        // Where the file system can't tell a directory's path, anything may have gone with it that lies below what is known.
        let unknown = from.windows(GAP.len()).position(|part| part == GAP);
        if !self.any.load(Ordering::Acquire) && !rules.mean_within(&from[..unknown.unwrap_or(from.len())]) {
            return;
        }
        self.change(|known| {
            known.are_more |= unknown.is_some();
            let names = known.meant(rules, from);
            // What was there is gone.
            known.take_at(to);
            for (below, former) in known.take_at(from) {
                former.into_iter().for_each(|former| known.add([to, &below].concat().into(), former));
            }
            names.into_iter().for_each(|former| known.add(to.into(), former));
        });
    }

    /// What has one path has another, too, for all that is known: it was moved by somebody else, or has two names.
    pub(super) fn found(&self, rules: &Rules, path: &[u8], too: &[u8]) {
        if path == too || path.is_empty() || too.is_empty() || (!self.any.load(Ordering::Acquire) && !rules.mean_within(path)) {
            return;
        }
        self.change(|known| {
            let names = known.meant(rules, path);
            for (below, former) in known.at(path) {
                former.into_iter().for_each(|former| known.add([too, &below].concat().into(), former));
            }
            names.into_iter().for_each(|former| known.add(too.into(), former));
        });
    }

    /// Nothing has this path any more.
    pub(super) fn removed(&self, path: &[u8]) {
        if self.any.load(Ordering::Acquire) {
            self.change(|known| drop(known.take_at(path)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut known = self.known.write();
        let before = known.clone();
        change(&mut known);
        if *known == before {
            return;
        }
        if known.are_more && !before.are_more {
            tracing::warn!(
                "more was moved of what audit rules name than is remembered: all files are taken for what may be watched until DIR/{MOVED} is removed"
            );
        }
        self.any.store(known.any(), Ordering::Release);
        self.is_new.store(true, Ordering::Release);
    }

    /// Whether there is something to keep.
    pub(in crate::export::audit) fn is_new(&self) -> bool {
        self.is_new.load(Ordering::Relaxed)
    }

    /// Keeps it, if there is something to keep. Not for threads that act as callers: the trail's directory is none of theirs.
    pub(in crate::export::audit) fn keep(&self) {
        let Some(file) = self.file.as_ref().filter(|_| self.is_new.swap(false, Ordering::AcqRel)) else { return };
        let (new, text) = (file.with_extension("new"), self.known.read().text());
        if let Err(error) = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file)) {
            tracing::warn!(%error, "where watched directories were moved to can't be kept: after a restart they are not watched there");
        }
    }
}

impl Known {
    fn any(&self) -> bool {
        self.are_more || !self.by_path.is_empty()
    }

    fn former(&self, path: &[u8], mut each: impl FnMut(&[u8])) {
        let mut end = path.len();
        while end > 0 {
            for former in self.by_path.get(&path[..end]).into_iter().flatten() {
                each(&[former, &path[end..]].concat());
            }
            end = path[..end].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        }
    }

    /// All paths that what has this one has or had, as far as rules mean what is there.
    fn meant(&self, rules: &Rules, path: &[u8]) -> Vec<Box<[u8]>> {
        let mut names = vec![Box::from(path)];
        self.former(path, |former| names.push(former.into()));
        names.retain(|name| rules.mean_within(name));
        names
    }

    /// Of what lies at a path or below it: the rest of its path, and its former ones.
    fn at(&self, path: &[u8]) -> Vec<(Path, Vec<Path>)> {
        let below = |at: &[u8]| at.strip_prefix(path).filter(|rest| rest.is_empty() || rest.starts_with(b"/")).map(Box::from);
        self.by_path.iter().filter_map(|(at, former)| Some((below(at)?, former.clone()))).collect()
    }

    fn take_at(&mut self, path: &[u8]) -> Vec<(Path, Vec<Path>)> {
        let taken = self.at(path);
        taken.iter().for_each(|(below, _)| drop(self.by_path.remove(&*[path, below].concat())));
        taken
    }

    fn add(&mut self, path: Box<[u8]>, former: Box<[u8]>) {
        if *path == *former {
            return;
        }
        let is_full = self.by_path.values().map(Vec::len).sum::<usize>() >= MOVED_MAX;
        let all = self.by_path.entry(path).or_default();
        if all.contains(&former) {
            return;
        }
        match is_full {
            true => self.are_more = true,
            false => all.push(former),
        }
        self.by_path.retain(|_, former| !former.is_empty());
    }

    fn text(&self) -> String {
        let hex = |path: &[u8]| data_encoding::HEXLOWER.encode(path);
        let each = self.by_path.iter().flat_map(|(path, former)| former.iter().map(move |former| (path, former)));
        let mut text: String = each.map(|(path, former)| format!("{} {}\n", hex(path), hex(former))).collect();
        if self.are_more {
            text.push_str(MORE);
        }
        text
    }

    /// What can't be read may have been anything.
    fn parse(text: &str) -> Known {
        let mut known = Known::default();
        for line in text.lines() {
            let path = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).ok().map(Vec::into_boxed_slice);
            match line.split_once(' ').and_then(|(at, former)| Some((path(at)?, path(former)?))) {
                Some((at, former)) => known.add(at, former),
                None => known.are_more = true,
            }
        }
        known
    }
}

/// Paths of what was moved that are remembered: who may rename what lies above a watched directory can make as many as he likes.
const MOVED_MAX: usize = 512;
/// What stands in a path for names that aren't known.
const GAP: &[u8] = b"/.../";
/// The line that says that there were more.
const MORE: &str = "more\n";

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl vouch_audit::rules::Resolve for Nobody {
        fn user(&self, _: &str) -> Option<u32> {
            None
        }

        fn group(&self, _: &str) -> Option<u32> {
            None
        }
    }

    fn rules(text: &str) -> Rules {
        Rules::parse(text, &Nobody).unwrap()
    }

    fn former(moved: &Moved, path: &str) -> Vec<String> {
        let mut found = Vec::new();
        moved.former(path.as_bytes(), &mut found);
        let mut found: Vec<_> = found.iter().map(|path| String::from_utf8(path.to_vec()).unwrap()).collect();
        found.sort();
        found
    }

    #[test]
    fn what_is_watched_is_found_wherever_it_is_moved_to_and_what_is_not_is_not_kept() {
        let rules = rules("-w /e/a/secret -p r\n");
        let moved = Moved::read(None);
        let rename = |from: &str, to: &str| moved.renamed(&rules, from.as_bytes(), to.as_bytes());
        rename("/e/x", "/e/y");
        rename("/e/a/secret/f", "/e/f");
        assert!(!moved.known.read().any());
        // With the directory above, with that in another, and by itself.
        rename("/e/a", "/e/b");
        assert_eq!(former(&moved, "/e/b/secret/f"), ["/e/a/secret/f"]);
        rename("/e/b", "/e/c/d");
        assert_eq!((former(&moved, "/e/b/secret/f").len(), former(&moved, "/e/c/d/secret/f")), (0, vec!["/e/a/secret/f".to_owned()]));
        rename("/e/c/d/secret", "/e/open");
        assert_eq!(former(&moved, "/e/open/f"), ["/e/a/secret/f"]);
        rename("/e/c", "/e/g");
        // What is new at the old place is watched there, and where it goes.
        rename("/e/a", "/e/h");
        assert_eq!((former(&moved, "/e/h/secret"), former(&moved, "/e/open")), (vec!["/e/a/secret".into()], vec!["/e/a/secret".into()]));
        // Back where it was.
        rename("/e/h", "/e/a");
        assert!(former(&moved, "/e/a/secret").is_empty());
        // In the place of it comes another, or nothing.
        rename("/e/z", "/e/open");
        assert!(former(&moved, "/e/open/f").is_empty());
        assert_eq!(former(&moved, "/e/g/d/secret"), ["/e/a/secret"]);
        moved.removed(b"/e/g/d");
        assert!(!moved.known.read().any());
    }

    #[test]
    fn what_was_moved_is_known_after_a_restart_and_never_forgotten_for_being_much() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(MOVED);
        let rules = rules("-w /e/a/secret -p r\n");
        let moved = Moved::read(Some(file.clone()));
        moved.renamed(&rules, b"/e/a", b"/e/b\xff\n");
        assert!(moved.is_new());
        moved.keep();
        assert!(!moved.is_new());
        let again = Moved::read(Some(file.clone()));
        assert_eq!(*again.known.read(), *moved.known.read());
        for number in 0..MOVED_MAX {
            let mut found = Vec::new();
            assert!(!again.former(b"/e/else", &mut found), "{number}");
            again.renamed(&rules, b"/e/a", format!("/e/b{number}").as_bytes());
        }
        let are_more = |moved: &Moved| moved.former(b"/e/else", &mut Vec::new());
        again.keep();
        assert!(are_more(&again) && are_more(&Moved::read(Some(file.clone()))));
        // Nor for not being known.
        let unknown = Moved::read(None);
        unknown.renamed(&rules, b"/f/.../x", b"/f/y");
        assert!(!are_more(&unknown));
        unknown.renamed(&rules, b"/e/.../x", b"/e/y");
        assert!(are_more(&unknown));
        std::fs::write(&file, "what is this\n").unwrap();
        assert!(are_more(&Moved::read(Some(file))));
    }
}
