//! Text form of the position reached.

use vouch_audit::trail::{ChainTag, Position};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    OfAnother,
    Nothing,
}

pub(crate) type Sent = (Position, Option<ChainTag>);

pub(crate) fn parse(text: &str, trail: Option<&str>) -> Result<Sent, Unreadable> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let numbers: Vec<u64> = words.iter().take(3).map_while(|word| word.parse().ok()).collect();
    let tag = words.get(4).map(|word| {
        u64::from_str_radix(word, 16).ok().filter(|_| word.len() == 16).map(u64::to_be_bytes)
    });
    match (&numbers[..], words.get(3), words.len()) {
        (_, Some(of), 4 | 5) if trail.is_some_and(|trail| trail != *of) => {
            Err(Unreadable::OfAnother)
        }
        // Earlier versions wrote no trail id.
        ([segment, offset, next_seq], _, 3..=5) if tag != Some(None) => Ok((
            Position { segment: *segment, offset: *offset, next_seq: *next_seq },
            tag.flatten(),
        )),
        _ => Err(Unreadable::Nothing),
    }
}

pub(crate) fn text((place, tag): Sent, trail: &str) -> String {
    let tag = tag.map_or_else(String::new, |tag| format!(" {:016x}", u64::from_be_bytes(tag)));
    format!("{} {} {} {trail}{tag}\n", place.segment, place.offset, place.next_seq)
}
