use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use vouch_tree_reader::{RangeRequest, ReadTree};

use crate::changes::{Changes, Log, Revision, verify};
use crate::errors::{blocking, exception};
use crate::file::File;
use crate::joined::joined;
use crate::listing::Listing;
use crate::session::choice;
use crate::stat::{Stat, bytes_of};

/// One revision of a tree.
#[pyclass(frozen, module = "vouch._vouch")]
pub(crate) struct Tree {
    tree: Arc<ReadTree>,
}

impl Tree {
    pub(crate) fn new(tree: Arc<ReadTree>) -> Self {
        Self { tree }
    }
}

#[pymethods]
impl Tree {
    #[getter]
    fn name(&self) -> String {
        self.tree.tree().name().to_string()
    }

    #[getter]
    fn revision(&self) -> Revision {
        Revision::of(&self.tree.revision())
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        blocking(py, |interrupt| self.tree.refresh(interrupt))
    }

    #[pyo3(signature = (path, *, follow_symlinks=true))]
    fn stat(&self, py: Python<'_>, path: PathBuf, follow_symlinks: bool) -> PyResult<Stat> {
        let path = bytes_of(path);
        let found = blocking(py, |interrupt| self.tree.stat(&path, follow_symlinks, interrupt))?;
        Ok(Stat::new(&found.path, &found.inode))
    }

    fn scandir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Listing> {
        let path = bytes_of(path);
        let (found, page) = blocking(py, |interrupt| {
            let found = self.tree.stat(&path, true, interrupt)?;
            let page = self.tree.list(&found, vouch_tree_client::Position::Start, interrupt)?;
            Ok((found, page))
        })?;
        Ok(Listing::new(Arc::clone(&self.tree), found, page))
    }

    fn open_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<File> {
        let path = bytes_of(path);
        Ok(File::new(blocking(py, |interrupt| self.tree.open_file(&path, interrupt))?))
    }

    /// `requests`: of (path, start, end or None). Bytes or an exception for each.
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        requests: Vec<(PathBuf, u64, Option<u64>)>,
    ) -> PyResult<Bound<'py, PyList>> {
        let requests: Vec<RangeRequest> = requests
            .into_iter()
            .map(|(path, start, end)| RangeRequest { path: bytes_of(path), start, end })
            .collect();
        let read = blocking(py, |interrupt| self.tree.read_ranges(&requests, interrupt))?;
        let results = PyList::empty(py);
        for result in read {
            match result {
                Ok(pieces) => results.append(joined(py, &pieces)?)?,
                Err(error) => results.append(exception(py, &error).into_value(py))?,
            }
        }
        Ok(results)
    }

    #[pyo3(signature = (progress=None))]
    fn verify(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(u64, u64, u64, Vec<(std::ffi::OsString, String)>)> {
        verify(py, &self.tree, progress.as_ref())
    }

    fn prove<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
    ) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        let path = bytes_of(path);
        let proof = blocking(py, |interrupt| self.tree.prove(&path, interrupt))?;
        Ok(pyo3::types::PyBytes::new(py, &proof))
    }

    fn log(&self) -> Log {
        Log::new(Arc::clone(&self.tree))
    }

    #[pyo3(signature = (*, revision, tag))]
    fn at(&self, py: Python<'_>, revision: Option<u64>, tag: Option<String>) -> PyResult<Tree> {
        let choice = choice(revision, tag)?;
        Ok(Tree::new(blocking(py, |interrupt| self.tree.at(&choice, interrupt))?))
    }

    fn diff(&self, old: &Tree) -> Changes {
        Changes::new(&self.tree, &old.tree)
    }

    /// Received from replicas, in bytes, and frames from the disk cache since the tree was opened.
    fn counters(&self) -> (u64, u64) {
        let counters = self.tree.tree().counters();
        (counters.network_bytes, counters.disk_frames)
    }
}
