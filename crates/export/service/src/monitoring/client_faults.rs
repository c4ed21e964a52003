//! Every answer and event that ends a mount or a client's state. Each one is counted, and logged with
//! client, cause and cure. docs/client-faults.md is the same table for administrators.

use std::fmt::Arguments;
use std::net::IpAddr;

use parking_lot::Mutex;
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::rate_limit::Throttle;
use vouch_nfs4::Status;
use vouch_nfs4::op::Op;
use vouch_nfs4_server::{ClientEnd, Denial};
use vouch_oncrpc::AuthStat;

use super::counter::Counter;
use super::refusals::RecentRefusals;
use super::status::RefusalStatus;
use crate::clock;

macro_rules! client_faults {
    ($( $variant:ident $name:literal $level:ident $cause:literal $cure:literal )*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ClientFault { $( $variant, )* }

        impl ClientFault {
            pub(crate) const ALL: &'static [ClientFault] = &[$( ClientFault::$variant, )*];

            /// The label of the counter, and the name in the documents.
            pub(crate) const fn name(self) -> &'static str {
                match self { $( ClientFault::$variant => $name, )* }
            }

            const fn level(self) -> Level {
                match self { $( ClientFault::$variant => Level::$level, )* }
            }

            const fn cause(self) -> &'static str {
                match self { $( ClientFault::$variant => $cause, )* }
            }

            const fn cure(self) -> &'static str {
                match self { $( ClientFault::$variant => $cure, )* }
            }
        }
    };
}

enum Level {
    /// Occurs in normal operation, for example after a restart of the server.
    Info,
    Warn,
}

client_faults! {
    NameInUse "name-in-use" Warn "refused a client because another client uses its name (CLID_INUSE)"
        "if two machines have one host name, for example clones, rename one of them, or set nfs4_unique_id of the module nfs on each"
    NameShared "name-shared" Warn "a client ended an active client of the same name and address"
        "if two machines have one host name, for example clones, rename one of them, or set nfs4_unique_id of the module nfs on each"
    AddressChanged "address-changed" Warn "a client returned from another address than before the restart, and may not reclaim its state"
        "none needed: it starts fresh after the grace period"
    StaleClient "stale-client" Info "a client used a client identifier that is unknown (STALE_CLIENTID, STALE_STATEID)"
        "none needed after a restart of the server, or if its lease had ended: the client introduces itself again"
    StaleSession "stale-session" Info "a client used a session that is unknown (BADSESSION, DEADSESSION)"
        "none needed after a restart of the server, or if its lease had ended: the client makes a new session"
    LeaseEnded "lease-ended" Warn "ended the state of a client that did not renew its lease, and another client needed it or it stayed away for a day"
        "look at the network, and whether the client slept or hung"
    StateGone "state-gone" Info "a client used opens, locks or delegations that have ended (EXPIRED, ADMIN_REVOKED, DELEG_REVOKED, BAD_STATEID)"
        "look for an earlier line lease-ended, delegation-revoked or access-lost of this client"
    DelegationOverdue "delegation-overdue" Warn "a client does not return a recalled delegation, and other clients wait for the file"
        "for files that several clients share, such as images of virtual disks, export with no_delegations"
    DelegationRevoked "delegation-revoked" Warn "revoked a delegation that the client did not return; its cached writes to the file may be lost"
        "for files that several clients share, such as images of virtual disks, export with no_delegations"
    ReclaimRefused "reclaim-refused" Warn "a client could not reclaim its locks (NO_GRACE, RECLAIM_BAD, RECLAIM_CONFLICT)"
        "the client came back after the grace period: look at the network, or use a longer --lease"
    AccessLost "access-lost" Warn "a reload of the exports ended opens, locks or delegations of a client that lost its access"
        "correct the list of exports if this was not wanted"
    StateRemoved "state-removed" Info "an administrator ended a client, or state of it"
        "none needed: the client introduces itself again, and its programs may get EIO for what they had open"
    ClientEvicted "client-evicted" Warn "removed the record of a client to make room for others"
        "look for a machine that introduces many clients"
    ClientsFull "clients-full" Warn "cannot take a new client now (DELAY)"
        "look for a machine that introduces many clients"
    ResourcesFull "resources-full" Warn "a client has reached a limit for sessions, owners or operations (NOSPC, RESOURCE)"
        "look at vouch export status, and for a program that leaks opens or sessions"
    ConnectionsFull "connections-full" Warn "refused a connection, because the limit of its address or of the server is reached"
        "look for a machine that opens many connections; LimitNOFILE= of the unit"
    HandleGone "handle-gone" Info "a client used a file, a directory or an export that is gone (STALE, BADHANDLE)"
        "none needed if another client removed the file; after a move of the server, filehandle.key must move along"
    ProxyHeader "proxy-header" Warn "refused a connection of a balancer: it has no valid PROXY header of version 2"
        "let the balancer send it (send-proxy-v2 of HAProxy), or remove it from --proxy-from"
    AddressRefused "address-refused" Warn "refused a client whose address no export names (ACCESS, STALE)"
        "add its address or name to the list of exports, then vouch export reload"
    PortRefused "port-refused" Warn "refused a client that calls from a port above 1023 (ACCESS)"
        "mount without noresvport, or export with insecure"
    TransportTooWeak "transport-too-weak" Warn "refused a client whose connection lacks the demanded TLS or certificate (WRONGSEC, AUTH_TOOWEAK)"
        "mount with xprtsec=tls or xprtsec=mtls, or change xprtsec= of the export"
    FlavourRefused "flavour-refused" Info "refused a security flavour that the export does not allow (WRONGSEC, WRONG_CRED)"
        "none needed if the mount works: a client tries its flavours; otherwise mount with sec= of the export"
    CredentialRefused "credential-refused" Info "refused the credential of a call (AUTH_BADCRED, RPCSEC_GSS_CREDPROBLEM, RPCSEC_GSS_CTXPROBLEM)"
        "none needed after a restart of the server or the end of a ticket: the client makes a new context; otherwise look at the clocks and the keytab"
    CallerRefused "caller-refused" Warn "refused a user who has no account here or whom the principal map refuses (ACCESS)"
        "getent passwd USER on the server; --principal-map; then vouch export reload"
    NameServiceSilent "name-service-silent" Warn "a call must wait because the name service does not answer (DELAY)"
        "getent passwd USER on the server; systemctl status sssd nslcd"
    RootSquashed "root-squashed" Info "root of a client acts as nobody, and was refused (ACCESS, PERM)"
        "work as the owner of the files, or export with no_root_squash"
    QuotaExceeded "quota-exceeded" Warn "a user or project has reached the quota of the file system (DQUOT)"
        "quota -u USER on the server, or vouch export status for quota=; remove files or raise the quota"
}

impl ClientFault {
    /// `None`: the answer ends neither a mount nor state, or CLID_INUSE, whose effect names the holder.
    pub(super) fn of_status(op: u32, status: u32, is_squashed: bool) -> Option<Self> {
        Some(match Status(status) {
            Status::STALE_CLIENTID | Status::STALE_STATEID => Self::StaleClient,
            Status::BADSESSION | Status::DEADSESSION => Self::StaleSession,
            Status::EXPIRED
            | Status::ADMIN_REVOKED
            | Status::DELEG_REVOKED
            | Status::BAD_STATEID => Self::StateGone,
            Status::STALE | Status::BADHANDLE => Self::HandleGone,
            Status::NO_GRACE | Status::RECLAIM_BAD | Status::RECLAIM_CONFLICT => {
                Self::ReclaimRefused
            }
            Status::WRONGSEC | Status::WRONG_CRED => Self::FlavourRefused,
            Status::RESOURCE => Self::ResourcesFull,
            Status::NOSPC if Op(op) == Op::CREATE_SESSION => Self::ResourcesFull,
            Status::DQUOT => Self::QuotaExceeded,
            Status::ACCESS if introduces_client(Op(op)) => Self::AddressRefused,
            Status::ACCESS | Status::PERM if is_squashed => Self::RootSquashed,
            _ => return None,
        })
    }

    pub(super) const fn of_denial(why: Denial) -> Self {
        match why {
            Denial::Client => Self::AddressRefused,
            Denial::Port => Self::PortRefused,
            Denial::Transport => Self::TransportTooWeak,
            Denial::Caller => Self::CallerRefused,
            Denial::NameService => Self::NameServiceSilent,
        }
    }

    pub(crate) const fn of_end(why: ClientEnd) -> Self {
        match why {
            ClientEnd::Expired { .. } => Self::LeaseEnded,
            ClientEnd::Evicted => Self::ClientEvicted,
            ClientEnd::TableFull => Self::ClientsFull,
            ClientEnd::AccessLost { .. } => Self::AccessLost,
            ClientEnd::ByAdministrator => Self::StateRemoved,
        }
    }

    pub(crate) fn of_auth(stat: AuthStat) -> Self {
        if stat == AuthStat::TOO_WEAK { Self::TransportTooWeak } else { Self::CredentialRefused }
    }
}

fn introduces_client(op: Op) -> bool {
    matches!(
        op,
        Op::EXCHANGE_ID
            | Op::CREATE_SESSION
            | Op::BIND_CONN_TO_SESSION
            | Op::SETCLIENTID
            | Op::SETCLIENTID_CONFIRM
    )
}

pub(crate) struct ClientFaults {
    counts: Vec<Counter>,
    /// One for each fault, so that a frequent one hides no other.
    limits: Vec<Mutex<Throttle>>,
    recent: RecentRefusals,
}

impl ClientFaults {
    pub(crate) fn new() -> Self {
        ClientFaults {
            counts: ClientFault::ALL.iter().map(|_| Counter::default()).collect(),
            limits: ClientFault::ALL.iter().map(|_| Mutex::new(Throttle::of_lines())).collect(),
            recent: RecentRefusals::default(),
        }
    }

    /// `client`: the name that the client gave itself.
    pub(crate) fn note(
        &self,
        fault: ClientFault,
        client: Option<&[u8]>,
        address: IpAddr,
        details: Arguments<'_>,
    ) {
        self.counts[fault as usize].add(1);
        let Some(omitted) = self.limits[fault as usize].lock().admit(address, clock::mono_ms())
        else {
            return;
        };
        let client =
            client.map_or_else(|| "unknown".to_owned(), |name| name.escape_ascii().to_string());
        let (name, cause, cure) = (fault.name(), fault.cause(), fault.cure());
        match fault.level() {
            Level::Info => {
                tracing::info!(fault = name, %client, %address, %details, omitted, "{cause}; {cure}")
            }
            Level::Warn => {
                tracing::warn!(fault = name, %client, %address, %details, omitted, "{cause}; {cure}")
            }
        }
        if matches!(fault, ClientFault::NameInUse | ClientFault::NameShared) {
            self.recent.add(NAME_CONFLICT, &client, address, &format!("{cause}; {details}"));
        }
    }

    pub(crate) fn count(&self, fault: ClientFault) -> u64 {
        self.counts[fault as usize].get()
    }

    pub(crate) fn recent(&self) -> Vec<RefusalStatus> {
        self.recent.status()
    }

    pub(super) fn write(&self, page: &mut Exposition) {
        let help = "Answers and events that end a mount or the state of a client.";
        let counts = ClientFault::ALL.iter().map(|fault| (fault.name(), self.count(*fault)));
        page.by((METRIC, Metric::Counter, help), "fault", counts);
    }
}

const METRIC: &str = "vouch_export_client_faults_total";
/// Name in docs/troubleshooting.md.
const NAME_CONFLICT: &str = "client-name-conflict";

#[cfg(test)]
mod tests;
