//! Names of directory entries. What the wire carries is a [`Name`]; what a file system is asked for
//! is a [`Component`], which has been judged once and for all. Names are bytes: clients send
//! whatever their users type, so UTF-8 is not asked for.

use crate::macros::{wire_newtype, wire_struct};
use crate::{Bytes, List, Status, Wire};

/// Longest name of a directory entry.
pub const NAME_LEN_MAX: usize = 255;
/// Longest name that is read from the wire at all; between this and [`NAME_LEN_MAX`] the answer is
/// NAMETOOLONG, beyond it BADXDR.
pub const NAME_WIRE_LEN_MAX: usize = 8192;
/// Most components of a path in `fs_locations`: more than any path of a Linux system can have in
/// its 4,096 bytes.
pub const PATH_COMPONENTS_MAX: usize = 2048;

/// A name as it came (`component4`): any bytes, at most [`NAME_WIRE_LEN_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Name<'a>(pub &'a [u8]);

/// A name that a directory entry can have: not empty, not `.` or `..`, no `/`, no NUL, at most
/// [`NAME_LEN_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Component<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// The name if a directory entry can have it, or the status that says why not.
    pub fn component(self) -> Result<Component<'a>, Status> {
        Component::parse(self.0)
    }
}

impl<'a> Component<'a> {
    /// The one place where names are judged.
    pub fn parse(name: &'a [u8]) -> Result<Self, Status> {
        match name {
            // RFC 8881, sections 18.13.3 and 18.16.3: a name of no length is INVAL.
            b"" => Err(Status::INVAL),
            // RFC 8881, section 14.5: names that the server can't take are BADNAME.
            b"." | b".." => Err(Status::BADNAME),
            _ if name.len() > NAME_LEN_MAX => Err(Status::NAMETOOLONG),
            _ if name.contains(&b'/') => Err(Status::BADNAME),
            _ if name.contains(&0) => Err(Status::BADCHAR),
            _ => Ok(Self(name)),
        }
    }

    /// Its bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> From<Component<'a>> for Name<'a> {
    fn from(component: Component<'a>) -> Self {
        Self(component.0)
    }
}

impl<'a> Wire<'a> for Name<'a> {
    fn decode(r: &mut vouch_xdr::Reader<'a>) -> Result<Self, vouch_xdr::Error> {
        r.opaque(NAME_WIRE_LEN_MAX).map(Self)
    }

    fn encode(&self, w: &mut vouch_xdr::Writer) {
        w.opaque(self.0);
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        Self(s.bytes(NAME_LEN_MAX))
    }
}

/// A path, component by component (`pathname4`).
pub type Pathname<'a> = List<Name<'a>, PATH_COMPONENTS_MAX>;

wire_struct! {
    /// Where a file system also is (`fs_location4`).
    pub struct FsLocation<'a> {
        /// Servers, by name or address.
        pub servers: List<Bytes<'a, 1024>, 64>,
        /// Its root there.
        pub root: Pathname<'a>,
    }
}

wire_struct! {
    /// Where a file system is (`fs_locations4`).
    #[derive(Default)]
    pub struct FsLocations<'a> {
        /// Its root here.
        pub root: Pathname<'a>,
        /// Its other places.
        pub locations: List<FsLocation<'a>, 64>,
    }
}

wire_newtype! {
    /// Which character sets names may have (`fs_charset_cap4`).
    pub struct CharsetCap(pub u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_entry_can_have_are_refused() {
        let long = [b'n'; 256];
        for (name, status) in [
            (&b""[..], Status::INVAL),
            (b".", Status::BADNAME),
            (b"..", Status::BADNAME),
            (b"a/b", Status::BADNAME),
            (b"/", Status::BADNAME),
            (b"a\0", Status::BADCHAR),
            (&long, Status::NAMETOOLONG),
        ] {
            assert_eq!(Component::parse(name), Err(status), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn all_other_bytes_are_names() {
        for name in [&b"..."[..], b"\xff\xfe", b"a b", &[b'n'; 255]] {
            assert_eq!(Component::parse(name).map(Component::as_bytes), Ok(name));
        }
    }
}
