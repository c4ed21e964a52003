//! Detects that a rule set records less than another, by example operations of old `always` rules
//! and new exceptions. A lost example proves a loss; its absence proves nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::condition::Condition;
use super::{Rule, Rules};
use crate::operations::{errno, single};
use crate::record::{Class, Refusal, access};
use crate::{Flavour, Record};

impl Rules {
    /// True if this set loses an example of `before`. O(rules of `before` × rules of `self`).
    pub fn audits_less_than(&self, before: &Rules) -> bool {
        let results = results(before.rules.iter().chain(&self.rules));
        let exceptions: Vec<&Rule> = self.rules.iter().filter(|rule| !rule.always).collect();
        let is_lost = |rules: &[&Rule], hint: Hint<'_>| {
            let operations = rules.iter().fold(u128::MAX, |set, rule| set & rule.operations);
            let is_lost = |record: &Record<'_>| {
                before.select(record).is_some() && self.select(record).is_none()
            };
            Example::of(rules, hint)
                .is_some_and(|example| example.any_operation(operations, &results, is_lost))
        };
        let is_lost_at_edges = |rule: &Rule| {
            let hints = std::iter::once(rule)
                .chain(self.rules.iter().filter(|hint| hint.conditions.iter().any(has_edge)));
            hints
                .flat_map(|hint| (0..EDGES).map(move |edge| Some((hint, edge))))
                .any(|hint| is_lost(&[rule], hint))
        };
        let is_refusal_lost = |rule: &Rule| {
            Example::of(&[rule], None).is_some_and(|example| {
                let refusal = Record {
                    class: Class::Refusal,
                    operation: Refusal::Authentication as u16,
                    ..example.record()
                };
                before.select_refusal(&refusal).is_some() && self.select_refusal(&refusal).is_none()
            })
        };
        before.rules.iter().filter(|rule| rule.always).any(|rule| {
            is_lost(&[rule], None)
                || exceptions.iter().any(|exception| is_lost(&[rule, exception], None))
                || is_lost_at_edges(rule)
        }) || exceptions.iter().any(|rule| !rule.names_operations && is_refusal_lost(rule))
    }
}

type Hint<'a> = Option<(&'a Rule, usize)>;
const EDGES: usize = 3;

fn has_edge(condition: &Condition) -> bool {
    !matches!(subject(condition), Subject::Path | Subject::Flavour | Subject::Other)
}

struct Example {
    path: Vec<u8>,
    uid: u32,
    gid: u32,
    principal: Vec<u8>,
    client: Vec<u8>,
    export: Vec<u8>,
    address: Option<IpAddr>,
    flavour: Flavour,
    other_conditions: Vec<Condition>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Path,
    Uid,
    Gid,
    Principal,
    Client,
    Export,
    Address,
    Flavour,
    Other,
}

fn subject(condition: &Condition) -> Subject {
    match condition {
        Condition::Path(_) | Condition::Dir(_) => Subject::Path,
        Condition::Uid(..) | Condition::Login(..) => Subject::Uid,
        Condition::Gid(..) => Subject::Gid,
        Condition::Principal(..) => Subject::Principal,
        Condition::Client(..) => Subject::Client,
        Condition::Export(..) => Subject::Export,
        Condition::Network(..) => Subject::Address,
        Condition::Flavour(..) => Subject::Flavour,
        Condition::Success(_)
        | Condition::Exit(..)
        | Condition::Perm(_)
        | Condition::Requested(_)
        | Condition::Mode(_) => Subject::Other,
    }
}

/// Values for the field that a condition tests.
#[derive(Default)]
struct Samples {
    paths: Vec<Vec<u8>>,
    numbers: Vec<u32>,
    names: Vec<Vec<u8>>,
    addresses: Vec<Option<IpAddr>>,
}

impl Samples {
    fn of(condition: &Condition) -> Samples {
        let mut samples = Samples::default();
        match condition {
            Condition::Path(path) => samples.paths.push(path.to_vec()),
            Condition::Dir(path) => samples.paths.push([path, &b"/\x01"[..]].concat()),
            Condition::Uid(_, number) | Condition::Login(_, number) | Condition::Gid(_, number) => {
                samples.numbers = vec![*number, number.wrapping_add(1), number.wrapping_sub(1)];
            }
            Condition::Principal(_, name)
            | Condition::Client(_, name)
            | Condition::Export(_, name) => {
                let literal = name.iter().map(|byte| if *byte == b'*' { 1 } else { *byte });
                samples.names.push(literal.collect());
            }
            Condition::Network(_, address, bits) => {
                samples.addresses = sample_addresses(*address, *bits).map(Some).to_vec();
            }
            // All values are tried: `Flavour::ALL`, `results`, `ACCESSES`.
            Condition::Flavour(..)
            | Condition::Success(_)
            | Condition::Exit(..)
            | Condition::Perm(_)
            | Condition::Requested(_)
            | Condition::Mode(_) => {}
        }
        samples
    }
}

impl Example {
    fn of(rules: &[&Rule], hint: Hint<'_>) -> Option<Example> {
        let all: Vec<&Condition> = rules.iter().flat_map(|rule| &rule.conditions).collect();
        // Unnamed values first, so that an unconstrained field matches no other rule by chance.
        let mut samples = Samples {
            paths: vec![b"/\x01".to_vec()],
            numbers: vec![UNUSUAL],
            names: vec![b"\x01".to_vec()],
            addresses: vec![None],
        };
        for condition in &all {
            let Samples { paths, numbers, names, addresses } = Samples::of(condition);
            samples.paths.extend(paths);
            samples.numbers.extend(numbers);
            samples.names.extend(names);
            samples.addresses.extend(addresses);
        }
        if let Some((rule, edge)) = hint {
            for condition in &rule.conditions {
                // A name has no edges.
                let Samples { paths: _, numbers, names, addresses } = Samples::of(condition);
                samples.numbers.splice(0..0, numbers.get(edge).copied());
                samples.names.splice(0..0, names);
                samples.addresses.splice(0..0, addresses.get(edge).copied());
            }
        }
        let Samples { paths, numbers, names, addresses } = samples;
        Some(Example {
            path: find_value(&all, Subject::Path, &paths, |path, record| record.path = path)?,
            uid: find_value(&all, Subject::Uid, &numbers, |uid, record| record.uid = Some(*uid))?,
            gid: find_value(&all, Subject::Gid, &numbers, |gid, record| record.gid = Some(*gid))?,
            principal: find_value(&all, Subject::Principal, &names, |name, record| {
                record.principal = name
            })?,
            client: find_value(&all, Subject::Client, &names, |name, record| record.client = name)?,
            export: find_value(&all, Subject::Export, &names, |name, record| record.export = name)?,
            address: find_value(&all, Subject::Address, &addresses, |address, record| {
                record.address = *address
            })?,
            flavour: find_value(&all, Subject::Flavour, Flavour::ALL, |flavour, record| {
                record.flavour = *flavour
            })?,
            other_conditions: all
                .into_iter()
                .filter(|condition| subject(condition) == Subject::Other)
                .cloned()
                .collect(),
        })
    }

    fn record(&self) -> Record<'_> {
        Record {
            class: Class::Operation,
            path: &self.path,
            uid: Some(self.uid),
            gid: Some(self.gid),
            principal: &self.principal,
            client: &self.client,
            export: &self.export,
            address: self.address,
            flavour: self.flavour,
            ..Record::default()
        }
    }

    fn any_operation(
        &self,
        operations: u128,
        results: &[u32],
        matches: impl Fn(&Record<'_>) -> bool,
    ) -> bool {
        let mut numbers = (0..128).filter(|operation| operations & single(*operation) != 0);
        numbers.any(|operation| {
            let mut both = results
                .iter()
                .flat_map(|result| ACCESSES.iter().map(move |requested| (*result, *requested)));
            both.any(|(result, (requested, granted))| {
                let record = Record {
                    operation,
                    result,
                    requested: Some(requested),
                    granted,
                    ..self.record()
                };
                self.other_conditions.iter().all(|condition| condition.holds(&record))
                    && matches(&record)
            })
        })
    }
}

fn find_value<T: Clone>(
    all: &[&Condition],
    field: Subject,
    values: &[T],
    set: impl for<'a> Fn(&'a T, &mut Record<'a>),
) -> Option<T> {
    let fits = |value: &&T| {
        let mut record = Record::default();
        set(value, &mut record);
        all.iter()
            .filter(|condition| subject(condition) == field)
            .all(|condition| condition.holds(&record))
    };
    values.iter().find(fits).cloned()
}

const UNUSUAL: u32 = 3_999_999_979;
fn results<'r>(rules: impl Iterator<Item = &'r Rule>) -> Vec<u32> {
    let mut exits: Vec<i64> = vec![0, -1, -13, -122];
    for condition in rules.flat_map(|rule| &rule.conditions) {
        if let Condition::Exit(_, exit) = condition {
            exits.extend([*exit, exit.saturating_add(1), exit.saturating_sub(1)]);
        }
    }
    exits.sort_unstable();
    exits.dedup();
    let status = |exit: &i64| (0..=STATUS_MAX).find(|status| -i64::from(errno(*status)) == *exit);
    exits.iter().filter_map(status).collect()
}

const STATUS_MAX: u32 = 10_100;

fn sample_addresses(address: IpAddr, bits: u8) -> [IpAddr; EDGES] {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
            let first = u32::from(address) & !host;
            [first, first | (host / 2 + u32::from(host > 0)), first | host]
                .map(|number| Ipv4Addr::from(number).into())
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
            let first = u128::from(address) & !host;
            [first, first | (host / 2 + u128::from(host > 0)), first | host]
                .map(|number| Ipv6Addr::from(number).into())
        }
    }
}

/// Requested and granted access: one pair for each case that rules distinguish.
const ACCESSES: [(u32, Option<u32>); 9] = [
    (0, None),
    (access::READ, None),
    (access::MODIFY | access::EXTEND | access::TRUNCATE, None),
    (access::MODIFY | access::EXTEND, None),
    (access::READ | access::CREATE, None),
    (access::READ | access::TRUNCATE, None),
    (access::EXECUTE, None),
    (access::READ | access::MODIFY | access::UNOPENED, None),
    (access::READ | access::LOOKUP, Some(0)),
];

#[cfg(test)]
mod tests {
    use super::super::tests::rules;

    #[test]
    fn only_smaller_rule_sets_audit_less() {
        let less = |after: &str, before: &str| rules(after).audits_less_than(&rules(before));
        let everything = "-a always,exit\n";
        for (after, before) in [
            (
                everything,
                "-w /srv/a -p wa\n-w /srv/b -p rwxa -k b\n-a always,exit -S READ -F uid>=1000\n",
            ),
            ("-w /srv -p rwxa -k x\n", "-w /srv/a -p r\n-w /srv/b -p wa\n-w /srv -p x\n"),
            ("-a always,exit -S OPEN,READ\n", "-a always,exit -S READ\n-a always,exit -S OPEN\n"),
            ("-a always,exit -F uid>=500\n", "-a always,exit -F uid>=1000\n"),
            ("-a always,exit\n-a never,exit -F uid=0\n", everything),
            (
                "-a never,exit -F uid=0\n-a always,exit\n",
                "-a never,exit -F uid=0\n-a always,exit\n-w /srv -p r\n",
            ),
            (everything, ""),
            (
                "-a always,exit -F client=192.0.2.0/24\n",
                "-a always,exit -F client=192.0.2.128/25\n",
            ),
            ("-a always,exit -F exit!=0\n", "-a always,exit -F exit=-ELOOP\n"),
        ] {
            assert!(!less(after, before), "{after:?} after {before:?}");
        }
        for (after, before) in [
            ("", everything),
            ("-w /srv/a -p wa\n", "-w /srv/a -p rwa\n"),
            ("-w /srv/a -p wa\n-w /srv/b -p wa\n-w /srv/c -p wa\n", "-w /srv -p wa\n"),
            ("-a never,exit -F path=/srv/quiet\n-a always,exit\n", everything),
            ("-a never,exit -F principal=backup@*\n-w /srv -p wa\n", "-w /srv -p wa\n"),
            ("-a always,exit -F uid>=1000\n", "-a always,exit -F uid>=500\n"),
            ("-a always,exit -F uid>=1000\n", everything),
            ("-a always,exit -F uid!=1005\n", everything),
            ("-a always,exit -F client!=192.0.2.0/24\n", everything),
            ("-a always,exit -F principal!=backup@*\n", "-w /srv -p wa\n-a always,exit -S OPEN\n"),
            ("-a always,exit -F success=0\n", everything),
            ("-a always,exit -S WRITE\n", "-a always,exit -S WRITE,READ\n"),
            ("-a always,exit -F client=192.0.2.0/24\n", everything),
            ("-a always,exit -F flavour=sys\n", everything),
            (
                "-a never,exit -F client=192.0.2.255\n-a always,exit -F client=192.0.2.0/24\n",
                "-a always,exit -F client=192.0.2.0/24\n",
            ),
            ("-a always,exit -F client=192.0.2.0/25\n", "-a always,exit -F client=192.0.2.0/24\n"),
            (
                "-a never,exit -F client=192.0.2.64/26\n-a always,exit -F client=192.0.2.0/24\n",
                "-a always,exit -F client=192.0.2.0/24\n",
            ),
            (
                "-a always,exit -F client=2001:db8::/64\n",
                "-a always,exit -F client=2001:db8::/32\n",
            ),
            ("", "-a always,exit -F exit=-ELOOP\n"),
            ("-a always,exit -F exit!=-EMLINK\n", everything),
            ("-a always,exit -F exit>-122\n", everything),
            ("-a never,exit -F client=192.0.2.0/24\n", ""),
        ] {
            assert!(less(after, before), "{after:?} after {before:?}");
        }
    }
}
