use super::acl;
use super::data::SIZE_MAX;
use super::rights::{self, SET_GID, SET_UID};
use super::state::State;
use crate::{Caller, Error, FileType, Result, SetAttributes, SetTime};

impl State {
    pub(super) fn set(
        &mut self,
        caller: &Caller,
        number: u64,
        open: bool,
        set: &SetAttributes,
    ) -> Result<()> {
        self.check_set(caller, number, open, set)?;
        if let Some(size) = set.size {
            self.truncate(number, size)?;
            self.drop_privileges(caller, number)?;
        }
        let now = self.now;
        let inode = self.get_mut(number)?;
        if set.uid.is_some() || set.gid.is_some() {
            inode.uid = set.uid.unwrap_or(inode.uid);
            inode.gid = set.gid.unwrap_or(inode.gid);
            if inode.file_type() != FileType::Directory {
                inode.mode &= if inode.mode & 0o010 != 0 { !(SET_UID | SET_GID) } else { !SET_UID };
            }
        }
        if let Some(mode) = set.mode {
            let mask = set.mode_mask.unwrap_or(0o7777) & 0o7777;
            let mut mode = inode.mode & !mask | mode & mask;
            if caller.uid != 0 && !caller.is_in(inode.gid) {
                mode &= !SET_GID;
            }
            inode.mode = mode;
            acl::set_mode(&mut inode.acl, mode);
        }
        let moment = |time| if let SetTime::To(time) = time { time } else { now };
        inode.accessed = set.accessed.map_or(inode.accessed, moment);
        inode.modified = set.modified.map_or(inode.modified, moment);
        if set.accessed.is_some() || set.modified.is_some() {
            inode.verifier = None;
        }
        if !set.is_empty() {
            self.touch(number);
        }
        Ok(())
    }

    fn check_set(
        &self,
        caller: &Caller,
        number: u64,
        open: bool,
        set: &SetAttributes,
    ) -> Result<()> {
        self.writable()?;
        let inode = self.get(number)?;
        if let Some(size) = set.size {
            inode.data()?;
            if !open {
                rights::check_access(caller, inode, rights::WRITE)?;
            }
            if size > SIZE_MAX {
                return Err(Error::TooLarge);
            }
        }
        if set.uid.is_some_and(|uid| uid != inode.uid) && caller.uid != 0 {
            return Err(Error::Permission);
        }
        if let Some(gid) = set.gid {
            rights::own(caller, inode)?;
            if caller.uid != 0 && gid != inode.gid && !caller.is_in(gid) {
                return Err(Error::Permission);
            }
        }
        if set.uid.is_some() || set.mode.is_some() {
            rights::own(caller, inode)?;
        }
        let times = [set.accessed, set.modified];
        if times.iter().flatten().any(|time| matches!(time, SetTime::To(_))) {
            rights::own(caller, inode)?;
        } else if times != [None, None] && rights::own(caller, inode).is_err() {
            rights::check_access(caller, inode, rights::WRITE)?;
        }
        Ok(())
    }

    pub(super) fn truncate(&mut self, number: u64, size: u64) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Error::TooLarge);
        }
        let data = self.get_mut(number)?.data_mut()?;
        let before = data.used();
        data.truncate(size);
        let freed = before - data.used();
        self.release_space(freed);
        self.touch_data(number);
        Ok(())
    }

    pub(super) fn drop_privileges(&mut self, caller: &Caller, number: u64) -> Result<()> {
        let inode = self.get_mut(number)?;
        if caller.uid != 0 {
            inode.mode &= if inode.mode & 0o010 != 0 { !(SET_UID | SET_GID) } else { !SET_UID };
        }
        Ok(())
    }
}
