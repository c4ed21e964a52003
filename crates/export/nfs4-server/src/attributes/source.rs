use vouch_nfs4::Bitmap;
use vouch_nfs4::attr::Attr;
use vouch_vfs::{Attributes, Blocking, Error, FileType, PosixAclKind, Space, Traits};

use super::acl;
use crate::attributes::{ACL, LOCATIONS, SPACE, View};
use crate::compound::context::CompoundContext;
use crate::error::OpError;
use crate::filehandle::{HandleTarget, PseudoId};
use crate::files::file_ref::{FileRef, Object};
use crate::pseudo_fs::{Node, PSEUDO_FSID};

pub(crate) const PSEUDO_TRAITS: Traits = Traits {
    read_only: true,
    file_size_max: i64::MAX as u64,
    links_max: u32::MAX,
    name_len_max: vouch_vfs::NAME_LEN_MAX as u32,
    xattrs: false,
    acls: false,
    labels: false,
    uncacheable: false,
    clone_block_len: 0,
    sparse: false,
    change_grows: true,
    persistent_ids: true,
    unique_ids: true,
};

impl CompoundContext<'_> {
    pub(crate) fn view(&self, object: &Object, wanted: Bitmap) -> Result<View, OpError> {
        match object {
            Object::Pseudo(id) => self.pseudo_view(*id, wanted),
            Object::File(file) => {
                let attributes = file.files().attributes(&file.id, self.blocking)?;
                self.file_view(file, attributes, wanted)
            }
        }
    }

    pub(crate) fn file_view(
        &self,
        file: &FileRef,
        attributes: Attributes,
        wanted: Bitmap,
    ) -> Result<View, OpError> {
        let site = &file.grant.site;
        let mounted_on = if file.id == site.root {
            site.mounted_on
        } else {
            file.files().mounted_on(&file.id, &attributes)
        };
        let space = match wanted.and(SPACE).is_empty() {
            true => None,
            false => Some(file.files().space(&file.grant.caller, &file.id, self.blocking)?),
        };
        let acl = match wanted.and(ACL).is_empty() || !site.traits().acls {
            true => None,
            false => Some(entries(file, &attributes, self.blocking)?),
        };
        let label = match wanted.has(Attr::SEC_LABEL.0) && site.traits().labels {
            true => label(file, self.blocking)?,
            false => None,
        };
        Ok(View {
            minor: self.origin.minor,
            fsid: site.fsid(&attributes),
            attributes,
            mounted_on,
            traits: site.traits(),
            quotas: site.quotas,
            has_layouts: site.has_layouts(),
            handle: wanted
                .has(Attr::FILEHANDLE.0)
                .then(|| self.server.handles().seal(&file.named())),
            space,
            acl,
            label,
            site: (!wanted.and(LOCATIONS).is_empty()).then(|| site.clone()),
        })
    }

    pub(crate) fn pseudo_view(&self, id: PseudoId, wanted: Bitmap) -> Result<View, OpError> {
        let node = self.tree.node(id).ok_or(vouch_nfs4::Status::STALE)?;
        Ok(View {
            minor: self.origin.minor,
            attributes: self.pseudo_attributes(id, node),
            fsid: PSEUDO_FSID,
            mounted_on: id.0,
            traits: PSEUDO_TRAITS,
            quotas: false,
            has_layouts: false,
            handle: wanted
                .has(Attr::FILEHANDLE.0)
                .then(|| self.server.handles().seal(&HandleTarget::Pseudo(id))),
            space: Some(Space::default()),
            acl: None,
            label: None,
            site: None,
        })
    }

    fn pseudo_attributes(&self, id: PseudoId, node: &Node) -> Attributes {
        Attributes {
            file_type: FileType::Directory,
            mode: 0o555,
            links: node.links(),
            uid: 0,
            gid: 0,
            size: 4096,
            space_used: 0,
            device: (0, 0),
            fsid: 0,
            file_number: id.0,
            accessed: self.tree.made,
            modified: self.tree.made,
            changed: self.tree.made,
            created: None,
            change: self.tree.change,
        }
    }

    pub(crate) fn supported(&self, object: &Object) -> Bitmap {
        match object {
            Object::Pseudo(_) => {
                crate::attributes::supported(self.origin.minor, &PSEUDO_TRAITS, false, false)
            }
            Object::File(file) => {
                let site = &file.grant.site;
                crate::attributes::supported(
                    self.origin.minor,
                    &site.traits(),
                    site.quotas,
                    site.has_layouts(),
                )
            }
        }
    }
}

/// SELinux's of a file without a label. Linux 7.3 gives EIO for a file whose label is not returned.
const UNLABELED: &[u8] = b"system_u:object_r:unlabeled_t:s0";

fn label(file: &FileRef, blocking: Blocking) -> Result<Option<Vec<u8>>, OpError> {
    match file.files().label(&file.id, blocking) {
        Ok(label) => Ok(Some(label)),
        Err(Error::NoXattr | Error::NotSupported) => Ok(Some(UNLABELED.to_vec())),
        Err(error) => Err(error.into()),
    }
}

fn entries(
    file: &FileRef,
    attributes: &Attributes,
    blocking: Blocking,
) -> Result<Vec<acl::Entry>, OpError> {
    let directory = attributes.file_type == FileType::Directory;
    let get = |kind| file.files().acl(&file.grant.caller, &file.id, kind, blocking);
    let mut access = get(PosixAclKind::Access)?;
    if access.entries.is_empty() {
        access = acl::from_mode(attributes.mode);
    }
    let mut entries = Vec::new();
    acl::to_nfs(&access, directory, false, &mut entries);
    if directory {
        let default = get(PosixAclKind::Default)?;
        if !default.entries.is_empty() {
            acl::to_nfs(&default, directory, true, &mut entries);
        }
    }
    Ok(entries)
}
