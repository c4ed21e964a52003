//! What the system remembers of a mount's files when they are measured: nothing of them, or all.
//! Other mounts are measured in turn with this one, so only its own files are forgotten wherever
//! somebody else's could be.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::MountSubject;
use crate::Error;

impl MountSubject {
    /// Makes the files as they are to be when the clock starts: read, where what was read before
    /// may be kept; else forgotten, as far as the system lets us.
    pub(super) fn make_ready<'a>(&self, files: impl IntoIterator<Item = &'a Path>) -> Result<(), Error> {
        let warm = self.options.warm;
        let mut block = vec![0; if warm { READ_LEN } else { 0 }];
        // Names are looked up here either way; who drops all forgets them again.
        for path in files {
            if self.stop.is_set() {
                return Err(Error::Interrupted);
            }
            let mut file = File::open(path).map_err(Error::file(path))?;
            if warm { read_through(&mut file, &mut block) } else { forget(&file) }.map_err(Error::file(path))?;
        }
        if !warm && drops_all(self.options.alone) {
            rustix::fs::sync();
            fs::write(DROP_CACHES, "3").map_err(Error::file(Path::new(DROP_CACHES)))?;
        }
        Ok(())
    }

    /// How it is made ready, for the report.
    pub(super) fn cache(&self) -> String {
        let dropped = match drops_all(self.options.alone) {
            true => "all caches of the machine dropped",
            false => "the pages of its own files dropped (posix_fadvise), names and attributes kept,",
        };
        match (self.options.warm, self.direct) {
            (true, _) => "warm, through the page cache: files are read once before the clock starts".to_owned(),
            (false, true) => format!("cold: past the page cache (O_DIRECT), {dropped} before copies are read"),
            (false, false) => {
                format!("no O_DIRECT here: through the page cache, {dropped} before copies and loads; writes of loads are O_DSYNC")
            }
        }
    }
}

/// Whether all that the machine remembers may be dropped: only for who is measured there alone, and
/// only by the superuser.
fn drops_all(alone: bool) -> bool {
    alone && File::options().write(true).open(DROP_CACHES).is_ok()
}

/// Of one file, which needs no right. What is not stored yet could not be forgotten.
fn forget(file: &File) -> io::Result<()> {
    file.sync_data()?;
    // A file system that can't is one whose cache is measured; the report says that it was asked.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}

fn read_through(file: &mut File, block: &mut [u8]) -> io::Result<()> {
    while io::Read::read(file, block)? > 0 {}
    Ok(())
}

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const READ_LEN: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::path::PathBuf;

    use super::super::tests::begin;
    use super::*;
    use crate::case::{Content, Copy, Load, Order};
    use crate::{Case, Subject};

    /// How many pages of a file are in the page cache, and how many there are; none where the file
    /// system does not tell.
    fn kept(path: &Path) -> Option<(u64, u64)> {
        let file = File::open(path).expect("it is there");
        let pages = file.metadata().expect("it is there").len().div_ceil(4096);
        let mut count = 0;
        for page in 0..pages {
            let (mut byte, flags) = ([0], rustix::io::ReadWriteFlags::NOWAIT);
            match rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut byte)], page * 4096, flags) {
                Ok(_) => count += 1,
                Err(rustix::io::Errno::AGAIN) => {}
                Err(_) => return None,
            }
        }
        Some((count, pages))
    }

    /// Whether the file system tells what is in its cache, and forgets it when it is asked to.
    fn tells(at: &Path) -> bool {
        let path = at.join("told");
        fs::write(&path, vec![1; 1 << 16]).expect("room");
        let (file, all) = (File::open(&path).expect("it is there"), kept(&path));
        forget(&file).expect("a file");
        let after = kept(&path);
        fs::remove_file(&path).expect("our own");
        let tells = all == Some((16, 16)) && after == Some((0, 16));
        if !tells {
            println!("skipped: this file system does not tell what it keeps: {all:?}, {after:?}");
        }
        tells
    }

    fn at_last(mut holds: impl FnMut() -> bool) {
        let begun = std::time::Instant::now();
        while !holds() {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it never holds");
        }
    }

    #[test]
    fn a_cold_mount_forgets_its_own_files_alone_and_a_warm_one_has_read_its_own() {
        let at = tempfile::tempdir().expect("a directory");
        if !tells(at.path()) {
            return;
        }
        let (mut cold, mut warm) = (begin(at.path(), false), begin(at.path(), true));
        let copy = Copy { files: 2, len: 1 << 20, content: Content::Random, streams: 1, depth: 1 };
        let paths = |subject: &MountSubject| {
            let directory = subject.copies.values().next().expect("a copy").clone();
            [0, 1].map(|number| directory.join(format!("file{number:06}")))
        };
        // A page that the machine wanted for itself meanwhile is let off, and one that it was busy with.
        let most = |kept: Option<(u64, u64)>| kept.is_some_and(|(kept, pages)| kept * 2 > pages);
        warm.measure(&Case::Put(copy)).expect("room");
        cold.measure(&Case::Put(copy)).expect("room");
        let (colds, warms) = (paths(&cold), paths(&warm));
        // Others on this machine may drop its caches at any time, and hold pages: what holds, holds now and
        // then.
        at_last(|| {
            warm.make_ready(warms.iter().map(PathBuf::as_path)).expect("files");
            cold.measure(&Case::Get(copy)).expect("what was written");
            warms.iter().all(|path| most(kept(path)))
        });
        at_last(|| {
            cold.make_ready(colds.iter().map(PathBuf::as_path)).expect("files");
            colds.iter().all(|path| !most(kept(path)))
        });
        at_last(|| {
            warms.iter().for_each(|path| forget(&File::open(path).expect("it is there")).expect("a file"));
            warm.make_ready(warms.iter().map(PathBuf::as_path)).expect("files");
            warms.iter().all(|path| most(kept(path)))
        });
        cold.clean().expect("it is removed");
        warm.clean().expect("it is removed");
    }

    #[test]
    fn a_load_by_fio_that_is_warm_begins_warm() {
        let at = tempfile::tempdir().expect("a directory");
        let mut warm = begin(at.path(), true);
        let (order, block, read_percent, depth, rate) = (Order::Random, 4096, 100, 1, None);
        let load = Load { order, block, read_percent, depth, rate, seconds: 0.02, file_len: 256 << 20 };
        if !tells(at.path()) || warm.unsupported(&Case::Load(load)).is_some() {
            println!("skipped: needs fio");
            return;
        }
        warm.prepare(&Case::Load(load)).expect("a file");
        let path = warm.own().expect("it is there").join("large");
        at_last(|| {
            forget(&File::open(&path).expect("it is there")).expect("a file");
            warm.measure(&Case::Load(load)).expect("fio takes it");
            // What a load of this length reads by itself is a part.
            kept(&path).is_some_and(|(kept, pages)| kept * 100 > pages * 95)
        });
        warm.clean().expect("it is removed");
    }
}
