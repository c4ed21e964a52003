//! Threads, clocks and randomness for `vouch_rpcsec_gss`.

use std::path::Path;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vouch_audit::record::Refusal;
use vouch_gss_mit::{KerberosError, MitAcceptor, Partial, check_keytab, fault_of};
use vouch_oncrpc::AuthStat;
use vouch_rpcsec_gss::{
    Accept, Acceptor, ContextHandle, ContextLimits, Contexts, HANDLE_LEN, InitCall, ServerContext,
};
use vouch_xdr::Writer;

use crate::audit::{Audit, Refused};
use crate::clock;
use crate::identity::as_ourselves;
use crate::monitoring::counter::Counter;
use crate::monitoring::refusals::RecentRefusals;
use crate::thread_pool::{Pool, TaskOrigin};
use crate::transport::connection::{ActiveCall, Connection};
use crate::transport::output::Outgoing;
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::rate_limit::Throttle;

use super::callback::Awaited;
use super::random;

pub(crate) struct Gss {
    acceptor: Arc<dyn Acceptor<Partial = Partial>>,
    check_keys: Box<dyn Fn() -> Result<(), KerberosError> + Send + Sync>,
    pub(super) contexts: Mutex<Contexts<Partial>>,
    /// These threads read the keytab and write the replay cache as the server's user.
    pool: Pool,
    pub(crate) counts: GssCounts,
    pub(super) awaited: Awaited,
    pub(super) refusals: Mutex<Throttle>,
    pub(crate) refused: RecentRefusals,
}

#[derive(Default)]
pub(crate) struct GssCounts {
    pub(crate) made: Counter,
    pub(crate) refused: Counter,
    /// Denied, replayed, and undecodable calls.
    pub(crate) denied: Counter,
    pub(crate) dropped: Counter,
    pub(crate) garbage: Counter,
}

/// Of a connection. Weak: keys of an ended context are wiped while the connection is idle.
#[derive(Default)]
pub(crate) struct Recent(pub(super) Vec<(ContextHandle, Weak<ServerContext>)>);

impl Gss {
    pub(crate) fn by(
        acceptor: Arc<dyn Acceptor<Partial = Partial>>,
        on_room: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Gss {
            acceptor,
            check_keys: Box::new(|| Ok(())),
            contexts: Mutex::new(Contexts::new(ContextLimits::default())),
            pool: Pool::new("kerberos", THREADS_MAX, WAITING_MAX, on_room),
            counts: GssCounts::default(),
            awaited: Awaited::default(),
            refusals: Mutex::new(Throttle::of_lines()),
            refused: RecentRefusals::default(),
        }
    }

    pub(crate) fn open(
        keytab: Option<&Path>,
        on_room: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, KerberosError> {
        let gss = Self::by(Arc::new(MitAcceptor::new(keytab, SERVICE)?), on_room);
        let keytab = keytab.map(Path::to_owned);
        Ok(Gss { check_keys: Box::new(move || check_keytab(keytab.as_deref(), SERVICE)), ..gss })
    }

    pub(crate) fn check_keys(&self) -> Result<(), KerberosError> {
        as_ourselves();
        (self.check_keys)()
    }

    /// Does not prolong the context's life: the caller has proven nothing.
    pub(super) fn find(
        &self,
        recent: &mut Recent,
        handle: &[u8],
        now_ms: u64,
    ) -> Option<Arc<ServerContext>> {
        if let Some(at) = recent.0.iter().position(|(name, _)| name.0 == *handle) {
            if let Some(context) =
                recent.0[at].1.upgrade().filter(|context| !context.has_ended(now_ms))
            {
                recent.0[..=at].rotate_right(1);
                return Some(context);
            }
            recent.0.remove(at);
        }
        let context = self.contexts.lock().find(handle, now_ms)?;
        recent.0.truncate(RECENT_MAX - 1);
        recent.0.insert(0, (context.handle(), Arc::downgrade(&context)));
        Some(context)
    }

    pub(crate) fn destroy(&self, context: &ServerContext) {
        let mut contexts = self.contexts.lock();
        contexts.remove(context.handle());
        let removed = contexts.take_removed();
        drop(contexts);
        drop(removed);
    }

    pub(crate) fn is_crowded(&self, origin: TaskOrigin) -> bool {
        self.pool.is_crowded(origin)
    }

    pub(crate) fn init(
        self: &Arc<Self>,
        call: InitCall,
        connection: &Arc<Connection>,
        audit: Option<&Arc<Audit>>,
    ) {
        let (gss, connection, audit) = (self.clone(), connection.clone(), audit.cloned());
        connection.begin_waiting();
        self.pool.submit(connection.origin(), move || {
            let _at_work = ActiveCall(&connection);
            connection.send(
                [Outgoing::unmarked(gss.answer(&call, &connection, audit.as_deref()), None)],
                |_| {},
            );
        });
    }

    fn answer(&self, call: &InitCall, connection: &Connection, audit: Option<&Audit>) -> Vec<u8> {
        let mut w = Writer::new();
        vouch_oncrpc::begin_record(&mut w);
        let (partial, removed) = {
            let mut contexts = self.contexts.lock();
            (call.partial(&mut contexts, clock::boot_ms()), contexts.take_removed())
        };
        drop(removed);
        let partial = match partial {
            Ok(partial) => partial,
            Err(stat) => {
                let refused = Refused {
                    detail: "continues an unknown context",
                    ..Refused::of(Refusal::Authentication, connection.engine())
                };
                audit.iter().for_each(|audit| audit.refuse(&refused));
                call.refuse(stat, &mut w);
                return w.into_bytes();
            }
        };
        as_ourselves();
        let accept = self.acceptor.accept(partial, &call.token);
        let peer = connection.peer();
        match &accept {
            Accept::Established { context, .. } => {
                self.counts.made.add(1);
                let (principal, service) = (&context.principal, &context.service);
                tracing::debug!(%peer, ?principal, ?service, enctype = %context.keys.enctype(), lifetime_s = context.lifetime_s, "created a Kerberos context");
            }
            Accept::Continue { .. } => {}
            Accept::Failed { reason, major, minor, principal, enctype, .. } => {
                self.counts.refused.add(1);
                self.refused.add(fault_of(*minor), principal, peer.ip(), reason);
                let refused = Refused {
                    principal,
                    enctype: *enctype,
                    detail: reason,
                    ..Refused::of(why(*major, *minor), connection.engine())
                };
                audit.iter().for_each(|audit| audit.refuse(&refused));
                match self.refusals.lock().admit(peer.ip(), clock::mono_ms()) {
                    Some(0) => tracing::warn!(%peer, "Kerberos: {reason}"),
                    Some(omitted) => tracing::warn!(%peer, omitted, "Kerberos: {reason}"),
                    None => {}
                }
            }
        }
        let mut handle = [0; HANDLE_LEN];
        if !random::fill(&mut handle) {
            call.refuse(AuthStat::FAILED, &mut w);
            return w.into_bytes();
        }
        let (outcome, removed) = {
            let mut contexts = self.contexts.lock();
            (
                contexts.store(accept, ContextHandle(handle), clock::boot_ms()),
                contexts.take_removed(),
            )
        };
        drop(removed);
        call.reply(outcome, &mut w);
        w.into_bytes()
    }

    pub(crate) fn expire(&self) {
        let removed = {
            let mut contexts = self.contexts.lock();
            contexts.expire(clock::boot_ms());
            contexts.take_removed()
        };
        drop(removed);
        self.refusals.lock().expire(clock::mono_ms());
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let (held, evicted) = {
            let contexts = self.contexts.lock();
            (contexts.len() as u64, contexts.evicted())
        };
        let counts = &self.counts;
        let lines = [
            ("contexts", Metric::Gauge, "Kerberos contexts now.", held),
            ("contexts_made_total", Metric::Counter, "Contexts made.", counts.made.get()),
            (
                "contexts_refused_total",
                Metric::Counter,
                "Tickets that were refused.",
                counts.refused.get(),
            ),
            (
                "contexts_evicted_total",
                Metric::Counter,
                "Contexts that had to make room for others.",
                evicted,
            ),
            (
                "calls_denied_total",
                Metric::Counter,
                "Calls whose header did not hold.",
                counts.denied.get(),
            ),
            (
                "calls_dropped_total",
                Metric::Counter,
                "Calls that came twice or too late.",
                counts.dropped.get(),
            ),
            (
                "calls_garbage_total",
                Metric::Counter,
                "Calls whose body did not hold.",
                counts.garbage.get(),
            ),
        ];
        for (name, kind, help, value) in lines {
            page.single(&format!("vouch_export_gss_{name}"), kind, help, value);
        }
    }

    pub(crate) fn stop(&self) {
        self.pool.stop();
    }
}

/// GSS-API status (RFC 2744 §3.9.1) and Kerberos error code (RFC 4120 §7.5.9, numbered as in
/// krb5.h).
fn why(major: u32, minor: u32) -> Refusal {
    match (major >> 16 & 0xff, kerberos_code(minor)) {
        (11 | 12, _) | (_, 32) => Refusal::Expired,
        (_, 34) => Refusal::Replay,
        _ => Refusal::Authentication,
    }
}

fn kerberos_code(minor: u32) -> i32 {
    const BASE: i32 = -1_765_328_384;
    (minor as i32).wrapping_sub(BASE)
}

/// RFC 7530 §3.2.1; RFC 8881 §2.2.1.1.1.2.
const SERVICE: &str = "nfs";
const RECENT_MAX: usize = 8;
/// Each context takes some hundred microseconds of CPU time.
const THREADS_MAX: usize = 4;
const WAITING_MAX: usize = 1024;
