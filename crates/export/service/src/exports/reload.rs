//! On SIGHUP or by the control socket. An error changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::driver::Driver;
use crate::error::ExportError;
use crate::exports::changes::Changes;
use crate::exports::effective::ListedRules;
use crate::exports::sources::{self, Sources};
use crate::exports::syntax::Source;
use crate::identity::{Accounts, NameService, PrincipalMap};
use crate::management::Role;
use crate::management::grpc::RemoteAccess;
use crate::monitoring::operation_metrics::Metrics;
use crate::monitoring::status::ExportStatus;
use crate::tls::{Fresh, Holder, TlsServiceError};
use vouch_daemon::audit_trail::NewRules;
use vouch_daemon::failure;
use vouch_daemon::printable::printable;

pub(crate) struct Reloader {
    pub(crate) sources: Sources,
    pub(crate) driver: Arc<Driver>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) accounts: Arc<Accounts<Arc<dyn NameService>>>,
    pub(crate) principal_map: Option<PathBuf>,
    pub(crate) rules: Mutex<ListedRules>,
    /// File of the changes that administrators keep.
    pub(crate) kept: PathBuf,
    pub(crate) management: Option<Arc<RemoteAccess>>,
    pub(crate) turn: Mutex<()>,
}

impl Reloader {
    /// Connections stay, and so does open state of clients with access.
    pub(crate) fn reload(&self) -> Result<Vec<String>, String> {
        let _turn = self.turn.lock();
        vouch_daemon::service_manager::reloading();
        let outcome = self.load(self.sources.changes(), None);
        vouch_daemon::service_manager::ready(match &outcome {
            Ok(_) => "exports reloaded",
            Err(error) => error,
        });
        outcome
    }

    /// Ends state of clients that new answers of the name service deprive of access.
    pub(crate) fn end_lost(&self) {
        let Some(_turn) = self.turn.try_lock() else { return };
        self.driver
            .hosts
            .when_changed(|| self.driver.apply_replaced(self.driver.engine.clients_changed()));
    }

    /// With these changes to the lists. A `required` source that can't be exported now is an error. The
    /// caller has the turn.
    pub(crate) fn load(
        &self,
        changes: Changes,
        required: Option<&Source>,
    ) -> Result<Vec<String>, String> {
        let audit = self.driver.audit.as_ref();
        audit.iter().for_each(|audit| audit.check_keytab());
        let tls = self.driver.tls.as_ref();
        let loaded = self.read_files().and_then(|files| {
            Ok((files, self.sources.load(&changes).map_err(|error| error.to_string())?))
        });
        let loaded = loaded.and_then(|loaded| {
            required.map_or(Ok(()), |source| loaded.1.require(source))?;
            self.keep(&changes).map(|()| loaded)
        });
        match loaded {
            Ok((Files { principals: map, rules, tls: fresh, management }, loaded)) => {
                let (summary, left_out) = (loaded.summary(), loaded.left_out.clone());
                *self.rules.lock() = loaded.rules.clone();
                let (exports, mut warnings) = loaded.into_parts(self.driver.gss.as_deref());
                *self.driver.exports.lock() = list(&exports);
                self.metrics.name_exports(
                    exports.all().iter().map(|export| (export.id, export.source.clone())),
                );
                self.accounts.replace_map(map);
                if let (Some(tls), Some(fresh)) = (tls, fresh) {
                    tls.live.apply(fresh);
                    self.driver.check_certificates();
                }
                if let (Some(access), Some(fresh)) = (&self.management, management) {
                    access.live.apply(fresh);
                }
                let count = exports.all().len();
                if let Some(audit) = audit {
                    rules.into_iter().for_each(|rules| audit.apply_rules(rules));
                    let none = audit.set_exports(&exports, &left_out);
                    audit.act(vouch_audit::record::Act::Reload, &summary);
                    for path in none {
                        warnings.push(format!(
                            "--audit-deny {}: no export has this path any more; nothing is denied by it",
                            printable(path.as_bytes())
                        ));
                        audit.record_missing_deny_export(path);
                    }
                }
                let limits = exports.clone();
                let replaced = self.driver.engine.replace_exports(exports);
                self.driver.apply_qos(&limits);
                self.driver.apply_replaced(replaced);
                self.sources.commit(changes);
                warnings.extend(sources::exports_without_directory(&self.driver.engine));
                warnings.extend(apply_quotas(&self.driver.engine));
                self.driver.traffic.reloads.add(1);
                tracing::info!(count, "exports reloaded");
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                Ok(warnings)
            }
            Err(error) => {
                self.driver.traffic.reloads_failed.add(1);
                audit.iter().for_each(|audit| audit.reload_failed(&error));
                tracing::error!(%error, "reload failed; the old exports and principal map stay in force");
                Err(format!("{error}; the old list stays in force"))
            }
        }
    }
}

/// Files beside the lists, read and not in force yet.
struct Files {
    principals: PrincipalMap,
    rules: Option<NewRules>,
    tls: Option<Fresh<Holder>>,
    management: Option<Fresh<Role>>,
}

impl Reloader {
    fn read_files(&self) -> Result<Files, String> {
        let text = |error: TlsServiceError| error.to_string();
        Ok(Files {
            principals: read_principal_map(self.principal_map.as_deref())
                .map_err(|error| error.to_string())?,
            rules: self.driver.audit.as_ref().map(|audit| audit.read_rules()).transpose()?,
            tls: self.driver.tls.as_ref().map(|tls| tls.live.read()).transpose().map_err(text)?,
            management: self
                .management
                .as_ref()
                .map(|access| access.live.read())
                .transpose()
                .map_err(text)?,
        })
    }

    fn keep(&self, changes: &Changes) -> Result<(), String> {
        if changes.has_same_kept(&self.sources.changes()) {
            return Ok(());
        }
        changes.keep(&self.kept).map_err(|error| format!("{}: {error}", self.kept.display()))
    }
}

pub(crate) fn read_principal_map(path: Option<&Path>) -> Result<PrincipalMap, ExportError> {
    let Some(path) = path else { return Ok(PrincipalMap::default()) };
    vouch_trust::warn_if_changeable(path);
    let text = std::fs::read(path)
        .map_err(|source| ExportError::Idmap { path: path.to_owned(), source })?;
    PrincipalMap::parse(&text).map_err(|errors| {
        let errors = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ");
        ExportError::PrincipalMap { path: path.to_owned(), faults: errors }
    })
}

/// Puts `quota=` in force. A warning for each export whose file system refuses.
pub(crate) fn apply_quotas(engine: &vouch_nfs4_server::Server) -> Vec<String> {
    let warning = |(source, error): (Arc<str>, vouch_vfs::Error)| {
        format!(
            "quota= of {} is not in force: {}; docs/exports.md says which file systems have it",
            printable(source.as_bytes()),
            failure::chain(&error)
        )
    };
    engine.apply_quotas().into_iter().map(warning).collect()
}

pub(crate) fn list(exports: &vouch_nfs4_server::Exports) -> Vec<ExportStatus> {
    let path = |parts: &[Vec<u8>]| {
        let joined: String = parts
            .iter()
            .map(|part| format!("/{}", vouch_daemon::printable::printable(part)))
            .collect();
        if joined.is_empty() { "/".into() } else { joined }
    };
    let status = |export: &Arc<vouch_nfs4_server::Export>| ExportStatus {
        source: export.source.to_string(),
        pseudo_path: path(&export.pseudo_path),
        id: export.id.0,
        quota: None,
    };
    exports.all().iter().map(status).collect()
}
