//! The site's fencing program. It runs once for each head that may still serve, with the head's name
//! in `VOUCH_FENCE_HEAD`. Exit code 0 means that this head is off.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::record::Epoch;

pub(super) struct FenceRun {
    program: Vec<String>,
    pub(super) epoch: Epoch,
    heads: Vec<String>,
    child: Option<(Child, Instant)>,
}

impl FenceRun {
    pub(super) fn start(program: &[String], epoch: Epoch, heads: Vec<String>) -> Self {
        FenceRun { program: program.to_vec(), epoch, heads, child: None }
    }

    /// `None` while the program runs.
    pub(super) fn poll(&mut self) -> Option<bool> {
        loop {
            let Some((child, began)) = &mut self.child else {
                let Some(head) = self.heads.pop() else { return Some(true) };
                match spawn(&self.program, &head, self.epoch) {
                    Ok(child) => self.child = Some((child, Instant::now())),
                    Err(error) => {
                        tracing::error!(%error, program = ?self.program, "the fencing program cannot be started");
                        return Some(false);
                    }
                }
                continue;
            };
            match child.try_wait() {
                Ok(None) if began.elapsed() < RUN_MAX => return None,
                Ok(Some(status)) if status.success() => self.child = None,
                Ok(Some(status)) => {
                    tracing::error!(%status, "the fencing program failed");
                    return Some(false);
                }
                Ok(None) | Err(_) => {
                    tracing::error!(
                        seconds = RUN_MAX.as_secs(),
                        "the fencing program did not end in time"
                    );
                    return Some(false);
                }
            }
        }
    }
}

impl Drop for FenceRun {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.child {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn(program: &[String], head: &str, epoch: Epoch) -> io::Result<Child> {
    let (name, args) = program.split_first().ok_or(io::ErrorKind::NotFound)?;
    tracing::warn!(head, "fencing the head before");
    let mut command = Command::new(name);
    command.args(args).env("VOUCH_FENCE_HEAD", head).env("VOUCH_FENCE_EPOCH", epoch.to_string());
    command.stdin(Stdio::null()).spawn()
}

/// Power switches and service processors need up to half a minute.
const RUN_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, heads: &[&str]) -> bool {
        let program = ["sh", "-c", script].map(str::to_owned);
        let mut run = FenceRun::start(
            &program,
            Epoch(4),
            heads.iter().map(|&head| head.to_owned()).collect(),
        );
        loop {
            match run.poll() {
                Some(is_success) => return is_success,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    #[test]
    fn success_needs_exit_code_zero_for_every_head() {
        assert!(run(
            "test \"$VOUCH_FENCE_EPOCH\" = 4 && case $VOUCH_FENCE_HEAD in a|b) ;; *) exit 1; esac",
            &["a", "b"]
        ));
        assert!(!run("test \"$VOUCH_FENCE_HEAD\" = a", &["a", "b"]));
        assert!(!run("test \"$VOUCH_FENCE_HEAD\" = b", &["a", "b"]));
        assert!(run("exit 1", &[]));
        let mut missing =
            FenceRun::start(&["/nonexistent/fence".to_owned()], Epoch(1), vec!["a".to_owned()]);
        assert_eq!(missing.poll(), Some(false));
    }
}
