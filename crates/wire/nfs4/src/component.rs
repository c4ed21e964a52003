//! The wire carries a [`Name`]; a file system takes a validated [`Component`]. Both are bytes, not
//! UTF-8.

use crate::macros::{wire_newtype, wire_struct};
use crate::{Bytes, List, Status, Wire};

pub const NAME_LEN_MAX: usize = 255;
pub(crate) const NAME_WIRE_LEN_MAX: usize = 8192;
/// A Linux path of 4,096 bytes has fewer components.
pub(crate) const PATH_COMPONENTS_MAX: usize = 2048;

/// As received (`component4`): any bytes, at most 8,192.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Name<'a>(pub &'a [u8]);

/// Not empty, not `.` or `..`, no `/`, no NUL, at most [`NAME_LEN_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Component<'a>(&'a [u8]);

impl<'a> Name<'a> {
    pub fn component(self) -> Result<Component<'a>, Status> {
        Component::parse(self.0)
    }
}

impl<'a> Component<'a> {
    /// All names pass through this function.
    pub fn parse(name: &'a [u8]) -> Result<Self, Status> {
        match name {
            // §18.13.3 and 18.16.3 of RFC 8881.
            b"" => Err(Status::INVAL),
            // RFC 8881 §14.5.
            b"." | b".." => Err(Status::BADNAME),
            _ if name.len() > NAME_LEN_MAX => Err(Status::NAMETOOLONG),
            _ if name.contains(&b'/') => Err(Status::BADNAME),
            _ if name.contains(&0) => Err(Status::BADCHAR),
            _ => Ok(Self(name)),
        }
    }

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

/// `pathname4`.
pub type Pathname<'a> = List<Name<'a>, PATH_COMPONENTS_MAX>;

wire_struct! {
    pub struct FsLocation<'a> { pub servers: List<Bytes<'a, 1024>, 64>, pub root: Pathname<'a> }

    #[derive(Default)]
    pub struct FsLocations<'a> { pub root: Pathname<'a>, pub locations: List<FsLocation<'a>, 64> }

    pub struct FsLocationsServer<'a> {
        /// Seconds behind the writable copy; negative: unknown.
        pub currency_s: i32,
        /// The bytes of RFC 8881, section 11.17.1.
        pub info: Bytes<'a, 64>,
        pub server: Bytes<'a, 1024>,
    }

    pub struct FsLocationsItem<'a> {
        pub servers: List<FsLocationsServer<'a>, 64>,
        pub root: Pathname<'a>,
    }

    #[derive(Default)]
    pub struct FsLocationsInfo<'a> {
        pub flags: u32,
        pub valid_for_s: i32,
        pub root: Pathname<'a>,
        pub items: List<FsLocationsItem<'a>, 64>,
    }
}

wire_newtype! {
    /// `fs_charset_cap4`.
    pub struct CharsetCap(pub u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_names_that_no_entry_can_have() {
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
    fn accepts_all_other_bytes_in_names() {
        for name in [&b"..."[..], b"\xff\xfe", b"a b", &[b'n'; 255]] {
            assert_eq!(Component::parse(name).map(Component::as_bytes), Ok(name));
        }
    }
}
