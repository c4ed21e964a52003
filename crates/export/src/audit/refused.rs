//! Calls that were refused before they were operations. Anybody who reaches the port can cause
//! them, as fast as he likes: so they are recorded at a bounded rate, and what was left out is
//! counted in a record itself.

use std::net::SocketAddr;

use vouch_audit::record::{Class, Refusal};
use vouch_audit::{Flavour, Record};
use vouch_nfs4_server::{Connection, Principal};

use super::{Audit, flavour, now_ns, principal};
use crate::clock;

/// A call that was refused.
pub(crate) struct Refused<'a> {
    pub(crate) why: Refusal,
    pub(crate) peer: SocketAddr,
    pub(crate) connection: Option<u64>,
    pub(crate) flavour: Flavour,
    /// Who, where it is known.
    pub(crate) principal: &'a str,
    /// User and group, as AUTH_SYS claims.
    pub(crate) user: Option<(u32, u32)>,
    /// The export, where one was asked for.
    pub(crate) export: &'a str,
    pub(crate) enctype: Option<u32>,
    pub(crate) detail: &'a str,
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
    pub(crate) fn of(why: Refusal, connection: &Connection) -> Self {
        Refused { connection: Some(connection.id().0), ..Self::from(why, connection.peer()) }
    }

    /// Likewise, without a connection.
    pub(crate) fn from(why: Refusal, peer: SocketAddr) -> Self {
        Refused { why, peer, connection: None, flavour: Flavour::None, principal: "", user: None, export: "", enctype: None, detail: "" }
    }
}

impl Audit {
    /// Records a call that was refused, if no rule says never and its client has not had too many.
    pub(crate) fn refuse(&self, refused: &Refused<'_>) {
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
    pub(crate) fn tell_left_out(&self) {
        self.bounds.tell_left_out(&self.trail, clock::mono_ms());
    }
}
