//! What an operation's arguments say to one who keeps records: names, access asked for, place. Judges nothing.

use vouch_nfs4::Stateid;
use vouch_nfs4::op::{Args, OpenClaim, OpenHow, ShareAccess};
use vouch_vfs::Access;

use crate::observer::{Asked, asked};

/// Number of the attribute `size` (RFC 8881, section 5.5).
const SIZE: u32 = 4;

/// What these arguments ask for.
pub(crate) fn of<'a>(args: &Args<'a>) -> Asked<'a> {
    let named = |name: &'a [u8]| Asked { name: Some(name), ..Asked::default() };
    let data = |offset, stateid: &Stateid, access: Access| {
        // The current stateid (RFC 8881, section 16.2.3.1.2) is special in form only.
        let unopened = *stateid == Stateid::ANONYMOUS || *stateid == Stateid::READ_BYPASS;
        let access = if unopened { access.0 | asked::UNOPENED } else { access.0 };
        Asked { offset: Some(offset), access: Some(access), ..Asked::default() }
    };
    match args {
        Args::Lookup(args) => named(args.name.0),
        Args::Remove(args) => named(args.name.0),
        Args::Create(args) => named(args.name.0),
        Args::Secinfo(args) => named(args.name.0),
        Args::Link(args) => Asked { new_name: Some(args.name.0), ..Asked::default() },
        Args::Rename(args) => Asked { name: Some(args.old.0), new_name: Some(args.new.0), ..Asked::default() },
        Args::Open(args) => {
            let name = match &args.claim {
                OpenClaim::Null(name) => Some(name.0),
                _ => None,
            };
            let mut access = 0;
            if args.access.contains(ShareAccess::READ) {
                access |= Access::READ.0;
            }
            if args.access.contains(ShareAccess::WRITE) {
                access |= Access::MODIFY.0 | Access::EXTEND.0;
            }
            if matches!(args.how, OpenHow::Create(_)) {
                access |= asked::CREATE;
            }
            Asked { name, access: Some(access), ..Asked::default() }
        }
        Args::Access(args) => Asked { access: Some(args.access.0), ..Asked::default() },
        Args::Setattr(args) => {
            let size = args.attrs.mask.has(SIZE);
            Asked { access: Some(if size { asked::TRUNCATE } else { 0 }), ..Asked::default() }
        }
        Args::Read(args) => data(args.offset, &args.stateid, Access::READ),
        Args::ReadPlus(args) => data(args.offset, &args.stateid, Access::READ),
        Args::Write(args) => data(args.offset, &args.stateid, Access::MODIFY),
        _ => Asked::default(),
    }
}
