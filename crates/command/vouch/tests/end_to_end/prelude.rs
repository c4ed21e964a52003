pub(crate) use std::fs;
pub(crate) use std::io::BufReader;
pub(crate) use std::net::{SocketAddr, TcpListener, TcpStream};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::{Child, Command, Output, Stdio};
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use std::thread::JoinHandle;
pub(crate) use std::time::{Duration, Instant};

pub(crate) use parking_lot::Mutex;
pub(crate) use serde_json::Value;
pub(crate) use vouch_audit::Record;
pub(crate) use vouch_audit::frame::Kind;
pub(crate) use vouch_audit::operations::number::READ;
pub(crate) use vouch_audit::record::Class;
pub(crate) use vouch_audit::trail::{entries, records};
pub(crate) use vouch_nfs4::Attributes;
pub(crate) use vouch_nfs4::op::{ShareAccess, StableHow};
pub(crate) use vouch_nfs4_client::{Client, Error};

pub(crate) use vouch_testkit::{
    SplitMix64, assert_contains, in_namespace, in_own_mounts, noise, run, succeed, text_of,
    this_test, words,
};

pub(crate) use crate::test_site::{
    Export, KillOnDrop, Mount, Mounted, TestSite, connect, eventually, free_port, is_root, signal,
    start_listener, within,
};
pub(crate) use vouch_testkit::{require, require_program, require_programs};
