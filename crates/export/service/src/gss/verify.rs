//! A batch has the calls of one read, or long calls of several connections.

use std::collections::VecDeque;
use std::sync::Arc;

use vouch_audit::Flavour;
use vouch_audit::record::Refusal;
use vouch_oncrpc::{AuthStat, Call, Flavor};
use vouch_rpcsec_gss::{
    CallClass, Check, GssCall, InitCall, Service, Verdict, check_many, classify,
};

use super::contexts::{Gss, Recent};
use crate::audit::{Audit, Refused};
use crate::transport::receive::Records;

pub(crate) struct ProtectedRecord {
    pub(crate) start: usize,
    len: usize,
    pub(crate) what: Protected,
}

pub(crate) enum Protected {
    Call(Box<GssCall>, Verdict),
    Init(InitCall),
    Garbage(u32),
    Refused(u32, AuthStat),
}

impl Protected {
    pub(crate) fn record_refusal(&self, audit: &Audit, connection: &vouch_nfs4_server::Connection) {
        let refuse =
            |why, detail: &str| audit.refuse(&Refused { detail, ..Refused::of(why, connection) });
        match self {
            Protected::Call(call, verdict) => {
                let (why, detail) = match verdict {
                    Verdict::Genuine(_) => return,
                    Verdict::Dropped => (Refusal::Replay, "came twice or too late"),
                    Verdict::Refused(AuthStat::RPCSEC_GSS_CTX_PROBLEM) => {
                        (Refusal::Expired, "the context has no numbers left")
                    }
                    Verdict::Refused(_) => {
                        (Refusal::Altered, "the header's checksum does not hold")
                    }
                    Verdict::Garbage => (Refusal::Altered, "the body's checksum does not hold"),
                };
                let flavour = match call.service() {
                    Service::None => Flavour::Krb5,
                    Service::Integrity => Flavour::Krb5i,
                    Service::Privacy => Flavour::Krb5p,
                };
                let (principal, enctype) =
                    (call.context().principal(), Some(call.context().keys().enctype() as u32));
                audit.refuse(&Refused {
                    flavour,
                    principal,
                    enctype,
                    detail,
                    ..Refused::of(why, connection)
                });
            }
            Protected::Init(_) => {}
            Protected::Garbage(_) => refuse(Refusal::Authentication, "no arguments of a context"),
            Protected::Refused(
                _,
                AuthStat::RPCSEC_GSS_CRED_PROBLEM | AuthStat::RPCSEC_GSS_CTX_PROBLEM,
            ) => {
                refuse(Refusal::Expired, "no such context, or its ticket has expired");
            }
            Protected::Refused(..) => {
                refuse(Refusal::Authentication, "bad credentials of RPCSEC_GSS")
            }
        }
    }
}

/// Among the complete records of one fragment, in order.
pub(crate) fn find_protected(
    bytes: &[u8],
    records: Records,
    gss: Option<&Arc<Gss>>,
    recent: &mut Recent,
    now_ms: u64,
) -> VecDeque<ProtectedRecord> {
    let mut found = VecDeque::new();
    for range in records.of(bytes).filter(|range| is_protected(&bytes[range.clone()])) {
        let record = &bytes[range.clone()];
        let Ok(call) = Call::decode(record) else { continue };
        let what = match gss {
            None => Protected::Refused(call.xid, AuthStat::BAD_CRED),
            Some(gss) => match classify(record, &call, |handle| gss.find(recent, handle, now_ms)) {
                CallClass::Call(call) => Protected::Call(Box::new(call), Verdict::Dropped),
                CallClass::Init(init) => Protected::Init(init),
                CallClass::Garbage => Protected::Garbage(call.xid),
                CallClass::Refused(stat) => Protected::Refused(call.xid, stat),
            },
        };
        found.push_back(ProtectedRecord { start: range.start, len: range.len(), what });
    }
    found
}

pub(crate) fn verify_all<'a>(
    found: impl IntoIterator<Item = (&'a mut [u8], &'a mut VecDeque<ProtectedRecord>)>,
    gss: Option<&Arc<Gss>>,
    now_ms: u64,
) {
    let mut checks = Vec::new();
    let mut places = Vec::new();
    for (bytes, looked) in found {
        let (mut rest, mut at) = (bytes, 0);
        for ProtectedRecord { start, len, what } in looked {
            let Protected::Call(call, verdict) = what else { continue };
            let (record, behind) = rest[*start - at..].split_at_mut(*len);
            (rest, at) = (behind, *start + *len);
            checks.push(Check::new(record, call));
            places.push(verdict);
        }
    }
    check_many(&mut checks, now_ms);
    for (place, check) in places.into_iter().zip(checks) {
        *place = check.verdict;
        gss.iter().for_each(|gss| gss.count(place));
    }
}

pub(crate) fn verify(
    bytes: &mut [u8],
    records: Records,
    gss: Option<&Arc<Gss>>,
    recent: &mut Recent,
    now_ms: u64,
) -> VecDeque<ProtectedRecord> {
    let mut found = find_protected(bytes, records, gss, recent, now_ms);
    if !found.is_empty() {
        verify_all([(bytes, &mut found)], gss, now_ms);
    }
    found
}

pub(crate) fn has_long_call(found: &VecDeque<ProtectedRecord>, len_min: usize) -> bool {
    found.iter().any(|looked| match &looked.what {
        Protected::Call(call, _) => call.service() != Service::None && looked.len >= len_min,
        _ => false,
    })
}

pub(crate) fn verify_one(
    record: &mut [u8],
    gss: Option<&Arc<Gss>>,
    recent: &mut Recent,
    now_ms: u64,
) -> Option<Protected> {
    verify(record, Records::Bare, gss, recent, now_ms).pop_front().map(|looked| looked.what)
}

fn is_protected(record: &[u8]) -> bool {
    record.get(4..8) == Some(&[0; 4])
        && record.get(24..28) == Some(&Flavor::RPCSEC_GSS.0.to_be_bytes())
}

impl Gss {
    fn count(&self, verdict: &Verdict) {
        match verdict {
            Verdict::Genuine(_) => {}
            Verdict::Refused(_) => self.counts.denied.add(1),
            Verdict::Dropped => self.counts.dropped.add(1),
            Verdict::Garbage => self.counts.garbage.add(1),
        }
    }
}
