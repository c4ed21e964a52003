//! Checks of decoders for arbitrary bytes, for the fuzz targets.

use crate::send::place;

/// The position of a collector round-trips, and another key's is refused.
pub fn send_place(text: &str) {
    if let Ok(known) = place::parse(text, None) {
        assert_eq!(place::parse(&place::text(known, "aa"), Some("aa")), Ok(known));
        assert_eq!(
            place::parse(&place::text(known, "aa"), Some("bb")),
            Err(place::Unreadable::OfAnother)
        );
    }
}
