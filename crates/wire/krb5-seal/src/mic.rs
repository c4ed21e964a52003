//! MIC tokens, and the checksum of Wrap tokens without confidentiality.

use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroize;

use crate::digest::{Digest, HmacKey, Sha1, Sha256, Sha384};
use crate::enctype::Enctype;
use crate::hashing::{self, Blocks, HashLane, Hashing, Parts};
use crate::kernels::{Kernels, LANES_MAX, SHORTS_MAX};
use crate::keys::ContextKeys;
use crate::short::{Batch, SHORT_LEN_MAX};
use crate::stack::Stack;
use crate::token::{MIC_LEN_MAX, MicToken, TOKEN_HEADER_LEN, TokenError, mic_header, parse_mic};

/// One MIC to compute.
pub struct MicJob<'a> {
    /// Of the message's context.
    pub keys: &'a ContextKeys,
    /// Sequence number of the token.
    pub seq: u64,
    /// The message, in pieces.
    pub parts: &'a [&'a [u8]],
    /// Empty before the job runs.
    pub token: MicToken,
}

impl<'a> MicJob<'a> {
    /// A job that has not run.
    pub fn new(keys: &'a ContextKeys, seq: u64, parts: &'a [&'a [u8]]) -> MicJob<'a> {
        MicJob { keys, seq, parts, token: MicToken { bytes: [0; MIC_LEN_MAX], len: 0 } }
    }
}

/// One MIC to verify.
pub struct VerifyJob<'a> {
    /// Of the message's context.
    pub keys: &'a ContextKeys,
    /// The message, in pieces.
    pub parts: &'a [&'a [u8]],
    /// The token from the peer.
    pub token: &'a [u8],
    /// Sequence number of the token, or the error.
    pub result: Result<u64, TokenError>,
}

impl<'a> VerifyJob<'a> {
    /// A job that has not run: its result is an error.
    pub fn new(keys: &'a ContextKeys, parts: &'a [&'a [u8]], token: &'a [u8]) -> VerifyJob<'a> {
        VerifyJob { keys, parts, token, result: Err(TokenError::Waiting) }
    }
}

impl ContextKeys {
    /// Computes the MIC of one message.
    pub fn mic(&self, seq: u64, parts: &[&[u8]]) -> MicToken {
        let mut jobs = [MicJob::new(self, seq, parts)];
        mic_many(&mut jobs);
        jobs[0].token
    }

    /// Returns the token's sequence number.
    pub fn verify_mic(&self, parts: &[&[u8]], token: &[u8]) -> Result<u64, TokenError> {
        let mut jobs = [VerifyJob::new(self, parts, token)];
        verify_many(&mut jobs);
        jobs[0].result
    }
}

/// Any keys and lengths, side by side. Does not allocate.
pub fn mic_many(jobs: &mut [MicJob<'_>]) {
    mic_many_with(Kernels::best(), jobs);
}

/// As [`mic_many`], with the given kernels.
pub fn mic_many_with(kernels: &Kernels, jobs: &mut [MicJob<'_>]) {
    run(kernels, jobs, |_| true);
}

/// Any keys and lengths, side by side. Does not allocate.
pub fn verify_many(jobs: &mut [VerifyJob<'_>]) {
    verify_many_with(Kernels::best(), jobs);
}

pub(crate) fn verify_many_with(kernels: &Kernels, jobs: &mut [VerifyJob<'_>]) {
    for job in jobs.iter_mut() {
        job.result = parse_mic(job.keys, job.token);
    }
    run(kernels, jobs, |job| job.result.is_ok());
}

/// A Wrap token without confidentiality.
pub(crate) struct WrapCheck<'a> {
    pub(crate) keys: &'a ContextKeys,
    pub(crate) parts: &'a [&'a [u8]],
    pub(crate) header: [u8; TOKEN_HEADER_LEN],
    pub(crate) checksum: &'a [u8],
    pub(crate) holds: bool,
}

/// RFC 4121 §4.2.4: the checksum of body and header.
pub(crate) fn check_wrap(mut check: WrapCheck<'_>) -> bool {
    run(Kernels::best(), std::slice::from_mut(&mut check), |_| true);
    check.holds
}

trait Job<'a> {
    fn keys(&self) -> &'a ContextKeys;
    fn key(&self) -> &'a HmacKey;
    fn parts(&self) -> &'a [&'a [u8]];
    fn header(&self) -> [u8; TOKEN_HEADER_LEN];
    fn finish(&mut self, checksum: &[u8]);
}

impl<'a> Job<'a> for MicJob<'a> {
    fn keys(&self) -> &'a ContextKeys {
        self.keys
    }

    fn key(&self) -> &'a HmacKey {
        &self.keys.send.mic
    }

    fn parts(&self) -> &'a [&'a [u8]] {
        self.parts
    }

    fn header(&self) -> [u8; TOKEN_HEADER_LEN] {
        mic_header(self.keys, self.seq)
    }

    fn finish(&mut self, checksum: &[u8]) {
        let header = self.header();
        self.token.bytes[..TOKEN_HEADER_LEN].copy_from_slice(&header);
        self.token.bytes[TOKEN_HEADER_LEN..][..checksum.len()].copy_from_slice(checksum);
        self.token.len = TOKEN_HEADER_LEN + checksum.len();
    }
}

impl<'a> Job<'a> for VerifyJob<'a> {
    fn keys(&self) -> &'a ContextKeys {
        self.keys
    }

    fn key(&self) -> &'a HmacKey {
        &self.keys.receive.mic
    }

    fn parts(&self) -> &'a [&'a [u8]] {
        self.parts
    }

    fn header(&self) -> [u8; TOKEN_HEADER_LEN] {
        *self.token.first_chunk().expect("its header was parsed")
    }

    fn finish(&mut self, checksum: &[u8]) {
        if !verdict(checksum.ct_eq(&self.token[TOKEN_HEADER_LEN..])) {
            self.result = Err(TokenError::Checksum);
        }
    }
}

impl<'a> Job<'a> for WrapCheck<'a> {
    fn keys(&self) -> &'a ContextKeys {
        self.keys
    }

    fn key(&self) -> &'a HmacKey {
        &self.keys.receive.wrap
    }

    fn parts(&self) -> &'a [&'a [u8]] {
        self.parts
    }

    fn header(&self) -> [u8; TOKEN_HEADER_LEN] {
        self.header
    }

    fn finish(&mut self, checksum: &[u8]) {
        self.holds = verdict(checksum.ct_eq(self.checksum));
    }
}

/// From here on no secret: the peer learns whether its message was accepted.
pub(crate) fn verdict(holds: Choice) -> bool {
    #[cfg(test)]
    return vouch_testkit::memcheck::published(holds.unwrap_u8());
    #[cfg(not(test))]
    bool::from(holds)
}

fn run<'a, J: Job<'a>>(kernels: &Kernels, jobs: &mut [J], wanted: impl Fn(&J) -> bool) {
    let mut present = 0;
    for job in jobs.iter().filter(|job| wanted(job)) {
        present |= job.keys().enctype().bit();
    }
    const SHA1: u8 = Enctype::Aes128CtsHmacSha1_96.bit() | Enctype::Aes256CtsHmacSha1_96.bit();
    if present & SHA1 != 0 {
        run_hash::<Sha1, J>(kernels, jobs.iter_mut().filter(|job| wanted(job)));
    }
    if present & Enctype::Aes128CtsHmacSha256_128.bit() != 0 {
        run_hash::<Sha256, J>(kernels, jobs.iter_mut().filter(|job| wanted(job)));
    }
    if present & Enctype::Aes256CtsHmacSha384_192.bit() != 0 {
        run_hash::<Sha384, J>(kernels, jobs.iter_mut().filter(|job| wanted(job)));
    }
}

fn run_hash<'j, 'a: 'j, D: Digest, J: Job<'a> + 'j>(
    kernels: &Kernels,
    jobs: impl Iterator<Item = &'j mut J>,
) {
    let Some(batch) = Batch::<D>::new(kernels) else { return run_long::<D, J>(kernels, jobs) };
    let mut shorts = Shorts { batch, waiting: [const { None }; SHORTS_MAX] };
    run_long::<D, J>(kernels, jobs.filter_map(|job| shorts.take(job)));
    shorts.run();
}

struct Shorts<'j, 'k, D: Digest, J> {
    batch: Batch<'k, D>,
    waiting: [Option<&'j mut J>; SHORTS_MAX],
}

impl<'j, 'a: 'j, D: Digest, J: Job<'a>> Shorts<'j, '_, D, J> {
    fn take(&mut self, job: &'j mut J) -> Option<&'j mut J> {
        let len = TOKEN_HEADER_LEN + job.parts().iter().map(|part| part.len()).sum::<usize>();
        if len > SHORT_LEN_MAX {
            return Some(job);
        }
        let pads = D::pads(job.key())?;
        let header = job.header();
        let at = self.batch.add(pads, job.parts().iter().copied().chain([&header[..]]));
        self.waiting[at] = Some(job);
        if self.batch.is_full() {
            self.run();
        }
        None
    }

    fn run(&mut self) {
        let waiting = &mut self.waiting;
        self.batch.run(|at, mac| {
            if let Some(job) = waiting[at].take() {
                job.finish(&mac[..job.keys().enctype().checksum_len()]);
            }
        });
    }
}

struct Lane<'j, 'a, J, D: Digest> {
    job: &'j mut J,
    parts: Parts<'a, D>,
}

impl<J, D: Digest> HashLane<D> for Lane<'_, '_, J, D> {
    fn hashing(&mut self) -> &mut Hashing<D> {
        &mut self.parts.hashing
    }

    fn next(&mut self) -> Blocks {
        self.parts.next()
    }
}

fn run_long<'j, 'a, D: Digest, J: Job<'a> + 'j>(
    kernels: &Kernels,
    jobs: impl Iterator<Item = &'j mut J>,
) {
    let mut jobs = jobs.filter_map(|job| D::pads(job.key()).map(|pads| (job, pads)));
    let mut lanes = Stack::<Lane<'j, 'a, J, D>, LANES_MAX>::new();
    loop {
        while lanes.len() < kernels.lanes
            && let Some((job, pads)) = jobs.next()
        {
            let parts = Parts::new(job.parts(), job.header());
            lanes.push(Lane { job, parts }).parts.hashing.begin(pads);
        }
        if lanes.is_empty() {
            return;
        }
        // SAFETY: the jobs borrow the parts.
        unsafe { hashing::step(kernels, &mut lanes) };
        for at in (0..lanes.len()).rev() {
            let lane = &mut lanes[at];
            if lane.parts.hashing.is_done() {
                let mut mac = lane.parts.hashing.mac();
                lane.parts.hashing.wipe();
                lane.job.finish(&mac[..lane.job.keys().enctype().checksum_len()]);
                mac.zeroize();
                lanes.swap_remove(at);
            }
        }
    }
}
