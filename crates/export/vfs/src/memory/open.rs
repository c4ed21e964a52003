use std::any::Any;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::data::SIZE_MAX;
use super::state::State;
use super::{Call, Inner};
use crate::{
    Advice, Attributes, Blocking, Caller, Content, Error, FileId, OpenAccess, OpenFile, ReadInto,
    Result, SeekTarget, Stability, SystemId, Written,
};

pub(super) struct MemoryOpen {
    inner: Arc<Inner>,
    pub(super) number: u64,
    access: OpenAccess,
    caller: Caller,
}

impl MemoryOpen {
    /// Counts an open of the inode until dropped.
    pub(super) fn begin(
        inner: &Arc<Inner>,
        state: &mut State,
        number: u64,
        access: OpenAccess,
        caller: &Caller,
    ) -> Result<Arc<dyn OpenFile>> {
        state.get_mut(number)?.opens += 1;
        Ok(Arc::new(MemoryOpen {
            inner: Arc::clone(inner),
            number,
            access,
            caller: caller.clone(),
        }))
    }

    pub(super) fn is_of(&self, inner: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.inner, inner)
    }

    fn id(&self) -> FileId {
        self.inner.id(self.number)
    }

    /// The state, and the open to copy from into this one.
    fn begin_copy<'a>(
        &'a self,
        from: &'a dyn OpenFile,
    ) -> Result<(MutexGuard<'a, State>, &'a MemoryOpen)> {
        self.inner.injected_fault(Call::Region, &self.id())?;
        let from = from
            .as_any()
            .downcast_ref::<MemoryOpen>()
            .filter(|from| from.is_of(&self.inner))
            .ok_or(Error::CrossesFileSystems)?;
        let state = self.inner.state.lock();
        self.writing(&state)?;
        if from.access.read { Ok((state, from)) } else { Err(Error::Access) }
    }

    fn writing(&self, state: &State) -> Result<()> {
        if !self.access.write {
            return Err(Error::Access);
        }
        state.writable()
    }

    fn put(&self, state: &mut State, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= SIZE_MAX);
        end.ok_or(Error::TooLarge)?;
        let needs = state.get(self.number)?.data()?.needs(offset, data.len() as u64);
        state.take(needs)?;
        state.get_mut(self.number)?.data_mut()?.write(offset, data);
        state.drop_privileges(&self.caller, self.number)?;
        state.touch_data(self.number);
        Ok(())
    }
}

impl Drop for MemoryOpen {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        if let Ok(inode) = state.get_mut(self.number) {
            inode.opens -= 1;
        }
        state.remove_if_unused(self.number);
    }
}

impl OpenFile for MemoryOpen {
    fn access(&self) -> OpenAccess {
        self.access
    }

    fn attributes(&self) -> Result<Attributes> {
        self.inner.injected_fault(Call::Attributes, &self.id())?;
        Ok(self.inner.state.lock().get(self.number)?.attributes())
    }

    fn read(
        &self,
        offset: u64,
        len: usize,
        into: ReadInto<'_>,
        blocking: Blocking,
    ) -> Result<Content> {
        self.inner.check_blocking(blocking)?;
        self.inner.injected_fault(Call::Read, &self.id())?;
        if !self.access.read {
            return Err(Error::Access);
        }
        let mut state = self.inner.state.lock();
        let inode = state.get_mut(self.number)?;
        if inode.cold && blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        inode.cold = false;
        let data = inode.data()?;
        let len = data.read(offset, len, into.bytes);
        Ok(Content::Bytes { len, eof: offset.saturating_add(len as u64) >= data.size })
    }

    fn write(
        &self,
        offset: u64,
        data: &[u8],
        stability: Stability,
        blocking: Blocking,
    ) -> Result<Written> {
        self.inner.check_blocking(blocking)?;
        if stability != Stability::Unstable
            && blocking == Blocking::Forbidden
            && self.inner.state.lock().slow_sync
        {
            return Err(Error::WouldBlock);
        }
        self.inner.injected_fault(Call::Write, &self.id())?;
        let mut state = self.inner.state.lock();
        self.writing(&state)?;
        if !data.is_empty() {
            self.put(&mut state, offset, data)?;
        }
        if stability != Stability::Unstable {
            self.inner.write_out(&state, &[self.number]);
        }
        Ok(Written { len: data.len(), stability })
    }

    fn commit(&self, _offset: u64, _len: u64, blocking: Blocking) -> Result<()> {
        self.inner.check_blocking(blocking)?;
        if blocking == Blocking::Forbidden && self.inner.state.lock().slow_sync {
            return Err(Error::WouldBlock);
        }
        self.inner.injected_fault(Call::Commit, &self.id())?;
        self.inner.write_out(&self.inner.state.lock(), &[self.number]);
        Ok(())
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.inner.injected_fault(Call::Region, &self.id())?;
        let mut state = self.inner.state.lock();
        self.writing(&state)?;
        state.truncate(self.number, size)?;
        state.drop_privileges(&self.caller, self.number)
    }

    fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        self.inner.injected_fault(Call::Region, &self.id())?;
        let state = self.inner.state.lock();
        let data = state.get(self.number)?.data()?;
        if offset >= data.size {
            return Err(Error::NoSuchRegion);
        }
        match target {
            SeekTarget::Data => data.next_data(offset).ok_or(Error::NoSuchRegion),
            SeekTarget::Hole => Ok(data.next_hole(offset)),
        }
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.injected_fault(Call::Region, &self.id())?;
        let mut state = self.inner.state.lock();
        self.writing(&state)?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        offset.checked_add(len).filter(|&end| end <= SIZE_MAX).ok_or(Error::TooLarge)?;
        let needs = state.get(self.number)?.data()?.needs(offset, len);
        state.take(needs)?;
        state.get_mut(self.number)?.data_mut()?.allocate(offset, len);
        state.touch_data(self.number);
        Ok(())
    }

    fn deallocate(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.injected_fault(Call::Region, &self.id())?;
        let mut state = self.inner.state.lock();
        self.writing(&state)?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        let data = state.get_mut(self.number)?.data_mut()?;
        let before = data.used();
        data.punch(offset, len);
        let freed = before - data.used();
        state.release_space(freed);
        state.touch_data(self.number);
        Ok(())
    }

    fn advise(&self, _offset: u64, _len: u64, _advice: Advice) {}

    fn copy_from(
        &self,
        from: &dyn OpenFile,
        from_offset: u64,
        offset: u64,
        len: u64,
    ) -> Result<u64> {
        const COPY_LEN_MAX: u64 = 1 << 20;
        let (mut state, from) = self.begin_copy(from)?;
        let mut bytes = Vec::new();
        let len = state.get(from.number)?.data()?.read(
            from_offset,
            len.min(COPY_LEN_MAX) as usize,
            &mut bytes,
        );
        if len > 0 {
            self.put(&mut state, offset, &bytes)?;
        }
        Ok(len as u64)
    }

    fn clone_range(
        &self,
        from: &dyn OpenFile,
        from_offset: u64,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let (mut state, from) = self.begin_copy(from)?;
        let source = state.get(from.number)?.data()?;
        let size = source.size;
        let end =
            if len == 0 { size } else { from_offset.checked_add(len).ok_or(Error::Invalid)? };
        let block = super::data::PAGE_LEN;
        let aligned = from_offset.is_multiple_of(block)
            && offset.is_multiple_of(block)
            && (end.is_multiple_of(block) || end == size);
        if !aligned || end > size || from_offset > end {
            return Err(Error::Invalid);
        }
        let mut bytes = Vec::new();
        source.read(from_offset, (end - from_offset) as usize, &mut bytes);
        self.put(&mut state, offset, &bytes)
    }

    fn frees_when_closed(&self) -> u64 {
        let attributes = self.inner.state.lock().get(self.number).map(|inode| inode.attributes());
        attributes.map_or(0, |attributes| if attributes.links == 0 { attributes.size } else { 0 })
    }

    fn remote_system(&self) -> Option<SystemId> {
        self.inner.remote_system()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
