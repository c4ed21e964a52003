//! ALLOCATE and DEALLOCATE (RFC 7862 §15.1 and 15.4).

use vouch_nfs4::op::{AllocateArgs, DeallocateArgs, Results};
use vouch_nfs4::{Stateid, Status};
use vouch_vfs::{Blocking, mutant};

use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::file_ref::FileRef;
use crate::files::open_file::{self, IoPurpose};

const LONG_LEN: u64 = 4 << 20;

pub(crate) fn allocate(context: &mut CompoundContext<'_>, args: &AllocateArgs) -> OpResult {
    let (file, open) = opened(context, &args.stateid, args.offset, args.length)?;
    if args.length > 0 && !mutant("allocate-does-not-extend") {
        open.file().allocate(args.offset, args.length)?;
    }
    context.must_sync(&file.grant, &[file.id]);
    Results::Allocate(Ok(())).encode(context.out);
    Ok(())
}

pub(crate) fn deallocate(context: &mut CompoundContext<'_>, args: &DeallocateArgs) -> OpResult {
    let (file, open) = opened(context, &args.stateid, args.offset, args.length)?;
    let more = if mutant("punch-overruns") { 8 } else { 0 };
    if args.length > 0 && !mutant("punch-does-nothing") {
        open.file().deallocate(args.offset, args.length + more)?;
    }
    context.must_sync(&file.grant, &[file.id]);
    Results::Deallocate(Ok(())).encode(context.out);
    Ok(())
}

fn opened(
    context: &mut CompoundContext<'_>,
    stateid: &Stateid,
    offset: u64,
    length: u64,
) -> Result<(FileRef, crate::OpenHandle), OpError> {
    let file = context.current_file(Status::ISDIR)?;
    file.writable()?;
    let end = offset.checked_add(length).ok_or(Status::INVAL)?;
    if end > file.grant.site.traits().file_size_max {
        return Err(Status::FBIG.into());
    }
    let open = open_file::open_for(context, &file, stateid, IoPurpose::Write)?;
    if context.blocking == Blocking::Forbidden && length >= LONG_LEN {
        return Err(OpError::WouldBlock);
    }
    Ok((file, open))
}
