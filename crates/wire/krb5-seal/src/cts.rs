//! CBC with ciphertext stealing (RFC 3962 §5, variant CS3) and a zero initial vector, in place and
//! in steps.

use zeroize::Zeroize;

use crate::aes_key::AesKey;
use crate::hashing::step_blocks;
use crate::kernels::{CbcItem, Kernels, LANES_MAX, Segment};
use crate::stack::Stack;
use crate::wipe::wipe_frame;

/// Encrypted as far as its bytes are ready. At least one block.
pub(crate) struct Encryption {
    key: *const AesKey,
    start: *mut u8,
    len: usize,
    chain: [u8; 16],
    /// Last, unfinished block; zero-padded.
    scratch: [u8; 16],
    pub(crate) encrypted: usize,
    pub(crate) ready: usize,
    ends: bool,
    done: bool,
}

impl Encryption {
    /// # Safety
    /// `key` is valid for reads, `start` for reads and writes of `len` bytes, as long as this is
    /// used; `len` is 16 or more.
    pub(crate) unsafe fn new(key: *const AesKey, start: *mut u8, len: usize) -> Encryption {
        debug_assert!(len >= 16);
        Encryption {
            key,
            start,
            len,
            chain: [0; 16],
            scratch: [0; 16],
            encrypted: 0,
            ready: 0,
            ends: false,
            done: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Returns the chain value: the caller encrypts the next whole blocks and updates it.
    pub(crate) fn skip(&mut self, len: usize) -> &mut [u8; 16] {
        self.encrypted += len;
        debug_assert!(len.is_multiple_of(16) && self.encrypted <= self.len);
        &mut self.chain
    }

    fn next(&mut self) -> CbcItem {
        let whole = self.ready / 16 - self.encrypted / 16;
        let blocks = step_blocks(whole, 16);
        // SAFETY: `encrypted <= ready <= len`, inside the message.
        let direct = Segment { start: unsafe { self.start.add(self.encrypted) }, blocks };
        self.encrypted += 16 * blocks;
        let left = self.len - self.encrypted;
        self.ends = self.ready == self.len && left < 16;
        let mut scratch = Segment::NONE;
        if self.ends && left > 0 {
            // SAFETY: `left` bytes of the message are left, and the scratch has room for them.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.start.add(self.encrypted),
                    self.scratch.as_mut_ptr(),
                    left,
                )
            };
            self.scratch[left..].fill(0);
            scratch = Segment { start: self.scratch.as_mut_ptr(), blocks: 1 };
        }
        CbcItem { key: self.key, chain: self.chain, segments: [direct, scratch] }
    }

    fn take(&mut self, item: &CbcItem) {
        self.chain = item.chain;
        if self.ends {
            self.steal();
            self.encrypted = self.len;
            self.done = true;
        }
    }

    fn steal(&mut self) {
        let left = self.len % 16;
        let whole = self.len / 16;
        // SAFETY: the message has `whole` blocks and `left` bytes, and is ours alone.
        unsafe {
            let last_whole = self.start.add(16 * (whole - 1)).cast::<[u8; 16]>();
            if left > 0 {
                let stolen = last_whole.read();
                last_whole.write(self.scratch);
                std::ptr::copy_nonoverlapping(stolen.as_ptr(), self.start.add(16 * whole), left);
            } else if whole > 1 {
                last_whole.swap(last_whole.sub(1));
            }
        }
        self.scratch.zeroize();
    }
}

///
/// # Safety
/// The messages of `lanes` overlap nowhere; their keys are all of one length.
pub(crate) unsafe fn step<L>(
    kernels: &Kernels,
    lanes: &mut [L],
    of: impl Fn(&mut L) -> &mut Encryption,
) {
    let mut items = Stack::<CbcItem, LANES_MAX>::new();
    for lane in lanes.iter_mut() {
        let encryption = of(lane);
        if !encryption.is_done() {
            items.push(encryption.next());
        }
    }
    // SAFETY: `new` promises valid messages; the lanes are borrowed.
    unsafe { (kernels.encrypt.many)(&mut items) };
    let mut done = items.iter();
    for lane in lanes.iter_mut() {
        let encryption = of(lane);
        if !encryption.is_done() {
            encryption.take(done.next().expect("an item for each lane that was not done"));
        }
    }
}

/// At least one block.
pub(crate) struct Decryption {
    chain: [u8; 16],
    pub(crate) decrypted: usize,
}

impl Decryption {
    pub(crate) fn new() -> Decryption {
        Decryption { chain: [0; 16], decrypted: 0 }
    }

    /// Decrypts up to `step_len` more bytes (a multiple of 16). `message` is the whole message.
    pub(crate) fn step(
        &mut self,
        kernels: &Kernels,
        key: &AesKey,
        message: &mut [u8],
        step_len: usize,
    ) {
        self.decrypt(kernels, key, message, step_len);
        if self.decrypted == message.len() {
            wipe_frame();
        }
    }

    pub(crate) fn all(kernels: &Kernels, key: &AesKey, message: &mut [u8]) {
        Decryption::new().decrypt(kernels, key, message, usize::MAX);
    }

    #[inline(never)]
    fn decrypt(&mut self, kernels: &Kernels, key: &AesKey, message: &mut [u8], step_len: usize) {
        let len = message.len();
        // The last two blocks come at the end; a single block is plain CBC.
        let main_len = if len == 16 { 16 } else { (len.div_ceil(16) - 2) * 16 };
        let until = main_len.min(self.decrypted.saturating_add(step_len));
        let blocks = message[self.decrypted..until].as_chunks_mut().0;
        (kernels.decrypt.one)(key, &mut self.chain, blocks);
        self.decrypted = until;
        if until < main_len || len == 16 {
            return;
        }
        let (first, last) = message[main_len..].split_at_mut(16);
        let first: &mut [u8; 16] = first.try_into().expect("split at 16");
        // RFC 3962 §5: the first of the two was encrypted last; its tail completes the other.
        let mut both = [*first];
        (kernels.decrypt.one)(key, &mut [0; 16], &mut both);
        let [mut stolen] = both;
        let mut missing = stolen;
        missing[..last.len()].copy_from_slice(last);
        for (byte, cipher) in last.iter_mut().zip(&stolen) {
            *byte ^= cipher;
        }
        let mut block = [missing];
        (kernels.decrypt.one)(key, &mut self.chain, &mut block);
        *first = block[0];
        self.decrypted = len;
        stolen.zeroize();
        both.zeroize();
    }
}
