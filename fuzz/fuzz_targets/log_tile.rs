//! Tiles, bundles and their paths; a log whose files all hold the input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_log::append::Appender;
use vouch_log::merkle::{Hash, verify_consistency, verify_inclusion};
use vouch_log::reader::{LogReader, TileSource};
use vouch_log::tile::{TileId, parse_entries, parse_hashes};

struct Same<'a>(&'a [u8]);

impl TileSource for Same<'_> {
    fn read(&self, _: &str, len_max: usize) -> std::io::Result<Vec<u8>> {
        Ok(self.0[..self.0.len().min(len_max)].to_vec())
    }
}

fuzz_target!(|input: &[u8]| {
    if let Some(id) = std::str::from_utf8(input).ok().and_then(TileId::parse) {
        assert_eq!(id.path().as_bytes(), input);
    }
    if let Some(entries) = parse_entries(input) {
        let mut tree = Appender::new();
        for entry in &entries {
            tree.push(entry).expect("entries of a bundle fit");
        }
        let bundle = tree.finish().into_iter().find(|file| file.bytes == input);
        assert!(bundle.is_some(), "the bundle is written again");
    }
    if let Some(hashes) = parse_hashes(input) {
        assert!(hashes.iter().flat_map(|hash| hash.0).eq(input.iter().copied()));
    }
    let Some((numbers, rest)) = input.split_first_chunk::<16>() else { return };
    let [size, index] = [0, 8].map(|at| {
        u64::from_be_bytes(numbers[at..at + 8].try_into().expect("eight bytes"))
            >> (numbers[7] % 64)
    });
    let (hashes, _) = rest.as_chunks::<32>();
    let hashes: Vec<_> = hashes.iter().map(|hash| Hash(*hash)).collect();
    let root = hashes.first().copied().unwrap_or(Hash::EMPTY_TREE);
    let _ = verify_inclusion(root, index, size, &hashes, root);
    let _ = verify_consistency((index, root), (size, root), &hashes);
    // A tree of one entry is its hash: this log opens.
    for (size, root) in [(size, root), (1, root)] {
        let Ok(mut reader) = LogReader::open(Same(rest), size, root) else { continue };
        let _ =
            (reader.entry(index), reader.inclusion_proof(index), reader.consistency_proof(index));
        let _ = Appender::open(&mut reader);
    }
});
