use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeWarning, PyValueError};
use pyo3::prelude::*;
use vouch_tree::TreeName;
use vouch_tree_client::TreeOptions;
use vouch_tree_reader::{RevisionChoice, SessionOptions, TreeSelection};

use crate::errors::blocking;
use crate::tree::Tree;

/// Caches and options that trees share.
#[pyclass(frozen, module = "vouch._vouch")]
pub(crate) struct Session {
    session: Arc<vouch_tree_reader::Session>,
    warned: Mutex<Vec<String>>,
}

impl Session {
    /// Of each fault of this machine once.
    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        for fault in self.session.local_faults() {
            {
                let mut warned = self.warned.lock();
                if warned.contains(&fault) {
                    continue;
                }
                warned.push(fault.clone());
            }
            let text = CString::new(fault.replace('\0', ""))?;
            // The caller of `vouch.open`.
            PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)?;
        }
        Ok(())
    }
}

#[pymethods]
impl Session {
    /// `cache` and `state`: `True` for the default directory, `None` for none.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    #[pyo3(signature = (*, timeout, cache, cache_quota, memory_cache, state, state_required, policies, statements, replica_tls, replica_ca, proxies))]
    fn new(
        py: Python<'_>,
        timeout: f64,
        cache: Directory,
        cache_quota: u64,
        memory_cache: u64,
        state: Directory,
        state_required: bool,
        policies: Vec<PathBuf>,
        statements: Vec<PathBuf>,
        replica_tls: bool,
        replica_ca: Option<PathBuf>,
        proxies: Vec<String>,
    ) -> PyResult<Self> {
        let timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|error| PyValueError::new_err(format!("timeout: {error}")))?;
        let defaults = SessionOptions::default();
        let options = SessionOptions {
            timeout,
            cache: cache.choose(defaults.cache),
            cache_quota_bytes: cache_quota,
            memory_cache_bytes: memory_cache,
            state: state.choose(defaults.state),
            state_required,
            policies,
            statements,
            replica_tls,
            replica_ca,
            proxies,
        };
        let session = blocking(py, move |_| vouch_tree_reader::Session::new(options))?;
        Ok(Self { session, warned: Mutex::default() })
    }

    #[pyo3(signature = (name, *, revision, tag, replicas, only_replicas, follow_forwarding))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn open(
        &self,
        py: Python<'_>,
        name: &str,
        revision: Option<u64>,
        tag: Option<String>,
        replicas: Vec<String>,
        only_replicas: bool,
        follow_forwarding: bool,
    ) -> PyResult<Tree> {
        let name: TreeName =
            name.parse().map_err(|error| PyValueError::new_err(format!("{error}")))?;
        let revision = choice(revision, tag)?;
        let options =
            TreeOptions { replicas, only_replicas, refuse_forwarding: !follow_forwarding };
        let selection = TreeSelection { options, revision };
        let tree = blocking(py, |interrupt| self.session.open(&name, &selection, interrupt))?;
        self.warn(py)?;
        Ok(Tree::new(tree))
    }

    /// Waits until the disk cache has what was read.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        blocking(py, |_| self.session.flush())
    }
}

pub(crate) fn choice(revision: Option<u64>, tag: Option<String>) -> PyResult<RevisionChoice> {
    match (revision, tag) {
        (None, None) => Ok(RevisionChoice::Newest),
        (Some(number), None) => Ok(RevisionChoice::Number(number)),
        (None, Some(tag)) => Ok(RevisionChoice::Tag(tag)),
        _ => Err(PyValueError::new_err("give a revision or a tag, not both")),
    }
}

#[derive(FromPyObject)]
enum Directory {
    Default(bool),
    Named(Option<PathBuf>),
}

impl Directory {
    fn choose(self, default: Option<PathBuf>) -> Option<PathBuf> {
        match self {
            Self::Default(is_wanted) => default.filter(|_| is_wanted),
            Self::Named(directory) => directory,
        }
    }
}
