mod active_rules;
mod configuration;
pub(crate) mod configuration_text;
mod key_watch;
pub mod metrics;
mod refusal_limit;
mod replica_faults;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use vouch_audit::Record;
use vouch_audit::record::{Act, Class};
use vouch_audit::rules::{Resolve, Rules};
use vouch_audit::trail::{Disk, Log, Options, Policy, Rotation, Trail, WriterOptions};

pub use active_rules::ActiveRules;
pub use configuration::{Account, NewRules};
pub use key_watch::KeyWatch;
pub use refusal_limit::{Omitted, RefusalLimit};
pub use replica_faults::refusal_of;

#[derive(Clone, Debug)]
pub struct TrailConfig {
    pub directory: PathBuf,
    pub key: Option<PathBuf>,
    /// `None` records everything.
    pub rules: Option<PathBuf>,
    pub keeping: WriterOptions,
    pub rotation: Rotation,
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct TrailError {
    pub path: PathBuf,
    pub why: String,
    pub is_full: bool,
}

/// Exports in `deny` need records. Calls `halt` at most once, under [`Policy::Halt`].
pub fn begin(
    config: &TrailConfig,
    disk: Arc<dyn Disk>,
    deny: &[String],
    halt: impl Fn() + Send + 'static,
) -> Result<(Trail, ActiveRules, Account), TrailError> {
    let (rules, text) = read_rules(config)?;
    let options = Options { rotation: config.rotation, boot: boot_id(), key: config.key.clone() };
    let failed = |why: String| TrailError { path: config.directory.clone(), why, is_full: false };
    // A user who can replace the directory chooses the key that seals the trail.
    if let Ok(Some(exposure)) =
        vouch_trust::find_exposure(&config.directory, vouch_trust::Access::Read)
    {
        tracing::warn!("audit trail: {exposure}");
    }
    config.key.iter().for_each(|key| vouch_trust::warn_if_exposed(key));
    let (log, opened) = Log::open(disk.clone(), &config.directory, options, now_ns())
        .map_err(|error| failed(error.to_string()))?;
    if opened.was_unclosed {
        tracing::warn!(
            torn = opened.torn_len(),
            "the audit trail was not closed; it was recovered, and a record says so"
        );
    }
    if let Some(error) = log.recovery_error() {
        let policy = match config.keeping.policy {
            Policy::Count => None,
            Policy::Block => Some("block"),
            Policy::Halt => Some("halt"),
        };
        if let Some(policy) = policy {
            let why = format!(
                "cannot write records, and the policy is {policy}: {error}; free disk space, or start with --audit-policy count"
            );
            return Err(TrailError { is_full: true, ..failed(why) });
        }
        tracing::error!(%error, "audit records can't be written yet; records that are lost until there is room are counted");
    }
    let account = Account::new(config, deny, text, log.next_seq() == 1);
    let keeping = WriterOptions { some_replies_wait: !deny.is_empty(), ..config.keeping.clone() };
    let trail =
        Trail::start(log, disk, keeping, halt).map_err(|error| failed(error.to_string()))?;
    Ok((trail, ActiveRules::new(Arc::new(rules)), account))
}

pub fn act(trail: &Trail, what: Act, export: &[u8], detail: &str) {
    let own = rustix::process::getuid().as_raw();
    record_act(trail, what, Record { uid: Some(own), export, ..Record::default() }, detail);
}

/// An order to the daemon. `by` has the fields that name its sender.
pub fn ordered(trail: &Trail, by: Record<'_>, is_done: bool, detail: &str) {
    let result = if is_done { 0 } else { configuration::INVAL };
    record_act(trail, Act::Managed, Record { result, ..by }, detail);
}

fn record_act(trail: &Trail, what: Act, fields: Record<'_>, detail: &str) {
    trail.record(&Record {
        time_ns: now_ns(),
        class: Class::Administrative,
        operation: what as u16,
        detail: detail.as_bytes(),
        ..fields
    });
}

pub fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn read_rules(config: &TrailConfig) -> Result<(Rules, Option<Vec<u8>>), TrailError> {
    let Some(path) = &config.rules else { return Ok((Rules::everything(), None)) };
    let failed = |why: String| TrailError { path: path.clone(), why, is_full: false };
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let parsed = Rules::parse(&text, &System);
    let rules = parsed.map_err(|errors| {
        failed(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "))
    })?;
    for warning in rules.warnings() {
        tracing::warn!(rules = %path.display(), "{warning}");
    }
    Ok((rules, Some(text)))
}

/// Users and groups of this machine, for names in rules and queries.
pub struct System;

impl Resolve for System {
    fn user(&self, name: &str) -> Option<u32> {
        nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
    }

    fn group(&self, name: &str) -> Option<u32> {
        nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
    }
}

fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    data_encoding::HEXLOWER
        .decode(digits.as_bytes())
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or_default()
}
