//! Whether calls are what their context's owner sent, and their arguments in clear (RFC 2203, section 5.3.3): many calls at once, of any contexts.
//!
//! The order is the RFC's: the header's verifier first, then the number, which is taken in only now, then the body.

use std::ops::Range;

use vouch_krb5_seal::{OpenJob, VerifyJob, open_many, verify_many};
use vouch_oncrpc::AuthStat;

use crate::wire::{integrity_body, privacy_body};
use crate::{GssCall, GssSeq, Service};

/// What a call is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is genuine; its arguments lie there in the record.
    Genuine(Range<usize>),
    /// It is denied.
    Refused(AuthStat),
    /// It came before, or too late to tell: no answer, and its connection is closed so that a client that waits sends it again.
    Dropped,
    /// It is its owner's, but its body isn't: GARBAGE_ARGS.
    Garbage,
}

/// A call to check.
pub struct Check<'a> {
    /// Its record: sealed arguments are opened there.
    pub record: &'a mut [u8],
    /// Its parts.
    pub call: &'a GssCall,
    /// What came of it.
    pub verdict: Verdict,
}

impl<'a> Check<'a> {
    /// A call that waits to be checked.
    pub fn new(record: &'a mut [u8], call: &'a GssCall) -> Self {
        Self { record, call, verdict: Verdict::Dropped }
    }
}

/// Checks calls, in their order, side by side. Two passes: headers, then the bodies of those whose headers held.
pub fn check_many(checks: &mut [Check<'_>]) {
    checks.chunks_mut(CHUNK).for_each(check_chunk);
}

/// Calls that go together: as many as the widest kernels take twice.
const CHUNK: usize = 64;

fn check_chunk(checks: &mut [Check<'_>]) {
    {
        let headers: Vec<[&[u8]; 1]> = checks.iter().map(|check| [&check.record[..check.call.header_len]]).collect();
        let mut jobs: Vec<VerifyJob<'_>> = checks
            .iter()
            .zip(&headers)
            .map(|(check, header)| VerifyJob::new(check.call.context.keys(), header, &check.record[check.call.verifier.clone()]))
            .collect();
        verify_many(&mut jobs);
        let results: Vec<bool> = jobs.iter().map(|job| job.result.is_ok()).collect();
        drop(jobs);
        drop(headers);
        checks.iter_mut().zip(results).for_each(|(check, holds)| check.verdict = admit(check.call, holds));
    }
    for check in checks.iter_mut() {
        check.lay_out();
    }
    verify_bodies(checks);
    open_bodies(checks);
    for check in checks.iter_mut() {
        check.compare_numbers();
    }
}

/// RFC 2203, section 5.3.3.3 and 5.3.3.1: a header that doesn't hold moves nothing.
fn admit(call: &GssCall, holds: bool) -> Verdict {
    if !holds {
        return Verdict::Refused(AuthStat::RPCSEC_GSS_CRED_PROBLEM);
    }
    if call.seq >= GssSeq::MAX {
        return Verdict::Refused(AuthStat::RPCSEC_GSS_CTX_PROBLEM);
    }
    match call.context.take_seq(call.seq) {
        true => Verdict::Genuine(0..0),
        false => Verdict::Dropped,
    }
}

impl Check<'_> {
    /// Whether its body is still to be looked at.
    fn has_body(&self, service: Service) -> bool {
        matches!(self.verdict, Verdict::Genuine(_)) && self.call.service == service && !self.call.destroy
    }

    /// Finds the protected data.
    fn lay_out(&mut self) {
        let (at, len) = (self.call.args_at, self.record.len());
        if !matches!(self.verdict, Verdict::Genuine(_)) {
            return;
        }
        // Clients differ in whether they wrap the nothing that a DESTROY has for arguments; its header has proven it.
        let data = match self.call.service {
            _ if self.call.destroy => Ok(len - at..len - at),
            Service::None => Ok(0..len - at),
            Service::Integrity => integrity_body(&self.record[at..]).map(|(data, _)| data),
            Service::Privacy => privacy_body(&self.record[at..]),
        };
        self.verdict = match data {
            Ok(data) => Verdict::Genuine(at + data.start..at + data.end),
            Err(_) => Verdict::Garbage,
        };
    }

    /// RFC 2203, sections 5.3.2.2 and 5.3.3.3: the number inside is the credential's.
    fn compare_numbers(&mut self) {
        if !self.has_body(Service::Integrity) && !self.has_body(Service::Privacy) {
            return;
        }
        let Verdict::Genuine(data) = &self.verdict else { return };
        self.verdict = match self.record[data.clone()].first_chunk() {
            Some(number) if *number == self.call.seq.0.to_be_bytes() => Verdict::Genuine(data.start + 4..data.end),
            _ => Verdict::Garbage,
        };
    }
}

fn verify_bodies(checks: &mut [Check<'_>]) {
    let found: Vec<_> = checks
        .iter()
        .enumerate()
        .filter(|(_, check)| check.has_body(Service::Integrity))
        .filter_map(|(at, check)| {
            let body = &check.record[check.call.args_at..];
            let (data, checksum) = integrity_body(body).ok()?;
            Some((at, [&body[data]], &body[checksum]))
        })
        .collect();
    if found.is_empty() {
        return;
    }
    let mut jobs: Vec<VerifyJob<'_>> =
        found.iter().map(|(at, data, checksum)| VerifyJob::new(checks[*at].call.context.keys(), data, checksum)).collect();
    verify_many(&mut jobs);
    let refused: Vec<usize> = found.iter().zip(&jobs).filter(|(_, job)| job.result.is_err()).map(|((at, ..), _)| *at).collect();
    drop(jobs);
    drop(found);
    refused.into_iter().for_each(|at| checks[at].verdict = Verdict::Garbage);
}

fn open_bodies(checks: &mut [Check<'_>]) {
    let sealed = |check: &Check<'_>| check.has_body(Service::Privacy);
    if !checks.iter().any(sealed) {
        return;
    }
    let mut jobs: Vec<OpenJob<'_>> = Vec::with_capacity(checks.len());
    for check in checks.iter_mut() {
        if check.has_body(Service::Privacy)
            && let Verdict::Genuine(data) = &check.verdict
        {
            jobs.push(OpenJob::new(check.call.context.keys(), &mut check.record[data.clone()]));
        }
    }
    open_many(&mut jobs);
    let results: Vec<Option<Range<usize>>> = jobs.into_iter().map(|job| job.result.ok().map(|opened| opened.range)).collect();
    let opened = checks.iter_mut().filter(|check| check.has_body(Service::Privacy)).zip(results);
    for (check, plain) in opened {
        let Verdict::Genuine(data) = &check.verdict else { continue };
        check.verdict = match plain {
            Some(plain) => Verdict::Genuine(data.start + plain.start..data.start + plain.end),
            None => Verdict::Garbage,
        };
    }
}
