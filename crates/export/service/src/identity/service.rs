use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::nss;
use super::nsswitch::ServiceFailed;
use crate::clock;

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
        nss::user(uid).map_err(|failed| failed_lookup(&format!("user {uid}"), &failed))
    }

    fn user_by_name(&self, name: &str) -> Result<Option<UserRecord>, NameServiceDown> {
        as_ourselves();
        nss::user_by_name(name).map_err(|failed| failed_lookup(&format!("user {name:?}"), &failed))
    }

    fn group(&self, gid: u32) -> Result<Option<String>, NameServiceDown> {
        as_ourselves();
        nss::group(gid).map_err(|failed| failed_lookup(&format!("group {gid}"), &failed))
    }

    fn group_by_name(&self, name: &str) -> Result<Option<u32>, NameServiceDown> {
        as_ourselves();
        nss::group_by_name(name)
            .map_err(|failed| failed_lookup(&format!("group {name:?}"), &failed))
    }

    fn groups(&self, user: &str, gid: u32) -> Result<Vec<u32>, NameServiceDown> {
        as_ourselves();
        nss::groups(user, gid)
            .map_err(|failed| failed_lookup(&format!("the groups of {user:?}"), &failed))
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

/// A user as the server sees it, with all groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLookup {
    pub uid: u32,
    pub gid: u32,
    pub groups: usize,
}

/// Asks the services of nsswitch.conf(5) as the server does. Blocks. An error names the look-up and
/// the service that fails.
pub fn look_up_user(name: &str) -> Result<Option<UserLookup>, String> {
    let failed = |what: &str, ServiceFailed { service, errno }| {
        format!(
            "the look-up of {what} fails: `{service}` of nsswitch.conf: {}",
            std::io::Error::from_raw_os_error(errno)
        )
    };
    let Some(UserRecord { name, uid, gid }) =
        nss::user_by_name(name).map_err(|error| failed("the user", error))?
    else {
        return Ok(None);
    };
    let mut groups = nss::groups(&name, gid).map_err(|error| failed("the user's groups", error))?;
    groups.sort_unstable();
    groups.dedup();
    Ok(Some(UserLookup { uid, gid, groups: groups.len() }))
}

pub(crate) fn as_ourselves() {
    if let Err(error) = vouch_vfs_posix::leave_callers() {
        tracing::warn!(%error, "a thread cannot drop the identity of its last caller");
    }
}

fn failed_lookup(what: &str, ServiceFailed { service, errno }: &ServiceFailed) -> NameServiceDown {
    static NEXT_LINE_MS: AtomicU64 = AtomicU64::new(0);
    let (now_ms, next_ms) = (clock::mono_ms(), NEXT_LINE_MS.load(Ordering::Relaxed));
    if now_ms >= next_ms
        && NEXT_LINE_MS
            .compare_exchange(next_ms, now_ms + LINE_EVERY_MS, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    {
        let error = std::io::Error::from_raw_os_error(*errno);
        tracing::warn!(service, %error, "nsswitch: the service fails to look up {what}; is its daemon running, and does the directory answer?");
    }
    NameServiceDown
}

const LINE_EVERY_MS: u64 = 10_000;
