//! Standard output: aligned tables for people, JSON for programs.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

use crate::exit::{At as _, Outcome, forgive_closed_pipe};

/// Buffers and flushes. A closed pipe is no error.
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

/// Pads columns, except the last cell of a row.
pub(crate) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> =
        (0..columns).map(|i| rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        for (i, cell) in row.iter().enumerate() {
            let pad = widths[i] - cell.chars().count();
            if i > 0 {
                text.push_str("  ");
            }
            if right.contains(&i) {
                text.extend(std::iter::repeat_n(' ', pad));
                text.push_str(cell);
            } else {
                text.push_str(cell);
                if i + 1 < row.len() {
                    text.extend(std::iter::repeat_n(' ', pad));
                }
            }
        }
        text.push('\n');
    }
    text
}

/// In powers of 1024.
pub(crate) fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["a".into(), "1".into(), "x".into()], vec!["bbb".into(), "22".into(), "y".into()]];
        assert_eq!(table(&rows, &[1]), "a     1  x\nbbb  22  y\n");
    }
}
