//! OPEN (RFC 8881 §18.16; RFC 7530 §16.16).

mod create;

use std::sync::Arc;

use vouch_nfs4::op::{
    Delegation, DelegationType, OpenArgs, OpenClaim, OpenHow, OpenOk, OpenResultFlags,
    ReadDelegation, Results, ShareAccess, ShareDeny, SpaceLimit, WriteDelegation,
};
use vouch_nfs4::{Ace, AceFlags, AceMask, AceType, Bitmap, Bytes, ChangeInfo, Name, Status};
use vouch_vfs::{Access, AccessOverride, Blocking, Error, FileType, OpenAccess, OpenFile, mutant};

use crate::compound::context::CompoundContext;
use crate::compound::full_disk::retry_with_freed_space;
use crate::compound::owner_sequence::{in_turn, owner_key};
use crate::error::{OpError, OpResult};
use crate::files::file_ref::{FileRef, Object};
use crate::files::open_file::{handle_of, wrong_type};
use crate::files::open_handle::{OpenHandle, OpenState};
use crate::state::{
    Claim, ClientKey, DelegationExtensions, Granted, OpenCall, Opened, Share, Terms, Want,
};

#[derive(Clone, Copy)]
struct OpenRequest<'a> {
    client: ClientKey,
    owner: &'a [u8],
    share: Share,
    want: Want,
    extensions: DelegationExtensions,
    claim: Claim,
    terms: Terms,
    opener: Option<&'a Arc<str>>,
}

struct OpenOutcome {
    change: ChangeInfo,
    attrs_set: Bitmap,
    /// `requested::CREATE`, `requested::TRUNCATE` or 0.
    done: u32,
}

pub(crate) fn open(context: &mut CompoundContext<'_>, args: &OpenArgs<'_>) -> OpResult {
    context.current_any()?;
    let now = context.now.mono_ms;
    let client = match context.turn() {
        Ok(turn) => turn.client,
        Err(_) => {
            let caller = context.proven();
            context.state(|state| state.v40_client(args.owner.client, caller.as_ref(), now))?
        }
    };
    let owner = owner_key(context, args.owner.owner.0);
    let reclaims = matches!(args.claim, OpenClaim::Previous(_));
    in_turn(
        context,
        |state| state.owner_turn(client, &owner, args.seq, reclaims),
        |context| {
            // Before a 4.0 owner gets its answer.
            retry_with_freed_space(context, |context| execute(context, args, client, &owner))
        },
    )
}

fn execute(
    context: &mut CompoundContext<'_>,
    args: &OpenArgs<'_>,
    client: ClientKey,
    owner: &[u8],
) -> OpResult {
    if context.origin.minor == 0 && args.access.0 & !ShareAccess::BOTH.0 != 0 {
        return Err(Status::INVAL.into());
    }
    let (mut share, want) = (Share::new(args.access, args.deny)?, Want::new(args.access)?);
    let (claim, name) = claim(context, &args.claim)?;
    if matches!(claim, Claim::Previous(_)) && mutant("reclaimed-open-denies-nothing") {
        share = Share::new(args.access, ShareDeny(0))?;
    }
    // RFC 9754 §4 and 5: an extension of 4.2.
    let requested = |bit: ShareAccess| context.origin.minor >= 2 && args.access.contains(bit);
    let extensions = DelegationExtensions {
        times: requested(ShareAccess::WANT_DELEG_TIMESTAMPS),
        for_open: requested(ShareAccess::WANT_OPEN_XOR_DELEGATION),
    };
    let opener = context.proven().filter(|_| context.origin.minor == 0);
    let request = OpenRequest {
        client,
        owner,
        share,
        want,
        extensions,
        claim,
        terms: context.terms(),
        opener: opener.as_ref(),
    };
    let (file, found, opened) = match &args.how {
        // RFC 8881 §18.16.3: only CLAIM_NULL creates files.
        OpenHow::Create(how) => match args.claim {
            OpenClaim::Null(name) => create::create(context, &request, name, how)?,
            _ => return Err(Status::INVAL.into()),
        },
        OpenHow::NoCreate => {
            let file = match name {
                Some(name) => by_name(context, name)?,
                None => context.current_file(Status::ISDIR)?,
            };
            let opened = existing(context, &request, &file, false, None)?;
            (
                file,
                OpenOutcome { change: ChangeInfo::default(), attrs_set: Bitmap::EMPTY, done: 0 },
                opened,
            )
        }
    };
    context.details.granted = context.details.is_tracked.then(|| granted(share) | found.done);
    finish(context, file, &found, &opened);
    Ok(())
}

fn granted(share: Share) -> u32 {
    let read = if share.reads() { Access::READ.0 } else { 0 };
    let write = if share.writes() { Access::MODIFY.0 | Access::EXTEND.0 } else { 0 };
    read | write
}

fn claim<'a>(
    context: &CompoundContext<'_>,
    claim: &OpenClaim<'a>,
) -> Result<(Claim, Option<Name<'a>>), OpError> {
    let since_4_1 =
        matches!(claim, OpenClaim::Fh | OpenClaim::DelegCurFh(_) | OpenClaim::DelegPrevFh);
    if context.origin.minor == 0 && since_4_1 {
        // RFC 7531 lacks these claims.
        return Err(Status::BADXDR.into());
    }
    Ok(match claim {
        OpenClaim::Null(name) => (Claim::New, Some(*name)),
        OpenClaim::Previous(kind) => (Claim::Previous(*kind), None),
        OpenClaim::DelegateCur(cur) => {
            (Claim::Delegated(context.substituted(&cur.stateid)?), Some(cur.name))
        }
        OpenClaim::DelegatePrev(name) => (Claim::DelegatedPrevious, Some(*name)),
        OpenClaim::Fh => (Claim::New, None),
        OpenClaim::DelegCurFh(stateid) => (Claim::Delegated(context.substituted(stateid)?), None),
        OpenClaim::DelegPrevFh => (Claim::DelegatedPrevious, None),
    })
}

fn by_name(context: &CompoundContext<'_>, name: Name<'_>) -> Result<FileRef, OpError> {
    context.current_object()?;
    match crate::files::directory::find(context, name)? {
        Object::File(file) if !file.grant.security_fits => Err(Status::WRONGSEC.into()),
        Object::File(file) => Ok(file),
        Object::Pseudo(_) => Err(Status::ISDIR.into()),
    }
}

/// `truncate`: UNCHECKED4 with size zero. `made`: an earlier attempt of this exclusive create made
/// the file.
fn existing(
    context: &mut CompoundContext<'_>,
    request: &OpenRequest<'_>,
    file: &FileRef,
    truncate: bool,
    made: Option<Arc<dyn OpenFile>>,
) -> Result<Opened, OpError> {
    let attributes = file.files().attributes(&file.id, context.blocking)?;
    match attributes.file_type {
        FileType::Regular => {}
        FileType::Directory => return Err(Status::ISDIR.into()),
        FileType::Symlink => return Err(Status::SYMLINK.into()),
        // RFC 7530 §16.16.5; RFC 8881 §18.16.3.
        _ if context.origin.minor == 0 => return Err(Status::SYMLINK.into()),
        _ => return Err(Status::WRONG_TYPE.into()),
    }
    if request.share.writes() || truncate {
        file.writable()?;
    }
    if truncate {
        crate::files::open_file::may_free(context, attributes.size)?;
    }
    let mut call = OpenCall { truncate, ..request.call(file, attributes.uid) };
    let now = context.now.mono_ms;
    let blocking = context.blocking;
    let plan = context.state(|state| state.check_open(&call, now)).map_err(|status| {
        // Without rights, a caller must not learn how others have the file open.
        let rights = if status == Status::SHARE_DENIED {
            check_rights(file, request.share, blocking)
        } else {
            Ok(())
        };
        rights.err().unwrap_or(status.into())
    })?;
    let wanted = OpenAccess { read: plan.union.reads(), write: plan.union.writes() };
    // A reclaimed open was allowed before the restart (RFC 8881 §8.4.2.1). A new file's mode
    // applies to later callers.
    let owner = attributes.uid == file.grant.caller.uid;
    let made = made.filter(|_| owner);
    let may_open = made.is_some() || owner && matches!(request.claim, Claim::Previous(_));
    let used = used_by_delegation(request.claim);
    let more = OpenAccess { read: wanted.read || used.read, write: wanted.write || used.write };
    let open = match open_file(context, request, file, plan.existing.clone(), more, made, may_open)
    {
        Err(OpError::Status(_)) if more != wanted => {
            call.claim = Claim::Previous(DelegationType::None);
            open_file(context, request, file, plan.existing, wanted, None, may_open)?
        }
        open => open?,
    };
    if truncate {
        truncate_to_zero(context, file, open.file())?;
    }
    Ok(context.granting(file, |state| state.open(&call, open, plan.union, now))?)
}

fn used_by_delegation(claim: Claim) -> OpenAccess {
    let writes =
        matches!(claim, Claim::Previous(DelegationType::Write | DelegationType::WriteAttrs));
    let reads = matches!(claim, Claim::Previous(DelegationType::Read | DelegationType::ReadAttrs));
    OpenAccess { read: reads || writes, write: writes }
}

fn open_file(
    context: &CompoundContext<'_>,
    request: &OpenRequest<'_>,
    file: &FileRef,
    before: Option<OpenHandle>,
    wanted: OpenAccess,
    made: Option<Arc<dyn OpenFile>>,
    may_open: bool,
) -> Result<OpenHandle, OpError> {
    if wanted.write {
        file.writable()?;
    }
    if let Some(open) = before.as_ref().filter(|open| covers(open.file().access(), wanted)) {
        // Any caller can claim the open owner's name, so its rights are checked.
        if !may_open {
            check_rights(file, request.share, context.blocking)?;
        }
        return Ok(open.clone());
    }
    let open = |access_override| {
        file.files().open(&file.grant.caller, &file.id, wanted, access_override, context.blocking)
    };
    let opened = match made.filter(|made| covers(made.access(), wanted)) {
        Some(made) => Ok(made),
        None if may_open => open(AccessOverride::Owner),
        None => match open(AccessOverride::Execute) {
            Err(Error::Access) if before.is_some() => {
                check_rights(file, request.share, context.blocking)?;
                let same = before.as_ref().is_some_and(|before| before.is_by(&file.grant.caller));
                open(if same { AccessOverride::Proven } else { AccessOverride::Owner })
            }
            opened => opened,
        },
    };
    let opened = opened.map_err(|error| wrong_type(context.origin.minor, error))?;
    Ok(match before {
        Some(before) => OpenState::widened(opened, &file.grant.caller, &before),
        None => handle_of(opened, context, file),
    })
}

/// RFC 8881 §18.16.3.
fn truncate_to_zero(
    context: &mut CompoundContext<'_>,
    file: &FileRef,
    open: &dyn OpenFile,
) -> Result<(), OpError> {
    match open.access().write {
        true => open.truncate(0)?,
        false => {
            let set = vouch_vfs::SetAttributes { size: Some(0), ..Default::default() };
            file.files().set_attributes(&file.grant.caller, &file.id, None, &set)?;
        }
    }
    context.must_sync(&file.grant, &[file.id]);
    Ok(())
}

fn covers(has: OpenAccess, wanted: OpenAccess) -> bool {
    (has.read || !wanted.read) && (has.write || !wanted.write)
}

fn check_rights(file: &FileRef, share: Share, blocking: Blocking) -> Result<(), OpError> {
    let mut wanted = Access::default();
    if share.reads() {
        wanted = wanted | Access::READ;
    }
    if share.writes() {
        wanted = wanted | Access::MODIFY;
    }
    let has =
        file.files().access(&file.grant.caller, &file.id, wanted | Access::EXECUTE, blocking)?;
    // As in Linux, an executable file may be opened for reading; the client checks its user by
    // ACCESS.
    let readable =
        !share.reads() || has.has(Access::READ) || (has.has(Access::EXECUTE) && !share.writes());
    let writable = !share.writes() || has.has(Access::MODIFY);
    if readable && writable { Ok(()) } else { Err(Status::ACCESS.into()) }
}

impl<'a> OpenRequest<'a> {
    /// The holder sets the times at the end, so only the file's owner gets delegated times.
    fn call(&self, file: &FileRef, owner: u32) -> OpenCall<'a> {
        let may_set = !file.grant.read_only() && [0, owner].contains(&file.grant.caller.uid);
        let extensions =
            DelegationExtensions { times: self.extensions.times && may_set, ..self.extensions };
        let OpenRequest { client, owner, share, want, claim, terms, opener, .. } = *self;
        let may_delegate = file.grant.site.export.delegations;
        OpenCall {
            client,
            owner,
            file: file.key(),
            share,
            claim,
            want,
            may_delegate,
            extensions,
            truncate: false,
            terms,
            opener,
        }
    }
}

fn finish(context: &mut CompoundContext<'_>, file: FileRef, found: &OpenOutcome, opened: &Opened) {
    let mut flags = OpenResultFlags::LOCKTYPE_POSIX;
    if opened.confirm {
        flags |= OpenResultFlags::CONFIRM;
    }
    if context.origin.minor > 0 {
        flags |= OpenResultFlags::MAY_NOTIFY_LOCK;
    }
    if opened.extensions.for_open {
        flags |= OpenResultFlags::NO_OPEN_STATEID;
    }
    let ok = OpenOk {
        stateid: opened.stateid,
        change: found.change,
        flags,
        attrs_set: found.attrs_set,
        delegation: delegation(opened.delegation, opened.extensions.times),
    };
    Results::Open(Ok(ok)).encode(context.out);
    context.set_current(Object::File(file));
    context.result_stateid(opened.stateid);
}

/// RFC 8881 §10.4.1: the ACE allows nobody, so the client asks by ACCESS.
fn delegation(granted: Granted, times: bool) -> Delegation<'static> {
    let permissions =
        Ace { kind: AceType::ALLOW, flags: AceFlags(0), mask: AceMask(0), who: Bytes(b"") };
    match granted {
        Granted::None => Delegation::None,
        Granted::Refused(why) => Delegation::NoneExt(why),
        Granted::Read(stateid) => {
            let delegation = ReadDelegation { stateid, recall: false, permissions };
            if times { Delegation::ReadAttrs(delegation) } else { Delegation::Read(delegation) }
        }
        Granted::Write(stateid) => {
            let delegation = WriteDelegation {
                stateid,
                recall: false,
                space_limit: SpaceLimit::Size(u64::MAX),
                permissions,
            };
            if times { Delegation::WriteAttrs(delegation) } else { Delegation::Write(delegation) }
        }
    }
}
