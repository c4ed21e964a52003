//! Bodies of calls and replies, many at once, opened in place.

use std::ops::Range;

use vouch_krb5_seal::{ContextKeys, OpenJob, VerifyJob, open_many, verify_many};

use crate::wire::{integrity_body, privacy_body};
use crate::{GssSeq, Service};

pub(crate) struct Body<'a> {
    keys: &'a ContextKeys,
    service: Service,
    seq: GssSeq,
    bytes: &'a mut [u8],
    /// None if verification fails. Meaningless before [`open_bodies`].
    pub(crate) clear: Option<Range<usize>>,
}

impl<'a> Body<'a> {
    pub(crate) fn new(
        keys: &'a ContextKeys,
        service: Service,
        seq: GssSeq,
        bytes: &'a mut [u8],
    ) -> Self {
        Self { keys, service, seq, bytes, clear: None }
    }

    fn lay_out(&mut self) {
        let data = match self.service {
            Service::None => Ok(0..self.bytes.len()),
            Service::Integrity => integrity_body(self.bytes).map(|(data, _)| data),
            Service::Privacy => privacy_body(self.bytes),
        };
        self.clear = data.ok();
    }

    fn waits_for(&self, service: Service) -> bool {
        self.clear.is_some() && self.service == service
    }

    /// RFC 2203 §5.3.2.2 and 5.3.3.3: the inner sequence number must equal the credential's.
    fn compare_numbers(&mut self) {
        if self.service == Service::None {
            return;
        }
        let Some(data) = self.clear.take() else { return };
        self.clear = match self.bytes[data.clone()].first_chunk() {
            Some(number) if *number == self.seq.0.to_be_bytes() => {
                Some(data.start + number.len()..data.end)
            }
            _ => None,
        };
    }
}

pub(crate) fn open_bodies(bodies: &mut [Body<'_>]) {
    bodies.iter_mut().for_each(Body::lay_out);
    verify(bodies);
    open(bodies);
    bodies.iter_mut().for_each(Body::compare_numbers);
}

fn verify(bodies: &mut [Body<'_>]) {
    let found: Vec<_> = bodies
        .iter()
        .enumerate()
        .filter(|(_, body)| body.waits_for(Service::Integrity))
        .filter_map(|(at, body)| {
            let (data, checksum) = integrity_body(body.bytes).ok()?;
            Some((at, [&body.bytes[data]], &body.bytes[checksum]))
        })
        .collect();
    if found.is_empty() {
        return;
    }
    let mut jobs: Vec<VerifyJob<'_>> = found
        .iter()
        .map(|(at, data, checksum)| VerifyJob::new(bodies[*at].keys, data, checksum))
        .collect();
    verify_many(&mut jobs);
    let refused: Vec<usize> = found
        .iter()
        .zip(&jobs)
        .filter(|(_, job)| job.result.is_err())
        .map(|((at, ..), _)| *at)
        .collect();
    drop(jobs);
    drop(found);
    refused.into_iter().for_each(|at| bodies[at].clear = None);
}

fn open(bodies: &mut [Body<'_>]) {
    if !bodies.iter().any(|body| body.waits_for(Service::Privacy)) {
        return;
    }
    let mut jobs: Vec<OpenJob<'_>> = Vec::with_capacity(bodies.len());
    for body in bodies.iter_mut().filter(|body| body.waits_for(Service::Privacy)) {
        if let Some(sealed) = body.clear.clone() {
            jobs.push(OpenJob::new(body.keys, &mut body.bytes[sealed]));
        }
    }
    open_many(&mut jobs);
    let opened: Vec<Option<Range<usize>>> =
        jobs.into_iter().map(|job| job.result.ok().map(|opened| opened.range)).collect();
    for (body, plain) in
        bodies.iter_mut().filter(|body| body.waits_for(Service::Privacy)).zip(opened)
    {
        body.clear = body
            .clear
            .take()
            .zip(plain)
            .map(|(sealed, plain)| sealed.start + plain.start..sealed.start + plain.end);
    }
}
