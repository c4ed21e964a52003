//! Makes Wrap tokens with confidentiality in place.

use zeroize::Zeroize as _;

use crate::aes_key::AesKey;
use crate::cts::{self, Encryption};
use crate::digest::{Digest, Sha1, Sha256, Sha384};
use crate::enctype::Enctype;
use crate::hashing::{self, Blocks, HashLane, Hashing, Region};
use crate::kernels::{Kernels, LANES_MAX, SHORTS_MAX, STITCHED_MAX, Stitched, StitchedOne};
use crate::keys::ContextKeys;
use crate::short::{Batch, SHORT_LEN_MAX};
use crate::stack::Stack;
use crate::token::{CONFOUNDER_LEN, TOKEN_HEADER_LEN, TokenError, wrap_header};
use crate::wipe::{wipe_frame, wipe_frames};

/// One message to seal.
pub struct SealJob<'a> {
    /// Of the message's context.
    pub keys: &'a ContextKeys,
    /// Sequence number of the token.
    pub seq: u64,
    /// Random, and never used twice.
    pub confounder: [u8; CONFOUNDER_LEN],
    /// [`ContextKeys::header_len`] bytes of room, the body, [`ContextKeys::trailer_len`] bytes of
    /// room. Afterwards the whole token.
    pub token: &'a mut [u8],
    /// An error only if `token` is too short.
    pub result: Result<(), TokenError>,
}

impl<'a> SealJob<'a> {
    /// A job that has not run: its result is an error.
    pub fn new(
        keys: &'a ContextKeys,
        seq: u64,
        confounder: [u8; CONFOUNDER_LEN],
        token: &'a mut [u8],
    ) -> SealJob<'a> {
        SealJob { keys, seq, confounder, token, result: Err(TokenError::Waiting) }
    }
}

impl ContextKeys {
    /// As [`SealJob`] says.
    ///
    /// # Errors
    ///
    /// [`TokenError::Room`]: nothing is written.
    pub fn seal(
        &self,
        seq: u64,
        confounder: [u8; CONFOUNDER_LEN],
        token: &mut [u8],
    ) -> Result<(), TokenError> {
        let mut jobs = [SealJob::new(self, seq, confounder, token)];
        seal_many(&mut jobs);
        let [job] = jobs;
        job.result
    }
}

/// Any keys and lengths, side by side. Does not allocate.
pub fn seal_many(jobs: &mut [SealJob<'_>]) {
    seal_many_with(Kernels::best(), jobs);
}

/// As [`seal_many`], with the given kernels.
pub fn seal_many_with(kernels: &Kernels, jobs: &mut [SealJob<'_>]) {
    let mut present = 0;
    for job in jobs.iter_mut() {
        job.result = if job.token.len() < job.keys.header_len() + job.keys.trailer_len() {
            Err(TokenError::Room)
        } else {
            Ok(())
        };
        if job.result.is_ok() {
            present |= job.keys.enctype().bit();
        }
    }
    // Lanes run in lockstep, so one key length and one hash at a time.
    for enctype in Enctype::ALL.into_iter().filter(|enctype| present & enctype.bit() != 0) {
        let jobs =
            jobs.iter_mut().filter(|job| job.keys.enctype() == enctype && job.result.is_ok());
        match enctype {
            Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha1_96 => {
                match Batch::new(kernels) {
                    Some(batch) => {
                        let mut shorts = Shorts {
                            kernels,
                            batch,
                            waiting: [const { None }; SHORTS_MAX],
                            hashed: Stack::new(),
                        };
                        hash_and_encrypt(kernels, jobs.filter_map(|job| shorts.take(job)));
                        shorts.finish();
                    }
                    None => hash_and_encrypt(kernels, jobs),
                }
            }
            Enctype::Aes128CtsHmacSha256_128 => encrypt_then_hash::<Sha256>(kernels, jobs),
            Enctype::Aes256CtsHmacSha384_192 => encrypt_then_hash::<Sha384>(kernels, jobs),
        }
    }
}

/// Writes confounder and header copy around the body (RFC 4121 §4.2.4). Returns the checksum's
/// position.
fn lay_out(job: &mut SealJob<'_>) -> usize {
    let checksum_at = job.token.len() - job.keys.enctype().checksum_len();
    job.token[TOKEN_HEADER_LEN..][..CONFOUNDER_LEN].copy_from_slice(&job.confounder);
    job.token[checksum_at - TOKEN_HEADER_LEN..checksum_at]
        .copy_from_slice(&wrap_header(job.keys, job.seq, true, 0));
    checksum_at
}

/// Hashed together, and encrypted in as many lanes as there are (RFC 3962).
struct Shorts<'a, 'b, 'k> {
    kernels: &'k Kernels,
    batch: Batch<'k, Sha1>,
    waiting: [Option<&'a mut SealJob<'b>>; SHORTS_MAX],
    hashed: Stack<Encryption, LANES_MAX>,
}

impl<'a, 'b> Shorts<'a, 'b, '_> {
    fn take(&mut self, job: &'a mut SealJob<'b>) -> Option<&'a mut SealJob<'b>> {
        if job.token.len() - TOKEN_HEADER_LEN - job.keys.enctype().checksum_len() > SHORT_LEN_MAX {
            return Some(job);
        }
        let pads = Sha1::pads(&job.keys.send.seal)?;
        let checksum_at = lay_out(job);
        let at = self.batch.add(pads, [&job.token[TOKEN_HEADER_LEN..checksum_at]]);
        self.waiting[at] = Some(job);
        if self.batch.is_full() {
            self.hash();
        }
        None
    }

    fn hash(&mut self) {
        let Shorts { batch, waiting, hashed, .. } = self;
        batch.run(|at, mac| {
            let Some(job) = waiting[at].take() else { return };
            let checksum_len = job.keys.enctype().checksum_len();
            let (sealed, checksum) = job.token.split_at_mut(job.token.len() - checksum_len);
            checksum.copy_from_slice(&mac[..checksum_len]);
            let (header, message) = sealed.split_at_mut(TOKEN_HEADER_LEN);
            header.copy_from_slice(&wrap_header(job.keys, job.seq, true, 0));
            let (key, len): (*const AesKey, usize) = (&job.keys.send.cipher, message.len());
            // SAFETY: the jobs borrow key and message for longer than this is used, and nothing
            // else touches the message.
            let mut encryption = unsafe { Encryption::new(key, message.as_mut_ptr(), len) };
            encryption.ready = len;
            hashed.push(encryption);
        });
        // Keeps room for another batch.
        if self.hashed.len() + self.kernels.shorts > self.kernels.lanes {
            self.encrypt();
        }
    }

    fn encrypt(&mut self) {
        while self.hashed.iter().any(|encryption| !encryption.is_done()) {
            // SAFETY: each has a message of its own; the jobs are of one enctype.
            unsafe { cts::step(self.kernels, &mut self.hashed, |encryption| encryption) };
        }
        self.hashed.clear();
    }

    fn finish(&mut self) {
        self.hash();
        self.encrypt();
    }
}

struct Lane<'a, 'b, D: Digest> {
    job: &'a mut SealJob<'b>,
    region: Region<D>,
    encryption: Encryption,
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
    fn new(job: &'a mut SealJob<'b>, prefix_len: usize) -> Lane<'a, 'b, D> {
        let direction = &job.keys.send;
        let len = lay_out(job) - TOKEN_HEADER_LEN;
        // SAFETY: the encrypted bytes lie between header and checksum, the hashed ones begin at
        // most in the header; the lane borrows the job, and nothing else uses the token.
        let (region, encryption) = unsafe {
            let start = job.token.as_mut_ptr().add(TOKEN_HEADER_LEN);
            (
                Region::new(start.sub(prefix_len), len + prefix_len),
                Encryption::new(&direction.cipher, start, len),
            )
        };
        Lane { job, region, encryption }
    }

    fn begin(&mut self) {
        self.region
            .hashing
            .begin(D::pads(&self.job.keys.send.seal).expect("the enctype's own hash"));
    }

    fn finish(&mut self) {
        let mac = self.region.hashing.mac();
        self.region.hashing.wipe();
        let checksum_len = self.job.keys.enctype().checksum_len();
        let checksum_at = self.job.token.len() - checksum_len;
        self.job.token[..TOKEN_HEADER_LEN].copy_from_slice(&wrap_header(
            self.job.keys,
            self.job.seq,
            true,
            0,
        ));
        self.job.token[checksum_at..].copy_from_slice(&mac[..checksum_len]);
    }
}

/// In one pass, if there is a kernel for it.
fn stitch(kernels: &Kernels, lanes: &mut [Lane<'_, '_, Sha1>]) {
    let Some(stitched) = kernels.stitched else { return };
    let left = |lane: &Lane<'_, '_, Sha1>| match lane.encryption.encrypted == lane.region.hashed {
        true => (lane.region.ready - lane.region.hashed) / Sha1::BLOCK_LEN,
        false => 0,
    };
    let blocks = lanes.iter().map(left).min().unwrap_or(0);
    if blocks == 0 {
        return;
    }
    let mut items = Stack::<Stitched, STITCHED_MAX>::new();
    for lane in lanes.iter_mut() {
        let (data, state) = lane.region.skip(blocks);
        let state = *state;
        let chain = *lane.encryption.skip(blocks * Sha1::BLOCK_LEN);
        items.push(Stitched { key: &lane.job.keys.send.cipher, chain, state, data });
    }
    // SAFETY: the blocks lie in the lanes' own tokens, and no step is under way; the jobs are of
    // one enctype.
    unsafe { (stitched.seal)(&mut items, blocks) };
    wipe_frames();
    for (lane, item) in lanes.iter_mut().zip(items.iter_mut()) {
        *lane.region.skip(0).1 = item.state;
        *lane.encryption.skip(0) = item.chain;
        item.state.zeroize();
    }
}

/// RFC 3962 (RFC 3961 §5.3): the checksum covers plaintext.
fn hash_and_encrypt<'a, 'b: 'a>(
    kernels: &Kernels,
    mut jobs: impl Iterator<Item = &'a mut SealJob<'b>>,
) {
    let mut lanes = Stack::<Lane<'a, 'b, Sha1>, LANES_MAX>::new();
    loop {
        while lanes.len() < kernels.stitched_lanes()
            && let Some(job) = jobs.next()
        {
            let mut lane = Lane::new(job, 0);
            lane.region.ready =
                lane.job.token.len() - TOKEN_HEADER_LEN - lane.job.keys.enctype().checksum_len();
            lanes.push(lane).begin();
        }
        if lanes.is_empty() {
            return;
        }
        stitch(kernels, &mut lanes);
        // SAFETY: the regions lie in the jobs' tokens, which the lanes borrow.
        unsafe { hashing::step(kernels, &mut lanes) };
        for lane in lanes.iter_mut() {
            lane.encryption.ready =
                if lane.region.hashing.is_done() { lane.region.ready } else { lane.region.hashed };
        }
        // SAFETY: each lane has a token of its own; the jobs are of one enctype.
        unsafe { cts::step(kernels, &mut lanes, |lane| &mut lane.encryption) };
        give_up_finished(&mut lanes);
    }
}

/// Up to this many, one pass after another is faster than two side by side.
const STITCHED_APART_MAX: usize = 2;

/// In one pass, if there is a kernel for it.
fn stitch_alone<D: Digest>(kernels: &Kernels, lane: &mut Lane<'_, '_, D>) {
    let Some(stitched) = D::stitched(kernels) else { return };
    let (encrypted, hashed) = (lane.encryption.encrypted, lane.region.hashed);
    // The last two blocks are exchanged, so they come at the end.
    let left = lane.encryption.ready.saturating_sub(encrypted + 2 * CONFOUNDER_LEN);
    let steps = left / D::BLOCK_LEN;
    if steps < 2 || hashed > encrypted || lane.encryption.is_done() {
        return;
    }
    // Hashed data begins with the header.
    lane.region.ready = TOKEN_HEADER_LEN + encrypted + steps * D::BLOCK_LEN;
    let chain = *lane.encryption.skip(steps * D::BLOCK_LEN);
    let (hash, state) = lane.region.skip(steps - 1);
    // SAFETY: inside the message, of which at least the last two blocks follow.
    let cipher = unsafe { lane.job.token.as_mut_ptr().add(TOKEN_HEADER_LEN + encrypted) };
    let mut item =
        StitchedOne { key: &lane.job.keys.send.cipher, chain, state: *state, cipher, hash };
    // SAFETY: both lie in the lane's token, and no step is under way; the hash reads at most
    // `encrypted` bytes and the header.
    unsafe { stitched(&mut item, steps) };
    wipe_frame();
    *lane.region.skip(0).1 = item.state;
    *lane.encryption.skip(0) = item.chain;
    item.state.zeroize();
}

/// RFC 8009 §5: the checksum covers the cipher state (zeros in the place of the header) and the
/// ciphertext.
fn encrypt_then_hash<'a, 'b: 'a, D: Digest>(
    kernels: &Kernels,
    mut jobs: impl Iterator<Item = &'a mut SealJob<'b>>,
) {
    let mut lanes = Stack::<Lane<'a, 'b, D>, LANES_MAX>::new();
    loop {
        while lanes.len() < kernels.lanes
            && let Some(job) = jobs.next()
        {
            job.token[..TOKEN_HEADER_LEN].fill(0);
            let mut lane = Lane::new(job, TOKEN_HEADER_LEN);
            lane.encryption.ready =
                lane.job.token.len() - TOKEN_HEADER_LEN - lane.job.keys.enctype().checksum_len();
            lanes.push(lane).begin();
        }
        if lanes.is_empty() {
            return;
        }
        if lanes.len() <= STITCHED_APART_MAX {
            lanes.iter_mut().for_each(|lane| stitch_alone(kernels, lane));
        }
        // SAFETY: each lane has a token of its own; the jobs are of one enctype.
        unsafe { cts::step(kernels, &mut lanes, |lane| &mut lane.encryption) };
        for lane in lanes.iter_mut() {
            // The end exchanges two blocks, of which the first may be encrypted already.
            let sure = if lane.encryption.is_done() {
                lane.encryption.encrypted
            } else {
                lane.encryption.encrypted - 16
            };
            lane.region.ready = TOKEN_HEADER_LEN + sure;
        }
        // SAFETY: the regions lie in the jobs' tokens, which the lanes borrow.
        unsafe { hashing::step(kernels, &mut lanes) };
        give_up_finished(&mut lanes);
    }
}

fn give_up_finished<D: Digest>(lanes: &mut Stack<Lane<'_, '_, D>, LANES_MAX>) {
    for at in (0..lanes.len()).rev() {
        if lanes[at].region.hashing.is_done() && lanes[at].encryption.is_done() {
            lanes[at].finish();
            lanes.swap_remove(at);
        }
    }
}
