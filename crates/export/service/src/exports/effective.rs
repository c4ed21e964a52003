//! Rules and options in force.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::Serialize;
use vouch_daemon::printable::printable;

use super::client_matcher::{ClientRule, ClientRules};
use super::syntax::{Entry, Options, Source};
use crate::hosts::Hosts;

/// A rule of the list with the options in force, as `exportfs -v` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EffectiveExport {
    pub path: String,
    pub client: String,
    pub options: String,
}

/// Entries of lists, each with its path for clients if that is not its own.
pub(super) type ListedEntries = Vec<(Entry, Option<String>)>;

/// Rules with the options in force, by the source of their export.
pub(crate) type ListedRules = Vec<(Source, EffectiveExport)>;

pub(super) fn effective(
    entries: &ListedEntries,
    hosts: &Arc<Hosts>,
    client: Option<IpAddr>,
) -> ListedRules {
    let mut all = Vec::new();
    for (entry, _) in entries {
        let shared = first(entry);
        let rules = ClientRules::new(&entry.clients, hosts.clone());
        let shown: Vec<&ClientRule> = match client {
            Some(client) => rules.rule_for(SocketAddr::new(client, 0)).into_iter().collect(),
            None => rules.all().iter().collect(),
        };
        all.extend(shown.into_iter().map(|(machine, access)| {
            let rule = EffectiveExport {
                path: printable(entry.source.to_string().as_bytes()),
                client: machine.to_string(),
                options: shared.effective(access),
            };
            (entry.source.clone(), rule)
        }));
    }
    all
}

/// Settings that all clients of a path share.
pub(super) fn first(entry: &Entry) -> Options {
    let mut options =
        entry.clients.first().map(|client| client.options.clone()).unwrap_or_default();
    for client in &entry.clients {
        options.fsid = options.fsid.or(client.options.fsid);
        // All clients share one file system, so all must be allowed to cross mounts.
        options.cross_mounts &= client.options.cross_mounts;
        options.sync |= client.options.sync;
        // Clients share the files, so one that forbids delegations decides for all.
        options.no_delegations |= client.options.no_delegations;
        // A file system offers the same attributes to all clients.
        options.no_acl |= client.options.no_acl;
        options.no_xattr |= client.options.no_xattr;
        options.labels |= client.options.labels;
        options.uncacheable |= client.options.uncacheable;
        options.io_mode = options.io_mode.or(client.options.io_mode);
        options.quota = options.quota.or(client.options.quota);
        options.data_servers =
            options.data_servers.take().or_else(|| client.options.data_servers.clone());
        options.locations = options.locations.take().or_else(|| client.options.locations.clone());
        options.share_snapshots(&client.options);
        options.mount_point =
            options.mount_point.take().or_else(|| client.options.mount_point.clone());
    }
    options
}
