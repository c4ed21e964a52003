//! Rules under their most selective keys. The caller evaluates the candidates.

mod patterns;
mod range_tree;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use foldhash::{HashMap, HashMapExt as _};

use super::Rule;
use super::condition::{Compare, Condition, Name, Side, UNSET, moves_names};
use crate::operations::{errno, single};
use crate::{Class, Flavour, Record};
use patterns::{PatternPart, Patterns, parts};
use range_tree::RangeTree;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Operation,
    Refusal,
}

/// Lists hold ascending rule numbers.
#[derive(Debug)]
pub(super) struct Index {
    paths: HashMap<Box<[u8]>, Vec<u32>>,
    parent_directories: HashMap<Box<[u8]>, Vec<u32>>,
    principals: Patterns,
    clients: Patterns,
    exports: HashMap<Box<[u8]>, Vec<u32>>,
    numbers: [RangeTree<i64>; NUMBERS],
    networks: RangeTree<u128>,
    flavours: [Vec<u32>; Flavour::ALL.len()],
    permissions: [Vec<u32>; 16],
    /// Rules without a key, by operation (or refusal) and by success.
    unkeyed: Vec<Vec<u32>>,
}

macro_rules! numbers {
    ($($name:ident: $value:expr,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        enum Number {
            $($name,)*
        }

        const NUMBERS: usize = [$(Number::$name),*].len();

        impl Number {
            const ALL: [Number; NUMBERS] = [$(Number::$name),*];

            #[inline]
            fn values(record: &Record<'_>) -> [Option<i64>; NUMBERS] {
                [$($value(record)),*]
            }
        }
    };
}

numbers! {
    Uid: |record: &Record<'_>| id(record.uid),
    Login: |record: &Record<'_>| id(record.auid()),
    Gid: |record: &Record<'_>| id(record.gid),
    Exit: exit,
}

fn id(id: Option<u32>) -> Option<i64> {
    Some(i64::from(id.unwrap_or(UNSET)))
}

fn exit(record: &Record<'_>) -> Option<i64> {
    (record.class != Class::Refusal).then(|| -i64::from(errno(record.status())))
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Path(Box<[u8]>),
    Principal(PatternPart, Box<[u8]>),
    Client(PatternPart, Box<[u8]>),
    Export(Box<[u8]>),
    Number(Number, i64, Option<i64>),
    Network(u128, Option<u128>),
    Flavour(Flavour),
    Permissions(u8),
}

impl Key {
    fn all(rule: &Rule) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut spans: [Option<(i64, Option<i64>)>; NUMBERS] = Default::default();
        let mut narrow = |field: Number, compare, number: i64| {
            let both = &mut spans[field as usize];
            let narrower = span(compare, number).map(|(from, end)| match *both {
                Some((a, b)) => (a.max(from), [b, end].into_iter().flatten().min()),
                None => (from, end),
            });
            *both = narrower.or(*both);
        };
        for condition in &rule.conditions {
            match condition {
                Condition::Path(path) | Condition::Dir(path) => keys.push(Key::Path(path.clone())),
                Condition::Principal(true, pattern) => keys
                    .extend(parts(pattern).map(|(part, text)| Key::Principal(part, text.into()))),
                Condition::Client(true, pattern) => {
                    keys.extend(
                        parts(&pattern.to_ascii_lowercase())
                            .map(|(part, text)| Key::Client(part, text.into())),
                    );
                }
                Condition::Export(true, path) => keys.push(Key::Export(path.clone())),
                Condition::Network(true, address, bits) => {
                    let (from, end) = network(*address, *bits);
                    keys.push(Key::Network(from, end));
                }
                Condition::Flavour(true, flavour) => keys.push(Key::Flavour(*flavour)),
                Condition::Perm(bits) => keys.push(Key::Permissions(*bits)),
                Condition::Uid(compare, id) => narrow(Number::Uid, *compare, (*id).into()),
                Condition::Login(compare, id) => narrow(Number::Login, *compare, (*id).into()),
                Condition::Gid(compare, id) => narrow(Number::Gid, *compare, (*id).into()),
                Condition::Exit(compare, exit) => narrow(Number::Exit, *compare, *exit),
                // These select too many records.
                Condition::Principal(false, _)
                | Condition::Client(false, _)
                | Condition::Export(false, _)
                | Condition::Network(false, ..)
                | Condition::Flavour(false, _)
                | Condition::Success(_)
                | Condition::Requested(_)
                | Condition::Mode(_) => {}
            }
        }
        for (field, both) in Number::ALL.iter().zip(spans) {
            keys.extend(both.map(|(from, end)| Key::Number(*field, from, end)));
        }
        keys
    }

    fn group(&self) -> Key {
        match self {
            Key::Number(field, ..) if self.is_range() => Key::Number(*field, i64::MIN, None),
            key => key.clone(),
        }
    }

    fn is_range(&self) -> bool {
        matches!(self, Key::Number(_, from, end) if from.checked_add(1) != *end)
    }

    fn weight(&self) -> usize {
        match self {
            Key::Principal(part, _) | Key::Client(part, _) if *part != PatternPart::Whole => 2,
            Key::Number(..) if self.is_range() => 4,
            Key::Flavour(_) | Key::Permissions(_) => 64,
            _ => 1,
        }
    }
}

impl Index {
    pub(super) fn of(rules: &[Rule]) -> Index {
        let keys: Vec<Vec<Key>> = rules.iter().map(Key::all).collect();
        let mut groups: HashMap<Key, usize> = HashMap::new();
        keys.iter().flatten().for_each(|key| *groups.entry(key.group()).or_default() += 1);
        let (mut numbers, mut networks) = ([const { Vec::new() }; NUMBERS], Vec::new());
        let mut index = Index {
            paths: HashMap::new(),
            parent_directories: HashMap::new(),
            principals: Patterns::default(),
            clients: Patterns::default(),
            exports: HashMap::new(),
            numbers: std::array::from_fn(|_| RangeTree::new(&[])),
            networks: RangeTree::new(&[]),
            flavours: Default::default(),
            permissions: Default::default(),
            unkeyed: vec![Vec::new(); 2 * (usize::from(REFUSAL_SLOT) + 1)],
        };
        for ((rule, keys), number) in rules.iter().zip(keys).zip(0u32..) {
            let least = keys.into_iter().min_by_key(|key| groups[&key.group()] * key.weight());
            match least {
                Some(Key::Path(path)) => {
                    add(&mut index.paths, &path, number);
                    if rule.always {
                        super::parent_directories(&path).for_each(|directory| {
                            add(&mut index.parent_directories, directory, number)
                        });
                    }
                }
                Some(Key::Principal(part, text)) => index.principals.add(part, &text, number),
                Some(Key::Client(part, text)) => index.clients.add(part, &text, number),
                Some(Key::Export(path)) => add(&mut index.exports, &path, number),
                Some(Key::Number(field, from, end)) => {
                    numbers[field as usize].push((from, end, number))
                }
                Some(Key::Network(from, end)) => networks.push((from, end, number)),
                Some(Key::Flavour(flavour)) => index.flavours[flavour as usize].push(number),
                Some(Key::Permissions(bits)) => index.permissions[usize::from(bits)].push(number),
                None => index.add_unkeyed(rule, number),
            }
        }
        index.numbers = numbers.map(|spans| RangeTree::new(&spans));
        index.networks = RangeTree::new(&networks);
        index
    }

    fn add_unkeyed(&mut self, rule: &Rule, number: u32) {
        let operations =
            (0..REFUSAL_SLOT).filter(|operation| rule.operations & single(*operation) != 0);
        for of in operations.chain((!rule.names_operations).then_some(REFUSAL_SLOT)) {
            for is_success in [false, true] {
                if !rule.conditions.contains(&Condition::Success(!is_success)) {
                    self.unkeyed[unkeyed_slot(of, is_success)].push(number);
                }
            }
        }
    }

    /// Costs one look-up per parent directory and pattern length, and O(log n) for numbers.
    pub(super) fn each_candidate<'s, 'r: 's>(
        &self,
        record: &Record<'r>,
        lookup: Lookup,
        sides: impl Fn() -> &'s (Side<'r>, Option<Side<'r>>),
        mut consider: impl FnMut(&[u32]),
    ) {
        let of = if lookup == Lookup::Refusal { REFUSAL_SLOT } else { record.operation };
        let is_success = record.status() == 0 && record.class != Class::Refusal;
        if let Some(numbers) = self
            .unkeyed
            .get(unkeyed_slot(of, is_success))
            .filter(|_| lookup == Lookup::Refusal || of < REFUSAL_SLOT)
        {
            consider(numbers);
        }
        if !self.paths.is_empty() {
            self.by_paths(record, sides(), &mut consider);
        }
        if !self.principals.is_empty() {
            self.principals.of(record.principal, &mut consider);
        }
        if !self.clients.is_empty() {
            self.clients.of(&record.client.to_ascii_lowercase(), &mut consider);
        }
        if !self.exports.is_empty()
            && let Some(numbers) = self.exports.get(record.export)
        {
            consider(numbers);
        }
        for (spans, value) in self.numbers.iter().zip(Number::values(record)) {
            if let Some(value) = value.filter(|_| !spans.is_empty()) {
                spans.holding(value, &mut consider);
            }
        }
        if let Some(address) = record.address.filter(|_| !self.networks.is_empty()) {
            self.networks.holding(network(address, u8::MAX).0, &mut consider);
        }
        consider(&self.flavours[record.flavour as usize]);
        if self.permissions.iter().any(|numbers| !numbers.is_empty()) {
            let (first, second) = sides();
            let done =
                usize::from(first.permissions | second.map_or(0, |second| second.permissions));
            self.permissions
                .iter()
                .enumerate()
                .filter(|(bits, _)| bits & done != 0)
                .for_each(|(_, numbers)| consider(numbers));
        }
    }

    fn by_paths(
        &self,
        record: &Record<'_>,
        (first, second): &(Side<'_>, Option<Side<'_>>),
        consider: &mut impl FnMut(&[u32]),
    ) {
        let moves = moves_names(record);
        for name in first.names.into_iter().chain(second.iter().flat_map(|side| side.names)) {
            let path = match name {
                Name::Known(path) => path,
                Name::None => continue,
                Name::Below(..) => {
                    self.paths.values().for_each(|numbers| consider(numbers));
                    continue;
                }
            };
            let mut end = path.len();
            while end > 0 {
                if let Some(numbers) = self.paths.get(&path[..end]) {
                    consider(numbers);
                }
                end = path[..end].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            }
            if path.starts_with(b"/")
                && let Some(numbers) = self.paths.get(&b"/"[..])
            {
                consider(numbers);
            }
            if moves && let Some(numbers) = self.parent_directories.get(path) {
                consider(numbers);
            }
        }
    }
}

const REFUSAL_SLOT: u16 = 128;

fn unkeyed_slot(of: u16, is_success: bool) -> usize {
    2 * usize::from(of) + usize::from(is_success)
}

fn add(lists: &mut HashMap<Box<[u8]>, Vec<u32>>, text: &[u8], number: u32) {
    lists.entry(text.into()).or_default().push(number);
}

fn span(compare: Compare, number: i64) -> Option<(i64, Option<i64>)> {
    let next = number.checked_add(1);
    match compare {
        Compare::Equal => Some((number, next)),
        Compare::Unequal => None,
        Compare::Less => Some((i64::MIN, Some(number))),
        Compare::LessOrEqual => Some((i64::MIN, next)),
        Compare::Greater => next.map(|next| (next, None)),
        Compare::GreaterOrEqual => Some((number, None)),
    }
}

/// IPv4-mapped (RFC 4291 §2.5.5.2).
fn network(address: IpAddr, bits: u8) -> (u128, Option<u128>) {
    let (number, bits) = match address.to_canonical() {
        IpAddr::V4(address) => (u128::from(address.to_ipv6_mapped()), 96 + u32::from(bits.min(32))),
        IpAddr::V6(address) => (u128::from(address), u32::from(bits)),
    };
    let host = u128::MAX.checked_shr(bits).unwrap_or(0);
    (number & !host, (number | host).checked_add(1))
}
