//! How far a trail was sent, in a file of one line: segment, offset and the next sequence number.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use vouch_audit::trail::Place;

use crate::exit::{At as _, Failure, Outcome};

/// What the file says; the trail's beginning if there is none.
pub(super) fn read(path: &Path) -> Outcome<Place> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::default()),
        other => other.at(path.display())?,
    };
    let numbers: Vec<u64> = text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    match numbers[..] {
        [segment, offset, next_seq] => Ok(Place { segment, offset, next_seq }),
        _ => Err(Failure::input(path.display(), "holds no position").cure("remove it to send all again")),
    }
}

/// Puts a place into it. A crash leaves the old one or the new one.
pub(super) fn write(path: &Path, place: Place) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = std::fs::File::create(&new)?;
    writeln!(file, "{} {} {}", place.segment, place.offset, place.next_seq)?;
    file.sync_data()?;
    std::fs::rename(&new, path)
}
