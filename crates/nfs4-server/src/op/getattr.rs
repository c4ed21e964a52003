//! GETATTR (RFC 8881, section 18.7).

use vouch_nfs4::op::{GetattrArgs, Op};
use vouch_nfs4::{Attributes, Status};

use crate::attribute;
use crate::stop::Outcome;
use crate::walk::{Object, Walk};

pub(crate) fn getattr(walk: &mut Walk<'_>, args: &GetattrArgs) -> Outcome {
    // RFC 8881, section 5.5: what can only be set can't be asked for.
    if !args.wanted.and(Attributes::WRITE_ONLY).is_empty() {
        return Err(Status::INVAL.into());
    }
    let object = walk.current_object()?;
    let mut view = walk.view(&object, args.wanted)?;
    if let Object::File(file) = &object {
        super::delegated::ask_holder(walk, file, args.wanted, &mut view.attributes)?;
    }
    walk.out.u32(Op::GETATTR.0);
    walk.out.u32(Status::OK.0);
    let owners = walk.owners();
    attribute::encode(&view, args.wanted, Status::OK, &owners, walk.out)
}
