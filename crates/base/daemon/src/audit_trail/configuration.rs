//! Recorded at each start and change, and compared with that of the last stop, so that weaker
//! auditing leaves a record. A file beside the trail has the last configuration.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_audit::Record;
use vouch_audit::chain::digest;
use vouch_audit::record::Act;
use vouch_audit::rules::Rules;
use vouch_audit::trail::{Durability, Policy, Retention, SystemDisk, Trail, replace_file};

use super::configuration_text::{Configuration, Keys, SavedConfiguration};
use super::{ActiveRules, System, TrailConfig, TrailError, act, boot_id, read_rules, record_act};

impl SavedConfiguration {
    fn is_less_than(&self, before: &SavedConfiguration) -> bool {
        let (now, old) = (&self.retention, &before.retention);
        let is_less = |now: Option<u64>, before: Option<u64>| {
            now.is_some_and(|now| before.is_none_or(|before| now < before))
        };
        let removes = now.age_ns_max.is_some() || now.len_max.is_some();
        self.seal_ns > before.seal_ns
            || is_less(now.age_ns_max, old.age_ns_max)
            || is_less(now.len_max, old.len_max)
            || (removes && now.age_ns_min < old.age_ns_min)
    }

    fn describe(&self) -> String {
        let seconds = |ns: u64| format!("{}s", ns as f64 / 1e9);
        let Retention { age_ns_max, len_max, age_ns_min } = self.retention;
        let mut text = format!("seal {}", seconds(self.seal_ns));
        if let Some(age) = age_ns_max {
            let _ = write!(text, ", keep {}", seconds(age));
        }
        if let Some(len) = len_max {
            let _ = write!(text, ", keep {len} bytes");
        }
        match age_ns_max.is_some() || len_max.is_some() {
            true => text.push_str(&format!(", floor {}", seconds(age_ns_min))),
            false => text.push_str(", keep all"),
        }
        text
    }
}

const IN_FORCE: &str = "in-force";
const IN_FORCE_LEN_MAX: u64 = 16 << 20;

impl Configuration {
    fn of(config: &TrailConfig, deny: &[String], rules: Option<Vec<u8>>) -> Configuration {
        let strictness = match config.keeping.policy {
            Policy::Count => 0,
            Policy::Halt => 1,
            Policy::Block => 2,
        };
        let lateness = match config.keeping.durability {
            Durability::Each => (0, 0),
            Durability::Records(count) => (1, count.into()),
            Durability::Every(time) => (2, time.as_millis()),
            Durability::System => (3, 0),
        };
        let mut deny = deny.to_vec();
        deny.sort();
        deny.dedup();
        let kept = SavedConfiguration {
            seal_ns: config.rotation.seal_ns_max,
            retention: config.keeping.retention,
        };
        Configuration { strictness, lateness, deny, rules, kept, keys: None }
    }

    fn describe(&self, count: usize) -> String {
        let policy = ["count", "halt", "block"][usize::from(self.strictness)];
        let sync = match self.lateness {
            (0, _) => "each".to_owned(),
            (1, count) => count.to_string(),
            (2, ms) => format!("{ms}ms"),
            _ => "none".to_owned(),
        };
        let mut text =
            format!("policy {policy}, sync {sync}, {}, {count} rules", self.kept.describe());
        match &self.rules {
            None => text.push_str(" (everything)"),
            Some(rules) => {
                let _ =
                    write!(text, " (SHA-256 {})", data_encoding::HEXLOWER.encode(&digest(rules)));
            }
        }
        if !self.deny.is_empty() {
            let _ = write!(text, ", deny {}", self.deny.join(" "));
        }
        text
    }

    fn is_less_than(&self, before: &Configuration) -> bool {
        let parse = |rules: &Option<Vec<u8>>| match rules {
            None => Some(Rules::everything()),
            Some(text) => Rules::parse(text, &System).ok(),
        };
        let rules_are_less = self.rules != before.rules
            && match (parse(&self.rules), parse(&before.rules)) {
                (Some(now), Some(before)) => now.audits_less_than(&before),
                // A rule may name a removed user.
                _ => true,
            };
        self.strictness < before.strictness
            || self.is_later_than(before)
            || self.kept.is_less_than(&before.kept)
            || before.deny.iter().any(|export| !self.deny.contains(export))
            || rules_are_less
    }

    /// A change between a number and a duration counts as later, except from `each`.
    fn is_later_than(&self, before: &Configuration) -> bool {
        let ((kind, late), (kind_before, late_before)) = (self.lateness, before.lateness);
        if kind == kind_before { late > late_before } else { kind != 0 }
    }

    fn read(directory: &Path) -> Option<Configuration> {
        let mut text = Vec::new();
        File::open(directory.join(IN_FORCE))
            .ok()?
            .take(IN_FORCE_LEN_MAX)
            .read_to_end(&mut text)
            .ok()?;
        // A truncated file would look like fewer rules.
        Configuration::parse(&text).filter(|_| (text.len() as u64) < IN_FORCE_LEN_MAX)
    }

    /// Only the owner can read the file: threads that act as callers have no umask.
    fn write(&self, directory: &Path) -> io::Result<()> {
        replace_file(&SystemDisk, &directory.join(IN_FORCE), &self.text())
    }
}

pub struct Account {
    config: TrailConfig,
    current: Mutex<Configuration>,
    is_new: bool,
}

pub struct NewRules {
    rules: Rules,
    text: Option<Vec<u8>>,
}

impl Account {
    pub(super) fn new(
        config: &TrailConfig,
        deny: &[String],
        text: Option<Vec<u8>>,
        is_new: bool,
    ) -> Account {
        Account {
            config: config.clone(),
            current: Mutex::new(Configuration::of(config, deny, text)),
            is_new,
        }
    }

    pub fn read(&self) -> Result<NewRules, TrailError> {
        read_rules(&self.config).map(|(rules, text)| NewRules { rules, text })
    }

    pub fn put(&self, trail: &Trail, rules: &ActiveRules, new: NewRules) {
        let after = Arc::new(new.rules);
        let before = rules.replace(after.clone());
        let what = if after.audits_less_than(&before) { Act::TurnedDown } else { Act::Rules };
        let mut configuration = self.current.lock();
        configuration.rules = new.text;
        act(
            trail,
            what,
            b"",
            &format!("{}; {} rules before", configuration.describe(after.len()), before.len()),
        );
        self.save(&configuration);
    }

    pub fn started(&self, trail: &Trail, rules: &ActiveRules, program: &str) {
        let configuration = self.current.lock();
        let description = configuration.describe(rules.with(Rules::len));
        let boot = data_encoding::HEXLOWER.encode(&boot_id());
        act(trail, Act::Start, b"", &format!("{program}; boot {boot}; {description}"));
        let before = Configuration::read(&self.config.directory);
        if let (Some(keys), Some(known)) =
            (&configuration.keys, before.as_ref().and_then(|before| before.keys.as_ref()))
            && let Some(description) = keys.describe(known)
        {
            act(trail, Act::Key, b"", &description);
        }
        match before {
            // The previous start's record has the hash of its rules.
            Some(before) if configuration.is_less_than(&before) => {
                act(trail, Act::TurnedDown, b"", "auditing is weaker than at the last start");
            }
            None if !self.is_new => act(
                trail,
                Act::TurnedDown,
                b"",
                "the audit configuration of the last start is unknown",
            ),
            _ => {}
        }
        self.save(&configuration);
    }

    /// Call before the start is recorded.
    pub fn set_keys(&self, keys: Keys) {
        self.current.lock().keys = Some(keys);
    }

    pub fn keys_changed(&self, keys: Keys) {
        let mut configuration = self.current.lock();
        configuration.keys = Some(keys);
        self.save(&configuration);
    }

    pub fn failed(&self, trail: &Trail, why: &str) {
        let own = rustix::process::getuid().as_raw();
        let fields = Record { uid: Some(own), result: INVAL, ..Record::default() };
        record_act(trail, Act::Reload, fields, why);
    }

    fn save(&self, configuration: &Configuration) {
        if let Err(error) = configuration.write(&self.config.directory) {
            tracing::warn!(%error, "cannot save the audit configuration beside the trail; the next start will report it as unknown");
        }
    }
}

/// NFS4ERR_INVAL (RFC 8881 §15.1).
pub(super) const INVAL: u32 = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_or_incomparable_durability_is_weaker() {
        let of = |lateness| Configuration {
            strictness: 0,
            lateness,
            deny: Vec::new(),
            rules: None,
            kept: SavedConfiguration::default(),
            keys: None,
        };
        let (each, few, many, soon, late, never) = (
            of((0, 0)),
            of((1, 10)),
            of((1, 4_000_000_000)),
            of((2, 10)),
            of((2, 1000)),
            of((3, 0)),
        );
        for (now, before) in [
            (&few, &each),
            (&many, &few),
            (&late, &soon),
            (&many, &soon),
            (&soon, &few),
            (&never, &late),
            (&late, &never),
        ] {
            assert!(now.is_less_than(before), "{now:?} after {before:?}");
        }
        for (now, before) in [
            (&each, &few),
            (&each, &never),
            (&few, &many),
            (&soon, &late),
            (&few, &few),
            (&never, &never),
        ] {
            assert!(!now.is_less_than(before), "{now:?} after {before:?}");
        }
    }

    #[test]
    fn later_seal_and_shorter_retention_are_weaker() {
        let kept = |seal_ns, age_ns_max, len_max, age_ns_min| SavedConfiguration {
            seal_ns,
            retention: Retention { age_ns_max, len_max, age_ns_min },
        };
        let all = kept(10, None, None, 30);
        for less in [
            kept(11, None, None, 30),
            kept(10, Some(50), None, 30),
            kept(10, None, Some(1 << 30), 30),
        ] {
            assert!(less.is_less_than(&all) && !all.is_less_than(&less), "{less:?}");
        }
        let some = kept(10, Some(50), Some(100), 30);
        for less in [
            kept(10, Some(49), Some(100), 30),
            kept(10, Some(50), Some(99), 30),
            kept(10, Some(50), Some(100), 29),
        ] {
            assert!(less.is_less_than(&some) && !some.is_less_than(&less), "{less:?}");
        }
        // Without a maximum, no segment is removed and the minimum age has no effect.
        assert!(
            !kept(10, None, None, 0).is_less_than(&all)
                && !kept(1, None, None, 30).is_less_than(&some)
        );
        for kept in [all, some] {
            assert_eq!(SavedConfiguration::read(&mut kept.write().split(' ')), Some(kept));
        }
        assert_eq!(SavedConfiguration::read(&mut "10 x - 3".split(' ')), None);
    }

    #[test]
    fn file_is_private_and_read_up_to_its_limit() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(IN_FORCE);
        let configuration = Configuration {
            strictness: 0,
            lateness: (0, 0),
            deny: Vec::new(),
            rules: None,
            kept: SavedConfiguration::default(),
            keys: None,
        };
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        configuration.write(directory.path()).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Configuration::read(directory.path()), Some(configuration));
        let rules = format!(
            "{}# {}\n",
            std::fs::read_to_string(&file).unwrap().replacen(" 0 ", " 1 ", 1),
            "x".repeat(17 << 20)
        );
        std::fs::write(&file, rules).unwrap();
        assert_eq!(Configuration::read(directory.path()), None);
    }

    #[test]
    fn configuration_round_trips() {
        let of = |rules: Option<&[u8]>, deny: &[&str], keys| Configuration {
            strictness: 2,
            lateness: (1, 10),
            deny: deny.iter().map(|path| (*path).to_owned()).collect(),
            rules: rules.map(<[u8]>::to_owned),
            kept: SavedConfiguration {
                seal_ns: 7,
                retention: Retention { age_ns_max: None, len_max: Some(3), age_ns_min: 0 },
            },
            keys,
        };
        let keys = |stamp| Some(Keys { path: b"/etc/a key\n\xff".to_vec(), stamp });
        for configuration in [
            of(None, &[], None),
            of(Some(b"-w /a\n\n-w /b\xff\n"), &["/srv", "/home"], None),
            of(Some(b""), &[], keys(None)),
            of(None, &["/srv"], keys(Some((1, 2, -3, 4)))),
        ] {
            assert_eq!(Configuration::parse(&configuration.text()), Some(configuration));
        }
    }
}
