use std::net::SocketAddr;

use vouch_audit::record::{Class, Refusal};
use vouch_audit::{Flavour, Record};
use vouch_nfs4_server::{CallOrigin, Connection, Principal};

use super::{Audit, flavour, now_ns, principal, transport};
use crate::clock;

pub(crate) struct Refused<'a> {
    pub(crate) why: Refusal,
    pub(crate) peer: SocketAddr,
    pub(crate) connection: Option<u64>,
    pub(crate) flavour: Flavour,
    pub(crate) principal: &'a str,
    pub(crate) user: Option<(u32, u32)>,
    pub(crate) export: &'a str,
    pub(crate) enctype: Option<u32>,
    pub(crate) detail: &'a str,
    /// Fields of the transport.
    pub(crate) transport: Record<'a>,
}

impl<'a> Refused<'a> {
    pub(super) fn of_call(why: Refusal, origin: &'a CallOrigin) -> Self {
        let user = match origin.principal {
            Principal::Sys { uid, gid, .. } => Some((uid, gid)),
            _ => None,
        };
        Refused {
            flavour: flavour(origin.flavour),
            principal: principal(&origin.principal),
            enctype: origin.enctype,
            user,
            ..Self::of(why, &origin.connection)
        }
    }

    pub(crate) fn of(why: Refusal, connection: &'a Connection) -> Self {
        Refused {
            connection: Some(connection.id().0),
            transport: transport(connection),
            ..Self::from(why, connection.peer())
        }
    }

    pub(crate) fn from(why: Refusal, peer: SocketAddr) -> Self {
        Refused {
            why,
            peer,
            connection: None,
            flavour: Flavour::None,
            principal: "",
            user: None,
            export: "",
            enctype: None,
            detail: "",
            transport: Record::default(),
        }
    }
}

impl Audit {
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
            ..refused.transport.clone()
        };
        let Some(key) =
            self.rules.with(|rules| rules.select_refusal(&record).map(Box::<[u8]>::from))
        else {
            return;
        };
        let Some(omitted) = self.bounds.admit(refused.peer.ip(), clock::mono_ms()) else { return };
        record.gap = omitted;
        record.key = &key;
        self.trail.record(&record);
    }

    pub(crate) fn record_omitted_refusals(&self) {
        self.bounds.record_omitted(&self.trail, clock::mono_ms());
    }
}
