//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276, section 8.4).

use vouch_nfs4::op::{
    GetxattrArgs, GetxattrOk, ListxattrsArgs, ListxattrsOk, RemovexattrArgs, Results, SetxattrArgs, SetxattrOption, XATTR_NAMES_MAX,
    XattrChange,
};
use vouch_nfs4::{Bytes, ChangeId, ChangeInfo, Cookie, List, Name, Status};
use vouch_vfs::XattrHow;

use super::delegated;
use crate::cookie;
use crate::stop::{Outcome, Stop};
use crate::walk::{FileRef, Walk};

/// Longest name, without the `user.` that Linux puts before it.
const NAME_LEN_MAX: usize = 255 - 5;

pub(crate) fn getxattr(walk: &mut Walk<'_>, args: &GetxattrArgs<'_>) -> Outcome {
    let file = supporting(walk)?;
    let value = file.files().xattr(&file.grant.caller, &file.id, name(args.name)?, walk.patience)?;
    Results::Getxattr(Ok(GetxattrOk { value: Bytes(&value) })).encode(walk.out);
    Ok(())
}

pub(crate) fn setxattr(walk: &mut Walk<'_>, args: &SetxattrArgs<'_>) -> Outcome {
    let file = supporting(walk)?;
    file.writable()?;
    let how = match args.option {
        SetxattrOption::Either => XattrHow::Either,
        SetxattrOption::Create => XattrHow::Create,
        SetxattrOption::Replace => XattrHow::Replace,
    };
    if args.value.0.len() > walk.server.config().limits.xattr_len_max {
        return Err(Status::XATTR2BIG.into());
    }
    let name = name(args.name)?;
    delegated::recall_for_setattr(walk, &file, false)?;
    let before = change(walk, &file)?;
    file.files().set_xattr(&file.grant.caller, &file.id, name, args.value.0, how)?;
    let info = changed(walk, &file, before);
    Results::Setxattr(Ok(XattrChange { change: info })).encode(walk.out);
    Ok(())
}

pub(crate) fn removexattr(walk: &mut Walk<'_>, args: &RemovexattrArgs<'_>) -> Outcome {
    let file = supporting(walk)?;
    file.writable()?;
    let name = name(args.name)?;
    delegated::recall_for_setattr(walk, &file, false)?;
    let before = change(walk, &file)?;
    file.files().remove_xattr(&file.grant.caller, &file.id, name)?;
    let info = changed(walk, &file, before);
    Results::Removexattr(Ok(XattrChange { change: info })).encode(walk.out);
    Ok(())
}

pub(crate) fn listxattrs(walk: &mut Walk<'_>, args: &ListxattrsArgs) -> Outcome {
    let file = supporting(walk)?;
    let names = file.files().xattrs(&file.grant.caller, &file.id, walk.patience)?;
    // RFC 8276, section 8.4.3.3: the cookie is where to go on. Attributes that come and go between two
    // calls leave those of the others as they are.
    let with_cookie = |name: &Vec<u8>| (cookie::of_name(name), name.clone());
    let mut rest: Vec<(u64, Vec<u8>)> = names.iter().map(with_cookie).filter(|(cookie, _)| *cookie > args.cookie.0).collect();
    rest.sort_unstable();
    // Cookie, count and eof.
    let mut room = (args.max_count as usize).min(walk.room()).checked_sub(16).ok_or(Status::TOOSMALL)?;
    let mut told = Vec::new();
    for (_, name) in rest.iter().take(XATTR_NAMES_MAX) {
        let len = 4 + name.len() + vouch_xdr::pad_len(name.len());
        let Some(left) = room.checked_sub(len) else { break };
        room = left;
        told.push(Name(name));
    }
    // Nor does a page end between names that have one cookie.
    let ends_within = |count: usize| count > 0 && rest.get(count).is_some_and(|next| next.0 == rest[count - 1].0);
    while ends_within(told.len()) {
        told.pop();
    }
    if told.is_empty() && !rest.is_empty() {
        return Err(Status::TOOSMALL.into());
    }
    let cookie = told.len().checked_sub(1).map_or(args.cookie, |last| Cookie(rest[last].0));
    let ok = ListxattrsOk { cookie, eof: told.len() == rest.len(), names: List(told) };
    Results::Listxattrs(Ok(ok)).encode(walk.out);
    Ok(())
}

/// RFC 8276, section 8.1: a file system without extended attributes answers NOTSUPP.
fn supporting(walk: &Walk<'_>) -> Result<FileRef, Stop> {
    let file = walk.current_file(Status::NOTSUPP)?;
    if !file.grant.site.traits.xattrs {
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

fn change(walk: &Walk<'_>, file: &FileRef) -> Result<u64, Stop> {
    Ok(file.files().attributes(&file.id, walk.patience)?.change)
}

/// What the change did to the file. It was made, so that the attribute can't be read any more is no
/// failure.
fn changed(walk: &mut Walk<'_>, file: &FileRef, before: u64) -> ChangeInfo {
    walk.must_sync(&file.grant, &[file.id]);
    let after = file.files().attributes(&file.id, vouch_vfs::Patience::Any).map_or(before, |attributes| attributes.change);
    ChangeInfo { atomic: false, before: ChangeId(before), after: ChangeId(after) }
}
