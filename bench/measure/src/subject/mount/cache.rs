//! Cold or warm. Drops only this subject's files unless it is alone, because other mounts are
//! measured in turn.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::MountSubject;
use crate::Error;

impl MountSubject {
    pub(super) fn prepare_cache<'a>(
        &self,
        files: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), Error> {
        let warm = self.options.warm;
        let mut block = vec![0; if warm { READ_LEN } else { 0 }];
        for path in files {
            if self.stop.is_set() {
                return Err(Error::Interrupted);
            }
            let mut file = File::open(path).map_err(Error::file(path))?;
            if warm { read_through(&mut file, &mut block) } else { drop_cache(&file) }
                .map_err(Error::file(path))?;
        }
        if !warm && may_drop_all_caches(self.options.alone) {
            rustix::fs::sync();
            fs::write(DROP_CACHES, "3").map_err(Error::file(Path::new(DROP_CACHES)))?;
        }
        Ok(())
    }

    pub(super) fn cache(&self) -> String {
        let dropped = match may_drop_all_caches(self.options.alone) {
            true => "all caches of the machine are dropped",
            false => {
                "the pages of its files are dropped (posix_fadvise), names and attributes stay,"
            }
        };
        match (self.options.warm, self.direct) {
            (true, _) => {
                "warm, through the page cache: files are read once before the clock starts"
                    .to_owned()
            }
            (false, true) => format!("cold: O_DIRECT; {dropped} before copies are read"),
            (false, false) => {
                format!(
                    "cold: no O_DIRECT here; {dropped} before copies and loads; writes of loads are O_DSYNC"
                )
            }
        }
    }
}

/// Only as root, and without other subjects.
fn may_drop_all_caches(alone: bool) -> bool {
    alone && File::options().write(true).open(DROP_CACHES).is_ok()
}

fn drop_cache(file: &File) -> io::Result<()> {
    file.sync_data()?;
    // Not every file system supports this. The report says which state was requested.
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

    fn cached_pages(path: &Path) -> Option<(u64, u64)> {
        let file = File::open(path).expect("the file exists");
        let pages = file.metadata().expect("the file exists").len().div_ceil(4096);
        let mut count = 0;
        for page in 0..pages {
            let (mut byte, flags) = ([0], rustix::io::ReadWriteFlags::NOWAIT);
            match rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut byte)], page * 4096, flags)
            {
                Ok(_) => count += 1,
                Err(rustix::io::Errno::AGAIN) => {}
                Err(_) => return None,
            }
        }
        Some((count, pages))
    }

    /// In the build directory, because a temporary directory may be in memory.
    fn directory() -> tempfile::TempDir {
        let program = std::env::current_exe().expect("the program's path is known");
        let at = tempfile::tempdir_in(program.parent().expect("a directory")).expect("a directory");
        assert_reports_cache(at.path());
        at
    }

    fn assert_reports_cache(at: &Path) {
        let path = at.join("told");
        fs::write(&path, vec![1; 1 << 16]).expect("room");
        let (file, all) = (File::open(&path).expect("the file exists"), cached_pages(&path));
        drop_cache(&file).expect("a file");
        let after = cached_pages(&path);
        fs::remove_file(&path).expect("own JSON is valid");
        assert_eq!(
            (all, after),
            (Some((16, 16)), Some((0, 16))),
            "the file system reports its cache"
        );
    }

    fn eventually(mut holds: impl FnMut() -> bool) {
        let begun = std::time::Instant::now();
        while !holds() {
            assert!(
                begun.elapsed() < std::time::Duration::from_secs(60),
                "the condition never holds"
            );
        }
    }

    #[test]
    fn cold_drops_only_own_files_and_warm_reads_them() {
        let at = directory();
        let (mut cold, mut warm) = (begin(at.path(), false), begin(at.path(), true));
        let copy = Copy { files: 2, len: 1 << 20, content: Content::Random, streams: 1, depth: 1 };
        let paths = |subject: &MountSubject| {
            let directory = subject.copies.values().next().expect("a copy").clone();
            [0, 1].map(|number| directory.join(format!("file{number:06}")))
        };
        let most = |cached_pages: Option<(u64, u64)>| {
            cached_pages.is_some_and(|(cached_pages, pages)| cached_pages * 2 > pages)
        };
        warm.measure(&Case::Put(copy)).expect("room");
        cold.measure(&Case::Put(copy)).expect("room");
        let (colds, warms) = (paths(&cold), paths(&warm));
        eventually(|| {
            warm.prepare_cache(warms.iter().map(PathBuf::as_path)).expect("files");
            cold.measure(&Case::Get(copy)).expect("the written bytes");
            warms.iter().all(|path| most(cached_pages(path)))
        });
        eventually(|| {
            cold.prepare_cache(colds.iter().map(PathBuf::as_path)).expect("files");
            colds.iter().all(|path| !most(cached_pages(path)))
        });
        eventually(|| {
            warms.iter().for_each(|path| {
                drop_cache(&File::open(path).expect("the file exists")).expect("a file")
            });
            warm.prepare_cache(warms.iter().map(PathBuf::as_path)).expect("files");
            warms.iter().all(|path| most(cached_pages(path)))
        });
        cold.clean().expect("removal succeeds");
        warm.clean().expect("removal succeeds");
    }

    #[test]
    #[ignore = "needs fio"]
    fn warm_fio_load_starts_warm() {
        let at = directory();
        let mut warm = begin(at.path(), true);
        let (order, block, read_percent, depth, rate) = (Order::Random, 4096, 100, 1, None);
        let load =
            Load { order, block, read_percent, depth, rate, seconds: 0.02, file_len: 256 << 20 };
        assert_eq!(warm.unsupported(&Case::Load(load)), None);
        warm.prepare(&Case::Load(load)).expect("a file");
        let path = warm.working_directory().expect("the file exists").join("large");
        eventually(|| {
            drop_cache(&File::open(&path).expect("the file exists")).expect("a file");
            warm.measure(&Case::Load(load)).expect("fio accepts the job");
            cached_pages(&path).is_some_and(|(cached_pages, pages)| cached_pages * 100 > pages * 95)
        });
        warm.clean().expect("removal succeeds");
    }
}
