//! Standard output: aligned tables for people, JSON for programs.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

use crate::exit::{At as _, Outcome, forgive_closed_pipe};

pub(crate) use vouch_daemon::table::table;

/// Runs `write` on buffered standard output and flushes it. A closed pipe is no error.
pub(crate) fn with_stdout(write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>) -> Outcome {
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    forgive_closed_pipe(write(&mut out).and_then(|()| out.flush()).at("standard output"))
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
