use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vouch_daemon::printable::printable;
use vouch_daemon::status_client::OrderError;
use vouch_nfs4_server::{ExportId, HeldKind, HeldState, LockedRange};

use super::Administrator;
use super::order::{Answer, ExportRule, LockStatus, Order, StateKind, StateStatus};
use crate::driver::Driver;
use crate::exports::changes::{self, Changes};
use crate::exports::list_check::CheckedList;
use crate::exports::reload::Reloader;
use crate::exports::sources::ExportList;
use crate::exports::syntax::Source;
use crate::tls::TlsConfig;

/// Carries out orders, one at a time where they change something.
pub(crate) struct Manager {
    pub(crate) driver: Arc<Driver>,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) configured: Configured,
}

/// Of the command line, for dry runs.
pub(crate) struct Configured {
    pub(crate) exports: ExportList,
    pub(crate) state: PathBuf,
    pub(crate) tls: Option<TlsConfig>,
}

type Result<T> = std::result::Result<T, OrderError>;

impl Manager {
    /// Blocks.
    pub(crate) fn carry_out(&self, order: Order, by: &Administrator) -> Result<Answer> {
        let text = describe(&order);
        let answer = match order {
            Order::ListExports => return Ok(self.list_exports()),
            Order::ListState { client } => return self.list_state(client.as_deref()),
            Order::AddExport { path, clients, keep } => {
                self.set_export(&path, &clients, keep, false)
            }
            Order::SetExport { path, clients, keep } => {
                self.set_export(&path, &clients, keep, true)
            }
            Order::RemoveExport { path, keep } => self.remove_export(&path, keep),
            Order::Reload => self
                .reloader
                .reload()
                .map(|warnings| Answer { warnings, ..Answer::default() })
                .map_err(OrderError::Refused),
            Order::DiscardChanges => self.change(None, |changes| {
                changes.discard_temporary();
                Ok(())
            }),
            Order::EvictClient { client } => self.evict(&client),
            Order::Unlock { path } => self.unlock(&path),
            Order::Drain { on } => {
                self.driver.engine.set_draining(on);
                self.driver.is_draining.store(on, Ordering::Relaxed);
                Ok(Answer::default())
            }
        };
        let outcome = match &answer {
            Ok(_) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::info!(%by, order = text, outcome, "order of an administrator");
        if let Some(audit) = &self.driver.audit {
            audit.ordered(by, answer.is_ok(), &format!("{text}: {outcome}"));
        }
        answer
    }

    /// `client`: show only the rules that count for this address. Blocks.
    pub(crate) fn check(&self, client: Option<&str>) -> Result<CheckedList> {
        let client = client.map(str::parse).transpose().map_err(|_| {
            OrderError::Refused(format!(
                "{} is no address",
                printable(client.unwrap_or_default().as_bytes())
            ))
        })?;
        let Configured { exports, state, tls } = &self.configured;
        tls.iter().try_for_each(|tls| tls.check().map(drop).map_err(refused))?;
        exports.check(Some(state), tls.as_ref(), client).map_err(refused)
    }

    fn list_exports(&self) -> Answer {
        let changes = self.reloader.sources.changes();
        let rules = self.reloader.rules.lock();
        let exports = rules.iter().map(|(source, rule)| ExportRule {
            path: rule.path.clone(),
            client: rule.client.clone(),
            options: rule.options.clone(),
            origin: changes.origin(source),
        });
        let hidden = changes.hidden().map(shown).collect();
        Answer { exports: Some(exports.collect()), hidden, ..Answer::default() }
    }

    fn is_exported(&self, source: &Source) -> bool {
        self.reloader.rules.lock().iter().any(|(exported, _)| exported == source)
    }

    fn set_export(&self, path: &str, clients: &[String], keep: bool, is: bool) -> Result<Answer> {
        let source = source(path)?;
        if clients.is_empty() {
            return Err(OrderError::Refused(
                "no client is named; write at least one, such as 192.0.2.0/24(rw)".into(),
            ));
        }
        let line = changes::line(&source, clients);
        // A client with line breaks could hold other exports.
        match changes::source_of(&line) {
            Ok(parsed) if parsed == source => {}
            Ok(_) => return Err(OrderError::Refused(format!("{path} is not one path"))),
            Err(fault) => return Err(OrderError::Refused(fault)),
        }
        match (self.is_exported(&source), is) {
            (true, false) => {
                return Err(OrderError::Refused(format!(
                    "{} is exported already; `vouch export set` replaces its clients",
                    shown(&source)
                )));
            }
            (false, true) => return Err(unknown(&source)),
            _ => {}
        }
        // One that is exported already may lack its file system for a while.
        let required = (!is).then_some(&source);
        self.change(required, |changes| {
            if keep {
                self.require_unlisted(&source)?;
            }
            changes.set(source.clone(), line, keep);
            Ok(())
        })
    }

    fn remove_export(&self, path: &str, keep: bool) -> Result<Answer> {
        let source = source(path)?;
        if !self.is_exported(&source) {
            return Err(unknown(&source));
        }
        self.change(None, |changes| {
            if !keep {
                let is_listed = self.reloader.sources.lists(&source).map_err(refused)?;
                changes.hide(source, is_listed);
            } else if !changes.forget(&source) {
                self.require_unlisted(&source)?;
            }
            Ok(())
        })
    }

    fn require_unlisted(&self, source: &Source) -> Result<()> {
        match self.reloader.sources.lists(source).map_err(refused)? {
            false => Ok(()),
            true => Err(OrderError::Refused(format!(
                "{} is in the lists of the server; change its line there and run `vouch export reload`, or leave out --keep",
                shown(source)
            ))),
        }
    }

    fn change(
        &self,
        required: Option<&Source>,
        edit: impl FnOnce(&mut Changes) -> Result<()>,
    ) -> Result<Answer> {
        let _turn = self.reloader.turn.lock();
        let mut changes = self.reloader.sources.changes();
        edit(&mut changes)?;
        let warnings = self.reloader.load(changes, required).map_err(OrderError::Refused)?;
        Ok(Answer { warnings, ..Answer::default() })
    }

    fn clients(&self, named: &str) -> Result<Vec<u64>> {
        if let Some(id) = u64::from_str_radix(named, 16).ok().filter(|_| named.len() == 16) {
            return Ok(vec![id]);
        }
        let address: IpAddr = named.parse().map_err(|_| {
            OrderError::Refused(format!(
                "{} is neither an id of 16 digits nor an address; `vouch export client list` shows both",
                printable(named.as_bytes())
            ))
        })?;
        Ok(self.driver.engine.clients_at(address.to_canonical()))
    }

    fn list_state(&self, client: Option<&str>) -> Result<Answer> {
        let clients = client.map(|client| self.clients(client)).transpose()?;
        let of = |client| self.driver.engine.held_states(client, STATES_MAX);
        let held = match clients {
            None => of(None),
            Some(clients) => clients.into_iter().flat_map(|client| of(Some(client))).collect(),
        };
        let mut warnings = Vec::new();
        if held.len() >= STATES_MAX {
            warnings.push(format!("only {STATES_MAX} states are shown; name a client"));
        }
        let states = Some(held.iter().map(state_status).collect());
        Ok(Answer { states, warnings, ..Answer::default() })
    }

    fn evict(&self, named: &str) -> Result<Answer> {
        let mut ended = 0;
        for client in self.clients(named)? {
            if let Some(replaced) = self.driver.engine.evict_client(client) {
                self.driver.apply(replaced.effects);
                ended += 1;
            }
        }
        match ended {
            0 => Err(OrderError::NotFound(format!("no client {named}"))),
            _ => Ok(Answer { ended: Some(ended), ..Answer::default() }),
        }
    }

    fn unlock(&self, path: &str) -> Result<Answer> {
        let source = source(path)?;
        let (export, below) = self.export_above(&source).ok_or_else(|| unknown(&source))?;
        let names: Vec<&[u8]> = below.iter().map(Vec::as_slice).collect();
        let replaced = self
            .driver
            .engine
            .end_state_on(export, &names)
            .ok_or_else(|| unknown(&source))?
            .map_err(|error| OrderError::NotFound(format!("{}: {error}", shown(&source))))?;
        self.driver.apply(replaced.effects);
        Ok(Answer { ended: Some(replaced.ended), ..Answer::default() })
    }

    /// The export whose directory holds the path, and the names of the path below it.
    fn export_above(&self, source: &Source) -> Option<(ExportId, Vec<Vec<u8>>)> {
        let exports = self.driver.exports.lock();
        let parts = |path: &[u8]| -> Vec<Vec<u8>> {
            path.split(|&byte| byte == b'/')
                .filter(|part| !part.is_empty())
                .map(<[u8]>::to_vec)
                .collect()
        };
        let rules = self.reloader.rules.lock();
        let mut sources: Vec<&Source> = rules.iter().map(|(exported, _)| exported).collect();
        sources.dedup();
        let below = |exported: &Source| match (exported, source) {
            (Source::Directory(above), Source::Directory(path)) => {
                parts(path).strip_prefix(&parts(above)[..]).map(<[Vec<u8>]>::to_vec)
            }
            _ => (exported == source).then(Vec::new),
        };
        sources
            .into_iter()
            .filter_map(|exported| {
                let below = below(exported)?;
                let raw = exported.to_string();
                let export = exports.iter().find(|export| export.source == raw)?;
                Some((ExportId(export.id), below))
            })
            .min_by_key(|(_, below)| below.len())
    }
}

fn state_status(held: &HeldState) -> StateStatus {
    let flags = |reads: bool, writes: bool| match (reads, writes) {
        (true, true) => "rw",
        (true, false) => "r",
        (false, true) => "w",
        (false, false) => "",
    };
    let lock = |range: &LockedRange| LockStatus {
        offset: range.offset,
        length: Some(range.length).filter(|&length| length != u64::MAX),
        exclusive: range.is_exclusive,
    };
    let (mut locks, mut recalled) = (Vec::new(), false);
    let (kind, access, deny) = match &held.kind {
        HeldKind::Open { reads, writes, denies_reads, denies_writes } => {
            (StateKind::Open, flags(*reads, *writes), flags(*denies_reads, *denies_writes))
        }
        HeldKind::Lock { ranges } => {
            locks = ranges.iter().map(lock).collect();
            (StateKind::Lock, flags(true, ranges.iter().any(|range| range.is_exclusive)), "")
        }
        HeldKind::Delegation { writes, is_recalled } => {
            recalled = *is_recalled;
            (StateKind::Delegation, flags(true, *writes), "")
        }
        HeldKind::DirectoryDelegation { is_recalled } => {
            recalled = *is_recalled;
            (StateKind::DirectoryDelegation, "r", "")
        }
        HeldKind::Copy => (StateKind::Copy, "w", ""),
    };
    StateStatus {
        client: format!("{:016x}", held.client),
        kind,
        access: access.to_owned(),
        deny: deny.to_owned(),
        locks,
        recalled,
        export: printable(held.source.as_bytes()),
        path: held.path.as_deref().map(printable),
    }
}

/// Of a path in the form of exports(5).
fn source(path: &str) -> Result<Source> {
    changes::source_of(&format!("{path} *")).map_err(OrderError::Refused)
}

fn shown(source: &Source) -> String {
    printable(source.to_string().as_bytes())
}

fn unknown(source: &Source) -> OrderError {
    let why = format!("{} is not exported; `vouch export list` shows all exports", shown(source));
    OrderError::NotFound(why)
}

fn refused(error: impl std::fmt::Display) -> OrderError {
    OrderError::Refused(error.to_string())
}

/// For the log and the audit trail.
fn describe(order: &Order) -> String {
    let kept = |keep: &bool| if *keep { " --keep" } else { "" };
    let text = match order {
        Order::ListExports => "export list".to_owned(),
        Order::ListState { .. } => "states".to_owned(),
        Order::AddExport { path, clients, keep } => {
            format!("export add{} {path} {}", kept(keep), clients.join(" "))
        }
        Order::SetExport { path, clients, keep } => {
            format!("export set{} {path} {}", kept(keep), clients.join(" "))
        }
        Order::RemoveExport { path, keep } => format!("export remove{} {path}", kept(keep)),
        Order::Reload => "export reload".to_owned(),
        Order::DiscardChanges => "export reload --discard".to_owned(),
        Order::EvictClient { client } => format!("client evict {client}"),
        Order::Unlock { path } => format!("unlock {path}"),
        Order::Drain { on } => if *on { "drain" } else { "drain --cancel" }.to_owned(),
    };
    printable(text.as_bytes())
}

const STATES_MAX: usize = 10_000;
