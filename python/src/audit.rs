use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use vouch_audit::operations;
use vouch_audit::record::{Class, access};
use vouch_audit::rules::{Field, Resolve};
use vouch_audit::trail::{Hit, Outcome, Query, SearchMode, search};

use crate::audit_columns::{Columns, values};

/// Records in one message of the searching thread, and in one Arrow batch.
const BATCH_LEN: usize = 16_384;
/// Batches that wait for the program.
const BATCHES_AHEAD_MAX: usize = 2;
const POLL_INTERVAL: Duration = Duration::from_millis(40);

/// Conditions of a search, as `vouch audit search` has them; all must hold.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Conditions {
    from_ns: Option<u64>,
    until_ns: Option<u64>,
    principal: Option<Text>,
    uid: Option<u32>,
    auid: Option<u32>,
    path: Option<Text>,
    below: Option<Text>,
    file: Option<String>,
    export: Option<Text>,
    client: Option<Text>,
    operations: Vec<String>,
    class: Option<String>,
    result: Option<String>,
    access: Option<String>,
    key: Option<Text>,
    fields: Vec<Text>,
}

/// Text or a path, as bytes.
type Text = PathBuf;

impl Conditions {
    fn query(self) -> Result<Query, String> {
        let forms = |text: Option<Text>| text.map(crate::stat::bytes_of).into_iter().collect();
        let mut fields = Vec::new();
        for field in self.fields {
            let field = crate::stat::bytes_of(field);
            fields.push(Field::parse(&field, &Unresolved)?);
        }
        // Networks and patterns are fields of rules.
        let mut exact = |name: &str, text: Option<Text>| -> Result<Vec<Vec<u8>>, String> {
            let Some(text) = text.map(crate::stat::bytes_of) else { return Ok(Vec::new()) };
            if !text.contains(&b'*') && !(name == "client" && text.contains(&b'/')) {
                return Ok(vec![text]);
            }
            let field = [name.as_bytes(), b"=", &text].concat();
            fields.push(Field::parse(&field, &Unresolved)?);
            Ok(Vec::new())
        };
        let (client, principal) =
            (exact("client", self.client)?, exact("principal", self.principal)?);
        let mut set = None;
        for word in &self.operations {
            let found = operations::parse_operations(word)
                .ok_or_else(|| format!("{word}: neither an NFS operation nor a system call"))?;
            *set.get_or_insert(0) |= found;
        }
        let class = self.class.map(|class| {
            Class::ALL.iter().copied().find(|one| one.name() == class).ok_or_else(|| {
                format!("class {class}: give operation, refusal, administrative, gap or host")
            })
        });
        let access = self.access.map(|words| {
            access::parse_words(&words).ok_or_else(|| format!("access {words}: unknown word"))
        });
        Ok(Query {
            from_ns: self.from_ns,
            until_ns: self.until_ns,
            principal,
            uid: self.uid,
            auid: self.auid,
            path: forms(self.path),
            below: forms(self.below),
            file: self.file.as_deref().map(bytes_of_hex).transpose()?.unwrap_or_default(),
            export: forms(self.export),
            client,
            operations: set,
            class: class.transpose()?,
            outcome: self.result.as_deref().map(outcome).transpose()?,
            key: forms(self.key),
            fields,
            access: access.transpose()?.unwrap_or(0),
            ..Query::default()
        })
    }
}

/// Users and groups by number.
struct Unresolved;

impl Resolve for Unresolved {
    fn user(&self, _: &str) -> Option<u32> {
        None
    }

    fn group(&self, _: &str) -> Option<u32> {
        None
    }
}

fn outcome(text: &str) -> Result<Outcome, String> {
    match text {
        "success" => Ok(Outcome::Success),
        "failure" => Ok(Outcome::Failure),
        _ => operations::errno_of_name(text)
            .map(Outcome::Errno)
            .or_else(|| text.parse().ok().map(Outcome::Is))
            .ok_or_else(|| format!("result {text}: give success, failure, ENOENT or a number")),
    }
}

fn bytes_of_hex(text: &str) -> Result<Vec<u8>, String> {
    let byte = |pair: &[u8]| {
        std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    bytes
        .filter(|_| text.len().is_multiple_of(2))
        .ok_or_else(|| format!("file {text}: not hexadecimal"))
}

/// A running search. One thread of the program reads it at a time.
#[pyclass(frozen, module = "vouch._vouch")]
pub(crate) struct Search {
    batches: Mutex<Option<Receiver<std::io::Result<Vec<Hit>>>>>,
    pid: u32,
}

#[pymethods]
impl Search {
    #[new]
    #[pyo3(signature = (directory, conditions, *, newest, scan, limit))]
    fn new(
        directory: PathBuf,
        conditions: Conditions,
        newest: bool,
        scan: bool,
        limit: Option<u64>,
    ) -> PyResult<Self> {
        let query = conditions.query().map_err(PyValueError::new_err)?;
        let (found, batches) = sync_channel(BATCHES_AHEAD_MAX);
        let mode = if scan { SearchMode::Scan } else { SearchMode::Index };
        // Ends at the next record after the receiver is gone.
        thread::Builder::new()
            .name("vouch-search".into())
            .spawn(move || run(&directory, &query, (newest, mode, limit), &found))?;
        Ok(Self { batches: Mutex::new(Some(batches)), pid: std::process::id() })
    }

    /// The next records as dictionaries; `None` after the last.
    fn records<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(hits) = self.next(py)? else { return Ok(None) };
        let records = PyList::empty(py);
        let mut scratch = Vec::new();
        for hit in &hits {
            // As the command: a record of a later version is left out.
            let Ok(record) = hit.record(&mut scratch) else { continue };
            let out = PyDict::new(py);
            values(&record, &out)?;
            records.append(out)?;
        }
        Ok(Some(records))
    }

    /// The next records as buffers of Arrow columns: see `audit_columns.rs`.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Option<(usize, Bound<'py, PyList>)>> {
        let Some(hits) = self.next(py)? else { return Ok(None) };
        let columns = py.detach(|| {
            let mut columns = Columns::default();
            let mut scratch = Vec::new();
            for hit in &hits {
                if let Ok(record) = hit.record(&mut scratch) {
                    columns.push(&record);
                }
            }
            columns
        });
        columns.into_python(py).map(Some)
    }

    /// Columns of no records, for their types.
    #[staticmethod]
    fn no_columns(py: Python<'_>) -> PyResult<(usize, Bound<'_, PyList>)> {
        Columns::empty().into_python(py)
    }
}

impl Search {
    fn next(&self, py: Python<'_>) -> PyResult<Option<Vec<Hit>>> {
        if self.pid != std::process::id() {
            return Err(PyRuntimeError::new_err(
                "this process was forked after the search began; search again in the child",
            ));
        }
        let Some(mut batches) = self.batches.lock().take() else { return Ok(None) };
        loop {
            let (next, returned) = py.detach(move || {
                let next = batches.recv_timeout(POLL_INTERVAL);
                (next, batches)
            });
            match next {
                Ok(Ok(hits)) => {
                    self.batches.lock().replace(returned);
                    return Ok(Some(hits));
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
            batches = returned;
        }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        let batches = self.batches.get_mut().take();
        if self.pid != std::process::id() {
            // The parent's thread may hold its locks.
            std::mem::forget(batches);
        }
    }
}

fn run(
    directory: &std::path::Path,
    query: &Query,
    (newest, mode, limit): (bool, SearchMode, Option<u64>),
    found: &SyncSender<std::io::Result<Vec<Hit>>>,
) {
    let (mut batch, mut left) = (Vec::new(), limit.unwrap_or(u64::MAX));
    if left == 0 {
        return;
    }
    let done = search(directory, query, newest, mode, |hit| {
        batch.push(hit.clone());
        left -= 1;
        left > 0 && (batch.len() < BATCH_LEN || found.send(Ok(std::mem::take(&mut batch))).is_ok())
    });
    // The receiver may be gone.
    let _ = match done {
        Ok(_) if batch.is_empty() => Ok(()),
        Ok(_) => found.send(Ok(batch)),
        Err(error) => found.send(Err(error)),
    };
}
