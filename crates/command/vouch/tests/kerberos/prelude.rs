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
pub(crate) use vouch_testkit::{
    eventually, in_namespace, peers_root, peers_suite, read_record, require, run, succeed, text_of,
    this_test, within,
};
