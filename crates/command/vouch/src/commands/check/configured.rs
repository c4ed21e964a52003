//! The files and directories that the configuration names, whether or not their command runs now.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use vouch_config::Value;
use vouch_diagnose::{
    Fault, Finding, Findings, MachineStatus, check_cache, check_export, check_keytab, check_state,
};

use crate::config;

/// Leaves out the directories `seen`, and what belongs to other users unless root asks.
pub(super) fn check(
    machine: &MachineStatus,
    cache_quota: u64,
    mut seen: BTreeSet<PathBuf>,
    findings: &mut Findings,
) {
    for (name, setting) in config::loaded().settings() {
        let values = match setting.value {
            Value::Flag(_) => continue,
            Value::One(value) => vec![value],
            Value::Many(values) => values,
        };
        for path in values.into_iter().map(PathBuf::from).filter(|path| is_ours(path)) {
            match (&*name, name.rsplit('.').next()) {
                ("export.keytab", _) => findings.add(check_keytab(&path)),
                ("export.state", _) if path.exists() && !runs(machine, &path) => {
                    check_export(&path, machine, findings)
                }
                ("serve.db", _) if path.to_str().is_some_and(|place| !place.contains("://")) => {
                    findings.add(database(&path))
                }
                (_, Some("state")) if is_of_clients(&name) && seen.insert(path.clone()) => {
                    check_state(&path, findings)
                }
                (_, Some("cache")) if is_of_clients(&name) && seen.insert(path.clone()) => {
                    check_cache(&path, cache_quota, findings)
                }
                _ => {}
            }
        }
    }
}

/// True for the tables of trees and mounts, and for the options that all readers share.
fn is_of_clients(name: &str) -> bool {
    matches!(
        name.split('.').next(),
        Some("tree" | "mount" | "namespace" | "gateway" | "state" | "cache")
    )
}

fn is_ours(path: &Path) -> bool {
    let user = rustix::process::geteuid();
    user.is_root()
        || std::fs::metadata(path).map_or(true, |metadata| metadata.uid() == user.as_raw())
}

fn runs(machine: &MachineStatus, state: &Path) -> bool {
    machine.exports().any(|(_, status)| Path::new(&status.site.state) == state)
}

fn database(path: &Path) -> Finding {
    match std::fs::read_dir(path) {
        Ok(_) => Finding::ok(path.display(), "database directory can be read"),
        Err(error) => Finding::problem(
            Fault::DatabaseMissing,
            path.display(),
            format_args!("the database to serve cannot be read: {error}"),
        )
        .cure("run `vouch publish` or `vouch pull` to make it, or correct db in [serve]"),
    }
}
