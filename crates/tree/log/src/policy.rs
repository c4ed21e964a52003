//! Policies (C2SP tlog-policy): which logs are known, and whose cosignatures make a checkpoint
//! credible.

use std::collections::BTreeMap;

use crate::checkpoint::SignedCheckpoint;
use crate::key::{Algorithm, KeyError, VerifierKey};
use crate::note::{NoteError, Verified};

/// Longest policy, in bytes.
pub const POLICY_LEN_MAX: usize = 256 * 1024;

/// Logs, witnesses and groups of a policy at most, of each kind. C2SP asks for 32. With fewer
/// signatures than a note may have, a false one of each witness costs no more than a true one.
pub const POLICY_ITEMS_MAX: usize = 64;

/// A cosignature's time may be this many seconds ahead of the clock. As for revisions.
pub const CLOCK_SKEW_S_MAX: u64 = 300;

/// A log that a policy accepts.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyLog {
    /// Its name is the log's origin.
    pub key: VerifierKey,
    /// The log's prefix.
    pub url: Option<String>,
}

/// A witness that a policy knows.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyWitness {
    /// Its name in this policy; shown with replacement characters where it is not UTF-8.
    pub name: String,
    /// Verifies its cosignatures.
    pub key: VerifierKey,
    /// Submission prefix (C2SP tlog-witness).
    pub url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Witness(usize),
    Group(usize),
}

/// Refers to witnesses, and to groups before it.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    threshold: usize,
    members: Vec<Member>,
}

/// Rules for believing a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    logs: Vec<PolicyLog>,
    witnesses: Vec<PolicyWitness>,
    groups: Vec<Group>,
    /// `None`: `quorum none`.
    quorum: Option<Member>,
}

/// Why a policy cannot be used. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum PolicyError {
    #[error("a policy is longer than {POLICY_LEN_MAX} bytes")]
    TooLong,
    #[error("policy line {line}: only text, tabs and newlines are allowed")]
    Characters { line: usize },
    #[error("policy line {line}: unknown keyword {word}; use log, witness, group or quorum")]
    Keyword { line: usize, word: String },
    #[error("policy line {line}: the form is `{form}`; a comment needs a line of its own")]
    Form { line: usize, form: &'static str },
    #[error("policy line {line}: {error}")]
    Key { line: usize, error: KeyError },
    #[error("policy line {line}: the key serves cosignatures only of type 4 or 6")]
    NotWitness { line: usize },
    #[error("policy line {line}: this public key is already listed")]
    DuplicateKey { line: usize },
    #[error("policy line {line}: the name {name} is taken")]
    DuplicateName { line: usize, name: String },
    #[error("policy line {line}: {name} is not defined on an earlier line")]
    Unknown { line: usize, name: String },
    #[error("policy line {line}: {name} is a member of a group already")]
    DuplicateMember { line: usize, name: String },
    #[error("policy line {line}: the threshold is not between 1 and the number of members")]
    Threshold { line: usize },
    #[error("policy line {line}: more than {POLICY_ITEMS_MAX} of a kind")]
    TooMany { line: usize },
    #[error("policy line {line}: a second quorum")]
    SecondQuorum { line: usize },
    #[error("a policy needs a quorum line")]
    NoQuorum,
}

/// Why a checkpoint does not satisfy a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum PolicyShortfall {
    #[error("no key is known for the log {0}")]
    UnknownLog(String),
    #[error("{0}")]
    Note(#[from] NoteError),
    #[error("the checkpoint lacks the signature of {0}")]
    Unsigned(String),
    #[error("the cosignatures of {} do not suffice for the policy{}", names(.found), times(.early))]
    Quorum { found: Vec<String>, early: Vec<String> },
}

fn names(names: &[String]) -> String {
    if names.is_empty() { "no witness".to_owned() } else { names.join(", ") }
}

fn times(witnesses: &[String]) -> String {
    match witnesses {
        [] => String::new(),
        names => format!("; times without meaning or in the future: {}", names.join(", ")),
    }
}

/// A witness's statement that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cosigned {
    /// The witness, as in [`Policy::witnesses`].
    pub witness: usize,
    /// Seconds since 1970.
    pub time: u64,
}

/// The conditions of a credible checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Belief {
    /// Cosignatures of the policy's witnesses, the latest first.
    pub cosigned: Vec<Cosigned>,
    /// The quorum holds with cosignatures from this time on alone. `None` for `quorum none`.
    pub quorum_time: Option<u64>,
}

impl Policy {
    /// Takes a file's bytes. The last line may lack its newline.
    pub fn parse(bytes: &[u8]) -> Result<Self, PolicyError> {
        Parser::default().run(bytes)
    }

    /// `quorum none`: the log's keys suffice.
    pub const fn without_witnesses() -> Self {
        Self { logs: Vec::new(), witnesses: Vec::new(), groups: Vec::new(), quorum: None }
    }

    /// Logs that the policy accepts; none: the caller knows the log from elsewhere.
    pub fn logs(&self) -> &[PolicyLog] {
        &self.logs
    }

    /// False for `quorum none`.
    pub const fn has_quorum(&self) -> bool {
        self.quorum.is_some()
    }

    /// In the order of the file.
    pub fn witnesses(&self) -> &[PolicyWitness] {
        &self.witnesses
    }

    /// Checks signatures and quorum. `log_keys`: keys of the log that the caller knows from
    /// elsewhere; all of them must have signed, beside any one of the policy's own for this log.
    /// `now`: seconds since 1970.
    pub fn check(
        &self,
        signed: &SignedCheckpoint,
        log_keys: &[VerifierKey],
        now: u64,
    ) -> Result<Belief, PolicyShortfall> {
        let origin = &signed.checkpoint().origin;
        let listed = self.logs.iter().map(|log| &log.key).filter(|key| key.name() == origin);
        let listed: Vec<_> = listed.collect();
        let is_known = if self.logs.is_empty() { !log_keys.is_empty() } else { !listed.is_empty() };
        if !is_known {
            return Err(PolicyShortfall::UnknownLog(origin.clone()));
        }
        let witnesses = self.witnesses.iter().map(|witness| &witness.key);
        let keys: Vec<_> = listed.iter().copied().chain(log_keys).chain(witnesses).collect();
        let verified = signed.note().verify(&keys)?;
        // Keys are compared, not places: a policy may list the caller's key again.
        let has_signed = |key: &VerifierKey| verified.iter().any(|found| found.key == key);
        if let Some(key) = log_keys.iter().find(|key| key.name() != origin || !has_signed(key)) {
            return Err(PolicyShortfall::Unsigned(key.name().to_owned()));
        }
        if !listed.is_empty() && !listed.iter().any(|key| has_signed(key)) {
            return Err(PolicyShortfall::Unsigned(origin.clone()));
        }
        self.check_quorum(&verified, now)
    }

    /// The witnesses whose cosignatures count, the latest first, whether they suffice or not. None
    /// if the signature of one is false.
    pub fn cosigned(&self, signed: &SignedCheckpoint, now: u64) -> Vec<Cosigned> {
        let keys: Vec<_> = self.witnesses.iter().map(|witness| &witness.key).collect();
        signed.note().verify(&keys).map_or_else(|_| Vec::new(), |found| self.count(&found, now).0)
    }

    /// The witnesses whose cosignatures count, and the names of others.
    fn count(&self, verified: &[Verified<'_>], now: u64) -> (Vec<Cosigned>, Vec<String>) {
        let (mut cosigned, mut early) = (Vec::new(), Vec::new());
        for (number, witness) in self.witnesses.iter().enumerate() {
            let times = verified.iter().filter(|found| *found.key == witness.key);
            let times = times.filter_map(|found| found.time);
            // C2SP tlog-witness: the time MUST NOT be zero.
            let is_credible =
                |time: &u64| *time != 0 && *time <= now.saturating_add(CLOCK_SKEW_S_MAX);
            let (credible, other): (Vec<_>, Vec<_>) = times.partition(is_credible);
            match credible.into_iter().max() {
                Some(time) => cosigned.push(Cosigned { witness: number, time }),
                None if !other.is_empty() => early.push(witness.name.clone()),
                None => {}
            }
        }
        cosigned.sort_by_key(|cosigned| std::cmp::Reverse(cosigned.time));
        (cosigned, early)
    }

    fn check_quorum(&self, verified: &[Verified<'_>], now: u64) -> Result<Belief, PolicyShortfall> {
        let (cosigned, early) = self.count(verified, now);
        let Some(quorum) = self.quorum else { return Ok(Belief { cosigned, quorum_time: None }) };
        let mut have = vec![false; self.witnesses.len()];
        for found in &cosigned {
            have[found.witness] = true;
            if self.holds(quorum, &have) {
                let quorum_time = Some(found.time);
                return Ok(Belief { cosigned, quorum_time });
            }
        }
        let name = |found: &Cosigned| self.witnesses[found.witness].name.clone();
        Err(PolicyShortfall::Quorum { found: cosigned.iter().map(name).collect(), early })
    }

    fn holds(&self, quorum: Member, have: &[bool]) -> bool {
        let mut groups = Vec::new();
        for group in &self.groups {
            let holds = |member: &&Member| match **member {
                Member::Witness(number) => have[number],
                Member::Group(number) => groups[number],
            };
            let count = group.members.iter().filter(holds).count();
            groups.push(count >= group.threshold);
        }
        match quorum {
            Member::Witness(number) => have[number],
            Member::Group(number) => groups[number],
        }
    }
}

#[derive(Default)]
struct Parser<'a> {
    logs: Vec<PolicyLog>,
    witnesses: Vec<PolicyWitness>,
    groups: Vec<Group>,
    quorum: Option<Option<Member>>,
    /// The place, and whether a group has it. C2SP: names are opaque octets.
    names: BTreeMap<&'a [u8], (Member, bool)>,
}

impl<'a> Parser<'a> {
    fn run(mut self, bytes: &'a [u8]) -> Result<Policy, PolicyError> {
        if bytes.len() > POLICY_LEN_MAX {
            return Err(PolicyError::TooLong);
        }
        for (line, text) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
            if text.iter().any(|&byte| byte == 0x7f || (byte < b' ' && byte != b'\t')) {
                return Err(PolicyError::Characters { line });
            }
            let words = text.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
            let words: Vec<_> = words.collect();
            // C2SP: only whole lines are comments, so `w#1` is a name.
            match words.split_first() {
                None => {}
                Some((word, _)) if word.starts_with(b"#") => {}
                Some((&b"log", words)) => self.log(line, words)?,
                Some((&b"witness", words)) => self.witness(line, words)?,
                Some((&b"group", words)) => self.group(line, words)?,
                Some((&b"quorum", words)) => self.quorum(line, words)?,
                Some((word, _)) => return Err(PolicyError::Keyword { line, word: show(word) }),
            }
        }
        let Self { logs, witnesses, groups, quorum, .. } = self;
        let quorum = quorum.ok_or(PolicyError::NoQuorum)?;
        Ok(Policy { logs, witnesses, groups, quorum })
    }

    fn log(&mut self, line: usize, words: &[&[u8]]) -> Result<(), PolicyError> {
        let (key, url) = match *words {
            [key] => (key, None),
            [key, url] => (key, Some(show(url))),
            _ => return Err(PolicyError::Form { line, form: "log VKEY [URL]" }),
        };
        let key = parse_key(line, key)?;
        check_new_key(line, &key, self.logs.iter().map(|log| &log.key))?;
        self.logs.push(PolicyLog { key, url });
        Ok(())
    }

    fn witness(&mut self, line: usize, words: &[&'a [u8]]) -> Result<(), PolicyError> {
        let (name, key, url) = match *words {
            [name, key] => (name, key, None),
            [name, key, url] => (name, key, Some(show(url))),
            _ => return Err(PolicyError::Form { line, form: "witness NAME VKEY [URL]" }),
        };
        let key = parse_key(line, key)?;
        if key.algorithm() == Algorithm::Ed25519 {
            return Err(PolicyError::NotWitness { line });
        }
        check_new_key(line, &key, self.witnesses.iter().map(|witness| &witness.key))?;
        self.define(line, name, Member::Witness(self.witnesses.len()))?;
        self.witnesses.push(PolicyWitness { name: show(name), key, url });
        Ok(())
    }

    fn group(&mut self, line: usize, words: &[&'a [u8]]) -> Result<(), PolicyError> {
        let (name, threshold, names) = match *words {
            [name, threshold, ref names @ ..] if !names.is_empty() => (name, threshold, names),
            _ => return Err(PolicyError::Form { line, form: "group NAME all|any|K MEMBER..." }),
        };
        if self.groups.len() >= POLICY_ITEMS_MAX {
            return Err(PolicyError::TooMany { line });
        }
        let threshold = match threshold {
            b"any" => 1,
            b"all" => names.len(),
            digits => std::str::from_utf8(digits)
                .ok()
                .and_then(crate::checkpoint::parse_decimal)
                .and_then(|count| usize::try_from(count).ok())
                .filter(|count| (1..=names.len()).contains(count))
                .ok_or(PolicyError::Threshold { line })?,
        };
        let mut members = Vec::new();
        for &member in names {
            let name = show(member);
            match self.names.get_mut(member) {
                None => return Err(PolicyError::Unknown { line, name }),
                Some((_, true)) => return Err(PolicyError::DuplicateMember { line, name }),
                Some((place, is_member)) => {
                    *is_member = true;
                    members.push(*place);
                }
            }
        }
        self.define(line, name, Member::Group(self.groups.len()))?;
        self.groups.push(Group { threshold, members });
        Ok(())
    }

    fn quorum(&mut self, line: usize, words: &[&[u8]]) -> Result<(), PolicyError> {
        let &[name] = words else {
            return Err(PolicyError::Form { line, form: "quorum NAME|none" });
        };
        if self.quorum.is_some() {
            return Err(PolicyError::SecondQuorum { line });
        }
        self.quorum = Some(match self.names.get(name) {
            Some((member, _)) => Some(*member),
            None if name == b"none" => None,
            None => return Err(PolicyError::Unknown { line, name: show(name) }),
        });
        Ok(())
    }

    fn define(&mut self, line: usize, name: &'a [u8], member: Member) -> Result<(), PolicyError> {
        if name == b"none" || self.names.contains_key(name) {
            return Err(PolicyError::DuplicateName { line, name: show(name) });
        }
        self.names.insert(name, (member, false));
        Ok(())
    }
}

fn parse_key(line: usize, text: &[u8]) -> Result<VerifierKey, PolicyError> {
    let text = std::str::from_utf8(text);
    let text = text.map_err(|_| PolicyError::Key { line, error: KeyError::Form })?;
    VerifierKey::parse(text).map_err(|error| PolicyError::Key { line, error })
}

/// C2SP tlog-policy: equal public keys are duplicates whatever their names and types.
fn check_new_key<'k>(
    line: usize,
    key: &VerifierKey,
    others: impl ExactSizeIterator<Item = &'k VerifierKey>,
) -> Result<(), PolicyError> {
    if others.len() >= POLICY_ITEMS_MAX {
        return Err(PolicyError::TooMany { line });
    }
    let public = key.public_bytes();
    for other in others {
        if other.public_bytes() == public {
            return Err(PolicyError::DuplicateKey { line });
        }
    }
    Ok(())
}

fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
