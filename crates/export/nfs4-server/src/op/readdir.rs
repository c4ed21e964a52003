//! READDIR (RFC 8881 §18.23).

use std::ops::ControlFlow;

use vouch_nfs4::attr::Attr;
use vouch_nfs4::op::{Op, ReaddirArgs};
use vouch_nfs4::{Attributes, Bitmap, Status};
use vouch_vfs::{DirectoryEntry, Error, FileId, FileType, Time, mutant};

use crate::ExportId;
use crate::attributes::source::PSEUDO_TRAITS;
use crate::attributes::{self, View};
use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::filehandle::PseudoId;
use crate::files::delegation_conflict;
use crate::files::file_ref::{FileRef, Object};
use crate::pseudo_fs::{Child, PSEUDO_FSID};

const VERIFIER: [u8; 8] = [0; 8];
const HEAD_LEN: usize = 16;
const TAIL_LEN: usize = 8;
const WITHOUT_FILE: Bitmap =
    Bitmap::of(&[Attr::FILEID.0, Attr::MOUNTED_ON_FILEID.0, Attr::RDATTR_ERROR.0]);
/// Of a mount point, for clients that may not enter the export.
const MOUNT_POINT_ATTRIBUTES: Bitmap =
    Bitmap::of(&[Attr::RDATTR_ERROR.0, Attr::MOUNTED_ON_FILEID.0]);
/// Not read during a listing, because the file system may hold a lock.
const READ_AFTER_LISTING: Bitmap = attributes::ACL.or(attributes::SPACE);

pub(crate) fn readdir(context: &mut CompoundContext<'_>, args: &ReaddirArgs) -> OpResult {
    let object = context.current_object()?;
    if let Object::File(file) = &object {
        let attributes = file.files().attributes(&file.id, context.blocking)?;
        if attributes.file_type != FileType::Directory {
            return Err(Status::NOTDIR.into());
        }
    }
    if !args.wanted.and(Attributes::WRITE_ONLY).is_empty() {
        return Err(Status::INVAL.into());
    }
    // §18.23.3.
    if matches!(args.cookie.0, 1 | 2) {
        return Err(Status::BAD_COOKIE.into());
    }
    if args.cookie.0 != 0 && args.verifier.0 != VERIFIER {
        return Err(Status::NOT_SAME.into());
    }
    // §18.23.3: maxcount covers the result without the status.
    let len_max = (args.max_count as usize)
        .min(context.reply_room_len().saturating_sub(8))
        .min(context.server.config().limits.io_len_max as usize);
    if len_max < 8 + TAIL_LEN {
        return Err(Status::TOOSMALL.into());
    }
    context.out.u32(Op::READDIR.0);
    context.out.u32(Status::OK.0);
    context.out.bytes_mut().extend_from_slice(&VERIFIER);
    let delegations_ended = context.server.write_delegations_ended();
    let asks_holders = delegation_conflict::must_ask_holders(context, args.wanted);
    let mut list = Listing {
        wanted: args.wanted,
        end_max: context.result.at + 8 + len_max,
        entries: 0,
        stopped: None,
        asks_holders,
        delegations_ended,
    };
    let eof = match &object {
        Object::Pseudo(id) => list.pseudo(context, *id, args.cookie.0)?,
        Object::File(file) => list.directory(context, file, args.cookie.0)?,
    };
    debug_assert!(context.out.len() >= context.result.at + HEAD_LEN, "entries are only added");
    if list.entries == 0 && !eof {
        // §18.23.3.
        return Err(list.stopped.unwrap_or(Status::TOOSMALL.into()));
    }
    context.out.bool(false);
    context.out.bool(eof || mutant("readdir-ends-early"));
    Ok(())
}

struct Listing {
    wanted: Bitmap,
    end_max: usize,
    entries: usize,
    stopped: Option<OpError>,
    asks_holders: bool,
    /// Before the listing.
    delegations_ended: u64,
}

struct DeferredEntry {
    name: Vec<u8>,
    cookie: u64,
    file_number: u64,
    file: Option<Result<(FileId, vouch_vfs::Attributes), Error>>,
}

impl Listing {
    fn pseudo(
        &mut self,
        context: &mut CompoundContext<'_>,
        id: PseudoId,
        cookie: u64,
    ) -> Result<bool, OpError> {
        let tree = context.tree.clone();
        let node = tree.node(id).ok_or(Status::STALE)?;
        let mut same_cookie = (0, context.out.len(), 0);
        for (at, name, place) in node.children_after(cookie) {
            let Some(child) = context.visible_child(place) else { continue };
            if at != same_cookie.0 {
                same_cookie = (at, context.out.len(), self.entries);
            }
            if self.child(context, at, name, child).is_break() {
                context.out.truncate(same_cookie.1);
                self.entries = same_cookie.2;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn directory(
        &mut self,
        context: &mut CompoundContext<'_>,
        directory: &FileRef,
        cookie: u64,
    ) -> Result<bool, OpError> {
        let with_files = !self.wanted.minus(WITHOUT_FILE).is_empty();
        let blocking = context.blocking;
        let export = directory.grant.site.export.id;
        let junctions = context.tree.has_junctions(export, &directory.id);
        let later =
            junctions || self.asks_holders || !self.wanted.and(READ_AFTER_LISTING).is_empty();
        let (mut waiting, mut room) = (Vec::new(), self.end_max.saturating_sub(context.out.len()));
        let listed = directory.files().read_directory(
            &directory.grant.caller,
            &directory.id,
            cookie,
            with_files,
            blocking,
            &mut |entry: DirectoryEntry<'_>| {
                if !later {
                    return self.entry(
                        context,
                        directory,
                        entry.cookie,
                        entry.name,
                        entry.file_number,
                        entry.file,
                    );
                }
                let len = entry.name.len() + 24;
                if room < len {
                    return ControlFlow::Break(());
                }
                room -= len;
                let DirectoryEntry { name, cookie, file_number, file } = entry;
                waiting.push(DeferredEntry { name: name.to_vec(), cookie, file_number, file });
                ControlFlow::Continue(())
            },
        );
        if self.asks_holders {
            let regular = waiting.iter().filter_map(|entry: &DeferredEntry| match &entry.file {
                Some(Ok((id, attributes))) if attributes.file_type == FileType::Regular => {
                    Some(directory.with(*id))
                }
                _ => None,
            });
            if delegation_conflict::ask_holders(context, regular, self.wanted) {
                return Err(OpError::WouldBlock);
            }
        }
        for DeferredEntry { name, cookie, file_number, file } in waiting {
            let place = context.tree.junction(export, &directory.id, &name);
            let flow = match place.and_then(|place| context.visible_child(place)) {
                Some(child) => self.child(context, cookie, &name, child),
                None => self.entry(context, directory, cookie, &name, file_number, file),
            };
            if flow.is_break() {
                return Ok(false);
            }
        }
        match listed {
            Ok(end) => Ok(end && self.stopped.is_none()),
            Err(Error::WouldBlock) if self.entries > 0 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn entry(
        &mut self,
        context: &mut CompoundContext<'_>,
        directory: &FileRef,
        cookie: u64,
        name: &[u8],
        file_number: u64,
        file: Option<Result<(FileId, vouch_vfs::Attributes), Error>>,
    ) -> ControlFlow<()> {
        let view = match file {
            None => Ok(view_without_attributes(context, file_number)),
            Some(Ok((id, attributes))) => {
                match self.file(context, &directory.with(id), attributes) {
                    // Removed since the listing.
                    Err(OpError::Status(Status::STALE)) => return ControlFlow::Continue(()),
                    view => view,
                }
            }
            Some(Err(Error::NotFound | Error::Stale)) => return ControlFlow::Continue(()),
            Some(Err(error)) => Err(error.into()),
        };
        self.push(context, cookie, name, &view)
    }

    fn file(
        &self,
        context: &mut CompoundContext<'_>,
        file: &FileRef,
        mut attributes: vouch_vfs::Attributes,
    ) -> Result<View, OpError> {
        if self.asks_holders {
            delegation_conflict::ask_holder(
                context,
                file,
                self.wanted,
                self.delegations_ended,
                &mut attributes,
            )?;
        }
        context.file_view(file, attributes, self.wanted)
    }

    /// An export's root replaces its directory (§7.7). Under a wrong flavour the mount point is
    /// listed with rdattr_error (§18.23.3).
    fn child(
        &mut self,
        context: &mut CompoundContext<'_>,
        cookie: u64,
        name: &[u8],
        child: Child,
    ) -> ControlFlow<()> {
        let id = match child {
            Child::Node(id) => {
                let view = context.pseudo_view(id, self.wanted);
                return self.push(context, cookie, name, &view);
            }
            Child::Export(id) => id,
        };
        if context.tree.site(id).is_some_and(|site| site.export.locations.is_referral) {
            return self.referral(context, cookie, name, id);
        }
        let view = self.export_view(context, id);
        let place = context.tree.site(id).map(|site| site.mounted_on);
        let may_list_mount_point = self.wanted.minus(MOUNT_POINT_ATTRIBUTES).is_empty()
            || self.wanted.has(Attr::RDATTR_ERROR.0);
        match (&view, place) {
            (Err(OpError::Status(status)), Some(mounted_on)) if may_list_mount_point => self.put(
                context,
                cookie,
                name,
                Ok((
                    &view_without_attributes(context, mounted_on),
                    self.wanted.and(MOUNT_POINT_ATTRIBUTES),
                    *status,
                )),
            ),
            _ => self.push(context, cookie, name, &view),
        }
    }

    /// §11.4.2.
    fn referral(
        &mut self,
        context: &mut CompoundContext<'_>,
        cookie: u64,
        name: &[u8],
        id: ExportId,
    ) -> ControlFlow<()> {
        let wanted = self.wanted.and(attributes::ABSENT);
        let fails = self.wanted.and(attributes::LOCATIONS).is_empty();
        if fails && !self.wanted.has(Attr::RDATTR_ERROR.0) {
            return self.put(context, cookie, name, Err(&Status::MOVED.into()));
        }
        let error = if fails { Status::MOVED } else { Status::OK };
        let view = self.export_view(context, id);
        self.put(context, cookie, name, view.as_ref().map(|view| (view, wanted, error)))
    }

    fn export_view(&self, context: &CompoundContext<'_>, id: ExportId) -> Result<View, OpError> {
        let object = context.object(context.tree.site(id).ok_or(Status::STALE)?.handle())?;
        match &object {
            Object::File(file) if !file.grant.security_fits => Err(Status::WRONGSEC.into()),
            _ => context.view(&object, self.wanted),
        }
    }

    fn push(
        &mut self,
        context: &mut CompoundContext<'_>,
        cookie: u64,
        name: &[u8],
        view: &Result<View, OpError>,
    ) -> ControlFlow<()> {
        let wanted = self.wanted;
        self.put(context, cookie, name, view.as_ref().map(|view| (view, wanted, Status::OK)))
    }

    /// Unless rdattr_error was requested (§5.8.1.12).
    fn put(
        &mut self,
        context: &mut CompoundContext<'_>,
        cookie: u64,
        name: &[u8],
        outcome: Result<(&View, Bitmap, Status), &OpError>,
    ) -> ControlFlow<()> {
        let start = context.out.len();
        context.out.bool(true);
        context.out.u64(cookie);
        context.out.opaque(name);
        let owners = context.owners();
        let encoded = match outcome {
            Ok((view, of, error)) => attributes::encode(view, of, error, &owners, context.out),
            Err(stop) => match (self.wanted.has(Attr::RDATTR_ERROR.0), stop) {
                (
                    true,
                    OpError::Status(status) | OpError::Encoded(status) | OpError::Fault(status, _),
                ) => attributes::encode(
                    &view_without_attributes(context, 0),
                    Bitmap::of(&[Attr::RDATTR_ERROR.0]),
                    *status,
                    &owners,
                    context.out,
                ),
                (
                    false,
                    OpError::Status(status) | OpError::Encoded(status) | OpError::Fault(status, _),
                ) => Err(OpError::Status(*status)),
                (_, OpError::WouldBlock | OpError::TurnOver) => Err(OpError::WouldBlock),
                (_, OpError::NamesWouldBlock) => Err(OpError::NamesWouldBlock),
            },
        };
        if let Err(stop) = encoded {
            context.out.truncate(start);
            self.stopped = Some(stop);
            return ControlFlow::Break(());
        }
        if context.out.len() + TAIL_LEN > self.end_max {
            context.out.truncate(start);
            return match mutant("readdir-drops-entry-at-page-end") {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            };
        }
        self.entries += 1;
        ControlFlow::Continue(())
    }
}

fn view_without_attributes(context: &CompoundContext<'_>, file_number: u64) -> View {
    let never = Time::default();
    View {
        minor: context.origin.minor,
        attributes: vouch_vfs::Attributes {
            file_type: FileType::Regular,
            mode: 0,
            links: 0,
            uid: 0,
            gid: 0,
            size: 0,
            space_used: 0,
            device: (0, 0),
            fsid: 0,
            file_number,
            accessed: never,
            modified: never,
            changed: never,
            created: None,
            change: 0,
        },
        fsid: PSEUDO_FSID,
        mounted_on: file_number,
        traits: PSEUDO_TRAITS,
        quotas: false,
        has_layouts: false,
        handle: None,
        space: None,
        acl: None,
        label: None,
        site: None,
    }
}
