use std::fmt;

pub const NAME_LEN_MAX: usize = 255;

/// 1 to [`NAME_LEN_MAX`] bytes, not `.` or `..`, without `/` and NUL. Need not be UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let plain =
            !bytes.is_empty() && bytes.len() <= NAME_LEN_MAX && bytes != b"." && bytes != b"..";
        (plain && !bytes.iter().any(|&byte| byte == b'/' || byte == 0)).then_some(Name(bytes))
    }

    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_names_are_invalid() {
        for bytes in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", &[b'a'; NAME_LEN_MAX + 1]] {
            assert!(Name::new(bytes).is_none(), "{bytes:?}");
        }
        for bytes in [&b"..."[..], b".a", b"\xff\xfe", &[b'a'; NAME_LEN_MAX]] {
            assert!(Name::new(bytes).is_some(), "{bytes:?}");
        }
    }
}
