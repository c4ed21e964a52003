use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Command, Stdio};

use vouch_daemon::failure::{At as _, Failure, Outcome, Why};

/// Waits until it has mounted, and returns the line that it prints then. A fork would lose the
/// threads.
pub fn start_in_background(arguments: impl Iterator<Item = OsString>) -> Outcome<String> {
    let what = "the mount behind";
    let program = std::env::current_exe().at("this program")?;
    let mut command = Command::new(program);
    command
        .args(arguments_behind(arguments))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().at(what)?;
    // Its pipes then close, so that callers can wait for the end of our output; later messages go
    // to the log.
    let words = child
        .stderr
        .take()
        .map(|mut words| std::thread::spawn(move || io::copy(&mut words, &mut io::stderr())));
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).at(what)?;
    }
    if !line.is_empty() {
        return Ok(line);
    }
    let status = child.wait().at(what)?;
    if let Some(words) = words {
        // Print its last messages before ours.
        let _ = words.join();
    }
    Err(match status.code() {
        Some(code) => Failure::new(what, Why::Reported(code)),
        None => Failure::io(what, io::Error::other(format!("ended with {status}"))),
    })
}

fn arguments_behind(ours: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ours.collect();
    let at = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    arguments.insert(at, "--detached".into());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_option_precedes_double_dash() {
        let behind = |line: &str| {
            arguments_behind(line.split(' ').map(OsString::from)).join(std::ffi::OsStr::new(" "))
        };
        assert_eq!(behind("mount --background NAME DIR"), "mount --background NAME DIR --detached");
        assert_eq!(
            behind("mount --background -- NAME DIR"),
            "mount --background --detached -- NAME DIR"
        );
    }
}
