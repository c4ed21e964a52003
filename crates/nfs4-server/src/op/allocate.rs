//! ALLOCATE and DEALLOCATE (RFC 7862, sections 15.1 and 15.4).

use vouch_nfs4::op::{AllocateArgs, DeallocateArgs, Results};
use vouch_nfs4::{Stateid, Status};
use vouch_vfs::Patience;

use crate::io::{self, Use};
use crate::stop::{Outcome, Stop};
use crate::walk::{FileRef, Walk};

/// From this length on the file system may take its time.
const LONG_LEN: u64 = 4 << 20;

pub(crate) fn allocate(walk: &mut Walk<'_>, args: &AllocateArgs) -> Outcome {
    let (file, open) = opened(walk, &args.stateid, args.offset, args.length)?;
    if args.length > 0 {
        open.file().allocate(args.offset, args.length)?;
    }
    walk.must_sync(&file.grant, &[file.id]);
    Results::Allocate(Ok(())).encode(walk.out);
    Ok(())
}

pub(crate) fn deallocate(walk: &mut Walk<'_>, args: &DeallocateArgs) -> Outcome {
    let (file, open) = opened(walk, &args.stateid, args.offset, args.length)?;
    if args.length > 0 {
        open.file().deallocate(args.offset, args.length)?;
    }
    walk.must_sync(&file.grant, &[file.id]);
    Results::Deallocate(Ok(())).encode(walk.out);
    Ok(())
}

fn opened(walk: &mut Walk<'_>, stateid: &Stateid, offset: u64, length: u64) -> Result<(FileRef, crate::OpenHandle), Stop> {
    let file = walk.current_file(Status::ISDIR)?;
    file.writable()?;
    let end = offset.checked_add(length).ok_or(Status::INVAL)?;
    if end > file.grant.site.traits.file_size_max {
        return Err(Status::FBIG.into());
    }
    let open = io::open_for(walk, &file, stateid, Use::Write)?;
    if walk.patience == Patience::None && length >= LONG_LEN {
        return Err(Stop::Blocked);
    }
    Ok((file, open))
}
