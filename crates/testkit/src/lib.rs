//! Real peers for tests. Each one has its own directory and free ports, and ends when it is dropped.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

pub mod cephfs_cluster;
pub mod kdc;
pub mod kill_on_drop;
pub mod kubernetes;
pub mod ldap;
pub mod memcheck;
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

/// Fails the test without a thing of this machine that it needs.
pub fn require(what: &str, is_there: bool) {
    assert!(is_there, "needs {what}: run script/test as root, which installs it");
}

pub fn require_programs(programs: &[&str]) {
    programs.iter().for_each(|program| require_program(program));
}

pub fn require_program(program: &str) {
    let find = "PATH=$PATH:/usr/sbin:/sbin:/usr/local/bin; command -v \"$0\" >/dev/null";
    let found = std::process::Command::new("sh").args(["-c", find, program]).status();
    require(program, found.is_ok_and(|status| status.success()));
}
