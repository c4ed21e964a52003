//! Real peers for tests. Each one has its own directory and free ports, and ends when it is dropped.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

pub mod cephfs_cluster;
pub mod kdc;
pub mod kill_on_drop;
pub mod ldap;
pub mod moving_address;
