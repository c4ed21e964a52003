//! What is in force: policy, when records are durable and sealed, what is kept, which exports are
//! denied, which rules; told when the service starts and when it changes, and compared with what
//! was in force at the last stop, so that turning audit down by a restart leaves a trace. What was
//! is kept in a file beside the trail; where that is missing, that is told.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_audit::chain::digest;
use vouch_audit::record::Act;
use vouch_audit::rules::Rules;
use vouch_audit::trail::{Durability, Policy, Retention, SystemDisk, Trail, replace_file};

use super::written::{Kept, Keys, Standing};
use super::{InForce, System, TrailConfig, TrailError, act, boot_id, read_rules, record_act};

impl Kept {
    fn is_less_than(&self, before: &Kept) -> bool {
        let (now, old) = (&self.retention, &before.retention);
        let is_less = |now: Option<u64>, before: Option<u64>| now.is_some_and(|now| before.is_none_or(|before| now < before));
        let removes = now.age_ns_max.is_some() || now.len_max.is_some();
        self.seal_ns > before.seal_ns
            || is_less(now.age_ns_max, old.age_ns_max)
            || is_less(now.len_max, old.len_max)
            || (removes && now.age_ns_min < old.age_ns_min)
    }

    fn told(&self) -> String {
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

/// Name of the file, in the trail's directory.
const IN_FORCE: &str = "in-force";
/// Bytes of it, which are read whole into memory: far more rules than anybody has.
const IN_FORCE_LEN_MAX: u64 = 16 << 20;

impl Standing {
    fn of(config: &TrailConfig, deny: &[String], rules: Option<Vec<u8>>) -> Standing {
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
        let kept = Kept { seal_ns: config.rotation.seal_ns_max, retention: config.keeping.retention };
        Standing { strictness, lateness, deny, rules, kept, keys: None }
    }

    /// In words, for a record.
    fn told(&self, count: usize) -> String {
        let policy = ["count", "halt", "block"][usize::from(self.strictness)];
        let sync = match self.lateness {
            (0, _) => "each".to_owned(),
            (1, count) => count.to_string(),
            (2, ms) => format!("{ms}ms"),
            _ => "none".to_owned(),
        };
        let mut text = format!("policy {policy}, sync {sync}, {}, {count} rules", self.kept.told());
        match &self.rules {
            None => text.push_str(" (everything)"),
            Some(rules) => {
                let _ = write!(text, " (SHA-256 {})", data_encoding::HEXLOWER.encode(&digest(rules)));
            }
        }
        if !self.deny.is_empty() {
            let _ = write!(text, ", deny {}", self.deny.join(" "));
        }
        text
    }

    /// Whether less is recorded, or less surely, than before.
    fn is_less_than(&self, before: &Standing) -> bool {
        let parse = |rules: &Option<Vec<u8>>| match rules {
            None => Some(Rules::everything()),
            Some(text) => Rules::parse(text, &System).ok(),
        };
        let rules_are_less = self.rules != before.rules
            && match (parse(&self.rules), parse(&before.rules)) {
                (Some(now), Some(before)) => now.audits_less_than(&before),
                // A user of whom they spoke is gone, perhaps.
                _ => true,
            };
        self.strictness < before.strictness
            || self.is_later_than(before)
            || self.kept.is_less_than(&before.kept)
            || before.deny.iter().any(|export| !self.deny.contains(export))
            || rules_are_less
    }

    /// Whether records may be durable later. So many records and so long don't compare: what was
    /// exchanged for the other counts as later, but for `each`.
    fn is_later_than(&self, before: &Standing) -> bool {
        let ((kind, late), (kind_before, late_before)) = (self.lateness, before.lateness);
        if kind == kind_before { late > late_before } else { kind != 0 }
    }

    /// What was in force; none if that isn't known.
    fn read(directory: &Path) -> Option<Standing> {
        let mut text = Vec::new();
        File::open(directory.join(IN_FORCE)).ok()?.take(IN_FORCE_LEN_MAX).read_to_end(&mut text).ok()?;
        // One that was cut would be taken for fewer rules.
        Standing::parse(&text).filter(|_| (text.len() as u64) < IN_FORCE_LEN_MAX)
    }

    /// Keeps it for the next start, for nobody but the owner: threads that act as callers have no
    /// umask.
    fn write(&self, directory: &Path) -> io::Result<()> {
        replace_file(&SystemDisk, &directory.join(IN_FORCE), &self.text())
    }
}

/// What is in force in a trail that is being written, and was before.
pub struct Account {
    config: TrailConfig,
    standing: Mutex<Standing>,
    /// Nothing was recorded before.
    is_new: bool,
}

/// Rules that were read and are not in force.
pub struct NewRules {
    rules: Rules,
    text: Option<Vec<u8>>,
}

impl Account {
    pub(super) fn new(config: &TrailConfig, deny: &[String], text: Option<Vec<u8>>, is_new: bool) -> Account {
        Account { config: config.clone(), standing: Mutex::new(Standing::of(config, deny, text)), is_new }
    }

    /// Reads the rules anew, and puts nothing in force.
    pub fn read(&self) -> Result<NewRules, TrailError> {
        read_rules(&self.config).map(|(rules, text)| NewRules { rules, text })
    }

    /// Puts rules in force, and records that.
    pub fn put(&self, trail: &Trail, rules: &InForce, new: NewRules) {
        let after = Arc::new(new.rules);
        let before = rules.replace(after.clone());
        let what = if after.audits_less_than(&before) { Act::TurnedDown } else { Act::Rules };
        let mut standing = self.standing.lock();
        standing.rules = new.text;
        act(trail, what, b"", &format!("{}; {} rules before", standing.told(after.len()), before.len()));
        self.keep(&standing);
    }

    /// Records the start, what is in force from now on, and whether that is less than at the last
    /// one.
    pub fn started(&self, trail: &Trail, rules: &InForce, program: &str) {
        let standing = self.standing.lock();
        let told = standing.told(rules.with(Rules::len));
        let boot = data_encoding::HEXLOWER.encode(&boot_id());
        act(trail, Act::Start, b"", &format!("{program}; boot {boot}; {told}"));
        let before = Standing::read(&self.config.directory);
        if let (Some(keys), Some(known)) = (&standing.keys, before.as_ref().and_then(|before| before.keys.as_ref()))
            && let Some(told) = keys.told(known)
        {
            act(trail, Act::Key, b"", &told);
        }
        match before {
            // Which rules those were is in the start before, by their hash.
            Some(before) if standing.is_less_than(&before) => {
                act(trail, Act::TurnedDown, b"", "less is recorded, or less surely, than at the last start");
            }
            None if !self.is_new => act(trail, Act::TurnedDown, b"", "what was in force at the last start is not known any more"),
            _ => {}
        }
        self.keep(&standing);
    }

    /// Which keys there are, before the start is recorded.
    pub fn keys_are(&self, keys: Keys) {
        self.standing.lock().keys = Some(keys);
    }

    /// They are others now, and that was recorded.
    pub fn keys_changed(&self, keys: Keys) {
        let mut standing = self.standing.lock();
        standing.keys = Some(keys);
        self.keep(&standing);
    }

    /// Records a reload that failed, and changed nothing.
    pub fn failed(&self, trail: &Trail, why: &str) {
        record_act(trail, Act::Reload, INVAL, b"", why);
    }

    fn keep(&self, standing: &Standing) {
        if let Err(error) = standing.write(&self.config.directory) {
            tracing::warn!(%error, "what is in force can't be kept beside the audit trail; the next start will say that it isn't known");
        }
    }
}

/// Status of what was asked for and can't be (RFC 8881, section 15.1).
const INVAL: u32 = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_is_less_and_so_is_what_does_not_compare() {
        let of = |lateness| Standing { strictness: 0, lateness, deny: Vec::new(), rules: None, kept: Kept::default(), keys: None };
        let (each, few, many, soon, late, never) =
            (of((0, 0)), of((1, 10)), of((1, 4_000_000_000)), of((2, 10)), of((2, 1000)), of((3, 0)));
        for (now, before) in [(&few, &each), (&many, &few), (&late, &soon), (&many, &soon), (&soon, &few), (&never, &late), (&late, &never)]
        {
            assert!(now.is_less_than(before), "{now:?} after {before:?}");
        }
        for (now, before) in [(&each, &few), (&each, &never), (&few, &many), (&soon, &late), (&few, &few), (&never, &never)] {
            assert!(!now.is_less_than(before), "{now:?} after {before:?}");
        }
    }

    #[test]
    fn a_later_seal_and_what_is_kept_for_less_are_less() {
        let kept = |seal_ns, age_ns_max, len_max, age_ns_min| Kept { seal_ns, retention: Retention { age_ns_max, len_max, age_ns_min } };
        let all = kept(10, None, None, 30);
        for less in [kept(11, None, None, 30), kept(10, Some(50), None, 30), kept(10, None, Some(1 << 30), 30)] {
            assert!(less.is_less_than(&all) && !all.is_less_than(&less), "{less:?}");
        }
        let some = kept(10, Some(50), Some(100), 30);
        for less in [kept(10, Some(49), Some(100), 30), kept(10, Some(50), Some(99), 30), kept(10, Some(50), Some(100), 29)] {
            assert!(less.is_less_than(&some) && !some.is_less_than(&less), "{less:?}");
        }
        // Where nothing is removed, it means nothing how young that may not be.
        assert!(!kept(10, None, None, 0).is_less_than(&all) && !kept(1, None, None, 30).is_less_than(&some));
        for kept in [all, some] {
            assert_eq!(Kept::read(&mut kept.write().split(' ')), Some(kept));
        }
        assert_eq!(Kept::read(&mut "10 x - 3".split(' ')), None);
    }

    #[test]
    fn what_is_in_force_is_written_for_its_owner_alone_and_read_as_far_as_it_may_be_long() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(IN_FORCE);
        let standing = Standing { strictness: 0, lateness: (0, 0), deny: Vec::new(), rules: None, kept: Kept::default(), keys: None };
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        standing.write(directory.path()).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Standing::read(directory.path()), Some(standing));
        let rules = format!("{}# {}\n", std::fs::read_to_string(&file).unwrap().replacen(" 0 ", " 1 ", 1), "x".repeat(17 << 20));
        std::fs::write(&file, rules).unwrap();
        assert_eq!(Standing::read(directory.path()), None);
    }

    #[test]
    fn what_is_in_force_is_read_back() {
        let of = |rules: Option<&[u8]>, deny: &[&str], keys| Standing {
            strictness: 2,
            lateness: (1, 10),
            deny: deny.iter().map(|path| (*path).to_owned()).collect(),
            rules: rules.map(<[u8]>::to_owned),
            kept: Kept { seal_ns: 7, retention: Retention { age_ns_max: None, len_max: Some(3), age_ns_min: 0 } },
            keys,
        };
        let keys = |stamp| Some(Keys { path: b"/etc/a key\n\xff".to_vec(), stamp });
        for standing in [
            of(None, &[], None),
            of(Some(b"-w /a\n\n-w /b\xff\n"), &["/srv", "/home"], None),
            of(Some(b""), &[], keys(None)),
            of(None, &["/srv"], keys(Some((1, 2, -3, 4)))),
        ] {
            assert_eq!(Standing::parse(&standing.text()), Some(standing));
        }
    }
}
