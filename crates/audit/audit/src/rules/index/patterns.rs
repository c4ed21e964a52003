use foldhash::HashMap;

use super::add;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PatternPart {
    Whole,
    Head,
    Tail,
}

pub(super) fn parts(pattern: &[u8]) -> impl Iterator<Item = (PatternPart, &[u8])> {
    let first = pattern.iter().position(|byte| *byte == b'*');
    let last = pattern.iter().rposition(|byte| *byte == b'*');
    let found = match first.zip(last) {
        None => [Some((PatternPart::Whole, pattern)), None],
        Some((first, last)) => [
            Some((PatternPart::Head, &pattern[..first])),
            Some((PatternPart::Tail, &pattern[last + 1..])),
        ],
    };
    found
        .into_iter()
        .flatten()
        .filter(|(part, text)| *part == PatternPart::Whole || !text.is_empty())
}

#[derive(Debug, Default)]
pub(super) struct Patterns {
    whole: HashMap<Box<[u8]>, Vec<u32>>,
    heads: Affixes,
    tails: Affixes,
}

#[derive(Debug, Default)]
struct Affixes {
    lens: Vec<usize>,
    lists: HashMap<Box<[u8]>, Vec<u32>>,
}

impl Affixes {
    fn add(&mut self, text: &[u8], number: u32) {
        if !self.lens.contains(&text.len()) {
            self.lens.push(text.len());
        }
        add(&mut self.lists, text, number);
    }
}

impl Patterns {
    pub(super) fn add(&mut self, part: PatternPart, text: &[u8], number: u32) {
        match part {
            PatternPart::Whole => add(&mut self.whole, text, number),
            PatternPart::Head => self.heads.add(text, number),
            PatternPart::Tail => self.tails.add(text, number),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.heads.lens.is_empty() && self.tails.lens.is_empty()
    }

    /// One look-up per distinct prefix and suffix length.
    pub(super) fn of(&self, name: &[u8], mut each: impl FnMut(&[u32])) {
        let heads =
            self.heads.lens.iter().filter_map(|len| self.heads.lists.get(name.get(..*len)?));
        let tails = self
            .tails
            .lens
            .iter()
            .filter_map(|len| self.tails.lists.get(&name[name.len().checked_sub(*len)?..]));
        self.whole
            .get(name)
            .into_iter()
            .chain(heads)
            .chain(tails)
            .for_each(|numbers| each(numbers));
    }
}
