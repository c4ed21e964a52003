//! Between messages of the interface and the types of the control socket, in both directions.

use vouch_daemon::printable::printable;

use super::export_v1 as v1;
use crate::exports::changes::Origin;
use crate::exports::effective::EffectiveExport;
use crate::management::{ExportRule, LockStatus, StateKind, StateStatus};
use crate::monitoring::status::{
    AwaitedStatus, ClientStatus, ErrorStatus, ExportStatus, HeadRole, HeadStatus,
    NameServiceStatus, QosStatus, QuotaStatus, RefusalStatus, SiteStatus, Status, TlsStatus,
};

pub(super) trait Convert<T> {
    fn convert(self) -> T;
}

macro_rules! same {
    ($($type:ty),*) => {
        $(impl Convert<$type> for $type {
            fn convert(self) -> $type {
                self
            }
        })*
    };
}

same! { bool, u32, u64, i64 }

/// A server that is managed can't control the terminal of an administrator.
impl Convert<String> for String {
    fn convert(self) -> String {
        printable(self.as_bytes())
    }
}

impl Convert<u64> for usize {
    fn convert(self) -> u64 {
        self as u64
    }
}

impl Convert<usize> for u64 {
    fn convert(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

impl<A: Convert<B>, B> Convert<Option<B>> for Option<A> {
    fn convert(self) -> Option<B> {
        self.map(A::convert)
    }
}

impl<A: Convert<B>, B> Convert<Vec<B>> for Vec<A> {
    fn convert(self) -> Vec<B> {
        self.into_iter().map(A::convert).collect()
    }
}

/// Structures whose fields have the same names. A field that the other side lacks has its value behind
/// it.
macro_rules! fields {
    ($($ours:ident, $theirs:ident { $($field:ident),* } $(only ours { $($left:ident: $empty:expr),* })?;)*) => {
        $(
            impl Convert<v1::$theirs> for $ours {
                fn convert(self) -> v1::$theirs {
                    v1::$theirs { $($field: self.$field.convert()),* }
                }
            }

            impl Convert<$ours> for v1::$theirs {
                fn convert(self) -> $ours {
                    $ours { $($field: self.$field.convert(),)* $($($left: $empty),*)? }
                }
            }
        )*
    };
}

fields! {
    Status, Status {
        version, site, head, grace_left_ms, draining, awaited, connections, waiting_calls,
        waiting_threads, held_back, clients_displaced, clients_refused, name_conflicts,
        delegations_revoked, copies, tls, name_service, refusals, qos, exports, recent_errors
    } only ours { clients: Vec::new() };
    SiteStatus, Site { addresses, state, keytab };
    HeadStatus, Head { head, role, epoch, holder, lease_left_ms };
    AwaitedStatus, AwaitedClient { owner, address, is_v40, is_back };
    TlsStatus, Tls {
        certificate, fingerprint, not_after, days_left, revocation_overdue, tls, mtls, handshakes,
        refused
    };
    NameServiceStatus, NameService { lookups, failed, late, refused, waiting, silent_ms };
    RefusalStatus, Refusal { fault, caller, address, reason, at_seconds };
    QosStatus, QosAccount {
        export, client, ops_per_second, bytes_per_second, weight, operations, bytes, held, held_ms,
        held_by
    };
    ExportStatus, Export { source, pseudo_path, id, quota };
    QuotaStatus, Quota { used, limit, enforced_by };
    ErrorStatus, OperationError { at_seconds, address, operation, status, export, message };
    ClientStatus, Client {
        id, owner, address, minor_version, implementation, courtesy, silent_ms, sessions, opens,
        locks, delegations, callbacks, xprtsec, certificate
    };
    StateStatus, State { client, kind, access, deny, locks, recalled, export, path };
    LockStatus, LockRange { offset, length, exclusive };
    ExportRule, ExportRule { path, client, options, origin };
}

/// Messages that are always there.
macro_rules! required {
    ($($ours:ident, $theirs:ident;)*) => {
        $(
            impl Convert<Option<v1::$theirs>> for $ours {
                fn convert(self) -> Option<v1::$theirs> {
                    Some(self.convert())
                }
            }

            impl Convert<$ours> for Option<v1::$theirs> {
                fn convert(self) -> $ours {
                    self.map_or_else($ours::default, Convert::convert)
                }
            }
        )*
    };
}

required! { SiteStatus, Site; NameServiceStatus, NameService; }

/// An unknown value, of a newer server, is the first.
macro_rules! values {
    ($($ours:ident, $theirs:ident { $first:ident $(, $value:ident)* };)*) => {
        $(
            impl Convert<i32> for $ours {
                fn convert(self) -> i32 {
                    match self {
                        $ours::$first => v1::$theirs::$first as i32,
                        $($ours::$value => v1::$theirs::$value as i32,)*
                    }
                }
            }

            impl Convert<$ours> for i32 {
                fn convert(self) -> $ours {
                    match v1::$theirs::try_from(self) {
                        $(Ok(v1::$theirs::$value) => $ours::$value,)*
                        _ => $ours::$first,
                    }
                }
            }
        )*
    };
}

values! {
    HeadRole, HeadRole { Active, Standby };
    Origin, Origin { List, Kept, Temporary };
    StateKind, StateKind { Open, Lock, Delegation, DirectoryDelegation, Copy };
}

impl Convert<v1::ExportRule> for EffectiveExport {
    fn convert(self) -> v1::ExportRule {
        let EffectiveExport { path, client, options } = self;
        v1::ExportRule { path, client, options, origin: v1::Origin::Unspecified as i32 }
    }
}

impl Convert<EffectiveExport> for v1::ExportRule {
    fn convert(self) -> EffectiveExport {
        let v1::ExportRule { path, client, options, origin: _ } = self;
        EffectiveExport { path, client, options }
    }
}
