//! The columns of audit records: values of a dictionary, or buffers of Arrow arrays.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use vouch_audit::Record;
use vouch_audit::json::action;
use vouch_audit::record::access;

/// Takes the columns of a record in their order. Empty text is null.
trait Sink {
    fn number(&mut self, name: &'static str, width: Width, value: Option<u64>);
    /// Text with few different values.
    fn label(&mut self, name: &'static str, value: &[u8]);
    fn text(&mut self, name: &'static str, value: &[u8]);
}

#[derive(Clone, Copy)]
enum Width {
    U32,
    U64,
    /// Nanoseconds since 1970.
    Time,
}

/// The one list of columns; docs/python.md describes them.
fn visit(record: &Record<'_>, sink: &mut impl Sink) {
    use Width::{Time, U32, U64};
    let words = |bits: Option<u32>| bits.map(access::words).unwrap_or_default();
    let address = record.address.map(|address| address.to_string()).unwrap_or_default();
    sink.number("time", Time, Some(record.time_ns));
    sink.number("seq", U64, Some(record.seq));
    sink.label("class", record.class.name().as_bytes());
    sink.label("action", action(record).as_bytes());
    sink.number("status", U32, Some(record.status().into()));
    sink.label("error", record.errno_name().unwrap_or_default().as_bytes());
    sink.label("principal", record.principal);
    sink.number("uid", U32, record.uid.map(u64::from));
    sink.number("gid", U32, record.gid.map(u64::from));
    sink.number("auid", U32, record.auid().map(u64::from));
    sink.label("address", address.as_bytes());
    sink.number("port", U32, record.port.map(u64::from));
    sink.label("client", record.client);
    sink.label("flavour", record.flavour.name().as_bytes());
    sink.label("xprtsec", record.xprtsec().unwrap_or_default().as_bytes());
    sink.label("export", record.export);
    sink.text("path", record.path);
    sink.text("new_path", record.path2);
    sink.text("file", hex(record.file).as_bytes());
    sink.label("requested", words(record.requested).as_bytes());
    sink.label("granted", words(record.granted).as_bytes());
    sink.number("offset", U64, record.offset);
    sink.number("read", U64, record.read);
    sink.number("written", U64, record.written);
    sink.number("open_ns", U64, record.open_ns);
    sink.number("gap", U64, record.gap);
    sink.number("mode", U32, record.mode.map(u64::from));
    sink.number("pid", U32, record.pid.map(u64::from));
    sink.number("connection", U64, record.connection);
    sink.label("key", record.key);
    sink.text("detail", record.detail);
}

/// Text that is no UTF-8 has surrogate escapes, as `os.fsdecode` makes them.
pub(crate) fn values(record: &Record<'_>, out: &Bound<'_, PyDict>) -> PyResult<()> {
    let mut sink = Values { out, failed: None };
    visit(record, &mut sink);
    sink.failed.map_or(Ok(()), Err)
}

struct Values<'a, 'py> {
    out: &'a Bound<'py, PyDict>,
    failed: Option<PyErr>,
}

impl Sink for Values<'_, '_> {
    fn number(&mut self, name: &'static str, _: Width, value: Option<u64>) {
        self.failed = self.failed.take().or(self.out.set_item(name, value).err());
    }

    fn label(&mut self, name: &'static str, value: &[u8]) {
        self.text(name, value);
    }

    fn text(&mut self, name: &'static str, value: &[u8]) {
        let value = (!value.is_empty()).then(|| OsStr::from_bytes(value));
        self.failed = self.failed.take().or(self.out.set_item(name, value).err());
    }
}

/// Arrow columns. Text that is no UTF-8 has replacement characters.
#[derive(Default)]
pub(crate) struct Columns {
    columns: Vec<Column>,
    next: usize,
    len: usize,
}

struct Column {
    name: &'static str,
    nulls: usize,
    /// One bit for each value.
    validity: Vec<u8>,
    body: Body,
}

enum Body {
    Numbers { width: Width, values: Vec<u8> },
    Text(Texts),
    Labels { indices: Vec<u8>, known: HashMap<Vec<u8>, i32>, texts: Texts },
}

struct Texts {
    /// Ends, in 4 bytes each, after a zero.
    offsets: Vec<u8>,
    data: Vec<u8>,
}

impl Columns {
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        self.next = 0;
        visit(record, self);
        self.len += 1;
    }

    /// All columns, without a record.
    pub(crate) fn empty() -> Self {
        let mut columns = Self::default();
        columns.push(&Record::default());
        for column in &mut columns.columns {
            column.nulls = 0;
            match &mut column.body {
                Body::Numbers { values, .. } => values.clear(),
                Body::Text(texts) => *texts = Texts::new(),
                Body::Labels { indices, .. } => indices.clear(),
            }
        }
        Self { len: 0, ..columns }
    }

    fn next(
        &mut self,
        name: &'static str,
        body: impl FnOnce() -> Body,
        is_valid: bool,
    ) -> &mut Body {
        if self.next == self.columns.len() {
            self.columns.push(Column { name, nulls: 0, validity: Vec::new(), body: body() });
        }
        let column = &mut self.columns[self.next];
        self.next += 1;
        if self.len.is_multiple_of(8) {
            column.validity.push(0);
        }
        column.validity[self.len / 8] |= u8::from(is_valid) << (self.len % 8);
        column.nulls += usize::from(!is_valid);
        &mut column.body
    }

    /// The number of records, and `(name, kind, nulls, buffers)` of each column: validity and
    /// numbers; validity, offsets and text; or validity, indices, offsets and text.
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<(usize, Bound<'_, PyList>)> {
        let list = PyList::empty(py);
        for column in self.columns {
            let bytes = |buffer: Vec<u8>| PyBytes::new(py, &buffer);
            let validity = bytes(column.validity);
            let (kind, buffers) = match column.body {
                Body::Numbers { width, values } => {
                    let kind = match width {
                        Width::U32 => "uint32",
                        Width::U64 => "uint64",
                        Width::Time => "time",
                    };
                    (kind, vec![validity, bytes(values)])
                }
                Body::Text(texts) => {
                    ("text", vec![validity, bytes(texts.offsets), bytes(texts.data)])
                }
                Body::Labels { indices, texts, .. } => {
                    let texts = [bytes(texts.offsets), bytes(texts.data)];
                    ("label", [vec![validity, bytes(indices)], texts.into()].concat())
                }
            };
            list.append((column.name, kind, column.nulls, buffers))?;
        }
        Ok((self.len, list))
    }
}

impl Sink for Columns {
    fn number(&mut self, name: &'static str, width: Width, value: Option<u64>) {
        let body = || Body::Numbers { width, values: Vec::new() };
        let Body::Numbers { values, .. } = self.next(name, body, value.is_some()) else { return };
        let len = if matches!(width, Width::U32) { 4 } else { 8 };
        values.extend_from_slice(&value.unwrap_or(0).to_le_bytes()[..len]);
    }

    fn label(&mut self, name: &'static str, value: &[u8]) {
        let body =
            || Body::Labels { indices: Vec::new(), known: HashMap::new(), texts: Texts::new() };
        let Body::Labels { indices, known, texts } = self.next(name, body, !value.is_empty())
        else {
            return;
        };
        let index = match known.get(value) {
            _ if value.is_empty() => 0,
            Some(index) => *index,
            None => {
                let index = i32::try_from(known.len()).expect("a batch has few records");
                known.insert(value.to_vec(), index);
                texts.push(value);
                index
            }
        };
        indices.extend_from_slice(&index.to_le_bytes());
    }

    fn text(&mut self, name: &'static str, value: &[u8]) {
        let body = || Body::Text(Texts::new());
        let Body::Text(texts) = self.next(name, body, !value.is_empty()) else { return };
        texts.push(value);
    }
}

impl Texts {
    fn new() -> Self {
        Self { offsets: vec![0; 4], data: Vec::new() }
    }

    fn push(&mut self, text: &[u8]) {
        let text = match String::from_utf8_lossy(text) {
            Cow::Borrowed(text) => text.as_bytes(),
            Cow::Owned(ref text) => return self.push(text.as_bytes()),
        };
        self.data.extend_from_slice(text);
        // A text has at most 4,096 bytes, and a batch few records.
        self.offsets.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from_digit(digit.into(), 16).expect("below 16"))
        .collect()
}
