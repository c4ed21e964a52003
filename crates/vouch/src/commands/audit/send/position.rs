//! How far a trail was sent, in a file of one line: segment, offset, the next sequence number, and which trail that is of.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use vouch_audit::trail::Place;

use super::place::{self, Unreadable};
use crate::exit::{At as _, Failure, Outcome};

/// What the file says; the trail's beginning if there is none. `trail`: its id, if it is known yet; another trail's place is refused, since its records would be passed over.
pub(super) fn read(path: &Path, trail: Option<&str>) -> Outcome<Place> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::default()),
        other => other.at(path.display())?,
    };
    place::parse(&text, trail).map_err(|fault| match fault {
        Unreadable::OfAnother => Failure::input(path.display(), "is the position of another trail")
            .cure("give each trail a file of its own, or remove it to send all"),
        Unreadable::Nothing => Failure::input(path.display(), "holds no position").cure("remove it to send all again"),
    })
}

/// Puts a place into it. A crash leaves the old one or the new one.
pub(super) fn write(path: &Path, place: Place, trail: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = std::fs::File::create(&new)?;
    file.write_all(place::text(place, trail).as_bytes())?;
    file.sync_data()?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_of_another_trail_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("position");
        assert_eq!(read(&path, Some("aa")).unwrap(), Place::default());
        let place = Place { segment: 3, offset: 40, next_seq: 500 };
        write(&path, place, "aa").unwrap();
        assert_eq!((read(&path, Some("aa")).unwrap(), read(&path, None).unwrap()), (place, place));
        assert!(read(&path, Some("bb")).is_err());
        // As an earlier version wrote it.
        std::fs::write(&path, "3 40 500\n").unwrap();
        assert_eq!(read(&path, Some("aa")).unwrap(), place);
        for text in ["", "3 40", "3 40 x aa", "3 40 500 aa more"] {
            std::fs::write(&path, text).unwrap();
            assert!(read(&path, Some("aa")).is_err(), "{text:?}");
        }
    }
}
