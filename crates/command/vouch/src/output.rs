//! Standard output: aligned tables for people, JSON for programs.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;

use serde::Serialize;
use vouch_daemon::printable::printable;
use vouch_tree::statement::revocation_reason;
use vouch_tree_store::Snapshot;

use crate::exit::{At as _, Outcome, forgive_closed_pipe};

pub(crate) use vouch_daemon::table::table;

/// Runs `write` on buffered standard output and flushes it. A closed pipe is no error.
pub(crate) fn with_stdout(
    write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>,
) -> Outcome {
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    forgive_closed_pipe(write(&mut out).and_then(|()| out.flush()).at("standard output"))
}

/// Refuses a file that exists before any work is done for it.
pub(crate) fn require_new(path: &Path) -> Outcome {
    if path.symlink_metadata().is_ok() {
        Err(io::Error::from(io::ErrorKind::AlreadyExists)).at(path.display())
    } else {
        Ok(())
    }
}

pub(crate) fn text(text: &str) -> Outcome {
    with_stdout(|out| out.write_all(text.as_bytes()))
}

pub(crate) fn json(value: &impl Serialize) -> Outcome {
    with_stdout(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

pub(crate) fn json_line(value: &impl Serialize) -> Outcome {
    with_stdout(|out| {
        serde_json::to_writer(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

pub(crate) fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}

/// A line on standard error, beside the result of a command on this database.
pub(crate) fn warn_if_revoked(database: &Snapshot) {
    if let Some(reason) = revocation_reason(&database.hostid(), &database.statements()) {
        eprintln!(
            "warning: the key of this tree is revoked ({}), and clients refuse the tree",
            printable(reason.as_bytes())
        );
    }
}
