//! COMMIT (RFC 8881, section 18.3).

use vouch_nfs4::Status;
use vouch_nfs4::op::{CommitArgs, CommitOk, Results};
use vouch_vfs::Patience;

use crate::io;
use crate::stop::Outcome;
use crate::walk::Walk;

pub(crate) fn commit(walk: &mut Walk<'_>, args: &CommitArgs) -> Outcome {
    let file = walk.current_file(Status::ISDIR)?;
    file.writable()?;
    // RFC 8881, section 18.3.3: a range that no file can have is INVAL.
    if args.offset.checked_add(args.count.into()).is_none() {
        return Err(Status::INVAL.into());
    }
    let open = io::open_to_commit(walk, &file)?;
    let commit = || open.file().commit(args.offset, args.count.into(), walk.patience);
    match walk.patience {
        Patience::None => walk.server.syncs().watched(commit())?,
        Patience::Any => walk.server.syncs().alone(file.key(), commit)?,
    }
    Results::Commit(Ok(CommitOk { verifier: walk.server.write_verifier() })).encode(walk.out);
    Ok(())
}
