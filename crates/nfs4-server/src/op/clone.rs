//! CLONE (RFC 7862, section 15.13).

use vouch_nfs4::Status;
use vouch_nfs4::op::{CloneArgs, Results};
use vouch_vfs::Patience;

use super::copy::Pair;
use crate::stop::{Outcome, Stop};
use crate::walk::Walk;

pub(crate) fn clone(walk: &mut Walk<'_>, args: &CloneArgs) -> Outcome {
    let pair = Pair::open(walk, &args.source, &args.destination)?;
    let block = u64::from(pair.to.grant.site.traits.clone_block_len);
    // RFC 7862, section 15.13.3: a file system that can't is NOTSUPP; offsets that don't fit its blocks
    // are INVAL.
    if block == 0 {
        return Err(Status::NOTSUPP.into());
    }
    if !args.source_offset.is_multiple_of(block) || !args.destination_offset.is_multiple_of(block) {
        return Err(Status::INVAL.into());
    }
    // What was written to either and is not on the disk yet is written first, however little is cloned.
    if walk.patience == Patience::None {
        return Err(Stop::Blocked);
    }
    let size = pair.source.file().attributes()?.size;
    pair.check_range(size, args.source_offset, args.destination_offset, args.count)?;
    let end = args.source_offset.saturating_add(args.count);
    if end > size || (!args.count.is_multiple_of(block) && end != size) {
        return Err(Status::INVAL.into());
    }
    pair.destination.file().clone_range(pair.source.file(), args.source_offset, args.destination_offset, args.count)?;
    walk.must_sync(&pair.to.grant, &[pair.to.id]);
    Results::Clone(Ok(())).encode(walk.out);
    Ok(())
}
