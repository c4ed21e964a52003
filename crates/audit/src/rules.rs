//! Which operations are recorded: rules in auditctl's syntax, compiled so that a set of a thousand lines costs some look-ups by what most rules name, not a scan.
//! Decides on a record as it would be written. Reads no file and knows no user by name: who parses says how names are resolved.

mod compare;
mod condition;
mod parse;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;

use foldhash::{HashMap, HashMapExt as _};

use crate::Record;
use crate::operations::{Set, one};
use condition::{Condition, Name, Side, UNSET, moves_names, sides};
pub use parse::{Resolve, RuleError};

/// A set of rules.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Numbers of rules, ascending, under the one thing that each is found by.
    by_path: HashMap<Box<[u8]>, Vec<u32>>,
    /// Those of rules that record, under each directory above their path.
    by_above: HashMap<Box<[u8]>, Vec<u32>>,
    by_uid: HashMap<u32, Vec<u32>>,
    by_login: HashMap<u32, Vec<u32>>,
    by_principal: HashMap<Box<[u8]>, Vec<u32>>,
    by_export: HashMap<Box<[u8]>, Vec<u32>>,
    rest: Vec<u32>,
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
    /// Whether all that it says holds of something that the operation does; of one that leaves out, of all that it does.
    fn holds(&self, record: &Record<'_>, (one, two): &(Side<'_>, Option<Side<'_>>)) -> bool {
        let holds = |side: &Side<'_>| self.conditions.iter().all(|condition| condition.holds_of(record, side, self.always));
        match two {
            None => holds(one),
            Some(two) if self.always => holds(one) || holds(two),
            Some(two) => holds(one) && holds(two),
        }
    }
}

impl Rules {
    /// The rules in a text; all lines that can't be taken are told.
    pub fn parse(text: &str, resolve: &dyn Resolve) -> Result<Rules, Vec<RuleError>> {
        Ok(Rules::compile(parse::parse(text, resolve)?))
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
        let mut all = Rules { by_path: HashMap::new(), by_uid: HashMap::new(), by_login: HashMap::new(), ..Rules::default() };
        for (number, rule) in rules.iter().enumerate() {
            let number = u32::try_from(number).expect("rules come from a text that fits memory, a line each");
            if rule.always {
                all.recorded |= rule.operations;
            }
            let find = |pick: fn(&Condition) -> bool| rule.conditions.iter().find(|condition| pick(condition));
            if let Some(Condition::Path(path) | Condition::Dir(path)) = find(|c| matches!(c, Condition::Path(_) | Condition::Dir(_))) {
                all.by_path.entry(path.clone()).or_default().push(number);
                if rule.always {
                    above(path).for_each(|directory| all.by_above.entry(directory.into()).or_default().push(number));
                }
            } else if let Some(Condition::Principal(true, name)) =
                find(|c| matches!(c, Condition::Principal(true, name) if !name.contains(&b'*')))
            {
                all.by_principal.entry(name.clone()).or_default().push(number);
            } else if let Some(Condition::Uid(condition::Compare::Equal, uid)) =
                find(|c| matches!(c, Condition::Uid(condition::Compare::Equal, _)))
            {
                all.by_uid.entry(*uid).or_default().push(number);
            } else if let Some(Condition::Login(condition::Compare::Equal, uid)) =
                find(|c| matches!(c, Condition::Login(condition::Compare::Equal, _)))
            {
                all.by_login.entry(*uid).or_default().push(number);
            } else if let Some(Condition::Export(true, path)) = find(|c| matches!(c, Condition::Export(true, _))) {
                all.by_export.entry(path.clone()).or_default().push(number);
            } else {
                all.rest.push(number);
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
        !self.by_path.is_empty()
    }

    /// Whether what lies at this path, or below it, is meant by a rule that records, so that it matters where it is moved to. As auditctl has it, `path=` means a name,
    /// whatever bears it, and `dir=` (and `-w`) the directory, which stays what it is when it is moved; what lies in either goes along with the directories above.
    pub fn mean_within(&self, path: &[u8]) -> bool {
        let is_dir = |number: &u32| {
            let rule = &self.rules[*number as usize];
            rule.always && rule.conditions.iter().any(|condition| matches!(condition, Condition::Dir(dir) if **dir == *path))
        };
        self.mean_below(path) || self.by_path.get(path).is_some_and(|numbers| numbers.iter().any(is_dir))
    }

    /// Whether a rule that records means a path below this one.
    pub fn mean_below(&self, path: &[u8]) -> bool {
        self.by_above.contains_key(path)
    }

    /// Whether a path is not whole: names in it are not known.
    pub fn is_partial(path: &[u8]) -> bool {
        condition::gap(path).is_some()
    }

    /// Operations that some rule may record.
    pub fn may_be_recorded(&self) -> Set {
        self.recorded
    }

    /// Whether any rule may record this operation: asked first, before anything is found out about it.
    pub fn may_record(&self, operation: u16) -> bool {
        self.recorded & one(operation) != 0
    }

    /// The key (perhaps empty) with which a record is to be kept; none if it isn't. The first rule that matches decides. Costs a look-up for each directory above the
    /// path and one each by user, principal and export, and those rules that name none of these; O(rules) where the path is not known.
    ///
    /// A path that is not known, or not whole (`/srv/.../name`), is taken for one that a rule which records may mean, and not for one that is left out.
    pub fn select(&self, record: &Record<'_>) -> Option<&[u8]> {
        let rule = self.first(record, |rule| rule.operations & one(record.operation) != 0)?;
        rule.always.then_some(&*rule.key)
    }

    /// The key (perhaps empty) with which the record of a call that was refused before it was an operation is to be kept; none if a rule that names no operations says
    /// never. Without any rule that matches, it is kept.
    pub fn select_refusal(&self, record: &Record<'_>) -> Option<&[u8]> {
        match self.first(record, |rule| !rule.named) {
            Some(rule) => rule.always.then_some(&*rule.key),
            None => Some(b""),
        }
    }

    /// The first rule that applies and whose conditions all hold.
    fn first(&self, record: &Record<'_>, applies: impl Fn(&Rule) -> bool) -> Option<&Rule> {
        let mut best = u32::MAX;
        // Found out where a rule asks.
        let found = OnceCell::new();
        let sides = || found.get_or_init(|| sides(record));
        let mut consider = |numbers: &[u32]| {
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
        };
        consider(&self.rest);
        if !self.by_path.is_empty() {
            let moves = moves_names(record);
            let sides = sides();
            for name in sides.0.names.into_iter().chain(sides.1.into_iter().flat_map(|side| side.names)) {
                let path = match name {
                    Name::Known(path) => path,
                    Name::None => continue,
                    // Any of them may be meant.
                    Name::Below(..) => {
                        self.by_path.values().for_each(|numbers| consider(numbers));
                        continue;
                    }
                };
                let mut end = path.len();
                while end > 0 {
                    if let Some(numbers) = self.by_path.get(&path[..end]) {
                        consider(numbers);
                    }
                    end = path[..end].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                }
                if path.starts_with(b"/")
                    && let Some(numbers) = self.by_path.get(&b"/"[..])
                {
                    consider(numbers);
                }
                if moves && let Some(numbers) = self.by_above.get(path) {
                    consider(numbers);
                }
            }
        }
        if let Some(numbers) = self.by_uid.get(&record.uid.unwrap_or(UNSET)) {
            consider(numbers);
        }
        if let Some(numbers) = self.by_login.get(&record.auid().unwrap_or(UNSET)) {
            consider(numbers);
        }
        if !self.by_principal.is_empty()
            && let Some(numbers) = self.by_principal.get(record.principal)
        {
            consider(numbers);
        }
        if !self.by_export.is_empty()
            && let Some(numbers) = self.by_export.get(record.export)
        {
            consider(numbers);
        }
        self.rules.get(best as usize)
    }
}

/// The directories above a path.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = (0..path.len()).filter(|at| path[*at] == b'/' && path.len() > 1);
    ends.map(|at| &path[..at.max(1)])
}
