use vouch_nfs4::attr::{Attr, SecLabel};
use vouch_nfs4::{AceFlags, Acl, Bitmap, Fattr, Status};
use vouch_vfs::{PosixAcl, SetAttributes, SetTime, Time};

use crate::attributes::acl::{self, Entry, Who};
use crate::attributes::owner::{Kind, Owners};
use crate::error::OpError;

#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) mask: Bitmap,
    pub(crate) set: SetAttributes,
    pub(crate) kept: (Option<vouch_nfs4::Time>, Option<vouch_nfs4::Time>),
    pub(crate) access_acl: Option<PosixAcl>,
    pub(crate) default_acl: Option<PosixAcl>,
    pub(crate) label: Option<Vec<u8>>,
}

pub(crate) fn settings(
    attrs: &Fattr<'_>,
    supported: Bitmap,
    directory: bool,
    new: bool,
    owners: &Owners<'_>,
) -> Result<Settings, OpError> {
    // Creation times are read-only.
    let values = attrs.settings(supported.without(Attr::TIME_CREATE.0))?;
    let mut set = SetAttributes { size: values.size, ..SetAttributes::default() };
    // RFC 8881 §6.2.4, and RFC 8275 §5: only one attribute may set the mode.
    let words =
        [values.mode.is_some(), values.mode_set_masked.is_some(), values.mode_umask.is_some()];
    if words.into_iter().filter(|&word| word).count() > 1 {
        return Err(Status::INVAL.into());
    }
    if let Some(bits) = values.mode {
        set.mode = Some(mode(bits)?);
    }
    if let Some(masked) = values.mode_set_masked {
        set.mode = Some(mode(masked.value)?);
        set.mode_mask = Some(mode(masked.mask)?);
    }
    if let Some(umasked) = values.mode_umask {
        // RFC 8275 §5: for new files only.
        if !new {
            return Err(Status::INVAL.into());
        }
        set.mode = Some(mode(umasked.mode)?);
        set.umask = Some(mode(umasked.umask)? & 0o777);
    }
    if let Some(owner) = values.owner {
        set.uid = Some(owners.parse(Kind::User, &owner)?);
    }
    if let Some(group) = values.owner_group {
        set.gid = Some(owners.parse(Kind::Group, &group)?);
    }
    set.accessed = values.time_access_set.map(time).transpose()?;
    set.modified = values.time_modify_set.map(time).transpose()?;
    let kept = (values.time_deleg_access, values.time_deleg_modify);
    // RFC 9754 §5: for existing files only.
    if [kept.0, kept.1].into_iter().flatten().any(|time| new || !time.is_valid()) {
        return Err(Status::INVAL.into());
    }
    let mut settings =
        Settings { mask: attrs.mask, set, kept, access_acl: None, default_acl: None, label: None };
    settings.label = values.sec_label.map(label).transpose()?;
    if let Some(list) = values.acl.or(values.dacl.map(|dacl| dacl.aces)) {
        let posix = acl::from_nfs(&entries(&list, owners)?, directory)?;
        settings.access_acl = posix.access;
        if directory {
            settings.default_acl = Some(posix.default.unwrap_or_default());
        }
    }
    Ok(settings)
}

/// RFC 8881 §6.2.4: twelve bits.
fn mode(bits: u32) -> Result<u16, Status> {
    u16::try_from(bits).ok().filter(|bits| bits & !0o7777 == 0).ok_or(Status::INVAL)
}

/// RFC 7862 §12.2.4: 0 leaves format and policy to the client. Linux sends the final NUL too.
fn label(label: SecLabel<'_>) -> Result<Vec<u8>, Status> {
    let data = label.data.0;
    let data = data.strip_suffix(b"\0").unwrap_or(data);
    match label.format {
        0 if data.is_empty() || data.contains(&0) => Err(Status::BADLABEL),
        0 => Ok(data.to_vec()),
        _ => Err(Status::WRONG_LFS),
    }
}

fn time(time: vouch_nfs4::SetTime) -> Result<SetTime, Status> {
    match time {
        vouch_nfs4::SetTime::Server => Ok(SetTime::Now),
        // RFC 8881 §3.3.1.
        vouch_nfs4::SetTime::Client(time) if !time.is_valid() => Err(Status::INVAL),
        vouch_nfs4::SetTime::Client(time) => {
            Ok(SetTime::To(Time { seconds: time.seconds, nanos: time.nanoseconds }))
        }
    }
}

fn entries(list: &Acl<'_>, owners: &Owners<'_>) -> Result<Vec<Entry>, OpError> {
    if list.0.len() > owners.config.limits.acl_entries_max {
        return Err(Status::NOSPC.into());
    }
    let mut entries = Vec::with_capacity(list.0.len());
    for ace in list.0.iter() {
        let group = ace.flags.contains(AceFlags::IDENTIFIER_GROUP);
        let who = match ace.who.0 {
            b"OWNER@" => Who::Owner,
            b"GROUP@" => Who::Group,
            b"EVERYONE@" => Who::Everyone,
            name if group => Who::NamedGroup(owners.parse(Kind::Group, name)?),
            name => Who::User(owners.parse(Kind::User, name)?),
        };
        entries.push(Entry { kind: ace.kind, flags: ace.flags, mask: ace.mask, who });
    }
    Ok(entries)
}
