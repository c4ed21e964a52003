//! Users and groups of the system. Blocks.

use std::ffi::CString;
use std::sync::Arc;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserRecord {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LocalName {
    Name(String),
    NoName,
    NoRules,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameServiceDown;

/// During an outage, cached answers stay valid, other callers wait, and numbers replace names.
pub(crate) trait NameService: Send + Sync {
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, NameServiceDown>;
    fn user_by_name(&self, name: &str) -> Result<Option<UserRecord>, NameServiceDown>;
    fn group(&self, gid: u32) -> Result<Option<String>, NameServiceDown>;
    fn group_by_name(&self, name: &str) -> Result<Option<u32>, NameServiceDown>;
    fn groups(&self, user: &str, gid: u32) -> Result<Vec<u32>, NameServiceDown>;
    /// Maps by `auth_to_local` of krb5.conf.
    fn local_name(&self, principal: &str) -> LocalName;
}

impl<S: NameService + ?Sized> NameService for Arc<S> {
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, NameServiceDown> {
        (**self).user(uid)
    }
    fn user_by_name(&self, name: &str) -> Result<Option<UserRecord>, NameServiceDown> {
        (**self).user_by_name(name)
    }
    fn group(&self, gid: u32) -> Result<Option<String>, NameServiceDown> {
        (**self).group(gid)
    }
    fn group_by_name(&self, name: &str) -> Result<Option<u32>, NameServiceDown> {
        (**self).group_by_name(name)
    }
    fn groups(&self, user: &str, gid: u32) -> Result<Vec<u32>, NameServiceDown> {
        (**self).groups(user, gid)
    }
    fn local_name(&self, principal: &str) -> LocalName {
        (**self).local_name(principal)
    }
}

pub(crate) struct System;

impl NameService for System {
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, NameServiceDown> {
        as_ourselves();
        Ok(known("user", User::from_uid(Uid::from_raw(uid)))?.map(record))
    }

    fn user_by_name(&self, name: &str) -> Result<Option<UserRecord>, NameServiceDown> {
        as_ourselves();
        Ok(known("user", User::from_name(name))?.map(record))
    }

    fn group(&self, gid: u32) -> Result<Option<String>, NameServiceDown> {
        as_ourselves();
        Ok(known("group", Group::from_gid(Gid::from_raw(gid)))?.map(|group| group.name))
    }

    fn group_by_name(&self, name: &str) -> Result<Option<u32>, NameServiceDown> {
        as_ourselves();
        Ok(known("group", Group::from_name(name))?.map(|group| group.gid.as_raw()))
    }

    fn groups(&self, user: &str, gid: u32) -> Result<Vec<u32>, NameServiceDown> {
        as_ourselves();
        let Ok(user) = CString::new(user) else { return Ok(Vec::new()) };
        let groups = getgrouplist(&user, Gid::from_raw(gid)).map_err(|error| {
            tracing::warn!(?user, %error, "the name service fails to list the groups of a user");
            NameServiceDown
        })?;
        Ok(groups.into_iter().map(Gid::as_raw).collect())
    }

    fn local_name(&self, principal: &str) -> LocalName {
        as_ourselves();
        match vouch_gss_mit::local_name(principal) {
            Ok(Some(name)) => LocalName::Name(name),
            Ok(None) => LocalName::NoName,
            Err(_) => LocalName::NoRules,
        }
    }
}

pub(crate) fn as_ourselves() {
    if let Err(error) = vouch_vfs_posix::leave_callers() {
        tracing::warn!(%error, "a thread cannot drop the identity of its last caller");
    }
}

fn known<T>(what: &str, answer: nix::Result<Option<T>>) -> Result<Option<T>, NameServiceDown> {
    answer.map_err(|error| {
        tracing::warn!(%error, "the name service fails to look up a {what}");
        NameServiceDown
    })
}

fn record(user: User) -> UserRecord {
    UserRecord { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() }
}
