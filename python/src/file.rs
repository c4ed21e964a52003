use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use vouch_tree_reader::ReadFile;

use crate::errors::blocking;
use crate::joined::joined;
use crate::stat::text_of;

/// An open file. Threads may share it.
///
/// `seek` and `read` are here and not in Python: DuckDB shares one file among its threads and calls
/// both with the interpreter lock held, which the interpreter keeps only between native functions.
#[pyclass(frozen, module = "vouch._vouch")]
pub(crate) struct File {
    file: ReadFile,
    /// `None`: closed. Not locked while a read waits.
    position: Mutex<Option<u64>>,
    /// Where `readline` stands, and its block.
    lines: Mutex<(u64, Bytes)>,
}

impl File {
    pub(crate) fn new(file: ReadFile) -> Self {
        Self { file, position: Mutex::new(Some(0)), lines: Mutex::default() }
    }

    fn position(&self) -> PyResult<u64> {
        let closed = || PyValueError::new_err("I/O operation on closed file");
        (*self.position.lock()).ok_or_else(closed)
    }

    /// Bytes from `offset` to the end of a block for lines; none at the end of the file.
    fn block(&self, py: Python<'_>, offset: u64) -> PyResult<Bytes> {
        {
            let lines = self.lines.lock();
            let skip = offset.checked_sub(lines.0).and_then(|skip| usize::try_from(skip).ok());
            if let Some(skip) = skip.filter(|&skip| skip < lines.1.len()) {
                return Ok(lines.1.slice(skip..));
            }
        }
        let pieces = blocking(py, |interrupt| self.file.read(offset, LINES_AT_ONCE, interrupt))?;
        let block = pieces.into_iter().next().unwrap_or_default();
        *self.lines.lock() = (offset, block.clone());
        Ok(block)
    }

    /// Leaves a closed file closed.
    fn move_to(&self, position: u64) {
        if let Some(current) = self.position.lock().as_mut() {
            *current = position;
        }
    }
}

#[pymethods]
impl File {
    #[getter]
    fn path(&self) -> std::ffi::OsString {
        text_of(self.file.path())
    }

    #[getter]
    fn size(&self) -> u64 {
        self.file.size()
    }

    /// `len` bytes from `offset`; fewer only at the end of the file.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        len: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.position()?;
        let pieces = blocking(py, |interrupt| self.file.read(offset, len, interrupt))?;
        joined(py, &pieces)
    }

    fn tell(&self) -> PyResult<u64> {
        self.position()
    }

    #[pyo3(signature = (offset, whence=0, /))]
    fn seek(&self, offset: i128, whence: u32) -> PyResult<u64> {
        let current = self.position()?;
        let base = match whence {
            0 => 0,
            1 => current,
            2 => self.file.size(),
            _ => return Err(PyValueError::new_err(format!("invalid whence ({whence})"))),
        };
        let position = u64::try_from(i128::from(base).saturating_add(offset))
            .map_err(|_| PyValueError::new_err("the position would be negative or too large"))?;
        self.move_to(position);
        Ok(position)
    }

    /// All bytes that are asked for, except at the end; `None` and negative sizes ask for the rest.
    #[pyo3(signature = (size=None, /))]
    fn read<'py>(&self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let start = self.position()?;
        let rest = self.file.size().saturating_sub(start);
        let len =
            size.and_then(|size| u64::try_from(size).ok()).map_or(rest, |size| size.min(rest));
        let data = self.pread(py, start, usize::try_from(len)?)?;
        self.move_to(start + data.as_bytes().len() as u64);
        Ok(data)
    }

    /// To the next newline, with it. Reads blocks, and copies each line once.
    #[pyo3(signature = (size=None, /))]
    fn readline<'py>(&self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let start = self.position()?;
        let len_max = size.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
        let (mut pieces, mut len) = (Vec::new(), 0);
        while len < len_max {
            let block = self.block(py, start + len as u64)?;
            let room = &block[..block.len().min(len_max - len)];
            let newline = room.iter().position(|&byte| byte == b'\n');
            let piece = &room[..newline.map_or(room.len(), |at| at + 1)];
            len += piece.len();
            let is_last = newline.is_some() || piece.is_empty();
            if is_last && pieces.is_empty() {
                self.move_to(start + len as u64);
                return Ok(PyBytes::new(py, piece));
            }
            pieces.push(block.slice(..piece.len()));
            if is_last {
                break;
            }
        }
        self.move_to(start + len as u64);
        joined(py, &pieces)
    }

    fn close(&self) {
        *self.lines.lock() = Default::default();
        self.position.lock().take();
    }
}

const LINES_AT_ONCE: usize = 64 << 10;
