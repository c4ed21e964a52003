//! A bounded list on the stack without initialization cost.

use std::mem::MaybeUninit;

pub(crate) struct Stack<T, const N: usize> {
    len: usize,
    items: [MaybeUninit<T>; N],
}

impl<T, const N: usize> Stack<T, N> {
    pub(crate) fn new() -> Stack<T, N> {
        const { assert!(!std::mem::needs_drop::<T>()) };
        Stack { len: 0, items: [const { MaybeUninit::uninit() }; N] }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) -> &mut T {
        self.len += 1;
        self.items[self.len - 1].write(item)
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn swap_remove(&mut self, at: usize) {
        let last = self.len - 1;
        self.items[..self.len].swap(at, last);
        self.len = last;
    }
}

impl<T, const N: usize> std::ops::Deref for Stack<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` are initialised.
        unsafe { std::slice::from_raw_parts(self.items.as_ptr().cast(), self.len) }
    }
}

impl<T, const N: usize> std::ops::DerefMut for Stack<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.items.as_mut_ptr().cast(), self.len) }
    }
}
