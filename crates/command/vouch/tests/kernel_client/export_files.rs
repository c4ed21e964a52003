//! The exported directory, as this machine sees it.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use vouch_testkit::within;

/// The root has the directory `export`. Servers put their state beside it.
pub(crate) struct ExportFiles(TempDir);

impl ExportFiles {
    pub(crate) fn create() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("export")).expect("a directory");
        ExportFiles(dir)
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("export").join(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("")).expect("the export");
        entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect()
    }

    pub(crate) fn wait_for(&self, name: &str) {
        within(60, &format!("{name} did not come"), || self.path(name).exists());
    }

    /// Until the load in the guest has written to its log again.
    pub(crate) fn wait_for_progress(&self) {
        let len =
            || std::fs::metadata(self.path("acknowledged")).map_or(0, |metadata| metadata.len());
        let before = len();
        within(120, "the client does not go on", || len() != before);
    }
}
