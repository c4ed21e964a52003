//! Verifies calls (RFC 2203 §5.3.3) and decrypts their arguments, many at once.

use std::ops::Range;

use vouch_krb5_seal::{VerifyJob, verify_many};
use vouch_oncrpc::AuthStat;

use crate::bodies::{Body, open_bodies};
use crate::{GssCall, GssSeq};

/// The result of verifying a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Has the position of the arguments in the record.
    Genuine(Range<usize>),
    /// The header is not genuine: deny the call with this status.
    Refused(AuthStat),
    /// A repeated or too old call: close the connection without an answer, so that a waiting client
    /// sends it again.
    Dropped,
    /// A genuine header with an invalid body: GARBAGE_ARGS.
    Garbage,
}

/// One call to verify.
pub struct Check<'a> {
    /// Sealed arguments are decrypted in place.
    pub record: &'a mut [u8],
    /// As [`classify`](crate::classify) found it.
    pub call: &'a GssCall,
    /// Set by [`check_many`].
    pub verdict: Verdict,
}

impl<'a> Check<'a> {
    /// A call that is not verified yet.
    pub fn new(record: &'a mut [u8], call: &'a GssCall) -> Self {
        Self { record, call, verdict: Verdict::Dropped }
    }
}

/// Headers first, then bodies of calls with valid headers. Their contexts count as used at
/// `now_ms`.
pub fn check_many(checks: &mut [Check<'_>], now_ms: u64) {
    checks.chunks_mut(CHUNK).for_each(|chunk| check_chunk(chunk, now_ms));
}

const CHUNK: usize = 64;

fn check_chunk(checks: &mut [Check<'_>], now_ms: u64) {
    {
        let headers: Vec<[&[u8]; 1]> =
            checks.iter().map(|check| [&check.record[..check.call.header_len]]).collect();
        let mut jobs: Vec<VerifyJob<'_>> = checks
            .iter()
            .zip(&headers)
            .map(|(check, header)| {
                VerifyJob::new(
                    check.call.context.keys(),
                    header,
                    &check.record[check.call.verifier.clone()],
                )
            })
            .collect();
        verify_many(&mut jobs);
        let results: Vec<bool> = jobs.iter().map(|job| job.result.is_ok()).collect();
        drop(jobs);
        drop(headers);
        checks
            .iter_mut()
            .zip(results)
            .for_each(|(check, holds)| check.verdict = admit(check.call, holds, now_ms));
    }
    let mut bodies: Vec<Body<'_>> = Vec::with_capacity(checks.len());
    let mut places = Vec::with_capacity(checks.len());
    for check in checks.iter_mut().filter(|check| matches!(check.verdict, Verdict::Genuine(_))) {
        let Check { record, call, verdict } = check;
        if call.destroy {
            // Clients differ on wrapping the empty arguments of DESTROY; its header has proven it.
            *verdict = Verdict::Genuine(record.len()..record.len());
            continue;
        }
        places.push((verdict, call.args_at));
        bodies.push(Body::new(
            call.context.keys(),
            call.service,
            call.seq,
            &mut record[call.args_at..],
        ));
    }
    open_bodies(&mut bodies);
    for (body, (verdict, at)) in bodies.into_iter().zip(places) {
        *verdict = match body.clear {
            Some(args) => Verdict::Genuine(at + args.start..at + args.end),
            None => Verdict::Garbage,
        };
    }
}

/// RFC 2203 §5.3.3.1 and 5.3.3.3: an invalid or repeated header changes nothing.
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
