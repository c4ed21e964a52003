//! Opens Wrap tokens in place.

use std::ops::Range;

use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use crate::aes_key::AesKey;
use crate::cts::Decryption;
use crate::digest::{Digest, HmacPads, Sha1, Sha256, Sha384};
use crate::enctype::Enctype;
use crate::hashing::{self, Blocks, HashLane, Hashing, Region, STEP_LEN};
use crate::kernels::{Kernels, LANES_MAX, SHORTS_MAX};
use crate::keys::ContextKeys;
use crate::mic::{WrapCheck, check_wrap, verdict};
use crate::short::{Batch, SHORT_LEN_MAX};
use crate::stack::Stack;
use crate::token::{TOKEN_HEADER_LEN, TokenError, WrapHeader};
use crate::wipe::wipe_frame;

/// A verified message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Body in the token's buffer.
    pub range: Range<usize>,
    /// Sequence number of the token.
    pub seq: u64,
    /// Whether the body was encrypted.
    pub sealed: bool,
}

/// One token to open.
pub struct OpenJob<'a> {
    /// Of the message's context.
    pub keys: &'a ContextKeys,
    /// The whole token. Afterwards the body is in the range of the result; useless after a refusal.
    pub token: &'a mut [u8],
    /// Set when the job has run.
    pub result: Result<Opened, TokenError>,
}

impl<'a> OpenJob<'a> {
    /// A job that has not run: its result is an error.
    pub fn new(keys: &'a ContextKeys, token: &'a mut [u8]) -> OpenJob<'a> {
        OpenJob { keys, token, result: Err(TokenError::Waiting) }
    }
}

impl ContextKeys {
    /// Opens one sealed token in place and returns the range of its body. Accepts any RRC and EC.
    ///
    /// # Errors
    /// The token is refused; its plaintext is wiped from the buffer.
    pub fn open(&self, token: &mut [u8]) -> Result<Range<usize>, TokenError> {
        let mut jobs = [OpenJob::new(self, token)];
        open_many(&mut jobs);
        let [job] = jobs;
        job.result.map(|opened| opened.range)
    }

    /// Also accepts tokens without confidentiality.
    pub fn open_any(&self, token: &mut [u8]) -> Result<Opened, TokenError> {
        let header = WrapHeader::parse(self, token)?;
        if header.sealed {
            let mut jobs = [OpenJob::new(self, token)];
            open_many(&mut jobs);
            let [job] = jobs;
            return job.result;
        }
        rotate_back(&header, token);
        let checksum_len = self.enctype().checksum_len();
        // RFC 4121 §4.2.4: EC is the checksum's length.
        if header.extra_count != checksum_len {
            return Err(TokenError::Malformed);
        }
        let range =
            TOKEN_HEADER_LEN..token.len().checked_sub(checksum_len).ok_or(TokenError::Truncated)?;
        if range.end < range.start {
            return Err(TokenError::Truncated);
        }
        let mut clear = header.bytes;
        clear[4..8].fill(0);
        let (body, checksum) = token[TOKEN_HEADER_LEN..].split_at(range.len());
        if !check_wrap(WrapCheck {
            keys: self,
            parts: &[body],
            header: clear,
            checksum,
            holds: false,
        }) {
            return Err(TokenError::Checksum);
        }
        Ok(Opened { range, seq: header.seq, sealed: false })
    }
}

/// Any keys and lengths, side by side. Does not allocate.
pub fn open_many(jobs: &mut [OpenJob<'_>]) {
    open_many_with(Kernels::best(), jobs);
}

/// As [`open_many`], with the given kernels.
pub fn open_many_with(kernels: &Kernels, jobs: &mut [OpenJob<'_>]) {
    let mut present = 0;
    for job in jobs.iter_mut() {
        job.result = prepare(job);
        if job.result.is_ok() {
            present |= job.keys.enctype().bit();
        }
    }
    for enctype in Enctype::ALL.into_iter().filter(|enctype| present & enctype.bit() != 0) {
        let jobs =
            jobs.iter_mut().filter(|job| job.keys.enctype() == enctype && job.result.is_ok());
        match enctype {
            Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha1_96 => {
                match Batch::new(kernels) {
                    Some(batch) => {
                        let mut shorts = Shorts { kernels, batch, waiting: Stack::new() };
                        decrypt_and_verify(kernels, jobs.filter_map(|job| shorts.take(job)));
                        shorts.run();
                    }
                    None => decrypt_and_verify(kernels, jobs),
                }
            }
            Enctype::Aes128CtsHmacSha256_128 => verify_then_decrypt::<Sha256>(kernels, jobs),
            Enctype::Aes256CtsHmacSha384_192 => verify_then_decrypt::<Sha384>(kernels, jobs),
        }
    }
}

/// Checks everything before cryptography. The result is final if the checksum matches.
fn prepare(job: &mut OpenJob<'_>) -> Result<Opened, TokenError> {
    let header = WrapHeader::parse(job.keys, job.token)?;
    if !header.sealed {
        return Err(TokenError::NotSealed);
    }
    let least = job.keys.header_len() + job.keys.trailer_len();
    let body_len =
        job.token.len().checked_sub(least + header.extra_count).ok_or(TokenError::Truncated)?;
    rotate_back(&header, job.token);
    let start = job.keys.header_len();
    Ok(Opened { range: start..start + body_len, seq: header.seq, sealed: true })
}

/// RFC 4121 §4.2.5: bytes after the header are rotated right by RRC, modulo their length.
fn rotate_back(header: &WrapHeader, token: &mut [u8]) {
    let data = &mut token[TOKEN_HEADER_LEN..];
    if header.rotation != 0 && !data.is_empty() {
        data.rotate_left(header.rotation % data.len());
    }
}

struct Lane<'a, 'b, D: Digest> {
    job: &'a mut OpenJob<'b>,
    header: [u8; TOKEN_HEADER_LEN],
    region: Region<D>,
    decryption: Decryption,
}

impl<D: Digest> HashLane<D> for Lane<'_, '_, D> {
    fn hashing(&mut self) -> &mut Hashing<D> {
        &mut self.region.hashing
    }

    fn next(&mut self) -> Blocks {
        self.region.next()
    }
}

impl<'a, 'b, D: Digest> Lane<'a, 'b, D> {
    fn new(job: &'a mut OpenJob<'b>, prefix_len: usize) -> Lane<'a, 'b, D> {
        let header = *job.token.first_chunk().expect("prepared: longer than its header");
        let len = job.token.len() - TOKEN_HEADER_LEN - job.keys.enctype().checksum_len();
        // SAFETY: the hashed bytes lie between the token's header and its checksum; the lane
        // borrows the job, and touches the token only through it.
        let region = unsafe {
            Region::new(job.token.as_mut_ptr().add(TOKEN_HEADER_LEN - prefix_len), len + prefix_len)
        };
        Lane { job, header, region, decryption: Decryption::new() }
    }

    fn begin(&mut self) {
        self.region
            .hashing
            .begin(D::pads(&self.job.keys.receive.seal).expect("the enctype's own hash"));
    }

    fn ciphertext(&mut self) -> (&ContextKeys, &mut [u8], &mut Decryption) {
        let end = self.job.token.len() - self.job.keys.enctype().checksum_len();
        (self.job.keys, &mut self.job.token[TOKEN_HEADER_LEN..end], &mut self.decryption)
    }

    fn checksum_holds(&mut self) -> bool {
        let checksum_len = self.job.keys.enctype().checksum_len();
        let mut mac = self.region.hashing.mac();
        self.region.hashing.wipe();
        let checksum = &self.job.token[self.job.token.len() - checksum_len..];
        let holds = verdict(mac[..checksum_len].ct_eq(checksum));
        mac.zeroize();
        holds
    }

    fn accept_or_wipe(&mut self, holds: bool) {
        accept_or_wipe(self.job, &self.header, holds);
    }
}

/// Compares the header's copy in the plaintext (RFC 4121 §4.2.4).
fn accept_or_wipe(job: &mut OpenJob<'_>, header: &[u8; TOKEN_HEADER_LEN], holds: bool) {
    let header = WrapHeader::parse(job.keys, header).expect("prepared: parsed before");
    let end = job.token.len() - job.keys.enctype().checksum_len();
    // Of a message that holds, it is what the peer sent in the clear.
    #[cfg(test)]
    if holds {
        vouch_testkit::memcheck::publish(&mut job.token[end - TOKEN_HEADER_LEN..end]);
    }
    if !holds || !header.equals_copy(&job.token[end - TOKEN_HEADER_LEN..end]) {
        job.token[TOKEN_HEADER_LEN..].fill(0);
        job.result = Err(TokenError::Checksum);
    }
}

/// Decrypted one after the other, verified together (RFC 3962).
struct Shorts<'a, 'b, 'k> {
    kernels: &'k Kernels,
    batch: Batch<'k, Sha1>,
    waiting: Stack<(&'a mut OpenJob<'b>, &'b HmacPads<Sha1>), SHORTS_MAX>,
}

impl<'a, 'b> Shorts<'a, 'b, '_> {
    fn take(&mut self, job: &'a mut OpenJob<'b>) -> Option<&'a mut OpenJob<'b>> {
        let keys = job.keys;
        if job.token.len() - TOKEN_HEADER_LEN - keys.enctype().checksum_len() > SHORT_LEN_MAX {
            return Some(job);
        }
        let pads = Sha1::pads(&keys.receive.seal)?;
        self.waiting.push((job, pads));
        if self.waiting.len() >= self.kernels.shorts {
            self.run();
        }
        None
    }

    fn run(&mut self) {
        let Shorts { kernels, batch, waiting } = self;
        if waiting.is_empty() {
            return;
        }
        for (job, _) in waiting.iter_mut() {
            let (key, message) = sealed(job);
            Decryption::all(kernels, key, message);
        }
        wipe_frame();
        for (job, pads) in waiting.iter_mut() {
            batch.add(pads, [&*sealed(job).1]);
        }
        batch.run(|at, mac| {
            let (job, _) = &mut waiting[at];
            let checksum_len = job.keys.enctype().checksum_len();
            let holds =
                verdict(mac[..checksum_len].ct_eq(&job.token[job.token.len() - checksum_len..]));
            let header = *job.token.first_chunk().expect("prepared: longer than its header");
            accept_or_wipe(job, &header, holds);
        });
        waiting.clear();
    }
}

fn sealed<'a>(job: &'a mut OpenJob<'_>) -> (&'a AesKey, &'a mut [u8]) {
    let end = job.token.len() - job.keys.enctype().checksum_len();
    (&job.keys.receive.cipher, &mut job.token[TOKEN_HEADER_LEN..end])
}

/// RFC 3962: the checksum covers plaintext.
fn decrypt_and_verify<'a, 'b: 'a>(
    kernels: &Kernels,
    mut jobs: impl Iterator<Item = &'a mut OpenJob<'b>>,
) {
    let mut lanes = Stack::<Lane<'a, 'b, Sha1>, LANES_MAX>::new();
    loop {
        while lanes.len() < kernels.lanes
            && let Some(job) = jobs.next()
        {
            lanes.push(Lane::new(job, 0)).begin();
        }
        if lanes.is_empty() {
            return;
        }
        for lane in lanes.iter_mut() {
            let (keys, ciphertext, decryption) = lane.ciphertext();
            if decryption.decrypted < ciphertext.len() {
                decryption.step(kernels, &keys.receive.cipher, ciphertext, STEP_LEN);
            }
            lane.region.ready = lane.decryption.decrypted;
        }
        // SAFETY: the regions lie in the jobs' tokens, which the lanes borrow.
        unsafe { hashing::step(kernels, &mut lanes) };
        for at in (0..lanes.len()).rev() {
            let lane = &mut lanes[at];
            if lane.region.hashing.is_done() {
                let holds = lane.checksum_holds();
                lane.accept_or_wipe(holds);
                lanes.swap_remove(at);
            }
        }
    }
}

/// RFC 8009 §5: the checksum covers the cipher state (zeros, placed over the header meanwhile) and
/// the ciphertext.
fn verify_then_decrypt<'a, 'b: 'a, D: Digest>(
    kernels: &Kernels,
    mut jobs: impl Iterator<Item = &'a mut OpenJob<'b>>,
) {
    let mut lanes = Stack::<Lane<'a, 'b, D>, LANES_MAX>::new();
    loop {
        while lanes.len() < kernels.lanes
            && let Some(job) = jobs.next()
        {
            let mut lane = Lane::new(job, TOKEN_HEADER_LEN);
            lane.job.token[..TOKEN_HEADER_LEN].fill(0);
            lane.region.ready = lane.job.token.len() - lane.job.keys.enctype().checksum_len();
            lanes.push(lane).begin();
        }
        if lanes.is_empty() {
            return;
        }
        // SAFETY: the regions lie in the jobs' tokens, which the lanes borrow.
        unsafe { hashing::step(kernels, &mut lanes) };
        for at in (0..lanes.len()).rev() {
            let lane = &mut lanes[at];
            if lane.region.hashing.is_done() {
                let holds = lane.checksum_holds();
                let header = lane.header;
                lane.job.token[..TOKEN_HEADER_LEN].copy_from_slice(&header);
                if holds {
                    let (keys, ciphertext, decryption) = lane.ciphertext();
                    decryption.step(kernels, &keys.receive.cipher, ciphertext, usize::MAX);
                }
                lane.accept_or_wipe(holds);
                lanes.swap_remove(at);
            }
        }
    }
}
