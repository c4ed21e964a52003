//! By seed, with new revisions, with and without a disk cache. tree-client has more cases.

use std::collections::BTreeMap;
use std::io;

use crate::prelude::*;

const ROUNDS: u8 = 8;

fn content(seed: u8, n: u64) -> BTreeMap<String, Vec<u8>> {
    let own = u64::from(seed) << 32;
    let mut files: BTreeMap<String, Vec<u8>> = (0..12u64)
        .map(|file| (format!("f{file}"), noise(own | file, (file * file * 3_000) as usize)))
        .collect();
    files.insert("changing".into(), noise(own | (100 + n), 50_000 + n as usize));
    files.insert("big".into(), noise(own | 200, 1_500_000));
    files
}

fn publish(site: &Site, seed: u8, n: u64) {
    content(seed, n)
        .into_iter()
        .for_each(|(name, bytes)| fs::write(site.source().join(name), bytes).unwrap());
    site.publish(NOW - 100 + n as i64, 3600);
}

fn check<T>(found: io::Result<T>, is_true: impl FnOnce(&T) -> bool, what: &str, refused: &mut u64) {
    match found {
        Ok(found) => assert!(is_true(&found), "{what} differs from the published content"),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(5), "{what}: {error}");
            *refused += 1;
        }
    }
}

#[test]
#[ignore = "needs FUSE"]
fn no_lie_reaches_a_reader_through_the_kernel() {
    let cache = tempfile::tempdir().unwrap();
    let (mut right, mut refused, mut lies) = (0, 0, 0);
    for seed in 0..ROUNDS {
        let site = Site::new("a.example", 60 + seed);
        publish(&site, seed, 1);
        let dir = cache.path().join((seed % 4).to_string());
        let disk = DiskCacheOptions { dir, quota_bytes: 64 << 20 };
        let mount = if seed % 2 == 0 {
            TestMount::of_tree(&site)
        } else {
            TestMount::of_tree_with_cache(&site, disk, |_| {})
        };
        for (pass, odds) in [64, 128, 16, 0].into_iter().enumerate() {
            site.lies.store(odds, Ordering::SeqCst);
            if pass == 2 {
                publish(&site, seed, 2);
                let _ = mount.runtime.block_on(mount.tree.as_ref().unwrap().refresh());
            }
            let truths = [content(seed, 1), content(seed, 2)];
            let before = refused;
            let names = fs::read_dir(&mount.point).and_then(|dir| {
                dir.map(|entry| Ok(entry?.file_name().into_string().unwrap())).collect()
            });
            let is_listing = |names: &Vec<String>| {
                names.len() == truths[0].len()
                    && names.iter().all(|name| truths[0].contains_key(name))
            };
            check(names, is_listing, "the listing", &mut refused);
            right += 1;
            for name in truths[0].keys() {
                let is_true = |bytes: &Vec<u8>| {
                    truths[..=usize::from(pass >= 2)].iter().any(|truth| truth[name] == *bytes)
                };
                check(fs::read(mount.path(name)), is_true, name, &mut refused);
                right += 1;
            }
            right -= refused - before;
        }
        lies += mount.tree.as_ref().unwrap().counters().lies;
    }
    println!("{right} right answers, {refused} refused, {lies} lies detected");
    assert!(
        right > u64::from(ROUNDS) * 14 && lies > u64::from(ROUNDS),
        "{right} right answers, {lies} lies: too few"
    );
}
