//! A stream in arbitrary pieces gives the same records, and none exceeds the limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_oncrpc::RecordReader;

const LIMIT: usize = 4096;

fuzz_target!(|input: &[u8]| {
    let Some((&step, stream)) = input.split_first() else { return };
    let whole = records(stream, stream.len().max(1));
    let pieces = records(stream, usize::from(step) + 1);
    assert_eq!(whole, pieces);
});

fn records(stream: &[u8], step: usize) -> (Vec<Vec<u8>>, bool) {
    let mut reader = RecordReader::new(LIMIT);
    let mut found = Vec::new();
    for mut piece in stream.chunks(step) {
        loop {
            match reader.next(&mut piece) {
                Ok(Some(record)) => {
                    assert!(record.len() <= LIMIT);
                    found.push(record.into_owned());
                }
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
        // A growing vector at most doubles the received length.
        assert!(reader.held_len() <= 2 * LIMIT);
    }
    (found, false)
}
