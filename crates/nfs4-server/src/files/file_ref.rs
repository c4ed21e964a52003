use std::sync::Arc;

use vouch_nfs4::Status;
use vouch_vfs::{FileId, FileSystem};

use crate::access::grant::Grant;
use crate::filehandle::{HandleTarget, PseudoId};
use crate::state::FileKey;

#[derive(Clone)]
pub(crate) struct FileRef {
    pub(crate) grant: Arc<Grant>,
    pub(crate) id: FileId,
}

#[derive(Clone)]
pub(crate) enum Object {
    Pseudo(PseudoId),
    File(FileRef),
}

impl FileRef {
    pub(crate) fn files(&self) -> &dyn FileSystem {
        &*self.grant.site.export.file_system
    }

    /// The file system is on other servers only.
    pub(crate) fn is_absent(&self) -> bool {
        self.grant.site.export.locations.is_referral
    }

    pub(crate) fn named(&self) -> HandleTarget {
        HandleTarget::File(self.grant.site.export.id, self.id)
    }

    pub(crate) fn key(&self) -> FileKey {
        FileKey::new(self.grant.site.export.id, self.id, self.files().home(&self.id))
    }

    pub(crate) fn with(&self, id: FileId) -> FileRef {
        FileRef { grant: self.grant.clone(), id }
    }

    pub(crate) fn same_export(&self, other: &FileRef) -> bool {
        self.grant.site.export.id == other.grant.site.export.id
    }

    /// RFC 8881, section 15.1.2.7.
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
}
