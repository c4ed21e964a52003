//! The operations, a file each, and what they share. Which one is meant is decided here and nowhere
//! else.

mod access;
mod allocate;
mod clone;
mod close;
mod commit;
mod copy;
mod create;
pub(crate) mod delegated;
mod delegreturn;
mod exchange_id;
mod filehandles;
mod getattr;
mod io_advise;
mod link;
mod lock;
mod lookup;
mod offload;
mod open;
mod open_change;
mod owner_call;
mod read;
mod read_plus;
mod readdir;
mod readlink;
mod remove;
mod rename;
mod secinfo;
mod seek;
mod sessions;
mod setattr;
mod setclientid;
mod stateids;
mod verify;
mod write;
mod xattr;

use vouch_nfs4::op::{Args, Op};
use vouch_nfs4::{Name, Status};
use vouch_vfs::Patience;

use crate::stop::{Outcome, Stop};
use crate::walk::{FileRef, Object, Walk};

/// Does one operation and writes its result; on failure, only where the result is more than a
/// status.
pub(crate) fn dispatch(walk: &mut Walk<'_>, args: &Args<'_>) -> Outcome {
    crate::admission::check(walk, args.op())?;
    match args {
        Args::Access(args) => access::access(walk, args),
        Args::Close(args) => close::close(walk, args),
        Args::Commit(args) => commit::commit(walk, args),
        Args::Create(args) => create::create(walk, args),
        Args::Delegpurge(args) => delegreturn::delegpurge(walk, args),
        Args::Delegreturn(args) => delegreturn::delegreturn(walk, args),
        Args::Getattr(args) => getattr::getattr(walk, args),
        Args::Getfh => filehandles::getfh(walk),
        Args::Link(args) => link::link(walk, args),
        Args::Lock(args) => lock::lock(walk, args),
        Args::Lockt(args) => lock::lockt(walk, args),
        Args::Locku(args) => lock::locku(walk, args),
        Args::Lookup(args) => lookup::lookup(walk, args),
        Args::Lookupp => lookup::lookupp(walk),
        Args::Nverify(args) => verify::nverify(walk, args),
        Args::Open(args) => open::open(walk, args),
        Args::OpenConfirm(args) => open_change::confirm(walk, args),
        Args::OpenDowngrade(args) => open_change::downgrade(walk, args),
        Args::Putfh(args) => filehandles::putfh(walk, args),
        Args::Putpubfh => filehandles::putpubfh(walk),
        Args::Putrootfh => filehandles::putrootfh(walk),
        Args::Read(args) => read::read(walk, args),
        Args::Readdir(args) => readdir::readdir(walk, args),
        Args::Readlink => readlink::readlink(walk),
        Args::Remove(args) => remove::remove(walk, args),
        Args::Rename(args) => rename::rename(walk, args),
        Args::Renew(args) => setclientid::renew(walk, args),
        Args::Restorefh => filehandles::restorefh(walk),
        Args::Savefh => filehandles::savefh(walk),
        Args::Secinfo(args) => secinfo::secinfo(walk, args),
        Args::Setattr(args) => setattr::setattr(walk, args),
        Args::Setclientid(args) => setclientid::setclientid(walk, args),
        Args::SetclientidConfirm(args) => setclientid::confirm(walk, args),
        Args::Verify(args) => verify::verify(walk, args),
        Args::Write(args) => write::write(walk, args),
        Args::ReleaseLockowner(args) => lock::release_lockowner(walk, args),
        Args::BackchannelCtl(args) => sessions::backchannel_ctl(walk, args),
        Args::BindConnToSession(args) => sessions::bind_conn(walk, args),
        Args::ExchangeId(args) => exchange_id::exchange_id(walk, args),
        Args::CreateSession(args) => sessions::create_session(walk, args),
        Args::DestroySession(args) => sessions::destroy_session(walk, args),
        Args::FreeStateid(args) => stateids::free(walk, args),
        Args::GetDirDelegation(_) => delegreturn::get_dir_delegation(walk),
        Args::SecinfoNoName(args) => secinfo::secinfo_no_name(walk, args),
        Args::TestStateid(args) => stateids::test(walk, args),
        Args::DestroyClientid(args) => sessions::destroy_clientid(walk, args),
        Args::ReclaimComplete(args) => sessions::reclaim_complete(walk, args),
        Args::Allocate(args) => allocate::allocate(walk, args),
        Args::Copy(args) => copy::copy(walk, args),
        Args::Deallocate(args) => allocate::deallocate(walk, args),
        Args::IoAdvise(args) => io_advise::io_advise(walk, args),
        Args::OffloadCancel(args) => offload::cancel(walk, args),
        Args::OffloadStatus(args) => offload::status(walk, args),
        Args::ReadPlus(args) => read_plus::read_plus(walk, args),
        Args::Seek(args) => seek::seek(walk, args),
        Args::Clone(args) => clone::clone(walk, args),
        Args::Getxattr(args) => xattr::getxattr(walk, args),
        Args::Setxattr(args) => xattr::setxattr(walk, args),
        Args::Listxattrs(args) => xattr::listxattrs(walk, args),
        Args::Removexattr(args) => xattr::removexattr(walk, args),
        // No named attributes here: RFC 8881, section 18.17.3.
        Args::Openattr(_) => walk.current_object().and(Err(Status::NOTSUPP.into())),
        // RFC 8881, section 2.10.8.3: SP4_SSV is not offered, so there is no secret to set.
        Args::SetSsv(_) => Err(Status::INVAL.into()),
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
        // The compound does this one itself, and refuses numbers that it doesn't know.
        Args::Sequence(_) => Err(Status::SEQUENCE_POS.into()),
        Args::Illegal(_) => Err(Status::OP_ILLEGAL.into()),
    }
}

/// What answers arguments that can't be read. RFC 8881, section 15.1.1.1: BADXDR, also where an
/// enumeration has a value that it lacks. But what is not supported at all is that whatever it was
/// asked for; and RFC 7862, section 11.1, has UNION_NOTSUPP for an arm that an operation does not
/// know.
pub(crate) fn unreadable(op: Op, error: &vouch_xdr::Error) -> Status {
    match (op, error) {
        (Op::SEEK, vouch_xdr::Error::Unknown { what: "data_content4", .. }) => Status::UNION_NOTSUPP,
        (Op::COPY, vouch_xdr::Error::Unknown { what: "netloc_type4", .. }) => Status::NOTSUPP,
        (op, vouch_xdr::Error::Unknown { .. }) if UNSUPPORTED.contains(&op) => Status::NOTSUPP,
        _ => Status::BADXDR,
    }
}

/// No pNFS here (EXCHGID4_FLAG_USE_NON_PNFS), no copies between servers, no application data
/// blocks, no delegation without an open: RFC 8881, section 15.1.1.5.
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

/// Whether an operation changes anything, so that it must not be done twice, and not without room
/// for its result.
pub(crate) fn changes(op: Op) -> bool {
    matches!(
        op,
        Op::CLOSE
            | Op::CREATE
            | Op::DELEGRETURN
            | Op::LINK
            | Op::LOCK
            | Op::LOCKU
            | Op::OPEN
            | Op::OPEN_CONFIRM
            | Op::OPEN_DOWNGRADE
            | Op::REMOVE
            | Op::RENAME
            | Op::SETATTR
            | Op::WRITE
            | Op::ALLOCATE
            | Op::COPY
            | Op::DEALLOCATE
            | Op::CLONE
            | Op::SETXATTR
            | Op::REMOVEXATTR
            | Op::FREE_STATEID
    )
}

/// The status as a minor version knows it: RFC 7530 lacks some that RFC 8881 has.
pub(crate) fn status_of_minor(minor: u32, status: Status) -> Status {
    match (minor, status) {
        (0, Status::WRONG_TYPE) => Status::INVAL,
        (0, Status::DEADSESSION) => Status::EXPIRED,
        (_, status) => status,
    }
}

/// The name of a directory entry, judged.
fn name(name: Name<'_>) -> Result<vouch_vfs::Name<'_>, Status> {
    let component = name.component()?;
    Ok(vouch_vfs::Name::new(component.as_bytes()).expect("a component is a name: both refuse the same"))
}

/// RFC 8881, section 15.1.2.8: an operation on a directory's entries wants a directory.
fn require_directory(walk: &Walk<'_>, file: &FileRef) -> Result<(), Stop> {
    let attributes = file.files().attributes(&file.id, walk.patience)?;
    match walk.require_directory(&attributes) {
        // RFC 8881 lists SYMLINK for LOOKUP and OPEN only.
        Err(_) => Err(Status::NOTDIR.into()),
        Ok(()) => Ok(()),
    }
}

/// Bytes from which on it takes its time to give them back: blocks are freed one by one, and pages
/// of memory before them, which is some milliseconds.
pub(crate) const FREED_LEN_LONG: u64 = 64 << 20;

/// Whether a thread that must not wait may give so much of a file back.
fn may_free(walk: &Walk<'_>, len: u64) -> Result<(), Stop> {
    if walk.patience == Patience::None && len >= FREED_LEN_LONG { Err(Stop::Blocked) } else { Ok(()) }
}

/// What was just made lacks what was asked for with it, and so must not stay: a file that its maker
/// takes for closed to others by its ACL would be open to them. Only that file is removed, whatever
/// has its name by now. The failure is told, whatever comes of this.
fn unmade(walk: &Walk<'_>, directory: &FileRef, name: vouch_vfs::Name<'_>, made: &vouch_vfs::FileId, why: Stop) -> Stop {
    if let Err(error) = directory.files().unmake(&directory.grant.caller, &directory.id, name, made) {
        let (object, source) =
            (Object::File(directory.with(*made)), std::io::Error::other(format!("could not be set up, nor removed: {error}")));
        walk.server.note_error(walk.core, Some(&object), Status::IO, &source);
    }
    why
}

/// A name under which another export hangs can't be taken away: it is in use.
fn not_a_junction(walk: &Walk<'_>, directory: &FileRef, name: vouch_vfs::Name<'_>) -> Result<(), Stop> {
    match walk.tree.junction(directory.grant.site.export.id, &directory.id, name.as_bytes()) {
        Some(_) => Err(Status::FILE_OPEN.into()),
        None => Ok(()),
    }
}
