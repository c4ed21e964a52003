//! What goes to standard output: aligned tables for people, JSON for programs, and names of any
//! bytes in both.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

use crate::exit::{At as _, Outcome, forgive_closed_pipe};

/// Runs `write` on a buffered standard output, flushes it, and forgives a reader that has gone.
pub(crate) fn with_stdout(write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<()>) -> Outcome {
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    forgive_closed_pipe(write(&mut out).and_then(|()| out.flush()).at("standard output"))
}

/// Text that is complete with its line ends.
pub(crate) fn text(text: &str) -> Outcome {
    with_stdout(|out| out.write_all(text.as_bytes()))
}

/// One JSON value, indented.
pub(crate) fn json(value: &impl Serialize) -> Outcome {
    with_stdout(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// One JSON value on a line of its own.
pub(crate) fn json_line(value: &impl Serialize) -> Outcome {
    with_stdout(|out| {
        serde_json::to_writer(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// Lines of cells, padded to columns; the last cell of a line is never padded. `right` lists the
/// columns aligned to the right.
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

/// A name of any bytes for JSON: text where it is text; otherwise the exact bytes beside a readable
/// form.
#[derive(Debug, Serialize)]
pub(crate) struct JsonName {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_base64: Option<String>,
}

impl JsonName {
    pub(crate) fn new(name: &[u8]) -> JsonName {
        match std::str::from_utf8(name) {
            Ok(text) => JsonName { name: text.to_owned(), name_base64: None },
            Err(_) => JsonName { name: printable(name), name_base64: Some(data_encoding::BASE64.encode(name)) },
        }
    }
}

/// A name of any bytes for a person: control characters, those that turn the direction of writing,
/// and what is not UTF-8 as `\xNN`, so that no name can move a cursor or stand elsewhere than
/// it does.
pub(crate) fn printable(name: &[u8]) -> String {
    escaped(name, "")
}

/// A name within quotes: those in it, and backslashes, stand behind a backslash, so that what is
/// shown is of one name only.
pub(crate) fn quoted(name: &[u8]) -> String {
    format!("\"{}\"", escaped(name, "\"\\"))
}

fn escaped(name: &[u8], marked: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || turns_direction(c) {
                let mut utf8 = [0; 4];
                c.encode_utf8(&mut utf8).bytes().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
            } else {
                if marked.contains(c) {
                    text.push('\\');
                }
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// The format characters of Unicode's bidirectional algorithm (UAX #9, section 2), and the
/// separators of lines and paragraphs.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A number of bytes for a person, in powers of 1024.
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

    #[test]
    fn names_cannot_write_to_the_terminal() {
        assert_eq!(printable(b"a\x1b[2Jb\xff"), "a\\x1b[2Jb\\xff");
    }

    #[test]
    fn names_that_are_not_text_keep_their_bytes_in_json() {
        let json = serde_json::to_string(&JsonName::new(b"a\xff")).expect("plain data always encodes");
        assert_eq!(json, r#"{"name":"a\\xff","name_base64":"Yf8="}"#);
    }
}
