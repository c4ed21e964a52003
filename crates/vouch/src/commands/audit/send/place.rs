//! The line that says how far a trail was sent. Knows no file.

use vouch_audit::trail::Place;

/// Why a text tells no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is another trail's.
    OfAnother,
    /// It is none.
    Nothing,
}

pub(super) fn parse(text: &str, trail: Option<&str>) -> Result<Place, Unreadable> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let numbers: Vec<u64> = words.iter().take(3).map_while(|word| word.parse().ok()).collect();
    match (&numbers[..], words.get(3), words.len()) {
        (_, Some(of), 4) if trail.is_some_and(|trail| trail != *of) => Err(Unreadable::OfAnother),
        // Without the trail's id, an earlier version has written it.
        ([segment, offset, next_seq], _, 3 | 4) => Ok(Place { segment: *segment, offset: *offset, next_seq: *next_seq }),
        _ => Err(Unreadable::Nothing),
    }
}

pub(super) fn text(place: Place, trail: &str) -> String {
    format!("{} {} {} {trail}\n", place.segment, place.offset, place.next_seq)
}
