use std::fs;

use vouch_vfs::{Error, FileSystem};

use crate::fixture::Site;

fn site(count: usize) -> Site {
    let site = Site::new();
    for n in 0..count {
        site.write(format!("d/name{n:05}"), b"");
    }
    site.publish();
    site
}

#[test]
fn listing_in_pieces_is_complete_and_survives_restart() {
    let site = site(3000);
    let exported = site.export();
    let directory = exported.id("d");
    let whole = exported.list(&directory, 0, usize::MAX).unwrap();
    assert_eq!(whole.len(), 3000);
    assert!(whole.iter().all(|(_, cookie)| *cookie >= 3));
    let (mut pieces, mut cookie) = (Vec::new(), 0);
    loop {
        let piece = exported.list(&directory, cookie, 70).unwrap();
        let Some((_, last)) = piece.last() else { break };
        cookie = *last;
        pieces.extend(piece);
    }
    assert_eq!(pieces, whole);
    let exported = site.export();
    assert_eq!(exported.list(&directory, whole[1499].1, usize::MAX).unwrap(), &whole[1500..]);
    for cookie in [1, 2, 3, 77, u64::MAX, (5 << 31) | 1] {
        assert!(matches!(exported.list(&directory, cookie, 1), Err(Error::BadCookie)), "{cookie}");
    }
    assert!(matches!(exported.list(&exported.id("d/name00000"), 0, 1), Err(Error::NotDirectory)));
    assert_eq!(exported.list(&exported.fs.root(), 0, 9).unwrap().len(), 1);
}

#[test]
fn listing_continues_in_new_revision_without_gaps_or_repeats() {
    let site = site(2000);
    let exported = site.export();
    let directory = exported.id("d");
    let begun = exported.list(&directory, 0, 1000).unwrap();
    for n in [3, 4, 998, 999, 1000, 1500] {
        fs::remove_file(site.source(format!("d/name{n:05}"))).unwrap();
    }
    for n in 0..50 {
        site.write(format!("d/aname{n:05}"), b"");
        site.write(format!("d/name{n:05}.5"), b"");
    }
    site.write("d/name01800.5", b"");
    site.publish();
    exported.refresh();
    let expected: Vec<String> = exported
        .list(&directory, 0, usize::MAX)
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let after = expected.iter().position(|name| name == "name01001").unwrap();
    let rest = |cookie| {
        exported
            .list(&directory, cookie, usize::MAX)
            .map(|list| list.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
    };
    assert_eq!(rest(begun[999].1).unwrap(), &expected[after..]);
    assert_eq!(rest(begun[997].1).unwrap(), &expected[after..]);
    let restarted = site.export();
    let list: Vec<String> = restarted
        .list(&directory, begun[997].1, usize::MAX)
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(list, &expected[after..]);
    assert!(matches!(restarted.list(&directory, begun[999].1, 1), Err(Error::BadCookie)));
}
