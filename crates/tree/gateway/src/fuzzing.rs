use vouch_tree::FileName;

use crate::range::RequestedRanges;
use crate::target::{Page, Query};

pub fn request(target: &str, range: &[u8], size: u64) {
    let (path, query) =
        target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let _ = Query::parse(query);
    if let Ok(Page::Path(target)) = Page::parse(path) {
        assert!(
            target.names.iter().all(|name| FileName::parse(name).is_ok()),
            "every name is one of a file"
        );
        let url = target.directory(target.names.len());
        assert!(url.is_ascii() && !url.starts_with('/'), "links are relative");
        // A canonical link leads back to the same file.
        let canonical = format!("/{}", url.trim_start_matches("./").trim_start_matches("../"));
        match Page::parse(&canonical) {
            Ok(Page::Path(again)) => assert_eq!(again.names, target.names, "{canonical}"),
            other => panic!("{canonical} is {other:?}"),
        }
    }
    if let RequestedRanges::Parts(parts) = RequestedRanges::parse(range, size) {
        assert!(
            parts.iter().all(|range| range.start < range.end && range.end <= size),
            "ranges are within the file"
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_canonical_link_leads_back(target in "/[/%@.a-f0-9:?=&t]{0,40}", range in "bytes=[-,0-9]{0,20}", size in any::<u64>()) {
            super::request(&target, range.as_bytes(), size);
        }
    }
}
