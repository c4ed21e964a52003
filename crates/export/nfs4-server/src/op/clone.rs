//! CLONE (RFC 7862 §15.13).

use vouch_nfs4::Status;
use vouch_nfs4::op::{CloneArgs, Results};
use vouch_vfs::{Blocking, mutant};

use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::copy_pair::Pair;

pub(crate) fn clone(context: &mut CompoundContext<'_>, args: &CloneArgs) -> OpResult {
    let pair = Pair::open(context, &args.source, &args.destination)?;
    let block = u64::from(pair.to.grant.site.traits().clone_block_len);
    // §15.13.3.
    if block == 0 {
        return Err(Status::NOTSUPP.into());
    }
    if !args.source_offset.is_multiple_of(block) || !args.destination_offset.is_multiple_of(block) {
        return Err(Status::INVAL.into());
    }
    // The file system writes out dirty data of both files first.
    if context.blocking == Blocking::Forbidden {
        return Err(OpError::WouldBlock);
    }
    let size = pair.source.file().attributes()?.size;
    pair.check_range(size, args.source_offset, args.destination_offset, args.count)?;
    let end = args.source_offset.saturating_add(args.count);
    if end > size || (!args.count.is_multiple_of(block) && end != size) {
        return Err(Status::INVAL.into());
    }
    if mutant("clone-does-nothing") {
        Results::Clone(Ok(())).encode(context.out);
        return Ok(());
    }
    pair.destination.file().clone_range(
        pair.source.file(),
        args.source_offset,
        args.destination_offset,
        args.count,
    )?;
    context.must_sync(&pair.to.grant, &[pair.to.id]);
    Results::Clone(Ok(())).encode(context.out);
    Ok(())
}
