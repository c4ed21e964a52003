//! Where snapshots are: a path in which a component with `*` stands for their names.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotPattern {
    /// Its entries are snapshots. A relative path is below the export's root.
    directory: PathBuf,
    prefix: String,
    suffix: String,
    /// The exported directory within a snapshot.
    below: PathBuf,
}

impl SnapshotPattern {
    /// `DIR` is short for `DIR/*`. `None`: no path, `..` in it, or more than one `*`.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> =
            text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if text.is_empty() || text.contains('\0') || parts.contains(&"..") {
            return None;
        }
        let at = parts.iter().position(|part| part.contains('*')).unwrap_or(parts.len());
        let (prefix, suffix) = parts.get(at).map_or(Some(("", "")), |part| part.split_once('*'))?;
        let below: PathBuf = parts.iter().skip(at + 1).collect();
        let has_more = suffix.contains('*') || below.to_string_lossy().contains('*');
        let top = Path::new(if text.starts_with('/') { "/" } else { "." });
        let directory = top.join(parts[..at].iter().collect::<PathBuf>());
        let (prefix, suffix) = (prefix.to_owned(), suffix.to_owned());
        (!has_more).then_some(SnapshotPattern { directory, prefix, suffix, below })
    }

    /// In the form that [`Self::parse`] takes.
    pub fn text(&self) -> String {
        self.directory
            .join(format!("{}*{}", self.prefix, self.suffix))
            .join(&self.below)
            .to_string_lossy()
            .trim_end_matches('/')
            .to_owned()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn below(&self) -> &Path {
        &self.below
    }

    pub(super) fn matches(&self, name: &[u8]) -> bool {
        let rest = name.strip_prefix(self.prefix.as_bytes());
        rest.is_some_and(|rest| rest.ends_with(self.suffix.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_stands_for_the_names_of_snapshots() {
        let parsed = |text| SnapshotPattern::parse(text).expect("a pattern");
        assert_eq!(parsed("/snaps"), parsed("/snaps/*"));
        assert_eq!(parsed(".snap/").directory(), Path::new("./.snap"));
        assert_eq!(parsed("*").directory(), Path::new("."));
        let snapper = parsed("/home/.snapshots/*/snapshot");
        assert_eq!(
            (snapper.directory(), snapper.below()),
            (Path::new("/home/.snapshots"), Path::new("snapshot"))
        );
        let named = parsed("/snaps/home-*.ro");
        assert!(named.matches(b"home-1.ro") && named.matches(b"home-.ro"));
        assert!(
            !named.matches(b"home-1") && !named.matches(b"var-1.ro") && !named.matches(b"home-")
        );
        for wrong in ["", "/a/../b", "/a/*/*", "/a/*x*", "/*/b*", "a\0"] {
            assert!(SnapshotPattern::parse(wrong).is_none(), "{wrong:?}");
        }
    }
}
