use std::ffi::OsString;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use vouch_tree_client::{ChangeKind, Diff, History, VerifyEvent};
use vouch_tree_reader::{Error, ReadTree, Result};

use crate::errors::blocking;
use crate::stat::{Stat, text_of};

/// A signed revision.
#[pyclass(frozen, get_all, module = "vouch")]
pub(crate) struct Revision {
    /// Starts at 1.
    number: u64,
    /// The publisher's label; may be empty.
    tag: String,
    /// The publisher's message.
    message: Option<String>,
    /// Seconds since 1970 when it was signed.
    published: u64,
    /// Seconds since 1970.
    expires: i64,
    /// Names of regular files.
    files: u64,
    directories: u64,
    /// Sizes of regular files; each hard link counts.
    bytes: u64,
}

impl Revision {
    pub(crate) fn of(revision: &vouch_tree_client::Revision) -> Self {
        let fsinfo = &revision.fsinfo;
        Self {
            number: revision.number(),
            tag: fsinfo.tag.clone(),
            message: fsinfo.message(),
            published: fsinfo.start,
            expires: revision.expires(),
            files: fsinfo.counts.files,
            directories: fsinfo.counts.directories,
            bytes: fsinfo.counts.bytes,
        }
    }
}

#[pymethods]
impl Revision {
    fn __repr__(&self) -> String {
        format!("<vouch.Revision {} {:?}>", self.number, self.tag)
    }

    fn __int__(&self) -> u64 {
        self.number
    }
}

/// A sequence that one thread advances at a time, and that a fork ends.
struct Steps<T> {
    tree: Arc<ReadTree>,
    state: Mutex<Option<T>>,
}

impl<T: Send> Steps<T> {
    fn new(tree: &Arc<ReadTree>, state: T) -> Self {
        Self { tree: Arc::clone(tree), state: Mutex::new(Some(state)) }
    }

    /// An interrupted or concurrent call ends the sequence.
    fn step<R: Send>(
        &self,
        py: Python<'_>,
        next: impl AsyncFnOnce(&mut T) -> Option<Result<R>> + Send,
    ) -> PyResult<Option<R>> {
        let Some(mut state) = self.state.lock().take() else { return Ok(None) };
        let (done, state) = blocking(py, |interrupt| {
            let done =
                self.tree.session().run(interrupt, async { next(&mut state).await.transpose() })?;
            Ok((done, state))
        })?;
        if done.is_some() {
            self.state.lock().replace(state);
        }
        Ok(done)
    }
}

/// Iterates over revisions, newest first.
#[pyclass(frozen, module = "vouch._vouch")]
pub(crate) struct Log {
    steps: Steps<History>,
}

impl Log {
    pub(crate) fn new(tree: Arc<ReadTree>) -> Self {
        let history = tree.history();
        Self { steps: Steps::new(&tree, history) }
    }
}

#[pymethods]
impl Log {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Revision>> {
        self.steps.step(py, async |history: &mut History| match history.next().await? {
            Ok(revision) => Some(Ok(Revision::of(&revision))),
            // Replicas keep no older one.
            Err(vouch_tree_client::Error::Missing { .. }) => None,
            Err(error) => Some(Err(Error::from(error))),
        })
    }
}

/// A path that differs between two revisions.
#[pyclass(frozen, get_all, module = "vouch")]
pub(crate) struct Change {
    /// From the root; empty for the root.
    path: OsString,
    /// `added`, `removed` or `changed`.
    kind: &'static str,
    /// Of `type`, `content`, `mode`, `owner`, `mtime`, `xattrs`, `links`.
    fields: Vec<&'static str>,
    old: Option<Py<Stat>>,
    new: Option<Py<Stat>>,
}

#[pymethods]
impl Change {
    fn __repr__(&self) -> String {
        format!("<vouch.Change {} {:?} {:?}>", self.kind, self.path, self.fields)
    }
}

/// Iterates over differences, sorted by path.
#[pyclass(frozen, module = "vouch._vouch")]
pub(crate) struct Changes {
    steps: Steps<Diff>,
}

impl Changes {
    pub(crate) fn new(tree: &Arc<ReadTree>, old: &ReadTree) -> Self {
        Self { steps: Steps::new(tree, tree.diff(old)) }
    }
}

#[pymethods]
impl Changes {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Change>> {
        let next = self
            .steps
            .step(py, async |diff: &mut Diff| Some(diff.next().await?.map_err(Error::from)))?;
        let Some(change) = next else { return Ok(None) };
        let stat = |inode: Option<vouch_tree::Inode>| {
            inode.map(|inode| Py::new(py, Stat::new(&change.path, &inode))).transpose()
        };
        let (kind, fields) = match change.kind {
            ChangeKind::Added => ("added", Vec::new()),
            ChangeKind::Removed => ("removed", Vec::new()),
            ChangeKind::Changed(fields) => ("changed", fields.names()),
        };
        let (old, new) = (stat(change.old)?, stat(change.new)?);
        Ok(Some(Change { path: text_of(&change.path), kind, fields, old, new }))
    }
}

/// Frames, bytes as stored, regular files, and bad paths with their reasons.
pub(crate) fn verify(
    py: Python<'_>,
    tree: &ReadTree,
    progress: Option<&Py<PyAny>>,
) -> PyResult<(u64, u64, u64, Vec<(OsString, String)>)> {
    let mut raised = None;
    let (mut totals, mut bad) = ((0, 0, 0), Vec::new());
    blocking(py, |interrupt| {
        let failed = std::cell::Cell::new(false);
        tree.verify(&|| failed.get() || interrupt(), |event| match event {
            VerifyEvent::Progress { frames, bytes, waiting } => {
                let Some(progress) = progress else { return };
                let called = Python::attach(|py| progress.call1(py, (frames, bytes, waiting)));
                if let Err(error) = called {
                    failed.set(true);
                    raised.get_or_insert(error);
                }
            }
            VerifyEvent::Bad { path, error } => bad.push((text_of(&path), error.to_string())),
            VerifyEvent::Done { frames, bytes, files, .. } => totals = (frames, bytes, files),
        })
    })
    .map_err(|error| raised.take().unwrap_or(error))?;
    match raised {
        Some(error) => Err(error),
        None => Ok((totals.0, totals.1, totals.2, bad)),
    }
}
