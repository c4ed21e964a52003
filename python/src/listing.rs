use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use vouch_tree_reader::{Found, ReadTree};

use crate::errors::blocking;
use crate::stat::Stat;

/// Iterates over the entries of a directory, sorted by name, one page in memory.
#[pyclass(frozen, module = "vouch._vouch")]
pub(crate) struct Listing {
    tree: Arc<ReadTree>,
    directory: Found,
    page: Mutex<(vouch_tree_client::Listing, usize)>,
}

impl Listing {
    pub(crate) fn new(
        tree: Arc<ReadTree>,
        directory: Found,
        page: vouch_tree_client::Listing,
    ) -> Self {
        Self { tree, directory, page: Mutex::new((page, 0)) }
    }
}

#[pymethods]
impl Listing {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Stat>> {
        if self.directory.is_opaque() {
            return Ok(None);
        }
        loop {
            let next = {
                let mut page = self.page.lock();
                let (listing, at) = &mut *page;
                if let Some(entry) = listing.entries().get(*at) {
                    *at += 1;
                    let found = self.directory.below(entry);
                    return Ok(Some(Stat::new(&found.path, &found.inode)));
                }
                if listing.last {
                    return Ok(None);
                }
                listing.next()
            };
            // Not under the lock: another thread may hold the interpreter's.
            let fetched =
                blocking(py, |interrupt| self.tree.list(&self.directory, next, interrupt))?;
            let mut page = self.page.lock();
            if page.0.next() == next {
                *page = (fetched, 0);
            }
        }
    }
}
