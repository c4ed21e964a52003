//! ACCESS (RFC 8881 §18.1; RFC 8276 §8.5).

use vouch_nfs4::op::{Access, AccessArgs, AccessOk, Results};
use vouch_vfs::FileType;

use crate::compound::context::CompoundContext;
use crate::error::OpResult;
use crate::files::file_ref::Object;

const CHANGES: Access =
    Access(Access::MODIFY.0 | Access::EXTEND.0 | Access::DELETE.0 | Access::XAWRITE.0);
const XATTRS: Access = Access(Access::XAREAD.0 | Access::XAWRITE.0 | Access::XALIST.0);

pub(crate) fn access(context: &mut CompoundContext<'_>, args: &AccessArgs) -> OpResult {
    let object = context.current_object()?;
    let plain = Access(Access::READ.0 | Access::MODIFY.0 | Access::EXTEND.0);
    let on_directory = plain | Access::LOOKUP | Access::DELETE;
    let (supported, granted) = match &object {
        Object::Pseudo(_) => (on_directory, Access::READ | Access::LOOKUP),
        Object::File(file) => {
            let attributes = file.files().attributes(&file.id, context.blocking)?;
            let mut supported = match attributes.file_type {
                FileType::Directory => on_directory,
                _ => plain | Access::EXECUTE,
            };
            if context.origin.minor >= 2 && file.grant.site.traits().xattrs {
                supported |= XATTRS;
            }
            let requested = vouch_vfs::Access((args.access & supported).0);
            let mut granted = Access(
                file.files().access(&file.grant.caller, &file.id, requested, context.blocking)?.0,
            );
            if file.grant.read_only() {
                granted = Access(granted.0 & !CHANGES.0);
            }
            (supported, granted)
        }
    };
    // RFC 8881 §18.1.3.
    let supported = supported & args.access;
    context.details.granted = context.details.is_tracked.then_some((granted & supported).0);
    Results::Access(Ok(AccessOk { supported, access: granted & supported })).encode(context.out);
    Ok(())
}
