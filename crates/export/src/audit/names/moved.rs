//! Where things lie now that rules name and that were moved: a watch on a directory is on what had
//! the path when it was last there, as the kernel's is, as well as on what has it now. Kept over
//! restarts in a file beside the trail, which is as trustworthy as the trail's directory. Bounded:
//! beyond, any file may be one of these.

mod known;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use vouch_audit::rules::Rules;
use vouch_audit::trail::{SystemDisk, replace_file};

use known::Known;

/// Former paths of what was moved.
pub(in crate::audit) struct Moved {
    known: RwLock<Known>,
    /// There are any; asked before the lock is taken.
    any: AtomicBool,
    /// It is other than what the file says.
    is_new: AtomicBool,
    /// Somebody is about to keep it.
    queued: AtomicBool,
    keeping: Mutex<Keeping>,
    /// One less is about to keep it, or at it.
    kept: Condvar,
    /// One writes the file at a time.
    writing: Mutex<()>,
    /// It could not be kept, and is not tried before.
    not_before: Mutex<Option<Instant>>,
    /// None: not kept.
    file: Option<PathBuf>,
}

/// Who is about to keep it.
#[derive(Default)]
struct Keeping {
    count: usize,
    /// Since when, or since one has done it.
    since: Option<Instant>,
}

/// Name of the file, in the trail's directory.
pub(in crate::audit) const MOVED: &str = "moved";

impl Moved {
    /// What is known by this file, if it is there.
    pub(in crate::audit) fn read(file: Option<PathBuf>) -> Moved {
        let known = match file.as_ref().map(std::fs::read_to_string) {
            Some(Ok(text)) => Known::parse(&text),
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "what was moved of watched directories is not known any more: all files are taken for what may be watched");
                Known { are_more: true, ..Known::default() }
            }
            _ => Known::default(),
        };
        if known.are_more {
            tracing::warn!(
                "where all watched files were moved to is not known: all files are taken for what may be watched until DIR/{MOVED} is removed"
            );
        }
        let any = AtomicBool::new(known.any());
        let (is_new, queued) = (AtomicBool::new(false), AtomicBool::new(false));
        let (keeping, kept, writing) = (Mutex::default(), Condvar::new(), Mutex::default());
        Moved { known: RwLock::new(known), any, is_new, queued, keeping, kept, writing, not_before: Mutex::default(), file }
    }

    /// Puts the former paths of what has this path behind `into`, the same path not among them;
    /// whether there may be more.
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

    /// What had one path has another now, and has not got the one before. `is_partial`: names in
    /// the one before are not known, which its gap stands for.
    pub(super) fn renamed(&self, rules: &Rules, from: &[u8], to: &[u8], is_partial: bool) {
        if from == to || from.is_empty() {
            return;
        }
        // Where the file system can't tell a directory's path, anything may have gone with it that lies
        // below what is known.
        let unknown = from.windows(GAP.len()).position(|part| part == GAP).filter(|_| is_partial);
        let above = unknown.map_or(from, |at| &from[..at]);
        if !self.any.load(Ordering::Acquire) && !rules.watches_within(above) {
            return;
        }
        let may_be_any = |known: &Known| unknown.is_some() && known.is_meant_below(rules, above);
        if !self.looks(|known| may_be_any(known) || known.has_at(from) || known.has_at(to) || !known.meant(rules, from).is_empty()) {
            return;
        }
        self.change(|known| {
            known.are_more |= may_be_any(known);
            let names = known.meant(rules, from);
            // What was there is gone.
            known.take_at(to);
            for (below, former) in known.take_at(from) {
                former.into_iter().for_each(|former| known.add([to, &below].concat().into(), former));
            }
            names.into_iter().for_each(|former| known.add(to.into(), former));
        });
    }

    /// What has one path has another, too, for all that is known: it was moved by somebody else, or
    /// has two names.
    pub(super) fn found(&self, rules: &Rules, path: &[u8], too: &[u8]) {
        if path == too || path.is_empty() || too.is_empty() || (!self.any.load(Ordering::Acquire) && !rules.watches_within(path)) {
            return;
        }
        if !self.looks(|known| known.has_at(path) || !known.meant(rules, path).is_empty()) {
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
        if self.any.load(Ordering::Acquire) && self.looks(|known| known.has_at(path)) {
            self.change(|known| drop(known.take_at(path)));
        }
    }

    /// Most changes of names are about nothing that is known: those cost a look, beside others.
    fn looks(&self, is_so: impl FnOnce(&Known) -> bool) -> bool {
        is_so(&self.known.read())
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

    /// Whether somebody must keep it, which who asks then has done by [`Moved::keep_asked`]; not if
    /// another is about to, nor soon after it could not be kept.
    pub(in crate::audit) fn is_to_be_kept(&self) -> bool {
        // Asked for every operation.
        if !self.is_new.load(Ordering::Acquire) || self.file.is_none() || !self.not_before.lock().is_none_or(|time| Instant::now() >= time)
        {
            return false;
        }
        // Whoever finds that another is about to finds him counted.
        let mut keeping = self.keeping.lock();
        if self.queued.swap(true, Ordering::AcqRel) {
            return false;
        }
        keeping.count += 1;
        keeping.since.get_or_insert_with(Instant::now);
        true
    }

    /// Waits until those have kept it who are about to. Not for long: where its disk takes nothing
    /// the service goes on, and waits once, not once for each operation.
    pub(in crate::audit) fn wait(&self) {
        let mut keeping = self.keeping.lock();
        while let Some(since) = keeping.since {
            if self.kept.wait_until(&mut keeping, since + KEEP_PATIENCE).timed_out() {
                return;
            }
        }
    }

    /// Keeps it for who was told to have that done. Not for threads that act as callers: the
    /// trail's directory is none of theirs.
    pub(in crate::audit) fn keep_asked(&self) {
        self.keep();
        let mut keeping = self.keeping.lock();
        keeping.count = keeping.count.saturating_sub(1);
        keeping.since = (keeping.count > 0).then(Instant::now);
        self.kept.notify_all();
    }

    /// Keeps it, if there is something to keep.
    pub(in crate::audit) fn keep(&self) {
        let _alone = self.writing.lock();
        self.write();
    }

    fn write(&self) {
        // From here on, what changes is not in what is written, or not surely.
        self.queued.store(false, Ordering::Release);
        let Some(file) = self.file.as_ref().filter(|_| self.is_new.swap(false, Ordering::AcqRel)) else { return };
        let text = self.known.read().text();
        if let Err(error) = replace_file(&SystemDisk, file, text.as_bytes()) {
            tracing::warn!(%error, "where watched directories were moved to can't be kept, and is tried again: after a restart they would not be watched there");
            *self.not_before.lock() = Some(Instant::now() + KEEP_PAUSE);
            self.is_new.store(true, Ordering::Release);
        }
    }
}

/// What stands in a path for names that aren't known.
const GAP: &[u8] = b"/.../";
/// How long who has moved something waits until that is kept.
const KEEP_PATIENCE: Duration = Duration::from_secs(1);
/// Pause after it could not be kept.
const KEEP_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::known::MOVED_MAX;
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
        let rename = |from: &str, to: &str| moved.renamed(&rules, from.as_bytes(), to.as_bytes(), false);
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
        moved.renamed(&rules, b"/e/a", b"/e/b\xff\n", false);
        assert!(moved.is_to_be_kept());
        moved.keep_asked();
        assert!(!moved.is_to_be_kept());
        let again = Moved::read(Some(file.clone()));
        assert_eq!(*again.known.read(), *moved.known.read());
        for number in 0..MOVED_MAX {
            let mut found = Vec::new();
            assert!(!again.former(b"/e/else", &mut found), "{number}");
            again.renamed(&rules, b"/e/a", format!("/e/b{number}").as_bytes(), false);
        }
        let are_more = |moved: &Moved| moved.former(b"/e/else", &mut Vec::new());
        again.keep();
        assert!(are_more(&again) && are_more(&Moved::read(Some(file.clone()))));
        // Nor for not being known; but for what is no gap, or where nothing is that a rule means.
        let unknown = Moved::read(None);
        unknown.renamed(&rules, b"/f/.../x", b"/f/y", true);
        unknown.renamed(&rules, b"/e/.../x", b"/e/y", false);
        // There are some, elsewhere.
        unknown.renamed(&rules, b"/e/a/secret", b"/e/open", false);
        unknown.renamed(&rules, b"/f/.../x", b"/f/y", true);
        unknown.renamed(&rules, b"/e/open/.../x", b"/e/open/y", true);
        assert!(!are_more(&unknown));
        let more_by = |known: &Moved, from: &[u8]| {
            known.renamed(&rules, from, b"/e/y", true);
            are_more(known)
        };
        assert!(more_by(&unknown, b"/e/.../x"));
        // What was moved may lie below.
        let below = Moved::read(None);
        below.renamed(&rules, b"/e/a", b"/g/h/a", false);
        assert!(more_by(&below, b"/g/.../x"));
    }

    #[test]
    fn a_file_that_was_cut_anywhere_may_have_said_anything() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(MOVED);
        let moved = Moved::read(Some(file.clone()));
        let rules = rules("-w /e/a/secret -p r\n-w /e/b -p r\n");
        (0..12).for_each(|number| moved.found(&rules, b"/e/a", format!("/e/c{number}").as_bytes()));
        moved.keep();
        let text = std::fs::read(&file).unwrap();
        assert!(text.ends_with(b"\nend 12\n") && !Moved::read(Some(file.clone())).known.read().are_more);
        for len in 0..text.len() {
            std::fs::write(&file, &text[..len]).unwrap();
            assert!(Moved::read(Some(file.clone())).known.read().are_more, "cut to {len} bytes");
        }
        std::fs::write(&file, "what is this\nend 1\n").unwrap();
        assert!(Moved::read(Some(file.clone())).known.read().are_more);
        std::fs::write(&file, "end 0\n").unwrap();
        assert_eq!(*Moved::read(Some(file)).known.read(), Known::default());
    }

    #[test]
    fn it_is_kept_by_one_at_a_time_and_again_after_it_could_not_be() {
        let directory = tempfile::tempdir().unwrap();
        // In the way of the file that is written first.
        let (file, obstacle) = (directory.path().join(MOVED), directory.path().join("moved.new"));
        std::fs::create_dir(&obstacle).unwrap();
        let moved = Moved::read(Some(file.clone()));
        moved.renamed(&rules("-w /e/a -p r\n"), b"/e/a", b"/e/b", false);
        assert!(moved.is_to_be_kept());
        assert!(!moved.is_to_be_kept(), "one is about to");
        moved.keep_asked();
        // Not at once.
        assert!(!moved.is_to_be_kept());
        *moved.not_before.lock() = None;
        std::fs::remove_dir(&obstacle).unwrap();
        assert!(moved.is_to_be_kept());
        moved.keep_asked();
        assert_eq!(former(&Moved::read(Some(file)), "/e/b/f"), ["/e/a/f"]);
        assert!(!moved.is_to_be_kept());
    }

    #[test]
    fn a_disk_that_takes_nothing_is_waited_for_once_and_not_by_each() {
        let directory = tempfile::tempdir().unwrap();
        let moved = Moved::read(Some(directory.path().join(MOVED)));
        let rules = rules("-w /e/a -p r\n");
        // Nobody is about to.
        moved.wait();
        moved.renamed(&rules, b"/e/a", b"/e/b", false);
        assert!(moved.is_to_be_kept());
        moved.wait();
        let waited = moved.keeping.lock().since.expect("one is at it").elapsed();
        assert!(waited >= KEEP_PATIENCE);
        // Thousands that come later, each of which would have waited as long.
        (0..5000).for_each(|_| moved.wait());
        moved.keep_asked();
        assert!(moved.keeping.lock().since.is_none());
        moved.wait();
    }
}
