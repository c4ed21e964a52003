//! Directory pages and searches in them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree::directory::{InteriorPage, LeafPage};
use vouch_xdr::Xdr;

fuzz_target!(|input: &[u8]| {
    if let Ok(page) = LeafPage::from_xdr(input) {
        assert_eq!(page.to_xdr(), input);
        for (i, entry) in page.entries().iter().enumerate() {
            let name = entry.name.as_bytes();
            assert_eq!(page.find(name), Some(entry));
            assert_eq!(page.index_after(name), i + 1);
        }
        assert!(page.entries().is_sorted_by(|a, b| a.name < b.name));
        let _ = page.find(input);
    }
    if let Ok(page) = InteriorPage::from_xdr(input) {
        assert_eq!(page.to_xdr(), input);
        let mut before = 0u64;
        for (i, child) in page.children().iter().enumerate() {
            assert_eq!(page.child_for(child.first.as_bytes()), Some(i));
            if child.entries > 0 {
                assert_eq!(page.child_at(before), Some((i, 0)));
            }
            before += child.entries;
        }
        let _ = (page.child_for(input), page.child_at(u64::MAX), page.page(usize::MAX));
    }
});
