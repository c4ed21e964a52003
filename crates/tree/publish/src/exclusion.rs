//! Names that are left out, by glob patterns.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobSet};

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Exclusion {
    /// For names in all directories: a path costs time by its depth.
    names: GlobSet,
    paths: GlobSet,
}

impl Exclusion {
    /// A pattern with a slash is relative to the directory that is published. Another one is for
    /// names in all directories.
    pub(crate) fn new(patterns: &[String]) -> Result<Self, Error> {
        let (mut names, mut paths) = (GlobSet::builder(), GlobSet::builder());
        for pattern in patterns {
            let bad =
                |why: &dyn std::fmt::Display| Error::Option(format!("--exclude {pattern}: {why}"));
            let path = pattern.trim_end_matches('/');
            let path =
                path.strip_prefix("./").map_or_else(|| path.to_owned(), |path| format!("/{path}"));
            let path = path.as_str();
            if path
                .strip_prefix('/')
                .unwrap_or(path)
                .split('/')
                .any(|part| ["", ".", ".."].contains(&part))
                && !path.is_empty()
            {
                return Err(bad(&"matches no path; write it without empty parts, `.` and `..`"));
            }
            if path.is_empty() {
                return Err(bad(&"names no file below the directory"));
            }
            let set = if path.contains('/') { &mut paths } else { &mut names };
            set.add(
                GlobBuilder::new(path.strip_prefix('/').unwrap_or(path))
                    .literal_separator(true)
                    .build()
                    .map_err(|error| bad(&error.kind()))?,
            );
        }
        let bad = |error| Error::Option(format!("--exclude: {error}"));
        Ok(Self { names: names.build().map_err(bad)?, paths: paths.build().map_err(bad)? })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.needs_paths()
    }

    pub(crate) fn needs_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// `above`: the path of the directory below the one that is published, if paths are needed.
    pub(crate) fn has(&self, above: &[u8], name: &[u8]) -> bool {
        let path = |bytes| Path::new(std::ffi::OsStr::from_bytes(bytes));
        let whole =
            || [above, name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        self.names.is_match(path(name))
            || self.needs_paths() && self.paths.is_match(path(&whole().join(&b'/')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_follow_gitignore() {
        let set = Exclusion::new(
            &["*.tmp", "/build", "docs/*.bak", "cache/", "a/**/z"].map(str::to_owned),
        )
        .unwrap();
        for (above, name, expected) in [
            ("", "x.tmp", true),
            ("a/b", "x.tmp", true),
            ("", "build", true),
            ("a", "build", false),
            ("docs", "x.bak", true),
            ("docs/old", "x.bak", false),
            ("a", "cache", true),
            ("a/b/c", "z", true),
            ("", "x.tmpl", false),
        ] {
            assert_eq!(set.has(above.as_bytes(), name.as_bytes()), expected, "{above}/{name}");
        }
        assert!(
            Exclusion::new(&["/".to_owned()]).is_err()
                && Exclusion::new(&["[".to_owned()]).is_err()
        );
        assert!(Exclusion::new(&["./secret".to_owned()]).unwrap().has(b"", b"secret"));
        for silent in ["d//e", "d/e/../e", "..", "./", "a/./b"] {
            assert!(Exclusion::new(&[silent.to_owned()]).is_err(), "{silent}");
        }
        assert!(Exclusion::new(&[]).unwrap().is_empty());
    }
}
