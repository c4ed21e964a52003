//! Fuzzes the parser of the kernel's audit log with arbitrary lines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_audit::Record;
use vouch_audit::host::{Assembler, Line};

fuzz_target!(|input: &[u8]| {
    let mut assembler = Assembler::default();
    let mut whole = Vec::new();
    for line in input.split(|byte| *byte == b'\n').filter_map(Line::parse) {
        assembler.push(&line, |event| whole.push(event));
    }
    assembler.finish(|event| whole.push(event));
    for event in whole {
        // The record encodes without truncation.
        let record = event.to_record(b"", b"");
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(Record::decode(&bytes, &mut Vec::new()).as_ref(), Ok(&record));
    }
});
