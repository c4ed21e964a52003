//! Access asked for or granted, in the bits of NFS ACCESS (RFC 8881, section 18.1), and two more.

/// Read data, or list a directory.
pub const READ: u32 = 0x01;
/// Look a name up.
pub const LOOKUP: u32 = 0x02;
/// Change data or entries.
pub const MODIFY: u32 = 0x04;
/// Write beyond the end, or add entries.
pub const EXTEND: u32 = 0x08;
/// Delete entries.
pub const DELETE: u32 = 0x10;
/// Execute.
pub const EXECUTE: u32 = 0x20;
/// What a file is used by without a change to it.
pub const USE: u32 = READ | LOOKUP | EXECUTE;
/// An open that may make the file.
pub const CREATE: u32 = 0x1000;
/// An open that empties the file.
pub const TRUNCATE: u32 = 0x2000;
/// A use of a file by no open of the caller's own that was told: by a special stateid, by
/// another's, or by a delegation that has not been used so since.
pub const UNOPENED: u32 = 0x4000;
/// Attributes that are set: the mode.
pub const MODE: u32 = 0x01_0000;
/// The owner, or the group.
pub const OWNER: u32 = 0x02_0000;
/// An ACL.
pub const ACL: u32 = 0x04_0000;
/// Times.
pub const TIMES: u32 = 0x08_0000;
/// Other attributes.
pub const OTHER: u32 = 0x10_0000;
/// What CREATE makes, by NFSv4's number of its type (RFC 8881, section 5.8.1.2), in the highest
/// four bits.
pub const TYPE_SHIFT: u32 = 28;

/// Whether nothing is set or made.
pub fn sets_nothing(asked: u32) -> bool {
    asked & (TRUNCATE | MODE | OWNER | ACL | TIMES | OTHER | 0xf << TYPE_SHIFT) == 0
}

/// What is set or made, in words; empty if nothing is. The mode, and user and group, that are set,
/// where they are known.
pub fn sets(asked: u32, new_mode: Option<u32>, (uid, gid): (Option<u32>, Option<u32>)) -> String {
    if sets_nothing(asked) {
        return String::new();
    }
    let made = match asked >> TYPE_SHIFT {
        2 => "makes a directory",
        3 => "makes a block device",
        4 => "makes a character device",
        5 => "makes a symbolic link",
        6 => "makes a socket",
        7 => "makes a FIFO",
        _ => "",
    };
    let all = [(TRUNCATE, "size"), (MODE, "mode"), (OWNER, "owner"), (ACL, "ACL"), (TIMES, "times"), (OTHER, "others")];
    let told = |(bit, name): &(u32, &str)| match (*bit, new_mode) {
        (MODE, Some(mode)) => format!("{name} {mode:04o}"),
        (OWNER, _) => {
            let id = |kind: &str, id: Option<u32>| id.map_or_else(String::new, |id| format!(" {kind} {id}"));
            [(*name).to_owned(), id("uid", uid), id("gid", gid)].concat()
        }
        _ => (*name).to_owned(),
    };
    let set: Vec<String> = all.iter().filter(|(bit, _)| asked & bit != 0).map(told).collect();
    match (made, &set[..]) {
        ("", []) => String::new(),
        ("", set) => format!("sets {}", set.join(", ")),
        (made, _) => made.into(),
    }
}
