use vouch_nfs4::{Stateid, Status};

use crate::OpenHandle;
use crate::compound::context::CompoundContext;
use crate::error::OpError;
use crate::files::file_ref::FileRef;
use crate::files::open_file::{self, IoPurpose};

pub(crate) struct Pair {
    pub(crate) from: FileRef,
    pub(crate) to: FileRef,
    pub(crate) source: OpenHandle,
    pub(crate) destination: OpenHandle,
    same: bool,
}

impl Pair {
    pub(crate) fn open(
        context: &mut CompoundContext<'_>,
        source: &Stateid,
        destination: &Stateid,
    ) -> Result<Pair, OpError> {
        let from = context.saved_file(Status::ISDIR)?;
        let to = context.current_file(Status::ISDIR)?;
        // RFC 7862 §15.2.3: the client itself copies between file systems.
        if !from.same_export(&to) {
            return Err(Status::XDEV.into());
        }
        to.writable()?;
        let destination = open_file::open_for(context, &to, destination, IoPurpose::Write)?;
        // The source's stateid may be the saved one (RFC 8881 §16.2.3.1.2).
        let current =
            std::mem::replace(&mut context.call.current.stateid, context.call.saved.stateid);
        let source = open_file::open_for(context, &from, source, IoPurpose::Read);
        context.call.current.stateid = current;
        let same = from.id == to.id;
        Ok(Pair { from, to, source: source?, destination, same })
    }

    /// RFC 7862 §15.2.3 and 15.13.3. `size` is the source's; a count of 0 means to its end.
    pub(crate) fn check_range(
        &self,
        size: u64,
        from: u64,
        to: u64,
        count: u64,
    ) -> Result<(), Status> {
        let count = if count == 0 { size.saturating_sub(from) } else { count };
        let ends = (from.checked_add(count), to.checked_add(count));
        let (Some(from_end), Some(to_end)) = ends else { return Err(Status::INVAL) };
        if to_end > self.to.grant.site.traits().file_size_max {
            return Err(Status::FBIG);
        }
        let overlaps = from < to_end && to < from_end;
        if self.same && overlaps { Err(Status::INVAL) } else { Ok(()) }
    }
}
