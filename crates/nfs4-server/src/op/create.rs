//! CREATE (RFC 8881, section 18.4): all that is no regular file.

use vouch_nfs4::Status;
use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{CreateArgs, CreateOk, CreateType, Results};
use vouch_vfs::{Error, NewNode, Patience};

use crate::attribute::settings;
use crate::naming::Turn;
use crate::observer::Naming;
use crate::stop::{Outcome, Stop};
use crate::walk::{Object, Walk, change_info};

pub(crate) fn create(walk: &mut Walk<'_>, args: &CreateArgs<'_>) -> Outcome {
    let object = walk.current_object()?;
    let Object::File(directory) = object else { return Err(Status::ROFS.into()) };
    let node = match args.kind {
        // RFC 8881, section 18.4.3: a link to nothing is INVAL.
        CreateType::Symlink(b"") => return Err(Status::INVAL.into()),
        CreateType::Symlink(text) => NewNode::Symlink(text),
        CreateType::Block(numbers) => NewNode::BlockDevice(numbers.major, numbers.minor),
        CreateType::Character(numbers) => NewNode::CharDevice(numbers.major, numbers.minor),
        CreateType::Plain(FileType::Directory) => NewNode::Directory,
        CreateType::Plain(FileType::Fifo) => NewNode::Fifo,
        CreateType::Plain(FileType::Socket) => NewNode::Socket,
        CreateType::Plain(_) | CreateType::Unknown(_) => return Err(Status::BADTYPE.into()),
    };
    super::require_directory(walk, &directory)?;
    let name = super::name(args.name)?;
    let supported = walk.supported(&Object::File(directory.clone()));
    let settings = settings(&args.attrs, supported, node == NewNode::Directory, true, &walk.owners())?;
    if settings.set.size.is_some() {
        return Err(Status::INVAL.into());
    }
    directory.writable()?;
    super::not_a_junction(walk, &directory, name).map_err(|_| Stop::Status(Status::EXIST))?;
    // Making a name reads its directory, and there is no asking for it only where that is in memory. A
    // look-up tells.
    if walk.patience == Patience::None
        && let Err(Error::WouldBlock) = directory.files().lookup(&directory.grant.caller, &directory.id, name, walk.patience)
    {
        return Err(Stop::Blocked);
    }
    let mut named = directory.id;
    let made = walk.change_names(
        &directory,
        Turn::AmongOthers,
        || directory.files().make(&directory.grant.caller, &directory.id, name, node, &settings.set),
        |(id, ..), _| {
            named = *id;
            Naming::Found(&named, (&directory.id, args.name.0))
        },
    );
    let (id, _, change) = made?;
    let file = directory.with(id);
    if let Err(stop) = super::setattr::set_acls(&file, &settings) {
        return Err(super::unmade(walk, &directory, name, &id, stop));
    }
    walk.must_sync(&directory.grant, &[id, directory.id]);
    walk.set_current(Object::File(file));
    Results::Create(Ok(CreateOk { change: change_info(change), attrs_set: settings.mask })).encode(walk.out);
    Ok(())
}
