pub(crate) use std::fs::{self, File};
pub(crate) use std::io::{Read, Seek};
pub(crate) use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
pub(crate) use std::path::Path;
pub(crate) use std::process::Command;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::time::Duration;

pub(crate) use vouch_tree_client::DiskCacheOptions;
pub(crate) use vouch_tree_mount::Passthrough;

pub(crate) use crate::fixture::{NOW, Site, TestMount, contents_of, noise};
