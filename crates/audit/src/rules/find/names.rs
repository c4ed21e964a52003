//! Which of many patterns a name may be of, by what stands at their beginning or end.

use foldhash::HashMap;

use super::add;

/// The part of a pattern that it is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// It has no `*`.
    Whole,
    /// What stands before the first `*`.
    Head,
    /// What stands behind the last one.
    Tail,
}

/// The parts by which a pattern can be found; none of one that begins and ends with `*`.
pub(super) fn parts(pattern: &[u8]) -> impl Iterator<Item = (Part, &[u8])> {
    let first = pattern.iter().position(|byte| *byte == b'*');
    let last = pattern.iter().rposition(|byte| *byte == b'*');
    let found = match first.zip(last) {
        None => [Some((Part::Whole, pattern)), None],
        Some((first, last)) => [Some((Part::Head, &pattern[..first])), Some((Part::Tail, &pattern[last + 1..]))],
    };
    found.into_iter().flatten().filter(|(part, text)| *part == Part::Whole || !text.is_empty())
}

/// Patterns, each of a rule.
#[derive(Debug, Default)]
pub(super) struct Names {
    whole: HashMap<Box<[u8]>, Vec<u32>>,
    heads: Ends,
    tails: Ends,
}

/// Beginnings, or ends.
#[derive(Debug, Default)]
struct Ends {
    /// How long they are, each length once.
    lens: Vec<usize>,
    lists: HashMap<Box<[u8]>, Vec<u32>>,
}

impl Ends {
    fn add(&mut self, text: &[u8], number: u32) {
        if !self.lens.contains(&text.len()) {
            self.lens.push(text.len());
        }
        add(&mut self.lists, text, number);
    }
}

impl Names {
    pub(super) fn add(&mut self, part: Part, text: &[u8], number: u32) {
        match part {
            Part::Whole => add(&mut self.whole, text, number),
            Part::Head => self.heads.add(text, number),
            Part::Tail => self.tails.add(text, number),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.heads.lens.is_empty() && self.tails.lens.is_empty()
    }

    /// Calls `each` with the rules whose pattern may be the name's. A look-up for each length of a
    /// beginning and of an end.
    pub(super) fn of(&self, name: &[u8], mut each: impl FnMut(&[u32])) {
        let heads = self.heads.lens.iter().filter_map(|len| self.heads.lists.get(name.get(..*len)?));
        let tails = self.tails.lens.iter().filter_map(|len| self.tails.lists.get(&name[name.len().checked_sub(*len)?..]));
        self.whole.get(name).into_iter().chain(heads).chain(tails).for_each(|numbers| each(numbers));
    }
}
