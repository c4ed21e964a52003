use super::fixture::{BOTH, Fixture, Rule, mode, write};
use crate::{SetAttributes, SetTime, Time};

pub(super) const RULES: &[Rule] = &[
    ("times_are_stored_exactly", times_are_stored_exactly),
    ("changes_update_times", changes_update_times),
    ("new_names_update_times_of_directory", new_names_update_times_of_directory),
];

const OLD: Time = Time { seconds: 1_000_000, nanos: 0 };

fn reset() -> SetAttributes {
    SetAttributes {
        accessed: Some(SetTime::To(OLD)),
        modified: Some(SetTime::To(OLD)),
        ..SetAttributes::default()
    }
}

fn times_are_stored_exactly(fixture: &Fixture) {
    let file = fixture.file(&fixture.root(), "file", b"");
    let (accessed, modified) =
        (Time { seconds: 1_000_000, nanos: 123_456_789 }, Time { seconds: -5, nanos: 999_999_999 });
    let set = SetAttributes {
        accessed: Some(SetTime::To(accessed)),
        modified: Some(SetTime::To(modified)),
        ..SetAttributes::default()
    };
    fixture.set(&file, set);
    let attributes = fixture.attributes(&file);
    assert_eq!(
        (attributes.accessed, attributes.modified),
        (accessed, modified),
        "both times are stored to the nanosecond"
    );
    fixture.set(&file, SetAttributes { accessed: Some(SetTime::Now), ..SetAttributes::default() });
    let attributes = fixture.attributes(&file);
    assert!(attributes.accessed.seconds > 1_600_000_000, "the server's clock");
    assert_eq!(attributes.modified, modified, "the other time stays");
}

fn changes_update_times(fixture: &Fixture) {
    let root = fixture.root();
    let directory = fixture.directory(&root, "directory", 0o755);
    let file = fixture.file(&directory, "file", b"");
    fixture.set(&file, reset());
    fixture.set(&directory, reset());
    let before = fixture.attributes(&file);
    write(&*fixture.open(&file, BOTH), 0, b"x");
    let written = fixture.attributes(&file);
    assert!(
        written.modified > before.modified && written.changed >= before.changed,
        "a write updates mtime and ctime"
    );
    assert_eq!(
        fixture.attributes(&directory).modified,
        before.modified,
        "a write does not update the directory's mtime"
    );
    fixture.set(&file, reset());
    fixture.set(&file, mode(0o600));
    assert_eq!(
        fixture.attributes(&file).modified,
        before.modified,
        "a mode change does not update mtime"
    );
    let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
    fixture.set(&file, set);
    assert!(fixture.attributes(&file).modified > before.modified, "a new size updates mtime");
    assert_eq!(
        fixture.attributes(&file).created,
        before.created,
        "no change updates the creation time"
    );
}

fn new_names_update_times_of_directory(fixture: &Fixture) {
    let directory = fixture.directory(&fixture.root(), "directory", 0o755);
    fixture.set(&directory, reset());
    fixture.file(&directory, "new", b"");
    assert!(
        fixture.attributes(&directory).modified > OLD,
        "a new name updates the directory's mtime"
    );
}
