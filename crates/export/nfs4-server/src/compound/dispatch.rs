use vouch_nfs4::Status;
use vouch_nfs4::op::{Args, Op};

use super::context::CompoundContext;
use crate::error::OpResult;
use crate::op::*;

pub(crate) fn dispatch(context: &mut CompoundContext<'_>, args: &Args<'_>) -> OpResult {
    super::precheck::check_admission(context, args)?;
    match args {
        Args::Access(args) => access::access(context, args),
        Args::Close(args) => close::close(context, args),
        Args::Commit(args) => commit::commit(context, args),
        Args::Create(args) => create::create(context, args),
        Args::Delegpurge(args) => delegreturn::delegpurge(context, args),
        Args::Delegreturn(args) => delegreturn::delegreturn(context, args),
        Args::Getattr(args) => getattr::getattr(context, args),
        Args::Getfh => filehandles::getfh(context),
        Args::Link(args) => link::link(context, args),
        Args::Lock(args) => lock::lock(context, args),
        Args::Lockt(args) => lock::lockt(context, args),
        Args::Locku(args) => lock::locku(context, args),
        Args::Lookup(args) => lookup::lookup(context, args),
        Args::Lookupp => lookup::lookupp(context),
        Args::Nverify(args) => verify::nverify(context, args),
        Args::Open(args) => open::open(context, args),
        Args::OpenConfirm(args) => open_change::confirm(context, args),
        Args::OpenDowngrade(args) => open_change::downgrade(context, args),
        Args::Putfh(args) => filehandles::putfh(context, args),
        Args::Putpubfh => filehandles::putpubfh(context),
        Args::Putrootfh => filehandles::putrootfh(context),
        Args::Read(args) => read::read(context, args),
        Args::Readdir(args) => readdir::readdir(context, args),
        Args::Readlink => readlink::readlink(context),
        Args::Remove(args) => remove::remove(context, args),
        Args::Rename(args) => rename::rename(context, args),
        Args::Renew(args) => setclientid::renew(context, args),
        Args::Restorefh => filehandles::restorefh(context),
        Args::Savefh => filehandles::savefh(context),
        Args::Secinfo(args) => secinfo::secinfo(context, args),
        Args::Setattr(args) => setattr::setattr(context, args),
        Args::Setclientid(args) => setclientid::setclientid(context, args),
        Args::SetclientidConfirm(args) => setclientid::confirm(context, args),
        Args::Verify(args) => verify::verify(context, args),
        Args::Write(args) => write::write(context, args),
        Args::ReleaseLockowner(args) => lock::release_lockowner(context, args),
        Args::BackchannelCtl(args) => sessions::backchannel_ctl(context, args),
        Args::BindConnToSession(args) => sessions::bind_conn(context, args),
        Args::ExchangeId(args) => exchange_id::exchange_id(context, args),
        Args::CreateSession(args) => sessions::create_session(context, args),
        Args::DestroySession(args) => sessions::destroy_session(context, args),
        Args::FreeStateid(args) => stateids::free(context, args),
        Args::GetDirDelegation(_) => delegreturn::get_dir_delegation(context),
        Args::SecinfoNoName(args) => secinfo::secinfo_no_name(context, args),
        Args::TestStateid(args) => stateids::test(context, args),
        Args::DestroyClientid(args) => sessions::destroy_clientid(context, args),
        Args::ReclaimComplete(args) => sessions::reclaim_complete(context, args),
        Args::Allocate(args) => allocate::allocate(context, args),
        Args::Copy(args) => copy::copy(context, args),
        Args::Deallocate(args) => allocate::deallocate(context, args),
        Args::IoAdvise(args) => io_advise::io_advise(context, args),
        Args::OffloadCancel(args) => offload::cancel(context, args),
        Args::OffloadStatus(args) => offload::status(context, args),
        Args::ReadPlus(args) => read_plus::read_plus(context, args),
        Args::Seek(args) => seek::seek(context, args),
        Args::Clone(args) => clone::clone(context, args),
        Args::Getxattr(args) => xattr::getxattr(context, args),
        Args::Setxattr(args) => xattr::setxattr(context, args),
        Args::Listxattrs(args) => xattr::listxattrs(context, args),
        Args::Removexattr(args) => xattr::removexattr(context, args),
        // RFC 8881 §18.17.3: there are no named attributes.
        Args::Openattr(_) => context.current_object().and(Err(Status::NOTSUPP.into())),
        // RFC 8881 §2.10.8.3: SP4_SSV is not offered.
        Args::SetSsv(_) => Err(Status::INVAL.into()),
        Args::Getdeviceinfo(args) if context.tree.has_layouts() => {
            layout::getdeviceinfo(context, args)
        }
        Args::Layoutget(args) if context.tree.has_layouts() => layout::layoutget(context, args),
        Args::Layoutreturn(args) if context.tree.has_layouts() => {
            layout::layoutreturn(context, args)
        }
        Args::Layouterror(args) if context.tree.has_layouts() => layout::layouterror(context, args),
        Args::Layoutstats(args) if context.tree.has_layouts() => layout::layoutstats(context, args),
        // RFC 8881, section 18.42.3: there are no layouts for writing.
        Args::Layoutcommit(_) if context.tree.has_layouts() => Err(Status::BADLAYOUT.into()),
        Args::Getdeviceinfo(_)
        | Args::Getdevicelist(_)
        | Args::Layoutcommit(_)
        | Args::Layoutget(_)
        | Args::Layoutreturn(_)
        | Args::Layouterror(_)
        | Args::Layoutstats(_)
        | Args::CopyNotify(_)
        | Args::WriteSame(_)
        | Args::WantDelegation(_) => Err(Status::NOTSUPP.into()),
        Args::Sequence(_) => Err(Status::SEQUENCE_POS.into()),
        Args::Illegal(_) => Err(Status::OP_ILLEGAL.into()),
    }
}

/// BADXDR, also for unknown enumeration values (RFC 8881 §15.1.1.1); UNION_NOTSUPP for unknown
/// union arms (RFC 7862 §11.1).
pub(crate) fn unreadable(op: Op, error: &vouch_xdr::Error) -> Status {
    match (op, error) {
        (Op::SEEK, vouch_xdr::Error::Unknown { what: "data_content4", .. }) => {
            Status::UNION_NOTSUPP
        }
        (Op::COPY, vouch_xdr::Error::Unknown { what: "netloc_type4", .. }) => Status::NOTSUPP,
        (op, vouch_xdr::Error::Unknown { .. }) if UNSUPPORTED.contains(&op) => Status::NOTSUPP,
        _ => Status::BADXDR,
    }
}

/// pNFS, copies between servers, application data blocks, delegations without open.
const UNSUPPORTED: [Op; 10] = [
    Op::GETDEVICEINFO,
    Op::GETDEVICELIST,
    Op::LAYOUTCOMMIT,
    Op::LAYOUTGET,
    Op::LAYOUTRETURN,
    Op::LAYOUTERROR,
    Op::LAYOUTSTATS,
    Op::COPY_NOTIFY,
    Op::WRITE_SAME,
    Op::WANT_DELEGATION,
];

/// RFC 7530 lacks some statuses.
pub(crate) fn status_of_minor(minor: u32, status: Status) -> Status {
    match (minor, status) {
        (0, Status::WRONG_TYPE) => Status::INVAL,
        (0, Status::DEADSESSION) => Status::EXPIRED,
        (_, status) => status,
    }
}
