//! A driver of the Container Storage Interface 1.13: published trees and exports as volumes of pods.
//!
//! Each tree has one mount and one process on a node, which all pods share. The process lives outside of
//! the driver's, and the driver's state is in files, so the driver can be killed and upgraded while pods
//! read.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod attributes; // Attributes of volumes.
mod bind; // Bind mounts within a tree.
mod controller; // The Controller service.
mod copies;
#[allow(clippy::all, unreachable_pub, missing_docs, reason = "generated")]
pub mod csi_v1; // Messages and services, generated from the interface.
mod exports; // Directories of `vouch export`.
mod fuse_export;
mod identity; // The Identity service.
mod launcher; // Starts mounts outside of the driver's life.
mod locks; // One operation at a time for each name.
mod mount_spec;
mod mounts; // FUSE mounts that pods share.
mod node; // The Node service.
mod pod_certificate;
mod pod_tickets;
mod provisioned; // Volumes that the controller has made.
mod records; // Volumes that are published on this node.
mod report; // Metrics, health and status.
mod server; // gRPC over a Unix socket.
mod snapshots;

pub use exports::ExportServer;
pub use launcher::Launch;
pub use report::CsiStatus;
pub use server::{Driver, run};
