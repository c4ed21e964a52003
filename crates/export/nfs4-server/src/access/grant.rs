use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_nfs4::Status;
use vouch_vfs::{Blocking, Caller};

use crate::error::OpError;
use crate::pseudo_fs::{Site, Tree};
use crate::{ClientAccess, ExportId, Flavour, Identity, Principal, Transport};

pub(crate) struct Grant {
    pub(crate) site: Arc<Site>,
    pub(crate) access: Arc<ClientAccess>,
    /// The anonymous user if the security does not fit.
    pub(crate) caller: Arc<Caller>,
    /// Flavour and transport. If not, operations that need the file answer WRONGSEC.
    pub(crate) security_fits: bool,
    pub(crate) transport_fits: bool,
    read_only: bool,
}

/// A removed client or group member loses its rights within this time.
const GRANT_AGE_MS_MAX: u64 = 5_000;
const GRANTS_PER_CONNECTION_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct GrantCache {
    entries: Vec<Entry>,
}

struct Entry {
    grant: Arc<Grant>,
    principal: Principal,
    flavour: Flavour,
    transport: Transport,
    generation: u64,
    made_ms: u64,
}

pub(crate) struct Requester<'a> {
    pub(crate) cache: &'a Mutex<GrantCache>,
    pub(crate) peer: SocketAddr,
    pub(crate) principal: &'a Principal,
    pub(crate) flavour: Flavour,
    pub(crate) transport: Transport,
    pub(crate) now_ms: u64,
    pub(crate) blocking: Blocking,
}

impl Grant {
    /// STALE if the export is gone or does not name the client, as in Linux; DELAY if the answer is
    /// not known yet; ACCESS without a local identity.
    pub(crate) fn resolve(
        requester: &Requester<'_>,
        tree: &Tree,
        identity: &dyn Identity,
        export: ExportId,
    ) -> Result<Arc<Grant>, OpError> {
        let mut cache = requester.cache.lock();
        let known = cache.entries.iter().position(|entry| {
            entry.grant.site.export.id == export
                && (entry.flavour, entry.transport) == (requester.flavour, requester.transport)
                && entry.principal == *requester.principal
        });
        if let Some(at) = known {
            let entry = &cache.entries[at];
            if entry.generation == tree.generation
                && requester.now_ms.saturating_sub(entry.made_ms) < GRANT_AGE_MS_MAX
            {
                return Ok(entry.grant.clone());
            }
            cache.entries.swap_remove(at);
        }
        drop(cache);
        let grant = Arc::new(Self::evaluate(requester, tree, identity, export)?);
        let mut cache = requester.cache.lock();
        if cache.entries.len() >= GRANTS_PER_CONNECTION_MAX {
            cache.entries.remove(0);
        }
        cache.entries.push(Entry {
            grant: grant.clone(),
            principal: requester.principal.clone(),
            flavour: requester.flavour,
            transport: requester.transport,
            generation: tree.generation,
            made_ms: requester.now_ms,
        });
        Ok(grant)
    }

    fn evaluate(
        requester: &Requester<'_>,
        tree: &Tree,
        identity: &dyn Identity,
        export: ExportId,
    ) -> Result<Grant, OpError> {
        let site = tree.site(export).ok_or(Status::STALE)?.clone();
        let peer = requester.peer;
        let clients = &site.export.clients;
        let refusal = || if clients.is_undecided(peer) { Status::DELAY } else { Status::STALE };
        let access = clients.access_for(peer).ok_or_else(refusal)?;
        if access.refuses_port(requester.flavour, peer.port()) {
            return Err(Status::ACCESS.into());
        }
        let transport_fits = !access.refuses_transport(requester.flavour, requester.transport);
        let Some(under) = access.under(requester.flavour).copied().filter(|_| transport_fits)
        else {
            // A caller without an account gets WRONGSEC too, so that it tries another flavour.
            let squash = access.flavours.first().ok_or(Status::STALE)?.squash;
            let caller = Arc::new(Caller::new(squash.anonymous_uid, squash.anonymous_gid, []));
            // The machine credential may write if some flavour may.
            let read_only = access.flavours.iter().all(|under| under.read_only);
            return Ok(Grant {
                site,
                access,
                caller,
                security_fits: false,
                transport_fits,
                read_only,
            });
        };
        let caller = identity
            .caller(requester.principal, peer, &under.squash, requester.blocking)?
            .ok_or(Status::ACCESS)?;
        Ok(Grant {
            site,
            access,
            caller,
            security_fits: true,
            transport_fits,
            read_only: under.read_only,
        })
    }

    pub(crate) fn read_only(&self) -> bool {
        self.read_only || self.site.traits().read_only
    }
}
