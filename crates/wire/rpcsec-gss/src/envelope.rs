//! Protects a reply's results (RFC 2203 §5.3.3.2): reserves room, and fills it for many replies at
//! once.

use std::sync::Arc;

use vouch_krb5_seal::{MicJob, SealJob, mic_many, seal_many};
use vouch_oncrpc::{Accepted, Flavor, OpaqueAuth, Reply, ReplyBody};
use vouch_xdr::{Writer, pad_len};

use crate::wire::LENGTH_LEN;
use crate::{GssCall, GssSeq, ServerContext, Service};

/// Takes effect in [`wrap_many`].
#[derive(Clone)]
pub struct Envelope {
    context: Arc<ServerContext>,
    seq: GssSeq,
    service: Service,
    verifier_at: usize,
    body_at: usize,
}

impl Envelope {
    /// For a success, give an empty slice and append the results to `w`.
    pub fn begin(call: &GssCall, outcome: Accepted<'_>, w: &mut Writer) -> Self {
        let context = call.context().clone();
        let start = w.len();
        let verifier_len = context.keys().mic_len();
        let verf = OpaqueAuth { flavor: Flavor::RPCSEC_GSS, body: &NO_VERIFIER[..verifier_len] };
        Reply { xid: call.xid(), body: ReplyBody::Accepted { verf, outcome } }.encode(w);
        let has_results = matches!(outcome, Accepted::Success(_)) && !call.is_destroy();
        let service = if has_results { call.service() } else { Service::None };
        let envelope = Self {
            seq: call.seq,
            service,
            verifier_at: start + VERIFIER_AT,
            body_at: w.len(),
            context,
        };
        let bytes = w.bytes_mut();
        bytes.resize(bytes.len() + envelope.head_len(), 0);
        if service != Service::None {
            let number_at = bytes.len() - SEQ_LEN;
            bytes[number_at..].copy_from_slice(&envelope.seq.0.to_be_bytes());
        }
        envelope
    }

    /// Protection of the reply.
    pub const fn service(&self) -> Service {
        self.service
    }

    fn head_len(&self) -> usize {
        match self.service {
            Service::None => 0,
            Service::Integrity => LENGTH_LEN + SEQ_LEN,
            Service::Privacy => LENGTH_LEN + self.context.keys().header_len() + SEQ_LEN,
        }
    }

    /// Most bytes after the results, with padding.
    pub fn tail_len(&self) -> usize {
        match self.service {
            Service::None => 0,
            Service::Integrity => LENGTH_LEN + self.context.keys().mic_len(),
            Service::Privacy => self.context.keys().trailer_len() + 3,
        }
    }
}

/// One reply to protect.
pub struct Wrap<'a> {
    /// The reply, with room for its protection.
    pub bytes: &'a mut Vec<u8>,
    /// From the reply's call.
    pub envelope: &'a Envelope,
    /// False: do not send the reply in any form (RFC 2203 §5.3.3.4.4).
    pub done: bool,
}

impl<'a> Wrap<'a> {
    /// A reply and the envelope of its call.
    pub fn new(bytes: &'a mut Vec<u8>, envelope: &'a Envelope) -> Self {
        Self { bytes, envelope, done: false }
    }
}

/// Long replies that this CPU seals fastest side by side.
pub fn long_wraps() -> usize {
    vouch_krb5_seal::Kernels::best().long_messages()
}

/// `random` fills its argument with random bytes or returns false.
pub fn wrap_many(wraps: &mut [Wrap<'_>], random: &mut dyn FnMut(&mut [u8]) -> bool) {
    wraps.chunks_mut(CHUNK).for_each(|chunk| wrap_chunk(chunk, random));
}

const CHUNK: usize = 64;

fn wrap_chunk(wraps: &mut [Wrap<'_>], random: &mut dyn FnMut(&mut [u8]) -> bool) {
    sign(wraps);
    seal(wraps, random);
}

fn sign(wraps: &mut [Wrap<'_>]) {
    let envelopes: Vec<&Envelope> = wraps.iter().map(|wrap| wrap.envelope).collect();
    let numbers: Vec<[u8; SEQ_LEN]> =
        envelopes.iter().map(|envelope| envelope.seq.0.to_be_bytes()).collect();
    let parts: Vec<[&[u8]; 1]> = numbers.iter().map(|number| [&number[..]]).collect();
    let signed = |wrap: &&Wrap<'_>| wrap.envelope.service == Service::Integrity;
    let data: Vec<(&Envelope, [&[u8]; 1])> = wraps
        .iter()
        .filter(signed)
        .map(|wrap| (wrap.envelope, [&wrap.bytes[wrap.envelope.body_at + LENGTH_LEN..]]))
        .collect();
    let mut jobs: Vec<MicJob<'_>> = Vec::with_capacity(parts.len() + data.len());
    for (envelope, parts) in envelopes
        .iter()
        .copied()
        .zip(&parts)
        .chain(data.iter().map(|(envelope, data)| (*envelope, data)))
    {
        jobs.push(MicJob::new(envelope.context.keys(), envelope.context.next_token(), parts));
    }
    mic_many(&mut jobs);
    let tokens: Vec<_> = jobs.iter().map(|job| job.token).collect();
    drop(jobs);
    drop(data);
    let (verifiers, checksums) = tokens.split_at(numbers.len());
    let mut checksums = checksums.iter();
    for (wrap, verifier) in wraps.iter_mut().zip(verifiers) {
        let Envelope { verifier_at, body_at, service, .. } = *wrap.envelope;
        wrap.bytes[verifier_at..verifier_at + verifier.len()].copy_from_slice(verifier);
        match service {
            Service::None => wrap.done = true,
            Service::Integrity => {
                let Some(checksum) = checksums.next() else { continue };
                let len = wrap.bytes.len() - body_at - LENGTH_LEN;
                wrap.done = set_len(wrap.bytes, body_at, len);
                let mut w = Writer::append_to(std::mem::take(wrap.bytes));
                w.opaque(checksum);
                *wrap.bytes = w.into_bytes();
            }
            Service::Privacy => {}
        }
    }
}

fn seal(wraps: &mut [Wrap<'_>], random: &mut dyn FnMut(&mut [u8]) -> bool) {
    let privacy = |wrap: &Wrap<'_>| wrap.envelope.service == Service::Privacy;
    let count = wraps.iter().filter(|wrap| privacy(wrap)).count();
    if count == 0 {
        return;
    }
    let mut confounders = vec![[0; 16]; count];
    if !random(confounders.as_flattened_mut()) {
        return;
    }
    let mut jobs: Vec<SealJob<'_>> = Vec::with_capacity(count);
    for (wrap, confounder) in wraps.iter_mut().filter(|wrap| privacy(wrap)).zip(confounders) {
        let envelope = wrap.envelope;
        let keys = envelope.context.keys();
        let sealed_at = envelope.body_at + LENGTH_LEN;
        let len = wrap.bytes.len() - sealed_at + keys.trailer_len();
        wrap.bytes.resize(sealed_at + len + pad_len(len), 0);
        wrap.done = set_len(wrap.bytes, envelope.body_at, len);
        jobs.push(SealJob::new(
            keys,
            envelope.context.next_token(),
            confounder,
            &mut wrap.bytes[sealed_at..sealed_at + len],
        ));
    }
    seal_many(&mut jobs);
    let sealed: Vec<bool> = jobs.iter().map(|job| job.result.is_ok()).collect();
    drop(jobs);
    for (wrap, sealed) in wraps.iter_mut().filter(|wrap| privacy(wrap)).zip(sealed) {
        wrap.done &= sealed;
    }
}

fn set_len(bytes: &mut [u8], at: usize, len: usize) -> bool {
    let Ok(len) = u32::try_from(len) else { return false };
    bytes[at..at + LENGTH_LEN].copy_from_slice(&len.to_be_bytes());
    true
}

const SEQ_LEN: usize = 4;
/// Transaction, type, status, flavour, length (RFC 5531 §9).
const VERIFIER_AT: usize = 20;
static NO_VERIFIER: [u8; 64] = [0; 64];
