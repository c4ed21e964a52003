//! Audit rules in auditctl's syntax. Does no I/O: the caller resolves user names.

mod condition;
mod coverage;
mod index;
mod parse;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;

use foldhash::{HashSet, HashSetExt as _};

use crate::Record;
use crate::operations::{Set, single};
use condition::{Condition, Side, sides};
use index::{Index, Lookup};
pub use parse::{Resolve, RuleError};

/// One `-F FIELD` of a rule, for searches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field(Condition);

impl Field {
    /// Parses `client=10.1.0.0/16`, as after `-F`.
    pub fn parse(word: &[u8], resolve: &dyn Resolve) -> Result<Field, String> {
        parse::field(word, resolve).map(Field)
    }

    /// As in a rule that records.
    pub fn holds(&self, record: &Record<'_>) -> bool {
        self.0.holds(record)
    }
}

/// The first rule that holds decides.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    index: Index,
    has_path_rules: bool,
    directories: HashSet<Box<[u8]>>,
    parent_directories: HashSet<Box<[u8]>>,
    recorded: Set,
    warnings: Vec<RuleError>,
}

#[derive(Debug)]
struct Rule {
    always: bool,
    operations: Set,
    names_operations: bool,
    conditions: Vec<Condition>,
    key: Box<[u8]>,
}

impl Rule {
    /// An `always` rule must hold on one side of the operation, a `never` rule on both.
    fn holds(&self, record: &Record<'_>, (first, second): &(Side<'_>, Option<Side<'_>>)) -> bool {
        let holds = |side: &Side<'_>| {
            self.conditions.iter().all(|condition| condition.holds_of(record, side, self.always))
        };
        match second {
            None => holds(first),
            Some(second) if self.always => holds(first) || holds(second),
            Some(second) => holds(first) && holds(second),
        }
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::compile(Vec::new())
    }
}

impl Rules {
    /// Names may contain any bytes. An error lists every invalid line.
    pub fn parse(text: impl AsRef<[u8]>, resolve: &dyn Resolve) -> Result<Rules, Vec<RuleError>> {
        let (rules, warnings) = parse::parse(text.as_ref(), resolve)?;
        Ok(Rules { warnings, ..Rules::compile(rules) })
    }

    /// Lines for the kernel that have no effect here.
    pub fn warnings(&self) -> &[RuleError] {
        &self.warnings
    }

    /// One rule that records all operations on files.
    pub fn everything() -> Rules {
        Rules::compile(vec![Rule {
            always: true,
            operations: crate::operations::file_operations(),
            names_operations: false,
            conditions: Vec::new(),
            key: Box::default(),
        }])
    }

    fn compile(rules: Vec<Rule>) -> Rules {
        assert!(u32::try_from(rules.len()).is_ok(), "the number of rules fits 32 bits");
        let mut all = Rules {
            index: Index::of(&rules),
            has_path_rules: false,
            directories: HashSet::new(),
            parent_directories: HashSet::new(),
            recorded: rules
                .iter()
                .filter(|rule| rule.always)
                .fold(0, |set, rule| set | rule.operations),
            rules: Vec::new(),
            warnings: Vec::new(),
        };
        for (rule, condition) in rules
            .iter()
            .flat_map(|rule| rule.conditions.iter().map(move |condition| (rule, condition)))
        {
            if let Condition::Path(path) | Condition::Dir(path) = condition {
                all.has_path_rules = true;
                if rule.always {
                    all.parent_directories.extend(parent_directories(path).map(Box::from));
                    all.directories
                        .extend(matches!(condition, Condition::Dir(_)).then(|| path.clone()));
                }
            }
        }
        all.rules = rules;
        all
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Without rules nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// True if any rule selects by path. Then other names of a file matter too.
    pub fn has_path_rules(&self) -> bool {
        self.has_path_rules
    }

    /// An `always` rule covers this path or one below it. As in auditctl, `path=` watches a name,
    /// `dir=` and `-w` follow a directory.
    pub fn watches_within(&self, path: &[u8]) -> bool {
        self.watches_below(path) || self.directories.contains(path)
    }

    /// An `always` rule covers a path below this one.
    pub fn watches_below(&self, path: &[u8]) -> bool {
        self.parent_directories.contains(path)
    }

    /// The path contains a gap for unknown names.
    pub fn is_partial(path: &[u8]) -> bool {
        condition::gap(path).is_some()
    }

    /// Operations that any `always` rule names.
    pub fn recorded_operations(&self) -> Set {
        self.recorded
    }

    /// A cheap check that comes first.
    pub fn may_record(&self, operation: u16) -> bool {
        self.recorded & single(operation) != 0
    }

    /// The key (possibly empty) to record an operation with, or `None` to skip it. O(path rules)
    /// for an unknown path. An incomplete path (`/srv/.../name`) matches each `always` rule that
    /// may apply, and no `never` rule.
    pub fn select(&self, record: &Record<'_>) -> Option<&[u8]> {
        let rule = self.first_match(record, Lookup::Operation, |rule| {
            rule.operations & single(record.operation) != 0
        })?;
        rule.always.then_some(&*rule.key)
    }

    /// As [`Rules::select`] for a refused call: only a `never` rule without operations skips it.
    pub fn select_refusal(&self, record: &Record<'_>) -> Option<&[u8]> {
        match self.first_match(record, Lookup::Refusal, |rule| !rule.names_operations) {
            Some(rule) => rule.always.then_some(&*rule.key),
            None => Some(b""),
        }
    }

    fn first_match(
        &self,
        record: &Record<'_>,
        lookup: Lookup,
        applies: impl Fn(&Rule) -> bool,
    ) -> Option<&Rule> {
        let mut best = u32::MAX;
        let found = OnceCell::new();
        let sides = || found.get_or_init(|| sides(record));
        self.index.each_candidate(record, lookup, sides, |numbers| {
            for number in numbers {
                if *number >= best {
                    return;
                }
                let rule = &self.rules[*number as usize];
                if applies(rule) && (rule.conditions.is_empty() || rule.holds(record, sides())) {
                    best = *number;
                    return;
                }
            }
        });
        self.rules.get(best as usize)
    }
}

fn parent_directories(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = (0..path.len()).filter(|at| path[*at] == b'/' && path.len() > 1);
    ends.map(|at| &path[..at.max(1)])
}
