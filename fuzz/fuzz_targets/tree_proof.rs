//! The header decodes or is refused, and frames that do not match their handles end the walk.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree::proof::{Piece, ProofHeader, Walk};
use vouch_tree::{FRAME_LEN_MAX, HostId, Inode, Iv};
use vouch_xdr::{Reader, Xdr};

fuzz_target!(|input: &[u8]| {
    let mut reader = Reader::new(input);
    if let Ok(header) = ProofHeader::decode(&mut reader) {
        assert!(ProofHeader::from_xdr(&header.to_xdr()) == Ok(header.clone()));
        let _ = header.verify(&HostId::from_bytes([1; 32]), &[]);
    }
    // A root inode, then frames that its publisher chose.
    let mut reader = Reader::new(input);
    let (Ok(root), Ok(path)) = (Inode::decode(&mut reader), reader.opaque(256)) else { return };
    let iv = Iv::from_bytes([7; 32]);
    let mut proven = 0u64;
    let mut sink = |piece: Piece<'_>| {
        proven = proven.saturating_add(match piece {
            Piece::Data(bytes) => bytes.len() as u64,
            Piece::Zeros(count) => count,
        });
    };
    let Ok(mut walk) = Walk::begin(iv, &root, path, &mut sink) else { return };
    while walk.needed().is_some() {
        let Ok(stored) = reader.opaque(FRAME_LEN_MAX) else { return };
        if walk.feed(stored, &mut sink).is_err() {
            return;
        }
    }
    if let Some(vouch_tree::proof::Finding::Present(found)) = walk.finding()
        && matches!(found.content, vouch_tree::Content::Regular { .. })
    {
        assert_eq!(proven, found.size());
    }
});
