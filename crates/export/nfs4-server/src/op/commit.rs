//! COMMIT (RFC 8881 §18.3).

use vouch_nfs4::Status;
use vouch_nfs4::op::{CommitArgs, CommitOk, Results};
use vouch_vfs::{Blocking, mutant};

use crate::compound::context::CompoundContext;
use crate::error::OpResult;
use crate::files::open_file;

pub(crate) fn commit(context: &mut CompoundContext<'_>, args: &CommitArgs) -> OpResult {
    let file = context.current_file(Status::ISDIR)?;
    file.writable()?;
    // §18.3.3.
    if args.offset.checked_add(args.count.into()).is_none() {
        return Err(Status::INVAL.into());
    }
    let open = open_file::open_to_commit(context, &file)?;
    let commit = || match mutant("commit-does-not-sync") {
        true => Ok(()),
        false => open.file().commit(args.offset, args.count.into(), context.blocking),
    };
    match context.blocking {
        Blocking::Forbidden => context.server.sync_tracker().watched(commit())?,
        Blocking::Allowed => context.server.sync_tracker().alone(file.key(), commit)?,
    }
    Results::Commit(Ok(CommitOk { verifier: context.server.write_verifier() })).encode(context.out);
    Ok(())
}
