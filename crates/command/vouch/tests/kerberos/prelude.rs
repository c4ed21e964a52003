//! What most test files use.

pub(crate) use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
pub(crate) use std::process::{Command, Stdio};
pub(crate) use std::sync::{Arc, LazyLock};
pub(crate) use std::time::{Duration, Instant};

pub(crate) use vouch_audit::record::Refusal;
pub(crate) use vouch_nfs4::op::Args;
pub(crate) use vouch_nfs4::{Status, Verifier};
pub(crate) use vouch_nfs4_client::{Identity, Protection};
pub(crate) use vouch_rpcsec_gss::Service;
pub(crate) use vouch_xdr::Writer;

pub(crate) use crate::export::{Export, ServerOptions};
pub(crate) use crate::own_client::realm;
pub(crate) use vouch_testkit::kdc::{self, Kdc, REALM};
pub(crate) use vouch_testkit::require;

/// A root file system of `script/install-needs`, of the suite that VOUCH_PEERS_SUITE names.
pub(crate) fn peers_root(name: &str) -> String {
    let suite =
        std::env::var(PEERS_SUITE).map_or_else(|_| String::new(), |suite| format!("-{suite}"));
    format!("/opt/vouch-{name}{suite}")
}

pub(crate) fn has_own_suite() -> bool {
    std::env::var(PEERS_SUITE).is_ok()
}

const PEERS_SUITE: &str = "VOUCH_PEERS_SUITE";
