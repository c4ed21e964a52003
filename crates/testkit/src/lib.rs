//! Real peers for tests. Each one has its own directory and free ports, and ends when it is dropped.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

pub mod cephfs_cluster;
pub mod kdc;
pub mod kill_on_drop;
pub mod ldap;
pub mod moving_address;

/// The words of a line, as arguments of a command.
pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Fails unless the text has all parts, and none of those after the semicolon.
#[macro_export]
macro_rules! assert_contains {
    ($text:expr, $($part:expr),+ $(; $($absent:expr),+)?) => {{
        let text = &$text;
        $(assert!(text.contains($part), "{:?} is missing: {text}", $part);)+
        $($(assert!(!text.contains($absent), "{:?} is there: {text}", $absent);)+)?
    }};
}
