use std::sync::Arc;

use vouch_nfs4::Status;
use vouch_vfs::{Blocking, FileId, FileSystem};

use crate::access::grant::Grant;
use crate::error::OpError;
use crate::filehandle::{HandleTarget, PseudoId};
use crate::state::FileKey;

#[derive(Clone)]
pub(crate) struct FileRef {
    pub(crate) grant: Arc<Grant>,
    pub(crate) id: FileId,
    /// From the handle of a layout: the change attribute of the content to read.
    pub(crate) layout_change: Option<u64>,
}

#[derive(Clone)]
pub(crate) enum Object {
    Pseudo(PseudoId),
    File(FileRef),
}

impl FileRef {
    pub(crate) fn new(grant: Arc<Grant>, id: FileId) -> FileRef {
        FileRef { grant, id, layout_change: None }
    }

    pub(crate) fn files(&self) -> &dyn FileSystem {
        &*self.grant.site.export.file_system
    }

    /// STALE if the content is not the one that the layout is for: this server shows another
    /// revision than the server of the layout.
    pub(crate) fn check_layout(&self, blocking: Blocking) -> Result<(), OpError> {
        match self.layout_change {
            Some(change) if self.files().attributes(&self.id, blocking)?.change != change => {
                Err(Status::STALE.into())
            }
            _ => Ok(()),
        }
    }

    /// The file system is on other servers only.
    pub(crate) fn is_absent(&self) -> bool {
        self.grant.site.export.locations.is_referral
    }

    pub(crate) fn named(&self) -> HandleTarget {
        let export = self.grant.site.export.id;
        match self.layout_change {
            None => HandleTarget::File(export, self.id),
            Some(change) => HandleTarget::LayoutFile(export, self.id, change),
        }
    }

    pub(crate) fn key(&self) -> FileKey {
        FileKey::new(self.grant.site.export.id, self.id, self.files().home(&self.id))
    }

    pub(crate) fn with(&self, id: FileId) -> FileRef {
        FileRef::new(self.grant.clone(), id)
    }

    pub(crate) fn same_export(&self, other: &FileRef) -> bool {
        self.grant.site.export.id == other.grant.site.export.id
    }

    /// RFC 8881 §15.1.2.7.
    pub(crate) fn writable(&self) -> Result<(), Status> {
        if self.grant.read_only() { Err(Status::ROFS) } else { Ok(()) }
    }
}

impl Object {
    pub(crate) fn named(&self) -> HandleTarget {
        match self {
            Object::Pseudo(id) => HandleTarget::Pseudo(*id),
            Object::File(file) => file.named(),
        }
    }

    pub(crate) fn file(&self) -> Option<&FileRef> {
        match self {
            Object::Pseudo(_) => None,
            Object::File(file) => Some(file),
        }
    }
}
