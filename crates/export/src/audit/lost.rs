//! Opens that no client closes: whose lease ran out, who began anew, whose delegation was taken
//! away. What was read and written by them would be told by nobody else.

use vouch_audit::Record;
use vouch_audit::operations::number;
use vouch_audit::record::Class;
use vouch_nfs4_server::{EndedState, Loss, Principal};

use super::names::Others;
use super::operation::select;
use super::{Audit, flavour, now_ns, principal};

impl Audit {
    /// A CLOSE, or a DELEGRETURN, that the server does by itself. It has no transaction id, and
    /// says why it came.
    pub(super) fn lost(&self, lost: &EndedState<'_>) {
        let operation = if lost.delegation { number::DELEGRETURN } else { number::CLOSE };
        self.rules.with(|rules| {
            if !rules.may_record(operation) {
                return;
            }
            let path = self.names.path(lost.export, lost.file);
            let name = self.hosts.name(lost.peer.ip().to_canonical());
            let (uid, gid) = match lost.principal {
                Principal::None => (None, None),
                _ => (Some(lost.caller.uid), Some(lost.caller.gid)),
            };
            let record = Record {
                time_ns: now_ns(),
                class: Class::Operation,
                operation,
                flavour: flavour(lost.flavour),
                minor: u8::try_from(lost.minor).unwrap_or(u8::MAX),
                principal: principal(lost.principal).as_bytes(),
                enctype: lost.enctype,
                uid,
                gid,
                address: Some(lost.peer.ip()),
                port: Some(lost.peer.port()),
                client: name.as_ref().map_or(b"", |name| name.as_bytes()),
                export: lost.export.source.as_bytes(),
                path: &path,
                file: lost.file.as_bytes(),
                read: Some(lost.totals.read),
                written: Some(lost.totals.written),
                open_ns: Some(lost.totals.open_ms.saturating_mul(1_000_000)),
                connection: Some(lost.connection.0),
                ..Record::default()
            };
            let (others, none) = (self.names.others(lost.export, Some(lost.file), &path, rules, operation), Others::default());
            let Some((key, by)) = select(rules, &record, &others, &none) else { return };
            let detail = [why(lost.why), &by.told(&path, true)].join("; ");
            self.trail.record(&Record { key, detail: detail.trim_end_matches("; ").as_bytes(), ..record });
        });
    }
}

fn why(loss: Loss) -> &'static str {
    match loss {
        Loss::Expired => "ended by the server: the client's lease ran out",
        Loss::Restarted => "ended by the server: the client has begun anew",
        Loss::NotReturned => "ended by the server: the delegation was asked back and did not come",
        Loss::Revoked => {
            "ended by the server: its export is gone, or not for the client any more, or the client was ended by the administrator"
        }
    }
}
