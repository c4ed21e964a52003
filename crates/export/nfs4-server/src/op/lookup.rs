//! LOOKUP and LOOKUPP (RFC 8881 §18.13 and 18.14).

use vouch_nfs4::Status;
use vouch_nfs4::op::{LookupArgs, Results};

use crate::compound::context::CompoundContext;
use crate::error::OpResult;
use crate::files::directory::{find, parent_of};
use crate::files::file_ref::Object;

pub(crate) fn lookup(context: &mut CompoundContext<'_>, args: &LookupArgs<'_>) -> OpResult {
    context.current_any()?;
    let found = find(context, args.name)?;
    // §2.6.3.1.1.3: of the found file.
    if matches!(&found, Object::File(file) if !file.grant.security_fits) {
        return Err(Status::WRONGSEC.into());
    }
    context.set_current(found);
    Results::Lookup(Ok(())).encode(context.out);
    Ok(())
}

pub(crate) fn lookupp(context: &mut CompoundContext<'_>) -> OpResult {
    let found = parent_of(context)?;
    if matches!(&found, Object::File(file) if !file.grant.security_fits) {
        return Err(Status::WRONGSEC.into());
    }
    context.set_current(found);
    Results::Lookupp(Ok(())).encode(context.out);
    Ok(())
}
