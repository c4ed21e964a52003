//! Calls that were refused before they were operations. Anybody who reaches the port can cause
//! them, as fast as he likes: so they are recorded at a bounded rate, and what was left out is
//! counted in a record itself.

use std::net::SocketAddr;

use vouch_audit::record::{Class, Refusal};
use vouch_audit::{Flavour, Record};
use vouch_nfs4_server::{Connection, Principal};

use super::{Audit, flavour, now_ns, principal};
use crate::export::clock;

/// A call that was refused.
pub(in crate::export) struct Refused<'a> {
    pub(in crate::export) why: Refusal,
    pub(in crate::export) peer: SocketAddr,
    pub(in crate::export) connection: Option<u64>,
    pub(in crate::export) flavour: Flavour,
    /// Who, where it is known.
    pub(in crate::export) principal: &'a str,
    /// User and group, as AUTH_SYS claims.
    pub(in crate::export) user: Option<(u32, u32)>,
    /// The export, where one was asked for.
    pub(in crate::export) export: &'a str,
    pub(in crate::export) enctype: Option<u32>,
    pub(in crate::export) detail: &'a str,
}

impl<'a> Refused<'a> {
    /// Of this caller.
    pub(super) fn by(self, under: vouch_nfs4_server::Flavour, caller: &'a Principal) -> Self {
        let user = match caller {
            Principal::Sys { uid, gid, .. } => Some((*uid, *gid)),
            _ => None,
        };
        Refused { flavour: flavour(under), principal: principal(caller), user, ..self }
    }

    /// One of which no more is known.
    pub(in crate::export) fn of(why: Refusal, connection: &Connection) -> Self {
        Refused { connection: Some(connection.id().0), ..Self::from(why, connection.peer()) }
    }

    /// Likewise, without a connection.
    pub(in crate::export) fn from(why: Refusal, peer: SocketAddr) -> Self {
        Refused { why, peer, connection: None, flavour: Flavour::None, principal: "", user: None, export: "", enctype: None, detail: "" }
    }
}

impl Audit {
    /// Records a call that was refused, if no rule says never and its client has not had too many.
    pub(in crate::export) fn refuse(&self, refused: &Refused<'_>) {
        let name = self.hosts.name(refused.peer.ip().to_canonical());
        let mut record = Record {
            time_ns: now_ns(),
            class: Class::Refusal,
            operation: refused.why as u16,
            flavour: refused.flavour,
            principal: refused.principal.as_bytes(),
            enctype: refused.enctype,
            uid: refused.user.map(|(uid, _)| uid),
            gid: refused.user.map(|(_, gid)| gid),
            export: refused.export.as_bytes(),
            path: refused.export.as_bytes(),
            address: Some(refused.peer.ip()),
            port: Some(refused.peer.port()),
            client: name.as_ref().map_or(b"", |name| name.as_bytes()),
            detail: refused.detail.as_bytes(),
            connection: refused.connection,
            ..Record::default()
        };
        let Some(key) = self.rules.with(|rules| rules.select_refusal(&record).map(Box::<[u8]>::from)) else { return };
        let Some(untold) = self.bounds.admit(refused.peer.ip(), clock::mono_ms()) else { return };
        record.gap = untold;
        record.key = &key;
        self.trail.record(&record);
    }

    /// Records how many refusals were left out since this was last told, if any were. To be called
    /// now and then.
    pub(in crate::export) fn tell_left_out(&self) {
        self.bounds.tell_left_out(&self.trail, clock::mono_ms());
    }
}
