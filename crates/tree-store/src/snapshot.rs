//! The reader of a database: needs no lock, and goes on while a writer commits or a collection
//! sweeps.

use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use vouch_tree::{BlockHandle, HostId, Iv};

use crate::layout::{Layout, PackClass};
use crate::manifest::Revision;
use crate::pack_file::{Location, PackFile, PackFiles};
use crate::view::View;
use crate::{Error, FrameSource, Result};

/// A reader. Any number of threads may use one; each answer comes from the generation of the last
/// [`Snapshot::refresh`].
#[derive(Debug)]
pub struct Snapshot {
    layout: Layout,
    view: RwLock<Arc<View>>,
    refreshing: Mutex<()>,
    files: PackFiles,
}

impl Snapshot {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let layout = Layout::new(path);
        let view = Arc::new(View::load(&layout, None)?);
        Ok(Self { layout, view: RwLock::new(view), refreshing: Mutex::default(), files: PackFiles::new() })
    }

    /// Goes on to the newest generation; true when there is a new one. One system call when there
    /// is none. When it fails, the old view stays.
    pub fn refresh(&self) -> Result<bool> {
        let _one_at_a_time = self.refreshing.lock();
        let old = self.view();
        if old.is_current(&self.layout)? {
            return Ok(false);
        }
        let new = Arc::new(View::load(&self.layout, Some(&old))?);
        let same_tree = new.iv() == old.iv();
        *self.view.write() = new.clone();
        self.files.retain(|id| same_tree && new.has_pack(id));
        Ok(true)
    }

    /// The current generation, all of one moment.
    pub fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// The database's directory.
    pub fn path(&self) -> &Path {
        self.layout.root()
    }

    /// Whose tree it is.
    pub fn hostid(&self) -> HostId {
        self.view.read().hostid()
    }

    /// The key of its handles.
    pub fn iv(&self) -> Iv {
        self.view.read().iv()
    }

    /// The newest revision's signed fsinfo.
    pub fn head(&self) -> Option<Arc<[u8]>> {
        self.view.read().head().cloned()
    }

    /// Statements of the root key.
    pub fn statements(&self) -> Vec<Vec<u8>> {
        self.view.read().statements().to_vec()
    }

    /// Frames to send along with the head.
    pub fn companions(&self) -> Vec<BlockHandle> {
        self.view.read().companions().to_vec()
    }

    /// Kept revisions, the oldest first.
    pub fn revisions(&self) -> Vec<Revision> {
        self.view.read().revisions().to_vec()
    }

    /// Whether the index has the frame.
    pub fn contains(&self, handle: &BlockHandle) -> Result<bool> {
        self.view.read().index().contains(handle)
    }

    /// Where the frame lies, in a pack that is open. No system call when it was open already.
    pub fn locate(&self, handle: &BlockHandle) -> Result<Option<Location>> {
        loop {
            let view = self.view();
            let Some(place) = view.place(&self.layout, handle)? else { return Ok(None) };
            match self.files.open(&self.layout, PackClass::of(place.kind), place.pack, &view.iv()) {
                Ok(pack) => return Ok(Some(Location::new(pack, &place))),
                // A collection replaced the pack; the newest manifest knows by what.
                Err(error) if error.is_missing_file() => {
                    if !self.refresh()? && self.view().generation() == view.generation() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Looks whether every pack that the manifest names is there and has its length; the first that
    /// is not is the error. One system call a pack; what is in them is
    /// [`crate::Database::verify`]'s matter.
    pub fn check_packs(&self) -> Result<()> {
        let view = self.view();
        for pack in &view.manifest().packs {
            let path = self.layout.pack(pack.class, pack.id);
            let checked = match std::fs::metadata(&path) {
                Ok(found) if found.len() >= pack.len => Ok(()),
                Ok(found) => Err(Error::damaged(&path, format!("the pack has {} bytes where {} belong", found.len(), pack.len))),
                Err(error) => Err(Error::io("look at", &path)(error)),
            };
            // A collection may have replaced it since: then the next generation is what counts.
            if checked.is_err() && view.is_current(&self.layout)? {
                return checked;
            }
        }
        Ok(())
    }

    /// Closes a pack, so that it is opened anew, by its name, where it is needed next: what lies
    /// there may have been mended.
    pub fn reopen(&self, pack: &PackFile) {
        self.files.retain(|id| id != pack.id());
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }
}

impl FrameSource for Snapshot {
    fn get(&self, handle: &BlockHandle) -> Result<Option<Vec<u8>>> {
        self.locate(handle)?.map(|location| location.read_frame()).transpose()
    }
}
