use vouch_nfs4::attr::{Attr, FileType};
use vouch_nfs4::op::{Args, CreateHow, CreateType, OpenClaim, OpenHow, ShareAccess};
use vouch_nfs4::{Bitmap, Stateid};
use vouch_vfs::Access;

use crate::observer::interface::{Arguments, requested};

const SET: [(u32, Bitmap); 5] = [
    (requested::TRUNCATE, Bitmap::of(&[Attr::SIZE.0])),
    (requested::MODE, Bitmap::of(&[Attr::MODE.0, Attr::MODE_SET_MASKED.0])),
    (requested::OWNER, Bitmap::of(&[Attr::OWNER.0, Attr::OWNER_GROUP.0])),
    (requested::ACL, crate::attributes::ACL),
    (requested::TIMES, Bitmap::of(&[Attr::TIME_ACCESS_SET.0, Attr::TIME_MODIFY_SET.0])),
];

pub(crate) fn of<'a>(args: &Args<'a>) -> Arguments<'a> {
    let with_name = |name: &'a [u8]| Arguments { name: Some(name.into()), ..Arguments::default() };
    // The current stateid (RFC 8881 §16.2.3.1.2) only looks special.
    let unopened =
        |stateid: &Stateid| *stateid == Stateid::ANONYMOUS || *stateid == Stateid::READ_BYPASS;
    let data = |offset, stateid: &Stateid, access: Access| {
        let arguments =
            Arguments { offset: Some(offset), access: Some(access.0), ..Arguments::default() };
        arguments.unopened_if(unopened(stateid))
    };
    let pair = |source: &Stateid, destination: &Stateid, offset| {
        let arguments = Arguments {
            offset: Some(offset),
            access: Some(Access::READ.0 | Access::MODIFY.0),
            ..Arguments::default()
        };
        arguments.unopened_if(unopened(source) || unopened(destination))
    };
    match args {
        Args::Lookup(args) => with_name(args.name.0),
        Args::Remove(args) => with_name(args.name.0),
        Args::Create(args) => {
            let kind = match &args.kind {
                CreateType::Symlink(_) => FileType::Symlink,
                CreateType::Block(_) => FileType::Block,
                CreateType::Character(_) => FileType::Character,
                CreateType::Plain(kind) => *kind,
                CreateType::Unknown(_) => return with_name(args.name.0),
            };
            Arguments {
                access: Some((kind as u32) << requested::TYPE_SHIFT),
                ..with_name(args.name.0)
            }
        }
        Args::Secinfo(args) => with_name(args.name.0),
        Args::Link(args) => {
            Arguments { new_name: Some(args.name.0.into()), ..Arguments::default() }
        }
        Args::Rename(args) => {
            Arguments { new_name: Some(args.new.0.into()), ..with_name(args.old.0) }
        }
        Args::Open(args) => {
            let name = match &args.claim {
                OpenClaim::Null(name) | OpenClaim::DelegatePrev(name) => Some(name.0.into()),
                OpenClaim::DelegateCur(cur) => Some(cur.name.0.into()),
                OpenClaim::Previous(_)
                | OpenClaim::Fh
                | OpenClaim::DelegCurFh(_)
                | OpenClaim::DelegPrevFh => None,
            };
            let mut access = 0;
            if args.access.contains(ShareAccess::READ) {
                access |= Access::READ.0;
            }
            if args.access.contains(ShareAccess::WRITE) {
                access |= Access::MODIFY.0 | Access::EXTEND.0;
            }
            if let OpenHow::Create(how) = &args.how {
                access |= requested::CREATE;
                if let CreateHow::Unchecked(attrs) = how
                    && attrs.attributes().is_ok_and(|set| set.size == Some(0))
                {
                    access |= requested::TRUNCATE;
                }
            }
            Arguments { name, access: Some(access), ..Arguments::default() }
        }
        Args::Access(args) => Arguments { access: Some(args.access.0), ..Arguments::default() },
        Args::Setattr(args) => {
            let mask = args.attrs.mask;
            let mut access = 0;
            let mut rest = mask;
            for (bit, attributes) in SET {
                if !mask.and(attributes).is_empty() {
                    access |= bit;
                    rest = rest.minus(attributes);
                }
            }
            if !rest.is_empty() {
                access |= requested::OTHER;
            }
            let mode = match access & requested::MODE {
                0 => None,
                _ => args.attrs.attributes().ok().and_then(|set| {
                    set.mode.or(set.mode_set_masked.map(|masked| masked.value & masked.mask))
                }),
            };
            Arguments { access: Some(access), mode, ..Arguments::default() }
        }
        Args::Read(args) => data(args.offset, &args.stateid, Access::READ),
        Args::ReadPlus(args) => data(args.offset, &args.stateid, Access::READ),
        Args::Write(args) => data(args.offset, &args.stateid, Access::MODIFY),
        Args::Commit(args) => Arguments {
            offset: Some(args.offset),
            access: Some(Access::MODIFY.0),
            ..Arguments::default()
        },
        Args::Copy(args) => pair(&args.source, &args.destination, args.destination_offset),
        Args::Clone(args) => pair(&args.source, &args.destination, args.destination_offset),
        _ => Arguments::default(),
    }
}

#[cfg(test)]
mod tests {
    use vouch_nfs4::op::{DelegateCur, DelegationType, OpenArgs, ShareDeny};
    use vouch_nfs4::{Bytes, ClientId, Name, OwnerSeq, StateOwner};

    use super::*;

    #[test]
    fn open_arguments_have_the_name_of_the_claim() {
        let name = Name(b"f");
        let claims = [
            (OpenClaim::Null(name), true),
            (OpenClaim::DelegateCur(DelegateCur { stateid: Stateid::ANONYMOUS, name }), true),
            (OpenClaim::DelegatePrev(name), true),
            (OpenClaim::Previous(DelegationType::None), false),
            (OpenClaim::Fh, false),
            (OpenClaim::DelegCurFh(Stateid::ANONYMOUS), false),
            (OpenClaim::DelegPrevFh, false),
        ];
        for (claim, is_named) in claims {
            let owner = StateOwner { client: ClientId(0), owner: Bytes(b"") };
            let (access, deny) = (ShareAccess::READ, ShareDeny(0));
            let args = Args::Open(OpenArgs {
                seq: OwnerSeq(0),
                access,
                deny,
                owner,
                how: OpenHow::NoCreate,
                claim,
            });
            assert_eq!(of(&args).name.as_deref(), is_named.then_some(&b"f"[..]), "{claim:?}");
        }
    }
}
