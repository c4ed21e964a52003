//! Notes and checkpoints: what decodes is what was written, byte by byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::note::{NoteSignature, SignedNote};

fuzz_target!(|input: &[u8]| {
    if let Ok(note) = SignedNote::parse(input) {
        assert_eq!(note.to_text().as_bytes(), input);
    }
    if let Ok(checkpoint) = SignedCheckpoint::parse(input) {
        assert_eq!(checkpoint.to_text().as_bytes(), input);
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(checkpoint) = Checkpoint::parse(text) {
        assert_eq!(checkpoint.text(), text);
    }
    if let Ok(lines) = NoteSignature::parse_lines(text) {
        assert_eq!(lines.iter().map(NoteSignature::line).collect::<String>(), text);
    }
});
