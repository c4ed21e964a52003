//! WRITE (RFC 8881, section 18.32).

use vouch_nfs4::Status;
use vouch_nfs4::op::{Results, StableHow, WriteArgs, WriteOk};
use vouch_vfs::{Patience, Stability};

use crate::io::{self, Use};
use crate::stop::Outcome;
use crate::walk::Walk;

pub(crate) fn write(walk: &mut Walk<'_>, args: &WriteArgs<'_>) -> Outcome {
    let file = walk.current_file(Status::ISDIR)?;
    file.writable()?;
    let open = io::open_for(walk, &file, &args.stateid, Use::Write)?;
    let data = &args.data.0[..args.data.0.len().min(walk.server.config().limits.io_len_max as usize)];
    // RFC 8881, section 18.32.3: beyond the largest file it is FBIG.
    if args.offset.checked_add(data.len() as u64).is_none_or(|end| end > file.grant.site.traits.file_size_max) {
        return Err(Status::FBIG.into());
    }
    let stability = match args.stable {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    };
    let verifier = walk.server.write_verifier();
    let (mut len, mut committed) = (0, stability);
    // Of nothing, nothing is written, and that is OK.
    if !data.is_empty() {
        let write = || open.file().write(args.offset, data, stability, walk.patience);
        let written = match (stability, walk.patience) {
            (Stability::Unstable, _) => write()?,
            (_, Patience::None) => walk.server.syncs().watched(write())?,
            (_, Patience::Any) => walk.server.syncs().during(&[file.key()], write)?,
        };
        (len, committed) = (written.len, written.stability);
    }
    walk.bytes_written += len as u64;
    let committed = match committed {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    };
    let count = u32::try_from(len).expect("a write is bounded by the limit of I/O");
    Results::Write(Ok(WriteOk { count, committed, verifier })).encode(walk.out);
    Ok(())
}
