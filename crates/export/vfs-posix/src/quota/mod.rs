//! A limit for all files of an export: by a project quota of ext4 or XFS, else counted here.

pub(crate) mod enforcement;
mod project;
pub(crate) mod usage;
mod walk;

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use rustix::fs::OFlags;
use rustix::io::Errno;
use vouch_vfs::{Error, Quota, QuotaEnforcement, Result};

use crate::errno::OrError;
use crate::export::Inner;
use crate::ffi::{self, QuotaKind};
use crate::identity;
use crate::open::mono_ms;

use enforcement::Enforcement;
use walk::walk;

/// Bytes that a file system may refuse to use up: it reserves more than it needs.
const PROJECT_REST_MAX: u64 = 1 << 20;

impl Inner {
    pub(crate) fn set_quota(self: &Arc<Self>, limit: Option<u64>) -> Result<()> {
        let mut now = self.quota.lock();
        let usage = &self.root.mount.usage;
        match (limit, *now) {
            (None, Enforcement::None) if self.root.mount.is_remote => {}
            // An earlier run may have left a limit.
            (None, Enforcement::None) => self.end_own_limit(),
            (None, Enforcement::Project { number, .. }) => {
                self.limit_project(number, 0).or_error()?;
                *now = Enforcement::None;
            }
            (None, Enforcement::Counted { .. }) => {
                usage.set_limit(None);
                *now = Enforcement::None;
            }
            (
                Some(limit),
                Enforcement::Project { limit: known, .. } | Enforcement::Counted { limit: known },
            ) if limit == known => {}
            (Some(limit), Enforcement::Project { number, .. }) => {
                self.limit_project(number, limit).or_error()?;
                *now = Enforcement::Project { number, limit };
            }
            (Some(limit), Enforcement::Counted { .. }) => {
                usage.set_limit(Some(limit));
                *now = Enforcement::Counted { limit };
            }
            (Some(limit), Enforcement::None) => *now = self.begin_quota(limit)?,
        }
        Ok(())
    }

    fn begin_quota(self: &Arc<Self>, limit: u64) -> Result<Enforcement> {
        if self.options.read_only {
            return Err(Error::NotSupported);
        }
        match self.own_project() {
            Ok(Some(number)) => {
                let known = self.project_record(number).or_error()?;
                if known.hard() > 0 || known.soft() > 0 {
                    // Its files have the number since the limit was set.
                    self.limit_project(number, limit).or_error()?;
                } else {
                    self.in_background("mark files", move |inner| inner.mark_and_limit(number))?;
                }
                return Ok(Enforcement::Project { number, limit });
            }
            // Without project quotas, or without the right to set them.
            Ok(None) | Err(Errno::PERM) => {}
            Err(errno) => return Err(crate::errno::error(errno)),
        }
        if !identity::can_serve_others() || !self.root.mount.handles {
            return Err(Error::NotSupported);
        }
        self.root.mount.usage.set_limit(Some(limit));
        self.in_background("count space", Inner::count_all)?;
        Ok(Enforcement::Counted { limit })
    }

    pub(crate) fn quota(&self) -> Option<Quota> {
        match *self.quota.lock() {
            Enforcement::None => None,
            Enforcement::Project { number, limit } => {
                let used = self.project_record(number).map_or(0, |record| record.used);
                Some(Quota { used, limit, enforced_by: QuotaEnforcement::FileSystem })
            }
            Enforcement::Counted { limit } => {
                let used = self.root.mount.usage.used();
                Some(Quota { used, limit, enforced_by: QuotaEnforcement::Server })
            }
        }
    }

    /// XFS says that its disk is full if a project is.
    pub(crate) fn quota_result<T>(&self, len: u64, result: Result<T>) -> Result<T> {
        let is_reached = |Quota { used, limit, enforced_by }| {
            enforced_by == QuotaEnforcement::FileSystem
                && limit.saturating_sub(used) < len.saturating_add(PROJECT_REST_MAX)
        };
        match result {
            Err(Error::NoSpace) if self.quota().is_some_and(is_reached) => Err(Error::Quota),
            result => result,
        }
    }

    /// Local programs change files too.
    pub(crate) fn recount_when_due(self: &Arc<Self>) {
        if self.root.mount.usage.is_recount_due(mono_ms()) {
            // The next call tries again.
            let _ = self.in_background("count space", Inner::count_all);
        }
    }

    fn in_background(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Arc<Inner>) + Send + 'static,
    ) -> Result<()> {
        let inner = Arc::clone(self);
        let started = thread::Builder::new().name(name.into()).spawn(move || work(&inner));
        started.map(drop).map_err(Error::Resources)
    }

    fn count_all(self: &Arc<Self>) {
        let Ok(_as_root) = identity::assume_root() else { return };
        let usage = &self.root.mount.usage;
        if !usage.begin_recount(mono_ms()) {
            return;
        }
        let walked = walk(self, &mut |_, _, stat| {
            usage.see(stat);
            if self.is_over() || !usage.is_limited() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(true)
            }
        });
        usage.end_recount(walked.is_ok_and(|end| end.is_continue()));
    }

    /// The export has ended, and only this thread still has it.
    fn is_over(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }

    /// The limit comes last, so that marking can't exceed it.
    fn mark_and_limit(self: &Arc<Self>, number: u32) {
        let Ok(_as_root) = identity::assume_root() else { return };
        // Files that a disk error leaves unmarked do not count.
        let _ = walk(self, &mut |directory, name, stat| {
            let is_its = project::mark(directory, name, stat, number);
            if self.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(is_its) }
        });
        if let Enforcement::Project { limit, .. } = *self.quota.lock()
            && !self.is_over()
        {
            // It has been possible before, when the number was made.
            let _ = self.limit_project(number, limit);
        }
    }

    /// Gives the directory a number if it has none. `None` where the file system keeps no limits.
    fn own_project(&self) -> std::result::Result<Option<u32>, Errno> {
        let fd = self.root.mount.fd.as_fd();
        if !ffi::enforces_projects(fd) {
            return Ok(None);
        }
        let directory = self.reopen(self.root.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut project = ffi::project_of(directory.as_fd())?;
        let number = match project.number {
            0 => project::unused_number(self.root.id.as_bytes(), |number| {
                self.project_record(number)
            })?,
            number => self.project_record(number).map(|_| number)?,
        };
        // An administrator may have set the number, and not that new files have it too.
        project.set(number, true);
        let _as_root = identity::assume_root().map_err(|_| Errno::PERM)?;
        ffi::set_project(directory.as_fd(), &project)?;
        Ok(Some(number))
    }

    fn end_own_limit(&self) {
        let fd = self.root.mount.fd.as_fd();
        let number = ffi::project_of(fd).map_or(0, |project| project.number);
        if project::is_own(number) && ffi::enforces_projects(fd) {
            // Without the right, the limit stays as the administrator finds it.
            let _ = self.limit_project(number, 0);
        }
    }

    fn project_record(&self, number: u32) -> std::result::Result<ffi::QuotaRecord, Errno> {
        let fd = self.root.mount.fd.as_fd();
        identity::with_administration(|| ffi::quota_of(fd, QuotaKind::Project, number))
    }

    fn limit_project(&self, number: u32, limit: u64) -> std::result::Result<(), Errno> {
        let fd = self.root.mount.fd.as_fd();
        identity::with_administration(|| ffi::set_project_limit(fd, number, limit))
    }
}
