//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276 §8.4).

use vouch_nfs4::op::{
    GetxattrArgs, GetxattrOk, ListxattrsArgs, ListxattrsOk, RemovexattrArgs, Results, SetxattrArgs,
    SetxattrOption, XATTR_NAMES_MAX, XattrChange,
};
use vouch_nfs4::{Bytes, ChangeId, ChangeInfo, Cookie, List, Name, Status};
use vouch_vfs::{XattrHow, mutant};

use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::delegation_conflict;
use crate::files::file_ref::FileRef;
use crate::name_cookie;

const NAME_LEN_MAX: usize = 255 - 5;

pub(crate) fn getxattr(context: &mut CompoundContext<'_>, args: &GetxattrArgs<'_>) -> OpResult {
    let file = supporting(context)?;
    let value =
        file.files().xattr(&file.grant.caller, &file.id, name(args.name)?, context.blocking)?;
    Results::Getxattr(Ok(GetxattrOk { value: Bytes(&value) })).encode(context.out);
    Ok(())
}

pub(crate) fn setxattr(context: &mut CompoundContext<'_>, args: &SetxattrArgs<'_>) -> OpResult {
    let file = supporting(context)?;
    file.writable()?;
    let how = match args.option {
        SetxattrOption::Either => XattrHow::Either,
        SetxattrOption::Create if mutant("setxattr-create-replaces") => XattrHow::Either,
        SetxattrOption::Create => XattrHow::Create,
        SetxattrOption::Replace => XattrHow::Replace,
    };
    if args.value.0.len() > context.server.config().limits.xattr_len_max {
        return Err(Status::XATTR2BIG.into());
    }
    let name = name(args.name)?;
    delegation_conflict::recall_for_setattr(context, &file, false)?;
    let before = change(context, &file)?;
    file.files().set_xattr(&file.grant.caller, &file.id, name, args.value.0, how)?;
    let info = changed(context, &file, before);
    Results::Setxattr(Ok(XattrChange { change: info })).encode(context.out);
    Ok(())
}

pub(crate) fn removexattr(
    context: &mut CompoundContext<'_>,
    args: &RemovexattrArgs<'_>,
) -> OpResult {
    let file = supporting(context)?;
    file.writable()?;
    let name = name(args.name)?;
    delegation_conflict::recall_for_setattr(context, &file, false)?;
    let before = change(context, &file)?;
    if !mutant("removexattr-keeps-value") {
        file.files().remove_xattr(&file.grant.caller, &file.id, name)?;
    }
    let info = changed(context, &file, before);
    Results::Removexattr(Ok(XattrChange { change: info })).encode(context.out);
    Ok(())
}

pub(crate) fn listxattrs(context: &mut CompoundContext<'_>, args: &ListxattrsArgs) -> OpResult {
    let file = supporting(context)?;
    let names = file.files().xattrs(&file.grant.caller, &file.id, context.blocking)?;
    // Survives changes of other attributes (§8.4.3.3).
    let with_cookie = |name: &Vec<u8>| (name_cookie::of_name(name), name.clone());
    let mut rest: Vec<(u64, Vec<u8>)> =
        names.iter().map(with_cookie).filter(|(cookie, _)| *cookie > args.cookie.0).collect();
    rest.sort_unstable();
    let mut room = (args.max_count as usize)
        .min(context.reply_room_len())
        .checked_sub(16)
        .ok_or(Status::TOOSMALL)?;
    let mut listed = Vec::new();
    if mutant("listxattrs-misses-last") {
        rest.pop();
    }
    for (_, name) in rest.iter().take(XATTR_NAMES_MAX) {
        let len = 4 + name.len() + vouch_xdr::pad_len(name.len());
        let Some(left) = room.checked_sub(len) else { break };
        room = left;
        listed.push(Name(name));
    }
    let ends_within =
        |count: usize| count > 0 && rest.get(count).is_some_and(|next| next.0 == rest[count - 1].0);
    while ends_within(listed.len()) {
        listed.pop();
    }
    if listed.is_empty() && !rest.is_empty() {
        return Err(Status::TOOSMALL.into());
    }
    let cookie = listed.len().checked_sub(1).map_or(args.cookie, |last| Cookie(rest[last].0));
    let ok = ListxattrsOk { cookie, eof: listed.len() == rest.len(), names: List(listed) };
    Results::Listxattrs(Ok(ok)).encode(context.out);
    Ok(())
}

/// §8.1.
fn supporting(context: &CompoundContext<'_>) -> Result<FileRef, OpError> {
    let file = context.current_file(Status::NOTSUPP)?;
    if !file.grant.site.traits().xattrs {
        return Err(Status::NOTSUPP.into());
    }
    Ok(file)
}

fn name(name: Name<'_>) -> Result<&[u8], Status> {
    match name.0.len() {
        0 => Err(Status::INVAL),
        1..=NAME_LEN_MAX if !name.0.contains(&0) => Ok(name.0),
        1..=NAME_LEN_MAX => Err(Status::BADCHAR),
        _ => Err(Status::NAMETOOLONG),
    }
}

fn change(context: &CompoundContext<'_>, file: &FileRef) -> Result<u64, OpError> {
    Ok(file.files().attributes(&file.id, context.blocking)?.change)
}

fn changed(context: &mut CompoundContext<'_>, file: &FileRef, before: u64) -> ChangeInfo {
    context.must_sync(&file.grant, &[file.id]);
    let after = file
        .files()
        .attributes(&file.id, vouch_vfs::Blocking::Allowed)
        .map_or(before, |attributes| attributes.change);
    ChangeInfo { atomic: false, before: ChangeId(before), after: ChangeId(after) }
}
