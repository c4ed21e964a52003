//! Real peers for tests. Each one has its own directory and free ports, and ends when it is dropped.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

pub mod cephfs_cluster;
pub mod kdc;
pub mod kill_on_drop;
pub mod kubernetes;
pub mod ldap;
pub mod memcheck;
pub mod moving_address;

/// The suite of Debian whose programs tests use instead of this machine's.
pub fn peers_suite() -> Option<String> {
    std::env::var("VOUCH_PEERS_SUITE").ok()
}

/// A root file system of `script/install-needs`, of [`peers_suite`].
pub fn peers_root(name: &str) -> String {
    peers_suite()
        .map_or_else(|| format!("/opt/vouch-{name}"), |suite| format!("/opt/vouch-{name}-{suite}"))
}

/// The indented block of a page that has this text, without its indentation.
pub fn documented_block(page: &str, part: &str) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let blocks = lines.split(|line| !line.starts_with("    "));
    let mut texts = blocks.map(|block| {
        block
            .iter()
            .map(|line| format!("{}\n", line.trim_start_matches("    ")))
            .collect::<String>()
    });
    texts
        .find(|text| text.contains(part))
        .unwrap_or_else(|| panic!("no block of the page has `{part}`"))
}

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
