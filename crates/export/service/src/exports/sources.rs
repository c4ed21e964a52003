//! Opens file systems, resolves hosts, assigns identifiers.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use vouch_nfs4_server::{Export, Exports, Transport};
use vouch_vfs::FileSystem;
use vouch_vfs_posix::{IoMode, SnapshotOptions};

use super::changes::Changes;
use super::client_matcher::ClientRules;
use super::effective::{ListedEntries, ListedRules, effective, first};
use super::mount_identity::MountIdentity;
use super::placement::{number, place};
use super::source_error::{SourceError, transport_remedy};
use super::syntax::{
    self, At, Client, Entry, Fsid, LineError, MachineName, Options, Source, Warning, duplicates,
};
use crate::gss::Gss;
use crate::hosts::Hosts;
use vouch_daemon::failure;
use vouch_daemon::printable::printable;

#[derive(Clone, Debug)]
pub enum ExportList {
    Files(Vec<PathBuf>),
    One { source: Vec<u8>, pseudo: String, options: String },
}

pub(crate) type OpenFileSystem =
    Box<dyn Fn(&Source, &Options) -> io::Result<Arc<dyn FileSystem>> + Send + Sync>;

/// With the options that its file system is opened with.
type SourceKey = (Source, bool, Option<SnapshotOptions>, Option<IoMode>);

/// File systems that stay exported stay open at a reload.
pub(crate) struct Sources {
    list: ExportList,
    hosts: Arc<Hosts>,
    open: OpenFileSystem,
    transport_max: Transport,
    /// The server's own directory, which holds its keys.
    state: Option<PathBuf>,
    known: Mutex<HashMap<SourceKey, Known>>,
    changes: Mutex<Changes>,
    /// Hosts and netgroups of the last loaded list, and its need for client names.
    named: Mutex<(Vec<String>, Vec<String>, bool)>,
}

#[derive(Clone)]
struct Known {
    file_system: Arc<dyn FileSystem>,
    mount_identity: Option<MountIdentity>,
    is_in_maintenance: Arc<AtomicBool>,
}

impl Known {
    /// One that may stall gets a thread for it.
    fn maintain(&self) {
        if self.file_system.remote_system().is_none() {
            return self.file_system.maintain();
        }
        if self.is_in_maintenance.swap(true, Ordering::AcqRel) {
            return;
        }
        let (file_system, is_in_maintenance) =
            (self.file_system.clone(), self.is_in_maintenance.clone());
        let started = thread::Builder::new().name("maintenance".into()).spawn(move || {
            let _end = EndOfMaintenance(is_in_maintenance);
            file_system.maintain();
        });
        if let Err(error) = started {
            tracing::error!(%error, "cannot start a thread for the maintenance of an export");
        }
    }
}

struct EndOfMaintenance(Arc<AtomicBool>);

impl Drop for EndOfMaintenance {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

pub(crate) struct Loaded {
    pub(crate) exports: Exports,
    pub(crate) rules: ListedRules,
    pub(crate) warnings: Vec<String>,
    /// Listed sources that cannot be exported now.
    pub(crate) left_out: Vec<String>,
    pub(crate) kerberos: Option<String>,
}

impl Loaded {
    pub(crate) fn summary(&self) -> String {
        let count = self.exports.all().len();
        match self.left_out.is_empty() {
            true => format!("{count} exports"),
            false => format!(
                "{count} exports; not exported: {}",
                self.left_out
                    .iter()
                    .map(|source| printable(source.as_bytes()))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        }
    }

    /// The reason is an error if this source is left out.
    pub(super) fn require(&self, source: &Source) -> Result<(), String> {
        let source = source.to_string();
        if !self.left_out.contains(&source) {
            return Ok(());
        }
        let start = format!("{} is not exported", printable(source.as_bytes()));
        let reason = self.warnings.iter().find(|warning| warning.starts_with(&start));
        let reason = reason.unwrap_or(&start);
        Err(reason.strip_suffix(CORRECT_AND_RELOAD).unwrap_or(reason).to_owned())
    }

    pub(crate) fn into_parts(self, gss: Option<&Gss>) -> (Exports, Vec<String>) {
        let Loaded { exports, mut warnings, kerberos: listed, .. } = self;
        let missing = |source: &String| match gss.map(Gss::check_keys) {
            Some(Ok(())) => None,
            Some(Err(fault)) => Some(format!(
                "{source} lists a Kerberos flavour, but its clients are refused: {fault}"
            )),
            None => Some(format!(
                "{source} lists a Kerberos flavour, but the server has no keytab: its clients are refused; restart with --keytab FILE, which holds the keys of nfs/HOST"
            )),
        };
        warnings.extend(listed.as_ref().and_then(missing));
        (exports, warnings)
    }
}

impl Sources {
    pub(crate) fn new(list: ExportList, hosts: Arc<Hosts>, open: OpenFileSystem) -> Self {
        Sources {
            list,
            hosts,
            open,
            transport_max: Transport::Clear,
            state: None,
            known: Mutex::default(),
            changes: Mutex::default(),
            named: Mutex::default(),
        }
    }

    pub(crate) fn offering(mut self, transport_max: Transport) -> Self {
        self.transport_max = transport_max;
        self
    }

    pub(crate) fn with_state(mut self, state: Option<&Path>) -> Self {
        self.state = state.and_then(|state| fs::canonicalize(state).ok());
        self
    }

    pub(crate) fn with_changes(self, changes: Changes) -> Self {
        *self.changes.lock() = changes;
        self
    }

    /// Those in force.
    pub(crate) fn changes(&self) -> Changes {
        self.changes.lock().clone()
    }

    /// The lists alone hold an export of this source.
    pub(crate) fn lists(&self, source: &Source) -> Result<bool, SourceError> {
        let entries = self.listed(&mut Vec::new())?;
        Ok(entries.iter().any(|(entry, _)| entry.source == *source))
    }

    pub(crate) fn maintain(&self) {
        let known: Vec<_> = self.known.lock().values().cloned().collect();
        known.iter().for_each(Known::maintain);
    }

    /// Blocks on disks and name services. An error changes nothing.
    pub(crate) fn load(&self, changes: &Changes) -> Result<Loaded, SourceError> {
        let mut warnings = Vec::new();
        let entries = self.entries(changes, &mut warnings)?;
        self.load_entries(entries, warnings)
    }

    /// Entries of the list with its changes, each with its path for clients if that is not its own.
    pub(super) fn entries(
        &self,
        changes: &Changes,
        warnings: &mut Vec<String>,
    ) -> Result<ListedEntries, SourceError> {
        let mut entries = self.listed(warnings)?;
        changes.apply(&mut entries, warnings)?;
        self.check_transports(&entries)?;
        self.resolve(&entries, warnings);
        Ok(entries)
    }

    fn listed(&self, warnings: &mut Vec<String>) -> Result<ListedEntries, SourceError> {
        let (mut entries, mut faults): (ListedEntries, Vec<String>) = Default::default();
        match &self.list {
            ExportList::Files(paths) => {
                let files = files(paths)?;
                for (number, file) in files.iter().enumerate() {
                    let text = fs::read(file)
                        .map_err(|source| SourceError::File { path: file.clone(), source })?;
                    if let Ok(Some(exposure)) =
                        vouch_trust::find_exposure(file, vouch_trust::Access::Read)
                    {
                        warnings.push(exposure.to_string());
                    }
                    let parsed = match syntax::parse(&text) {
                        Ok(parsed) => parsed,
                        Err(errors) => {
                            faults.push(one_line(&format!("{}: ", file.display()), &errors));
                            continue;
                        }
                    };
                    warnings.extend(
                        parsed
                            .warnings
                            .iter()
                            .map(|warning| format!("{}: {warning}", file.display())),
                    );
                    for mut entry in parsed.entries {
                        entry.clients.iter_mut().for_each(|client| client.at.file = number);
                        match entries.iter_mut().find(|(known, _)| known.source == entry.source) {
                            Some((known, _)) => known.clients.extend(entry.clients),
                            None => entries.push((entry, None)),
                        }
                    }
                }
                if !faults.is_empty() {
                    return Err(SourceError::Lines(faults.join(" | ")));
                }
                let place = |at: At| format!("{}: line {}", files[at.file].display(), at.line);
                for (entry, _) in &entries {
                    warnings.extend(duplicates(entry).map(|duplicate| {
                        duplicate.warning(&printable(entry.source.to_string().as_bytes()), place)
                    }));
                }
            }
            ExportList::One { source, pseudo, options } => {
                if !pseudo.starts_with('/') {
                    return Err(SourceError::Pseudo(pseudo.clone()));
                }
                let (options, issues) = parse_options(options)
                    .map_err(|faults| SourceError::Lines(format!("--options: {faults}")))?;
                warnings.extend(
                    issues.into_iter().map(|Warning { text, .. }| format!("--options: {text}")),
                );
                let source = match source.strip_prefix(b"tree:") {
                    Some(tree) => Source::Tree(tree.to_vec()),
                    None => {
                        let path = PathBuf::from(OsStr::from_bytes(source));
                        let path = fs::canonicalize(&path).map_err(|source| SourceError::Open {
                            what: path.display().to_string(),
                            source,
                        })?;
                        Source::Directory(path.into_os_string().as_encoded_bytes().to_vec())
                    }
                };
                entries.push((
                    Entry {
                        source,
                        line: 1,
                        clients: vec![Client {
                            machine: MachineName::Everyone,
                            options,
                            at: At::default(),
                        }],
                    },
                    Some(pseudo.clone()),
                ));
            }
        }
        Ok(entries)
    }

    pub(super) fn load_entries(
        &self,
        entries: ListedEntries,
        mut warnings: Vec<String>,
    ) -> Result<Loaded, SourceError> {
        let proven = |entry: &Entry| {
            entry.clients.iter().any(|client| {
                client.options.access().iter().any(|access| access.flavour.is_proven())
            })
        };
        let kerberos = entries
            .iter()
            .find(|(entry, _)| proven(entry))
            .map(|(entry, _)| printable(entry.source.to_string().as_bytes()));
        let mut left_out = Vec::new();
        let rules = effective(&entries, &self.hosts, None);
        warnings.extend(entries.iter().filter_map(|(entry, _)| self.holds_state(&entry.source)));
        warnings.extend(shown_in_snapshots(&entries));
        let exports = self.build(entries, &mut warnings, &mut left_out)?;
        Ok(Loaded { exports, rules, warnings, left_out, kerberos })
    }

    /// Its mode keeps squashed clients out, and no others.
    fn holds_state(&self, source: &Source) -> Option<String> {
        let (Source::Directory(path), Some(state)) = (source, &self.state) else { return None };
        let path = Path::new(OsStr::from_bytes(path));
        (state.starts_with(path) || path.starts_with(state)).then(|| {
            format!(
                "{} shares {}, which holds the server's keys and state, with its clients; export another directory, or move it with --state",
                printable(source.to_string().as_bytes()),
                printable(state.as_os_str().as_bytes())
            )
        })
    }

    fn check_transports(&self, entries: &[(Entry, Option<String>)]) -> Result<(), SourceError> {
        for (entry, _) in entries {
            let demand = entry
                .clients
                .iter()
                .map(|client| client.options.transport_min)
                .max()
                .unwrap_or_default();
            if demand > self.transport_max {
                let path = printable(entry.source.to_string().as_bytes());
                return Err(SourceError::Transport {
                    path,
                    demand: demand.name(),
                    remedy: transport_remedy(demand),
                });
            }
        }
        Ok(())
    }

    fn resolve(&self, entries: &[(Entry, Option<String>)], warnings: &mut Vec<String>) {
        let (mut names, mut groups, mut wanted) = (Vec::new(), Vec::new(), false);
        for client in entries.iter().flat_map(|(entry, _)| &entry.clients) {
            wanted |= client.machine.needs_name();
            match &client.machine {
                MachineName::Host(host) if !names.contains(host) => names.push(host.clone()),
                MachineName::Netgroup(group) if !groups.contains(group) => {
                    groups.push(group.clone())
                }
                _ => {}
            }
        }
        for host in self.hosts.resolve_named(&names, &groups, wanted) {
            warnings.push(format!("host {host} cannot be resolved; it has no access until it can"));
        }
        *self.named.lock() = (names, groups, wanted);
    }

    pub(crate) fn commit(&self, changes: Changes) {
        *self.changes.lock() = changes;
        let (names, groups, wanted) = &*self.named.lock();
        self.hosts.retain_named(names, groups, *wanted);
    }

    fn build(
        &self,
        entries: Vec<(Entry, Option<String>)>,
        warnings: &mut Vec<String>,
        left_out: &mut Vec<String>,
    ) -> Result<Exports, SourceError> {
        let root = entries.iter().find(|(entry, _)| first(entry).fsid == Some(Fsid::Root));
        let root = root.map(|(entry, _)| entry.source.clone());
        let (mut list, mut kept) = (Vec::new(), HashMap::new());
        let alone = entries.len() == 1;
        // Programs such as `vouch csi` add lists to a directory later.
        let may_be_empty = entries.is_empty()
            && matches!(&self.list, ExportList::Files(paths) if !paths.is_empty() && paths.iter().all(|path| path.is_dir()));
        for (entry, pseudo) in entries {
            let (raw, options) = (entry.source.to_string(), first(&entry));
            let name = printable(raw.as_bytes());
            require_same_options(&entry, &options, &name)?;
            if let Some(reason) = not_mounted(&entry.source, &options) {
                warnings.push(format!("{name} is not exported: {reason}"));
                left_out.push(raw);
                continue;
            }
            if !options.cross_mounts
                && entry.clients.iter().any(|client| client.options.cross_mounts)
            {
                warnings.push(format!(
                    "{name}: crossmnt is not set for all clients, so mounts below are hidden from all; set it for each client, or export the mounts separately"
                ));
            }
            let file_system = match self.file_system(&entry.source, &options, &mut kept) {
                Ok(file_system) => file_system,
                Err(source) if alone => return Err(SourceError::Open { what: name, source }),
                Err(error) => {
                    warnings.push(format!(
                        "{name} is not exported: {}{CORRECT_AND_RELOAD}",
                        failure::chain(&error)
                    ));
                    left_out.push(raw);
                    continue;
                }
            };
            if options.labels && !file_system.traits().labels {
                warnings.push(format!(
                    "{name}: security_label is not in force: the file system has no labels, or the server lacks CAP_SYS_ADMIN to set them; docs/exports.md says how to give it"
                ));
            }
            let tree_number = file_system.home(&file_system.root()).system.tree_number();
            let (id, fsid) = number(&entry.source, options.fsid, tree_number);
            list.push(Export {
                id,
                pseudo_path: place(&entry.source, pseudo.as_deref(), root.as_ref()),
                fsid,
                source: raw.into(),
                file_system,
                sync: options.sync,
                clients: Arc::new(ClientRules::new(&entry.clients, self.hosts.clone())),
                locations: options.locations.unwrap_or_default(),
                delegations: !options.no_delegations,
                acls: !options.no_acl,
                xattrs: !options.no_xattr,
                labels: options.labels,
                uncacheable: options.uncacheable,
                quota: options.quota,
                data_servers: options.data_servers.unwrap_or_default(),
            });
        }
        if list.is_empty() && !may_be_empty {
            return Err(SourceError::Nothing(if warnings.is_empty() {
                "the list is empty".into()
            } else {
                warnings.join("; ")
            }));
        }
        let exports = Exports::new(list)?;
        *self.known.lock() = kept;
        Ok(exports)
    }

    /// Opens a source, unless the list in force has it open. `kept`: what the next list keeps open.
    fn file_system(
        &self,
        source: &Source,
        options: &Options,
        kept: &mut HashMap<SourceKey, Known>,
    ) -> io::Result<Arc<dyn FileSystem>> {
        let key = (source.clone(), options.cross_mounts, options.snapshots(), options.io_mode);
        // A replaced directory is another export: open files belong to the earlier one.
        let mount_identity = MountIdentity::of(source);
        let known = self
            .known
            .lock()
            .get(&key)
            .filter(|known| known.mount_identity == mount_identity)
            .cloned();
        let known = match known {
            Some(known) => known,
            None => Known {
                file_system: (self.open)(source, options)?,
                mount_identity,
                is_in_maintenance: Arc::default(),
            },
        };
        kept.insert(key, known.clone());
        Ok(known.file_system)
    }
}

fn require_same_options(entry: &Entry, options: &Options, name: &str) -> Result<(), SourceError> {
    let clients = || entry.clients.iter().map(|client| &client.options);
    let has_other = |own: &Options| {
        own.data_servers.as_ref().is_some_and(|own| Some(own) != options.data_servers.as_ref())
    };
    let fault = if clients().any(|own| own.fsid != options.fsid && own.fsid.is_some()) {
        "has more than one fsid=; write the same one for all its clients"
    } else if clients().any(|own| own.quota != options.quota && own.quota.is_some()) {
        "has more than one quota=; all its clients share its space: write the same one for each"
    } else if clients().any(|own| own.io_mode != options.io_mode && own.io_mode.is_some()) {
        "has more than one io=; write the same one for all its clients"
    } else if options.io_mode.is_some() && matches!(entry.source, Source::Tree(_)) {
        "has io=, but a published tree is read through caches of its own; remove it"
    } else if options.quota.is_some() && matches!(entry.source, Source::Tree(_)) {
        "has quota=, but nobody writes to a published tree; remove it"
    } else if clients().any(has_other) {
        "has more than one pnfs=; write the same one for all its clients"
    } else if options.data_servers.is_some() && matches!(entry.source, Source::Directory(_)) {
        "has pnfs=, but other servers have the same files only of a published tree; remove it"
    } else if clients().any(|own| own.locations != options.locations && own.locations.is_some()) {
        "has different refer= or replicas= options; write the same one for all its clients"
    } else if clients().any(|own| own.differs_in_snapshots(options)) {
        "has different snapshots or snapdir= options; write the same ones for all its clients"
    } else {
        return Ok(());
    };
    Err(SourceError::Lines(format!("line {}: {name} {fault}", entry.line)))
}

pub(crate) fn exports_without_directory(engine: &vouch_nfs4_server::Server) -> Vec<String> {
    let warning = |(source, upper): &(Arc<str>, Arc<str>)| {
        let [source, upper] = [source, upper].map(|path| printable(path.as_bytes()));
        format!(
            "{source} is below {upper}, which has no directory of that name; clients reach it through an empty pseudo directory"
        )
    };
    engine.exports_without_directory().iter().map(warning).collect()
}

impl ExportList {
    /// Faults of `options` for [`Self::One`], each with its cure.
    pub fn check_options(options: &str) -> Result<(), String> {
        parse_options(options).map(drop)
    }
}

fn parse_options(list: &str) -> Result<(Options, Vec<Warning>), String> {
    syntax::parse_options(list).map_err(|errors| {
        errors.iter().map(LineError::without_line).collect::<Vec<_>>().join(" | ")
    })
}

fn one_line(prefix: &str, errors: &[LineError]) -> String {
    let shown: Vec<String> =
        errors.iter().take(FAULTS_SHOWN_MAX).map(ToString::to_string).collect();
    let rest = errors.len().saturating_sub(FAULTS_SHOWN_MAX);
    let more = if rest > 0 { format!(" | and {rest} more") } else { String::new() };
    format!("{prefix}{}{more}", shown.join(" | "))
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, SourceError> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |source| SourceError::File { path: path.clone(), source };
        // A missing /etc/exports.d has no files, as in exports(5).
        if path.extension().is_some_and(|extension| extension == "d") && !path.exists() {
            continue;
        }
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if name.as_bytes().ends_with(b".exports") && !name.as_bytes().starts_with(b".") {
                found.push(path.join(name));
            }
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

/// Exports whose files clients of an export above also see, in its snapshots.
fn shown_in_snapshots(entries: &ListedEntries) -> Vec<String> {
    let path = |entry: &Entry| match &entry.source {
        Source::Directory(path) => Some(PathBuf::from(OsStr::from_bytes(path))),
        _ => None,
    };
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let pairs = entries.iter().flat_map(|(upper, _)| {
        let above = path(upper).filter(|_| first(upper).snapshots().is_some());
        entries.iter().filter_map(move |(lower, _)| {
            let (above, below) = (above.as_ref()?, path(lower)?);
            let is_shown = below != *above
                && below.starts_with(above)
                && device(&below).is_some_and(|lower| device(above) == Some(lower));
            is_shown.then(|| (upper.source.to_string(), lower.source.to_string()))
        })
    });
    let warning = |(upper, lower): (String, String)| {
        format!(
            "{}: its snapshots show the files of {} to its clients, with its own options and not those of {1}; see docs/snapshots.md",
            printable(upper.as_bytes()),
            printable(lower.as_bytes())
        )
    };
    pairs.map(warning).collect()
}

fn not_mounted(source: &Source, options: &Options) -> Option<String> {
    let (Source::Directory(path), Some(point)) = (source, &options.mount_point) else {
        return None;
    };
    let point = Path::new(OsStr::from_bytes(if point.is_empty() { path } else { point }));
    let device = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    match (device(point), device(&point.join(".."))) {
        (Ok(here), Ok(above)) if here.0 != above.0 || here == above => None,
        _ => Some(format!("nothing is mounted on {}; reload when it is", point.display())),
    }
}

const CORRECT_AND_RELOAD: &str = "; correct that and reload";

const FAULTS_SHOWN_MAX: usize = 8;

#[cfg(test)]
mod tests;
