//! WRITE (RFC 8881 §18.32).

use vouch_nfs4::Status;
use vouch_nfs4::op::{Results, StableHow, WriteArgs, WriteOk};
use vouch_vfs::{Blocking, Error, Stability, mutant};

use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::open_file::{self, IoPurpose};

pub(crate) fn write(context: &mut CompoundContext<'_>, args: &WriteArgs<'_>) -> OpResult {
    let file = context.current_file(Status::ISDIR)?;
    file.writable()?;
    let open = open_file::open_for(context, &file, &args.stateid, IoPurpose::Write)?;
    let data =
        &args.data.0[..args.data.0.len().min(context.server.config().limits.io_len_max as usize)];
    // §18.32.3.
    if args
        .offset
        .checked_add(data.len() as u64)
        .is_none_or(|end| end > file.grant.site.traits().file_size_max)
    {
        return Err(Status::FBIG.into());
    }
    let stability = match args.stable {
        _ if mutant("stable-write-is-not-synced") => Stability::Unstable,
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    };
    let data = if mutant("write-loses-last-byte") { &data[..data.len().max(1) - 1] } else { data };
    let offset = if mutant("write-goes-to-even-cell") { args.offset & !8 } else { args.offset };
    let verifier = context.server.write_verifier();
    let (mut len, mut committed) = (0, stability);
    if !data.is_empty() {
        let before = context.written;
        let part_len_max = match (stability, context.blocking) {
            (Stability::Unstable, Blocking::Forbidden) => context.write_len_max,
            _ => usize::MAX,
        };
        let part = &data[before..][..part_len_max.min(data.len() - before)];
        let write = || {
            let offset = offset + before as u64;
            open.file().write(offset, part, stability, context.blocking)
        };
        let written = match (stability, context.blocking) {
            (Stability::Unstable, _) => write(),
            (_, Blocking::Forbidden) => context.server.sync_tracker().watched(write()),
            (_, Blocking::Allowed) => context.server.sync_tracker().during(&[file.key()], write),
        };
        match written {
            Ok(written) => (len, committed) = (before + written.len, written.stability),
            // The client writes the rest again, and gets the error then.
            Err(error) if before > 0 && !matches!(error, Error::WouldBlock) => len = before,
            Err(error) => return Err(error.into()),
        }
        if len == before + part.len() && len < data.len() {
            context.call.written = len;
            return Err(OpError::TurnOver);
        }
        context.call.written = 0;
    }
    context.details.bytes_written += len as u64;
    let committed = match committed {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    };
    let (committed, len) = match () {
        () if mutant("stable-write-is-not-synced") => (args.stable, len),
        () if mutant("write-claims-stability") => (StableHow::FileSync, len),
        () if mutant("write-loses-last-byte") => (committed, args.data.0.len()),
        () => (committed, len),
    };
    let count = u32::try_from(len).expect("a write is bounded by the limit of I/O");
    Results::Write(Ok(WriteOk { count, committed, verifier })).encode(context.out);
    Ok(())
}
