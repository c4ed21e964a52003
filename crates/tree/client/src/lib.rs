//! Client of published trees: opens a tree by its self-certifying name and reads verified files.
//!
//! A name, `@HOST[:PORT],HOSTID`, contains the hash of the publisher's root key. The client fetches
//! frames from any replica and verifies every byte down from that hash, so replicas and the network
//! need not be trusted. It refuses expired, revoked and older revisions.
//!
//! - [`Client`] has the options, the caches and the record of the newest revisions seen.
//! - [`Tree`] is one open tree: [`Tree::lookup_path`], [`Tree::list`], [`Tree::read`]. It refreshes
//!   itself in the background. The methods that begin with `try_` use only memory and disk cache.
//! - [`FileReader`] is an open file with read-ahead.
//! - [`pull`] copies a tree into a local database; [`Diff`], [`History`] and [`Tree::verify_all`]
//!   compare, list and check revisions.
//! - [`LocalConnector`] opens a database of this machine; a [`Connector`] of your own replaces the
//!   network.
//!
//! Every operation ends within [`ClientOptions::deadline`], with data or with an [`Error`] that
//! states the reason. Every queue, cache and reply has a limit. Frames are verified by
//! [`vouch_tree::frame`], revisions by [`vouch_tree::verify`].
//!
//! # Example
//!
//! Publish a directory, open the tree, read a file:
//!
//! ```
//! use std::sync::Arc;
//!
//! use vouch_tree::Content;
//! use vouch_tree_client::{Client, ClientOptions, LocalConnector, TreeOptions};
//! # use vouch_tree::{Iv, TreeName, key::{SecretKey, SigningCert}};
//! # use vouch_tree_publish::{Options, Progress, Signer, publish};
//! # use vouch_tree_store::{Database, WriteOptions};
//!
//! # fn publish_into(db: &std::path::Path, source: &std::path::Path) {
//! #     let (root, key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
//! #     let cert = SigningCert::issue(&root, key.public(), 1, 0, u64::MAX / 2);
//! #     let name = TreeName::new("localhost", root.public().hostid()).unwrap();
//! #     Database::create(db, *name.hostid(), Iv::from_bytes([3; 32])).unwrap();
//! #     let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
//! #     let writer = Database::open_write(db, WriteOptions::default()).unwrap();
//! #     let options = Options::new(source.to_owned(), name, now, 3600);
//! #     publish(&writer, &Signer { key: &key, cert }, &options, &Progress::default()).unwrap();
//! # }
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let dir = tempfile::tempdir()?;
//!     let (source, db) = (dir.path().join("source"), dir.path().join("db"));
//!     std::fs::create_dir_all(source.join("docs"))?;
//!     std::fs::write(source.join("docs/hello.txt"), "hello\n")?;
//!     publish_into(&db, &source); // As `vouch publish` does.
//!
//!     // Without a connector, the client connects to the HOST in the name over TCP.
//!     let connector = LocalConnector::open(&db)?;
//!     let name = connector.name()?;
//!     let client = Client::new(ClientOptions { connector: Arc::new(connector), ..ClientOptions::default() })?;
//!
//!     let tree = client.open(&name, &TreeOptions::default()).await?;
//!     let revision = tree.revision()?;
//!     let inode = tree.lookup_path(revision.root(), b"docs/hello.txt").await?;
//!     let Content::Regular { blob, .. } = &inode.content else { panic!("not a regular file") };
//!     assert_eq!(&tree.read(blob, 0, 100).await?[..], b"hello\n");
//!     assert!(tree.lookup(revision.root(), b"missing").await?.is_none()); // Proven by the signed tree.
//!     Ok(())
//! }
//! ```

mod client; // Client: options, and state that all trees of a process share.
mod clock; // The wall clock as a parameter.
mod connector; // The network as a parameter: names to addresses, addresses to replicas.
mod directory; // Directories: lookups and listings.
mod disk_cache; // Frames and whole files on disk, within a quota.
mod error; // Errors, their classes and errno values.
mod file; // File content: reads, holes, read-ahead, whole files.
pub mod fork; // Evidence of two contradicting signatures.
mod frame;
mod freshness; // The usable revision: refresh, rollback protection, key statements.
#[doc(hidden)]
pub mod fuzzing; // Entry points for fuzz targets.
mod http;
mod local_connector;
mod memory_cache;
mod mirrors; // Replicas that the tree itself names.
mod path; // Paths to inodes, symbolic links included.
mod pull; // Copies the newest revision into a database.
mod replica; // Replicas: choice, connections, requests, replies.
mod replica_fault; // Observer of replicas that send wrong or old data.
mod replica_tls; // TLS to replicas.
mod revision; // Revisions: history, differences, full check.
mod traversal; // Visits every frame below some inodes, many at a time.
mod tree; // Tree: one open tree, and frames from memory, disk or network.
mod witnesses; // Cosignatures of witnesses for the head of a log.

pub use client::{CacheUsage, Client, ClientOptions, TreeOptions};
pub use clock::{Clock, SystemClock};
pub use connector::{Connector, Link, LocalReplica, Stream, TakeFrame, TransportError};
pub use directory::{Entry, Listing, Position};
pub use disk_cache::DiskCacheOptions;
pub use error::{Error, ErrorClass, Result};
pub use file::{FileReader, Seek, WholeFile};
pub use fork::check_log_head;
pub use freshness::belief::{read_policies, read_policy};
pub use freshness::statement_files::local_statements;
pub use http::url::without_userinfo;
pub use http::{
    DatabaseFiles, HttpConnector, HttpOptions, HttpRequest, HttpResponse, HttpTransport,
    MakeTransport, RemoteLog,
};
pub use local_connector::LocalConnector;
pub use mirrors::location_of_name;
pub use path::ResolvedPath;
pub use pull::{
    PullOptions, PullPhase, PullProgress, PullProgressFn, PullReport, pull, pull_watch,
};
pub use replica::{Counters, ReplicaState, ReplicaStatus};
pub use replica_fault::{FaultKind, FaultObserver, ReplicaFault};
pub use replica_tls::ReplicaTls;
pub use revision::{
    Change, ChangeKind, ChangedFields, Diff, History, Proof, Revision, RevisionOrder, Verification,
    VerifyEvent,
};
pub use tree::Tree;
pub use vouch_log::evidence::Witnessing;
pub use witnesses::{
    CosignRequest, Cosigning, Objection, ShownHeadError, WitnessFailure, WitnessTarget,
};
