//! Protects calls and opens replies side by side, in place.

use std::ops::Range;
use std::sync::Arc;

use vouch_krb5_seal::{ContextKeys, MicJob, SealJob, VerifyJob, mic_many, seal_many, verify_many};

use super::data::{ClientContext, OpenError, VERIFIER_HEAD_LEN};
use crate::bodies::{Body, open_bodies};
use crate::wire::{LENGTH_LEN, integrity_body, privacy_body};
use crate::{GssSeq, Service};

/// A call with its layout ([`ClientContext::begin`], the arguments, [`ClientContext::lay_out`]).
pub struct CallWrap<'a> {
    /// Without record mark.
    pub bytes: &'a mut [u8],
}

/// One reply to verify.
pub struct ReplyOpen<'a> {
    /// Without record mark; sealed results are decrypted in place.
    pub record: &'a mut [u8],
    /// Of the reply's call.
    pub seq: GssSeq,
    /// The verifier's body, if its flavour is RPCSEC_GSS.
    pub verifier: Option<Range<usize>>,
    /// Data after the status.
    pub body_at: usize,
    /// Position of the decrypted results.
    pub results: Result<Range<usize>, OpenError>,
}

impl<'a> ReplyOpen<'a> {
    /// A reply that is not verified yet.
    pub fn new(
        record: &'a mut [u8],
        seq: GssSeq,
        verifier: Option<Range<usize>>,
        body_at: usize,
    ) -> Self {
        Self { record, seq, verifier, body_at, results: Err(OpenError::Verifier) }
    }
}

const CHUNK: usize = 64;

impl ClientContext {
    /// `random` fills its argument with random bytes or returns false. False if a call could not be
    /// protected: then send none.
    #[must_use = "a call that could not be protected must not be sent"]
    pub fn wrap_many(
        &mut self,
        calls: &mut [CallWrap<'_>],
        random: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        calls.chunks_mut(CHUNK).all(|calls| {
            self.sign(calls);
            self.service() != Service::Privacy || self.seal(calls, random)
        })
    }

    fn sign(&mut self, calls: &mut [CallWrap<'_>]) {
        let (header_len, body_at, mic_len) =
            (self.header_len(), self.body_at(), self.keys().mic_len());
        let bodies = if self.service() == Service::Integrity { calls.len() } else { 0 };
        let first = self.tokens(calls.len() + bodies);
        let parts: Vec<[&[u8]; 1]> = calls.iter().map(|call| [&call.bytes[..header_len]]).collect();
        let data: Vec<[&[u8]; 1]> = calls
            .iter()
            .take(bodies)
            .map(|call| {
                [integrity_body(&call.bytes[body_at..])
                    .map_or(&[][..], |(data, _)| &call.bytes[body_at..][data])]
            })
            .collect();
        let jobs = (first..)
            .zip(parts.iter().chain(&data))
            .map(|(token, parts)| MicJob::new(self.keys(), token, parts));
        let mut jobs: Vec<MicJob<'_>> = jobs.collect();
        mic_many(&mut jobs);
        let tokens: Vec<_> = jobs.iter().map(|job| job.token).collect();
        drop(jobs);
        let (verifiers, checksums) = tokens.split_at(calls.len());
        for (call, verifier) in calls.iter_mut().zip(verifiers) {
            call.bytes[header_len + VERIFIER_HEAD_LEN..][..mic_len].copy_from_slice(verifier);
        }
        for (call, checksum) in calls.iter_mut().zip(checksums) {
            // Last part of the call, with a length divisible by four.
            let at = call.bytes.len() - mic_len;
            call.bytes[at..].copy_from_slice(checksum);
        }
    }

    fn seal(
        &mut self,
        calls: &mut [CallWrap<'_>],
        random: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        let body_at = self.body_at();
        let mut confounders = vec![[0; 16]; calls.len()];
        if !random(confounders.as_flattened_mut()) {
            return false;
        }
        let first = self.tokens(calls.len());
        let mut jobs: Vec<SealJob<'_>> = Vec::with_capacity(calls.len());
        for ((token, call), confounder) in (first..).zip(calls.iter_mut()).zip(confounders) {
            let body = &mut call.bytes[body_at..];
            let Ok(sealed) = privacy_body(body) else { return false };
            debug_assert_eq!(sealed.start, LENGTH_LEN);
            jobs.push(SealJob::new(self.keys(), token, confounder, &mut body[sealed]));
        }
        seal_many(&mut jobs);
        jobs.iter().all(|job| job.result.is_ok())
    }

    /// Usable without this context.
    pub fn reply_opener(&self) -> ReplyOpener {
        ReplyOpener { keys: self.shared_keys(), service: self.service() }
    }

    /// Verifies and decrypts replies of one context, many at once.
    pub fn open_many(&self, replies: &mut [ReplyOpen<'_>]) {
        self.reply_opener().open_many(replies);
    }
}

/// Opens replies of a context while it creates further calls.
#[derive(Clone)]
pub struct ReplyOpener {
    keys: Arc<ContextKeys>,
    service: Service,
}

impl ReplyOpener {
    /// An invalid reply does not affect the others.
    pub fn open_many(&self, replies: &mut [ReplyOpen<'_>]) {
        replies.chunks_mut(CHUNK).for_each(|replies| self.open_chunk(replies));
    }

    fn open_chunk(&self, replies: &mut [ReplyOpen<'_>]) {
        let numbers: Vec<[u8; 4]> = replies.iter().map(|reply| reply.seq.0.to_be_bytes()).collect();
        let parts: Vec<[&[u8]; 1]> = numbers.iter().map(|number| [&number[..]]).collect();
        let mut jobs: Vec<VerifyJob<'_>> = Vec::with_capacity(replies.len());
        for (reply, parts) in replies.iter().zip(&parts) {
            let verifier = reply.verifier.clone().and_then(|range| reply.record.get(range));
            jobs.push(VerifyJob::new(&self.keys, parts, verifier.unwrap_or_default()));
        }
        verify_many(&mut jobs);
        let genuine: Vec<bool> = jobs.iter().map(|job| job.result.is_ok()).collect();
        drop(jobs);
        let mut bodies = Vec::with_capacity(replies.len());
        let mut places = Vec::with_capacity(replies.len());
        for (reply, _) in replies.iter_mut().zip(genuine).filter(|(_, genuine)| *genuine) {
            let Some(body) = reply.record.get_mut(reply.body_at..) else { continue };
            bodies.push(Body::new(&self.keys, self.service, reply.seq, body));
            places.push((&mut reply.results, reply.body_at));
        }
        open_bodies(&mut bodies);
        for (body, (results, at)) in bodies.into_iter().zip(places) {
            *results = match body.clear {
                Some(clear) => Ok(at + clear.start..at + clear.end),
                None => Err(OpenError::Body),
            };
        }
    }
}
