//! Like a kernel watch, a watch on a directory follows the directory when it moves; it also applies
//! to its old path. A file saves former paths. Above the limit, any file counts as moved.

pub(crate) mod table;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use vouch_audit::rules::Rules;
use vouch_audit::trail::{SystemDisk, replace_file};

use table::Table;

pub(in crate::audit) struct MovedPaths {
    table: RwLock<Table>,
    any: AtomicBool,
    is_new: AtomicBool,
    queued: AtomicBool,
    saves: Mutex<PendingSaves>,
    saved: Condvar,
    writing: Mutex<()>,
    not_before: Mutex<Option<Instant>>,
    file: Option<PathBuf>,
}

#[derive(Default)]
struct PendingSaves {
    count: usize,
    since: Option<Instant>,
}

pub(in crate::audit) const MOVED: &str = "moved";

impl MovedPaths {
    pub(in crate::audit) fn read(file: Option<PathBuf>) -> MovedPaths {
        let known = match file.as_ref().map(std::fs::read_to_string) {
            Some(Ok(text)) => Table::parse(&text),
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "the file of moved watched paths is unreadable; audit rules now treat every file as watched");
                Table { are_more: true, ..Table::default() }
            }
            _ => Table::default(),
        };
        if known.are_more {
            tracing::warn!(
                "the list of moved watched paths is incomplete; audit rules treat every file as watched until DIR/{MOVED} is removed"
            );
        }
        let any = AtomicBool::new(known.any());
        let (is_new, queued) = (AtomicBool::new(false), AtomicBool::new(false));
        let (saves, saved, writing) = (Mutex::default(), Condvar::new(), Mutex::default());
        MovedPaths {
            table: RwLock::new(known),
            any,
            is_new,
            queued,
            saves,
            saved,
            writing,
            not_before: Mutex::default(),
            file,
        }
    }

    /// Appends the former paths. True: there may be more.
    pub(super) fn former(&self, path: &[u8], into: &mut Vec<Arc<[u8]>>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let known = self.table.read();
        known.former(path, |former| {
            if former != path {
                into.push(former.into());
            }
        });
        known.are_more
    }

    /// `is_partial`: the old path has a gap for unknown names.
    pub(super) fn renamed(&self, rules: &Rules, from: &[u8], to: &[u8], is_partial: bool) {
        if from == to || from.is_empty() {
            return;
        }
        // Any known path below the known part may have moved.
        let unknown = from.windows(GAP.len()).position(|part| part == GAP).filter(|_| is_partial);
        let above = unknown.map_or(from, |at| &from[..at]);
        if !self.any.load(Ordering::Acquire) && !rules.watches_within(above) {
            return;
        }
        let may_be_any = |known: &Table| unknown.is_some() && known.is_meant_below(rules, above);
        if !self.check(|known| {
            may_be_any(known)
                || known.has_at(from)
                || known.has_at(to)
                || !known.matching_paths(rules, from).is_empty()
        }) {
            return;
        }
        self.change(|known| {
            known.are_more |= may_be_any(known);
            let names = known.matching_paths(rules, from);
            known.take_at(to);
            for (below, former) in known.take_at(from) {
                former
                    .into_iter()
                    .for_each(|former| known.add([to, &below].concat().into(), former));
            }
            names.into_iter().for_each(|former| known.add(to.into(), former));
        });
    }

    pub(super) fn found(&self, rules: &Rules, path: &[u8], too: &[u8]) {
        if path == too
            || path.is_empty()
            || too.is_empty()
            || (!self.any.load(Ordering::Acquire) && !rules.watches_within(path))
        {
            return;
        }
        if !self.check(|known| known.has_at(path) || !known.matching_paths(rules, path).is_empty())
        {
            return;
        }
        self.change(|known| {
            let names = known.matching_paths(rules, path);
            for (below, former) in known.at(path) {
                former
                    .into_iter()
                    .for_each(|former| known.add([too, &below].concat().into(), former));
            }
            names.into_iter().for_each(|former| known.add(too.into(), former));
        });
    }

    pub(super) fn removed(&self, path: &[u8]) {
        if self.any.load(Ordering::Acquire) && self.check(|known| known.has_at(path)) {
            self.change(|known| drop(known.take_at(path)));
        }
    }

    fn check(&self, is_so: impl FnOnce(&Table) -> bool) -> bool {
        is_so(&self.table.read())
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        let mut known = self.table.write();
        let before = known.clone();
        change(&mut known);
        if *known == before {
            return;
        }
        if known.are_more && !before.are_more {
            tracing::warn!(
                "too many watched paths were moved; audit rules treat every file as watched until DIR/{MOVED} is removed"
            );
        }
        self.any.store(known.any(), Ordering::Release);
        self.is_new.store(true, Ordering::Release);
    }

    /// True: the caller must run [`MovedPaths::save_requested`].
    pub(in crate::audit) fn request_save(&self) -> bool {
        if !self.is_new.load(Ordering::Acquire)
            || self.file.is_none()
            || !self.not_before.lock().is_none_or(|time| Instant::now() >= time)
        {
            return false;
        }
        let mut saves = self.saves.lock();
        if self.queued.swap(true, Ordering::AcqRel) {
            return false;
        }
        saves.count += 1;
        saves.since.get_or_insert_with(Instant::now);
        true
    }

    /// A disk that hangs delays the service once, not for each operation.
    pub(in crate::audit) fn wait(&self) {
        let mut saves = self.saves.lock();
        while let Some(since) = saves.since {
            if self.saved.wait_until(&mut saves, since + SAVE_WAIT_MAX).timed_out() {
                return;
            }
        }
    }

    /// Threads that act as callers have no access to the trail's directory.
    pub(in crate::audit) fn save_requested(&self) {
        self.save();
        let mut saves = self.saves.lock();
        saves.count = saves.count.saturating_sub(1);
        saves.since = (saves.count > 0).then(Instant::now);
        self.saved.notify_all();
    }

    pub(in crate::audit) fn save(&self) {
        let _alone = self.writing.lock();
        self.write();
    }

    fn write(&self) {
        self.queued.store(false, Ordering::Release);
        let Some(file) = self.file.as_ref().filter(|_| self.is_new.swap(false, Ordering::AcqRel))
        else {
            return;
        };
        let text = self.table.read().text();
        if let Err(error) = replace_file(&SystemDisk, file, text.as_bytes()) {
            tracing::warn!(%error, "cannot save moved watched paths; retrying. After a restart, rules would not apply at the new paths");
            *self.not_before.lock() = Some(Instant::now() + SAVE_RETRY_INTERVAL);
            self.is_new.store(true, Ordering::Release);
        }
    }
}

const GAP: &[u8] = b"/.../";
const SAVE_WAIT_MAX: Duration = Duration::from_secs(1);
const SAVE_RETRY_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::table::MOVED_MAX;
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

    fn former(moved: &MovedPaths, path: &str) -> Vec<String> {
        let mut found = Vec::new();
        moved.former(path.as_bytes(), &mut found);
        let mut found: Vec<_> =
            found.iter().map(|path| String::from_utf8(path.to_vec()).unwrap()).collect();
        found.sort();
        found
    }

    #[test]
    fn watch_follows_moved_directory_and_old_path() {
        let rules = rules("-w /e/a/secret -p r\n");
        let moved = MovedPaths::read(None);
        let rename =
            |from: &str, to: &str| moved.renamed(&rules, from.as_bytes(), to.as_bytes(), false);
        rename("/e/x", "/e/y");
        rename("/e/a/secret/f", "/e/f");
        assert!(!moved.table.read().any());
        rename("/e/a", "/e/b");
        assert_eq!(former(&moved, "/e/b/secret/f"), ["/e/a/secret/f"]);
        rename("/e/b", "/e/c/d");
        assert_eq!(
            (former(&moved, "/e/b/secret/f").len(), former(&moved, "/e/c/d/secret/f")),
            (0, vec!["/e/a/secret/f".to_owned()])
        );
        rename("/e/c/d/secret", "/e/open");
        assert_eq!(former(&moved, "/e/open/f"), ["/e/a/secret/f"]);
        rename("/e/c", "/e/g");
        rename("/e/a", "/e/h");
        assert_eq!(
            (former(&moved, "/e/h/secret"), former(&moved, "/e/open")),
            (vec!["/e/a/secret".into()], vec!["/e/a/secret".into()])
        );
        rename("/e/h", "/e/a");
        assert!(former(&moved, "/e/a/secret").is_empty());
        rename("/e/z", "/e/open");
        assert!(former(&moved, "/e/open/f").is_empty());
        assert_eq!(former(&moved, "/e/g/d/secret"), ["/e/a/secret"]);
        moved.removed(b"/e/g/d");
        assert!(!moved.table.read().any());
    }

    #[test]
    fn moved_paths_survive_restart_and_overflow() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(MOVED);
        let rules = rules("-w /e/a/secret -p r\n");
        let moved = MovedPaths::read(Some(file.clone()));
        moved.renamed(&rules, b"/e/a", b"/e/b\xff\n", false);
        assert!(moved.request_save());
        moved.save_requested();
        assert!(!moved.request_save());
        let again = MovedPaths::read(Some(file.clone()));
        assert_eq!(*again.table.read(), *moved.table.read());
        for number in 0..MOVED_MAX {
            let mut found = Vec::new();
            assert!(!again.former(b"/e/else", &mut found), "{number}");
            again.renamed(&rules, b"/e/a", format!("/e/b{number}").as_bytes(), false);
        }
        let are_more = |moved: &MovedPaths| moved.former(b"/e/else", &mut Vec::new());
        again.save();
        assert!(are_more(&again) && are_more(&MovedPaths::read(Some(file.clone()))));
        let unknown = MovedPaths::read(None);
        unknown.renamed(&rules, b"/f/.../x", b"/f/y", true);
        unknown.renamed(&rules, b"/e/.../x", b"/e/y", false);
        unknown.renamed(&rules, b"/e/a/secret", b"/e/open", false);
        unknown.renamed(&rules, b"/f/.../x", b"/f/y", true);
        unknown.renamed(&rules, b"/e/open/.../x", b"/e/open/y", true);
        assert!(!are_more(&unknown));
        let more_by = |known: &MovedPaths, from: &[u8]| {
            known.renamed(&rules, from, b"/e/y", true);
            are_more(known)
        };
        assert!(more_by(&unknown, b"/e/.../x"));
        let below = MovedPaths::read(None);
        below.renamed(&rules, b"/e/a", b"/g/h/a", false);
        assert!(more_by(&below, b"/g/.../x"));
    }

    #[test]
    fn truncated_file_counts_as_any_path() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(MOVED);
        let moved = MovedPaths::read(Some(file.clone()));
        let rules = rules("-w /e/a/secret -p r\n-w /e/b -p r\n");
        (0..12).for_each(|number| moved.found(&rules, b"/e/a", format!("/e/c{number}").as_bytes()));
        moved.save();
        let text = std::fs::read(&file).unwrap();
        assert!(
            text.ends_with(b"\nend 12\n")
                && !MovedPaths::read(Some(file.clone())).table.read().are_more
        );
        for len in 0..text.len() {
            std::fs::write(&file, &text[..len]).unwrap();
            assert!(
                MovedPaths::read(Some(file.clone())).table.read().are_more,
                "cut to {len} bytes"
            );
        }
        std::fs::write(&file, "what is this\nend 1\n").unwrap();
        assert!(MovedPaths::read(Some(file.clone())).table.read().are_more);
        std::fs::write(&file, "end 0\n").unwrap();
        assert_eq!(*MovedPaths::read(Some(file)).table.read(), Table::default());
    }

    #[test]
    fn save_runs_once_and_is_retried_after_failure() {
        let directory = tempfile::tempdir().unwrap();
        let (file, obstacle) = (directory.path().join(MOVED), directory.path().join("moved.new"));
        std::fs::create_dir(&obstacle).unwrap();
        let moved = MovedPaths::read(Some(file.clone()));
        moved.renamed(&rules("-w /e/a -p r\n"), b"/e/a", b"/e/b", false);
        assert!(moved.request_save());
        assert!(!moved.request_save(), "one is about to");
        moved.save_requested();
        assert!(!moved.request_save());
        *moved.not_before.lock() = None;
        std::fs::remove_dir(&obstacle).unwrap();
        assert!(moved.request_save());
        moved.save_requested();
        assert_eq!(former(&MovedPaths::read(Some(file)), "/e/b/f"), ["/e/a/f"]);
        assert!(!moved.request_save());
    }

    #[test]
    fn hanging_disk_delays_once() {
        let directory = tempfile::tempdir().unwrap();
        let moved = MovedPaths::read(Some(directory.path().join(MOVED)));
        let rules = rules("-w /e/a -p r\n");
        moved.wait();
        moved.renamed(&rules, b"/e/a", b"/e/b", false);
        assert!(moved.request_save());
        moved.wait();
        let waited = moved.saves.lock().since.expect("a worker runs").elapsed();
        assert!(waited >= SAVE_WAIT_MAX);
        (0..5000).for_each(|_| moved.wait());
        moved.save_requested();
        assert!(moved.saves.lock().since.is_none());
        moved.wait();
    }
}
