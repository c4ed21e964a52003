//! A clock that a test moves forward: programs on this machine see it by libfaketime.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use vouch_testkit::require;

pub(crate) struct MovedClock {
    directory: tempfile::TempDir,
    library: PathBuf,
    offset_s: u64,
}

impl MovedClock {
    pub(crate) fn start() -> MovedClock {
        let library =
            format!("/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1", std::env::consts::ARCH);
        require("the package faketime", Path::new(&library).exists());
        let directory = tempfile::tempdir().expect("a directory");
        // Threads of the server that act as a user read the clock too.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))
            .expect("an own directory");
        let clock = MovedClock { directory, library: library.into(), offset_s: 0 };
        clock.write();
        clock
    }

    /// For programs that follow the clock. Their monotonic clock is not moved.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", self.path().into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DISABLE_SHM", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }

    pub(crate) fn advance(&mut self, seconds: u64) {
        self.offset_s += seconds;
        self.write();
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("offset")
    }

    /// A reader sees the old offset or the new one.
    fn write(&self) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, format!("+{}\n", self.offset_s)).expect("a file");
        std::fs::rename(new, self.path()).expect("a file");
    }
}
