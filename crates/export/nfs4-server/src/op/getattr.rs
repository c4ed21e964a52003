//! GETATTR (RFC 8881 §18.7).

use vouch_nfs4::attr::Attr;
use vouch_nfs4::op::{GetattrArgs, Op};
use vouch_nfs4::{Attributes, Status};
use vouch_vfs::FileType;

use crate::attributes;
use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::delegation_conflict;

pub(crate) fn getattr(context: &mut CompoundContext<'_>, args: &GetattrArgs) -> OpResult {
    // §5.5.
    if !args.wanted.and(Attributes::WRITE_ONLY).is_empty() {
        return Err(Status::INVAL.into());
    }
    let (object, wanted) = match (context.current_object(), context.current_any()?) {
        // §11.4.1.
        (Err(OpError::Status(Status::MOVED)), absent)
            if !args.wanted.and(attributes::LOCATIONS).is_empty() =>
        {
            (absent.clone(), args.wanted.and(attributes::ABSENT))
        }
        (object, _) => (object?, args.wanted),
    };
    let view = delegation_conflict::current_view(context, &object, wanted)?;
    // draft-ietf-nfsv4-uncacheable-files.
    let uncacheable = wanted.and(view.supported()).has(Attr::UNCACHEABLE_FILE_DATA.0);
    if uncacheable && view.attributes.file_type != FileType::Regular {
        return Err(Status::INVAL.into());
    }
    context.out.u32(Op::GETATTR.0);
    context.out.u32(Status::OK.0);
    let owners = context.owners();
    attributes::encode(&view, wanted, Status::OK, &owners, context.out)
}
