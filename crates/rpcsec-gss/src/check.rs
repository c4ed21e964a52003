//! Whether calls are what their context's owner sent, and their arguments in clear (RFC 2203,
//! section 5.3.3): many calls at once, of any contexts.
//!
//! The order is the RFC's: the header's verifier first, then the number, which is taken in only
//! now, then the body.

use std::ops::Range;

use vouch_krb5_seal::{VerifyJob, verify_many};
use vouch_oncrpc::AuthStat;

use crate::bodies::{Body, look_into};
use crate::{GssCall, GssSeq};

/// What a call is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is genuine; its arguments lie there in the record.
    Genuine(Range<usize>),
    /// It is denied.
    Refused(AuthStat),
    /// It came before, or too late to tell: no answer, and its connection is closed so that a
    /// client that waits sends it again.
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

/// Checks calls, in their order, side by side. Two passes: headers, then the bodies of those whose
/// headers held. Their contexts have been used at `now_ms`.
pub fn check_many(checks: &mut [Check<'_>], now_ms: u64) {
    checks.chunks_mut(CHUNK).for_each(|chunk| check_chunk(chunk, now_ms));
}

/// Calls that go together: as many as the widest kernels take twice.
const CHUNK: usize = 64;

fn check_chunk(checks: &mut [Check<'_>], now_ms: u64) {
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
        checks.iter_mut().zip(results).for_each(|(check, holds)| check.verdict = admit(check.call, holds, now_ms));
    }
    let mut bodies: Vec<Body<'_>> = Vec::with_capacity(checks.len());
    let mut places = Vec::with_capacity(checks.len());
    for check in checks.iter_mut().filter(|check| matches!(check.verdict, Verdict::Genuine(_))) {
        let Check { record, call, verdict } = check;
        if call.destroy {
            // Clients differ in whether they wrap the nothing that a DESTROY has for arguments; its header has
            // proven it.
            *verdict = Verdict::Genuine(record.len()..record.len());
            continue;
        }
        places.push((verdict, call.args_at));
        bodies.push(Body::new(call.context.keys(), call.service, call.seq, &mut record[call.args_at..]));
    }
    look_into(&mut bodies);
    for (body, (verdict, at)) in bodies.into_iter().zip(places) {
        *verdict = match body.clear {
            Some(args) => Verdict::Genuine(at + args.start..at + args.end),
            None => Verdict::Garbage,
        };
    }
}

/// RFC 2203, section 5.3.3.3 and 5.3.3.1: a header that doesn't hold moves nothing; one that came
/// before, which anybody may have read on the wire, proves no use.
fn admit(call: &GssCall, holds: bool, now_ms: u64) -> Verdict {
    if !holds {
        return Verdict::Refused(AuthStat::RPCSEC_GSS_CRED_PROBLEM);
    }
    if call.seq >= GssSeq::MAX {
        return Verdict::Refused(AuthStat::RPCSEC_GSS_CTX_PROBLEM);
    }
    match call.context.take_seq(call.seq) {
        true => {
            call.context.touch(now_ms);
            Verdict::Genuine(0..0)
        }
        false => Verdict::Dropped,
    }
}
