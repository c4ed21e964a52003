//! One line: segment, offset, next sequence number, trail id, tag.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use vouch_audit::trail::{
    CHECKPOINT_FILE, Position, PositionState, position_state, read_checkpoint,
};

use super::place::{self, Sent, Unreadable};
use vouch_daemon::failure::{At as _, Failure, Outcome};

/// Refuses a position of another trail: records would be skipped.
fn read(path: &Path, trail: Option<&str>) -> Outcome<Sent> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Sent::default()),
        other => other.at(path.display())?,
    };
    place::parse(&text, trail).map_err(|fault| match fault {
        Unreadable::OfAnother => Failure::input(path.display(), "is the position of another trail")
            .cure("use one file for each trail, or remove the file to send everything"),
        Unreadable::Nothing => Failure::input(path.display(), "holds no position")
            .cure("remove it to send everything again"),
    })
}

/// Refuses a trail restored from a backup: it lacks records that were sent, and reuses their
/// numbers.
pub(super) fn resume(path: &Path, directory: &Path, trail: Option<&str>) -> Outcome<Position> {
    let (place, tag) = read(path, trail)?;
    if place == Position::default() {
        return Ok(place);
    }
    let why = match position_state(directory, place).at(directory.display())? {
        PositionState::Is(found) if tag.is_some_and(|tag| tag != found) => {
            "differs from the records that were sent"
        }
        PositionState::Beyond => "ends before what was sent",
        // Earlier versions stored no tag; then only the number can tell.
        PositionState::Is(_) if tag.is_none() && is_beyond_seals(directory, place)? => {
            "ends before what was sent"
        }
        PositionState::Is(_) | PositionState::Removed => return Ok(place),
    };
    let fault = format!(
        "{why} (record {}): it was replaced by an older copy",
        place.next_seq.saturating_sub(1)
    );
    let cure = format!(
        "restore the trail that was sent, or remove {} to send all of this one",
        path.display()
    );
    Err(Failure::refused(directory.display(), fault).cure(cure))
}

pub(super) fn is_beyond_seals(directory: &Path, place: Position) -> Outcome<bool> {
    let path = directory.join(CHECKPOINT_FILE);
    match read_checkpoint(&path) {
        Ok(seal) => Ok(place.next_seq > seal.next_seq),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).at(path.display()),
    }
}

/// A crash leaves the old or the new position.
pub(super) fn write(path: &Path, directory: &Path, place: Position, trail: &str) -> io::Result<()> {
    let tag = match position_state(directory, place)? {
        PositionState::Is(tag) => Some(tag),
        PositionState::Removed | PositionState::Beyond => None,
    };
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = std::fs::File::create(&new)?;
    file.write_all(place::text((place, tag), trail).as_bytes())?;
    file.sync_data()?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_of_another_trail_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("position");
        assert_eq!(read(&path, Some("aa")).unwrap(), (Position::default(), None));
        let place = Position { segment: 3, offset: 40, next_seq: 500 };
        for tag in [None, Some([0, 1, 2, 3, 4, 5, 6, 0xff])] {
            std::fs::write(&path, place::text((place, tag), "aa")).unwrap();
            assert_eq!(
                (read(&path, Some("aa")).unwrap(), read(&path, None).unwrap()),
                ((place, tag), (place, tag))
            );
            assert!(read(&path, Some("bb")).is_err());
        }
        std::fs::write(&path, "3 40 500\n").unwrap();
        assert_eq!(read(&path, Some("aa")).unwrap(), (place, None));
        for text in [
            "",
            "3 40",
            "3 40 x aa",
            "3 40 500 aa more",
            "3 40 500 aa 0001",
            "3 40 500 aa 0001020304050607 more",
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(read(&path, Some("aa")).is_err(), "{text:?}");
        }
    }
}
