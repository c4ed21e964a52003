//! Helpers of tests, and real peers. Each peer has its own directory and free ports, and ends when it is
//! dropped.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

use std::io::{self, Read, Write as _};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub mod cephfs_cluster;
pub mod certificates;
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

/// Polls. False if it does not hold within the limit.
pub fn eventually(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

pub fn within(seconds: u64, otherwise: &str, holds: impl FnMut() -> bool) {
    assert!(eventually(Duration::from_secs(seconds), holds), "{otherwise}");
}

pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Runs a command line quietly. True if it succeeds.
pub fn run(line: &str) -> bool {
    let words = words(line);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command with this input.
pub fn output_with(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("the child reads its input");
    drop(stdin);
    child.wait_with_output().expect("the child ends")
}

/// Runs a command that must succeed. Its standard output.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", text_of(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Both outputs of a command.
pub fn text_of(output: &Output) -> String {
    let [out, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{errors}")
}

/// A test of this program, for a child process.
pub fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--include-ignored", "--nocapture"]).stdin(Stdio::null());
    command
}

/// The command in a network namespace.
pub fn in_namespace(namespace: &str, command: &Command) -> Command {
    run_by(&["ip", "netns", "exec", namespace], command)
}

/// The command in a mount namespace, whose mounts reach no other.
pub fn in_own_mounts(command: &Command) -> Command {
    run_by(&["unshare", "--mount", "--propagation", "private"], command)
}

fn run_by(wrapper: &[&str], command: &Command) -> Command {
    let mut wrapped = Command::new(wrapper[0]);
    wrapped.args(&wrapper[1..]).arg(command.get_program()).args(command.get_args());
    wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    wrapped.stdin(Stdio::null());
    wrapped
}

/// An RPC record of one fragment, without its mark.
pub fn read_record(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mut record = vec![0; (u32::from_be_bytes(mark) & (u32::MAX >> 1)) as usize];
    stream.read_exact(&mut record)?;
    Ok(record)
}

pub struct SplitMix64(pub u64);

impl SplitMix64 {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.draw() % sides.max(1)
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.roll(count) == 0
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len() as u64) as usize]
    }
}

pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = SplitMix64(seed);
    (0..len.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes()).take(len).collect()
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
