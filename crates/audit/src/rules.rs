//! Which operations are recorded: rules in auditctl's syntax, compiled so that a set of a thousand
//! lines costs some look-ups, not a scan. Decides on a record as it would be written. Reads no file
//! and knows no user by name: who parses says how names are resolved.

mod compare;
mod condition;
mod find;
mod parse;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;

use foldhash::{HashSet, HashSetExt as _};

use crate::Record;
use crate::operations::{Set, one};
use condition::{Condition, Side, sides};
use find::{Asked, Index};
pub use parse::{Resolve, RuleError};

/// A set of rules.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    index: Index,
    /// Whether any is about paths.
    names_paths: bool,
    /// Directories that rules which record are on.
    directories: HashSet<Box<[u8]>>,
    /// Those above what rules which record mean.
    above: HashSet<Box<[u8]>>,
    /// Operations that some rule records.
    recorded: Set,
}

/// A line.
#[derive(Debug)]
struct Rule {
    always: bool,
    operations: Set,
    /// Whether it names operations: then it is of nothing else.
    named: bool,
    conditions: Vec<Condition>,
    key: Box<[u8]>,
}

impl Rule {
    /// Whether all that it says holds of something that the operation does; of one that leaves out,
    /// of all that it does.
    fn holds(&self, record: &Record<'_>, (one, two): &(Side<'_>, Option<Side<'_>>)) -> bool {
        let holds = |side: &Side<'_>| self.conditions.iter().all(|condition| condition.holds_of(record, side, self.always));
        match two {
            None => holds(one),
            Some(two) if self.always => holds(one) || holds(two),
            Some(two) => holds(one) && holds(two),
        }
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::compile(Vec::new())
    }
}

impl Rules {
    /// The rules in a text, in which names may be of any bytes; all lines that can't be taken are
    /// told.
    pub fn parse(text: impl AsRef<[u8]>, resolve: &dyn Resolve) -> Result<Rules, Vec<RuleError>> {
        Ok(Rules::compile(parse::parse(text.as_ref(), resolve)?))
    }

    /// The rule that records all operations on files.
    pub fn everything() -> Rules {
        Rules::compile(vec![Rule {
            always: true,
            operations: crate::operations::on_files(),
            named: false,
            conditions: Vec::new(),
            key: Box::default(),
        }])
    }

    fn compile(rules: Vec<Rule>) -> Rules {
        assert!(u32::try_from(rules.len()).is_ok(), "rules come from a text that fits memory, a line each");
        let mut all = Rules {
            index: Index::of(&rules),
            names_paths: false,
            directories: HashSet::new(),
            above: HashSet::new(),
            recorded: rules.iter().filter(|rule| rule.always).fold(0, |set, rule| set | rule.operations),
            rules: Vec::new(),
        };
        for (rule, condition) in rules.iter().flat_map(|rule| rule.conditions.iter().map(move |condition| (rule, condition))) {
            if let Condition::Path(path) | Condition::Dir(path) = condition {
                all.names_paths = true;
                if rule.always {
                    all.above.extend(above(path).map(Box::from));
                    all.directories.extend(matches!(condition, Condition::Dir(_)).then(|| path.clone()));
                }
            }
        }
        all.rules = rules;
        all
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any rule is about paths: then it matters which other names a file has.
    pub fn name_paths(&self) -> bool {
        self.names_paths
    }

    /// Whether what lies at this path, or below it, is meant by a rule that records, so that it
    /// matters where it is moved to. As auditctl has it, `path=` means a name, whatever bears
    /// it, and `dir=` (and `-w`) the directory, which stays what it is when it is moved; what lies
    /// in either goes along with the directories above.
    pub fn mean_within(&self, path: &[u8]) -> bool {
        self.mean_below(path) || self.directories.contains(path)
    }

    /// Whether a rule that records means a path below this one.
    pub fn mean_below(&self, path: &[u8]) -> bool {
        self.above.contains(path)
    }

    /// Whether a path is not whole: names in it are not known.
    pub fn is_partial(path: &[u8]) -> bool {
        condition::gap(path).is_some()
    }

    /// Operations that some rule may record.
    pub fn may_be_recorded(&self) -> Set {
        self.recorded
    }

    /// Whether any rule may record this operation: asked first, before anything is found out about
    /// it.
    pub fn may_record(&self, operation: u16) -> bool {
        self.recorded & one(operation) != 0
    }

    /// The key (perhaps empty) with which a record is to be kept; none if it isn't. The first rule
    /// that matches decides. Costs look-ups by what rules name (of each that which fewest
    /// others name), and a look at the rules found so; O(rules by path) where the path is not
    /// known.
    ///
    /// A path that is not known, or not whole (`/srv/.../name`), is taken for one that a rule which
    /// records may mean, and not for one that is left out.
    pub fn select(&self, record: &Record<'_>) -> Option<&[u8]> {
        let rule = self.first(record, Asked::Operation, |rule| rule.operations & one(record.operation) != 0)?;
        rule.always.then_some(&*rule.key)
    }

    /// The key (perhaps empty) with which the record of a call that was refused before it was an
    /// operation is to be kept; none if a rule that names no operations says never. Without any
    /// rule that matches, it is kept.
    pub fn select_refusal(&self, record: &Record<'_>) -> Option<&[u8]> {
        match self.first(record, Asked::Refusal, |rule| !rule.named) {
            Some(rule) => rule.always.then_some(&*rule.key),
            None => Some(b""),
        }
    }

    /// The first rule that applies and whose conditions all hold.
    fn first(&self, record: &Record<'_>, asked: Asked, applies: impl Fn(&Rule) -> bool) -> Option<&Rule> {
        let mut best = u32::MAX;
        // Found out where a rule asks.
        let found = OnceCell::new();
        let sides = || found.get_or_init(|| sides(record));
        self.index.each(record, asked, sides, |numbers| {
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

/// The directories above a path.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = (0..path.len()).filter(|at| path[*at] == b'/' && path.len() > 1);
    ends.map(|at| &path[..at.max(1)])
}
