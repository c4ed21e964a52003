//! Opens that the server ended (expired lease, restarted client, revoked delegation).

use vouch_audit::Record;
use vouch_audit::operations::number;
use vouch_audit::record::Class;
use vouch_nfs4_server::{EndedState, Loss, OtherNames, Principal};

use super::operation::select;
use super::{Audit, flavour, now_ns, principal};

impl Audit {
    pub(super) fn record_ended_state(&self, ended: &EndedState<'_>) {
        let opener = ended.opener;
        let operation = if ended.delegation { number::DELEGRETURN } else { number::CLOSE };
        self.rules.with(|rules| {
            if !rules.may_record(operation) {
                return;
            }
            let path = match ended.may_block {
                true => self.names.path(ended.export, ended.file),
                false => self.names.known_path(ended.export, ended.file),
            };
            let name = self.hosts.name(opener.peer.ip().to_canonical());
            let (uid, gid) = match &opener.principal {
                Principal::None => (None, None),
                _ => (Some(ended.caller.uid), Some(ended.caller.gid)),
            };
            let record = Record {
                time_ns: now_ns(),
                class: Class::Operation,
                operation,
                flavour: flavour(opener.flavour),
                minor: u8::try_from(opener.minor).unwrap_or(u8::MAX),
                principal: principal(&opener.principal).as_bytes(),
                enctype: opener.enctype,
                uid,
                gid,
                address: Some(opener.peer.ip()),
                port: Some(opener.peer.port()),
                client: name.as_ref().map_or(b"", |name| name.as_bytes()),
                export: ended.export.source.as_bytes(),
                path: &path,
                file: ended.file.as_bytes(),
                read: Some(ended.totals.read),
                written: Some(ended.totals.written),
                open_ns: Some(ended.totals.open_ms.saturating_mul(1_000_000)),
                connection: Some(opener.connection.0),
                ..Record::default()
            };
            let (others, none) = (
                self.names.others(ended.export, Some(ended.file), &path, rules, operation),
                OtherNames::default(),
            );
            let Some((key, by)) = select(rules, &record, &others, &none) else { return };
            let detail = [why(ended.why), &by.detail(&path, true)].join("; ");
            self.trail.record(&Record {
                key,
                detail: detail.trim_end_matches("; ").as_bytes(),
                ..record
            });
        });
    }
}

fn why(loss: Loss) -> &'static str {
    match loss {
        Loss::Expired => "ended by the server: the client's lease ran out",
        Loss::Restarted => "ended by the server: the client restarted",
        Loss::NotReturned => "ended by the server: the delegation was recalled and not returned",
        Loss::Revoked => {
            "ended by the server: the export or snapshot is gone or no longer open to the client, or the administrator ended the client"
        }
    }
}
