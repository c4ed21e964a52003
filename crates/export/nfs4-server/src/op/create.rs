//! CREATE (RFC 8881 §18.4): all file types except regular files.

use vouch_nfs4::Status;
use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{CreateArgs, CreateOk, CreateType, Results};
use vouch_vfs::{Blocking, Error, NewNode};

use crate::attributes::settings;
use crate::compound::context::{CompoundContext, change_info};
use crate::error::{OpError, OpResult};
use crate::files::delegation_conflict;
use crate::files::file_ref::Object;
use crate::observer::interface::NameChange;
use crate::observer::name_order::Turn;

pub(crate) fn create(context: &mut CompoundContext<'_>, args: &CreateArgs<'_>) -> OpResult {
    let object = context.current_object()?;
    let Object::File(directory) = object else { return Err(Status::ROFS.into()) };
    let node = match args.kind {
        // §18.4.3.
        CreateType::Symlink(b"") => return Err(Status::INVAL.into()),
        CreateType::Symlink(text) => NewNode::Symlink(text),
        CreateType::Block(numbers) => NewNode::BlockDevice(numbers.major, numbers.minor),
        CreateType::Character(numbers) => NewNode::CharDevice(numbers.major, numbers.minor),
        CreateType::Plain(FileType::Directory) => NewNode::Directory,
        CreateType::Plain(FileType::Fifo) => NewNode::Fifo,
        CreateType::Plain(FileType::Socket) => NewNode::Socket,
        CreateType::Plain(_) | CreateType::Unknown(_) => return Err(Status::BADTYPE.into()),
    };
    crate::files::directory::require_directory(context, &directory)?;
    let name = crate::files::directory::name(args.name)?;
    let supported = context.supported(&Object::File(directory.clone()));
    let settings =
        settings(&args.attrs, supported, node == NewNode::Directory, true, &context.owners())?;
    if settings.set.size.is_some() {
        return Err(Status::INVAL.into());
    }
    directory.writable()?;
    crate::files::directory::require_no_junction(context, &directory, name)
        .map_err(|_| OpError::Status(Status::EXIST))?;
    // Creation reads the directory from disk; a lookup shows that it is in memory.
    if context.blocking == Blocking::Forbidden
        && let Err(Error::WouldBlock) =
            directory.files().lookup(&directory.grant.caller, &directory.id, name, context.blocking)
    {
        return Err(OpError::WouldBlock);
    }
    delegation_conflict::recall_for_names(context, &directory)?;
    let mut named = directory.id;
    let made = context.change_names(
        &directory,
        Turn::Shared,
        || {
            directory.files().make(
                &directory.grant.caller,
                &directory.id,
                name,
                node,
                &settings.set,
            )
        },
        |(id, ..)| {
            named = *id;
            NameChange::Created(&named, (&directory.id, args.name.0))
        },
    );
    let (id, _, change) = made?;
    let file = directory.with(id);
    if let Err(stop) = crate::files::creation::set_acls_and_label(&file, &settings) {
        return Err(crate::files::creation::remove_unfinished(
            context, &directory, name, &id, stop,
        ));
    }
    context.must_sync(&directory.grant, &[id, directory.id]);
    context.set_current(Object::File(file));
    Results::Create(Ok(CreateOk { change: change_info(change), attrs_set: settings.mask }))
        .encode(context.out);
    Ok(())
}
