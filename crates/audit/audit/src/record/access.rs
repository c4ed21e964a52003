//! Access bits: those of NFS ACCESS (RFC 8881 §18.1) and a few more.

/// Read data or list a directory.
pub const READ: u32 = 0x01;
/// Look up names in a directory.
pub const LOOKUP: u32 = 0x02;
/// Change data or entries.
pub const MODIFY: u32 = 0x04;
/// Write beyond the end, or add entries.
pub const EXTEND: u32 = 0x08;
/// Remove names.
pub const DELETE: u32 = 0x10;
/// Execute a file.
pub const EXECUTE: u32 = 0x20;
pub(crate) const USE: u32 = READ | LOOKUP | EXECUTE;
/// The open may create the file.
pub const CREATE: u32 = 0x1000;
/// The open or SETATTR sets the size.
pub const TRUNCATE: u32 = 0x2000;
/// I/O without a recorded open by the caller: by a special or foreign stateid, or first use of a
/// delegation.
pub const UNOPENED: u32 = 0x4000;
/// SETATTR of the mode.
pub const MODE: u32 = 0x01_0000;
/// SETATTR of owner or group.
pub const OWNER: u32 = 0x02_0000;
/// SETATTR of the ACL.
pub const ACL: u32 = 0x04_0000;
/// SETATTR of times.
pub const TIMES: u32 = 0x08_0000;
/// SETATTR of other attributes.
pub const OTHER: u32 = 0x10_0000;
/// The highest four bits hold the file type that CREATE makes (RFC 8881 §5.8.1.2).
pub const TYPE_SHIFT: u32 = 28;

const WORDS: [(u32, &str); 15] = [
    (READ, "read"),
    (LOOKUP, "lookup"),
    (MODIFY, "write"),
    (EXTEND, "append"),
    (DELETE, "delete"),
    (EXECUTE, "execute"),
    (CREATE, "create"),
    (TRUNCATE, "truncate"),
    (UNOPENED, "unopened"),
    (MODE, "mode"),
    (OWNER, "owner"),
    (ACL, "acl"),
    (TIMES, "times"),
    (OTHER, "other"),
    (0xf << TYPE_SHIFT, "new"),
];

/// The bits in words: `read,write,create`. What CREATE makes comes last: `new-directory`.
pub fn words(bits: u32) -> String {
    let made =
        ["", "", "directory", "block-device", "character-device", "symlink", "socket", "fifo"];
    let mut all: Vec<String> = WORDS[..WORDS.len() - 1]
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, word)| (*word).into())
        .collect();
    match bits >> TYPE_SHIFT {
        0 => {}
        kind => all.push(
            made.get(kind as usize)
                .filter(|word| !word.is_empty())
                .map_or_else(|| format!("new-{kind}"), |word| format!("new-{word}")),
        ),
    }
    let known = WORDS.iter().fold(0, |bits, (bit, _)| bits | bit);
    if bits & !known != 0 {
        all.push(format!("{:#x}", bits & !known));
    }
    if all.is_empty() { "none".into() } else { all.join(",") }
}

/// The bits of a list of words; `new` stands for any new object of CREATE.
pub fn parse_words(text: &str) -> Option<u32> {
    text.split(',').try_fold(0, |bits, word| {
        WORDS.iter().find(|(_, known)| *known == word).map(|(bit, _)| bits | bit)
    })
}

/// True if `bits` has all that `wanted` names.
pub(crate) fn includes(bits: u32, wanted: u32) -> bool {
    let kind = 0xf << TYPE_SHIFT;
    bits & wanted & !kind == wanted & !kind && (wanted & kind == 0 || bits & kind != 0)
}

/// True if no bit stands for a change of attributes or a creation.
pub fn changes_nothing(requested: u32) -> bool {
    requested & (TRUNCATE | MODE | OWNER | ACL | TIMES | OTHER | 0xf << TYPE_SHIFT) == 0
}

/// Describes what an operation sets or creates. May be empty.
pub fn describe_changes(
    requested: u32,
    new_mode: Option<u32>,
    (uid, gid): (Option<u32>, Option<u32>),
) -> String {
    if changes_nothing(requested) {
        return String::new();
    }
    let created = match requested >> TYPE_SHIFT {
        2 => "makes a directory",
        3 => "makes a block device",
        4 => "makes a character device",
        5 => "makes a symbolic link",
        6 => "makes a socket",
        7 => "makes a FIFO",
        _ => "",
    };
    let all = [
        (TRUNCATE, "size"),
        (MODE, "mode"),
        (OWNER, "owner"),
        (ACL, "ACL"),
        (TIMES, "times"),
        (OTHER, "others"),
    ];
    let describe = |(bit, name): &(u32, &str)| match (*bit, new_mode) {
        (MODE, Some(mode)) => format!("{name} {mode:04o}"),
        (OWNER, _) => {
            let id = |kind: &str, id: Option<u32>| {
                id.map_or_else(String::new, |id| format!(" {kind} {id}"))
            };
            [(*name).to_owned(), id("uid", uid), id("gid", gid)].concat()
        }
        _ => (*name).to_owned(),
    };
    let set: Vec<String> =
        all.iter().filter(|(bit, _)| requested & bit != 0).map(describe).collect();
    match (created, &set[..]) {
        ("", []) => String::new(),
        ("", set) => format!("sets {}", set.join(", ")),
        (created, _) => created.into(),
    }
}
