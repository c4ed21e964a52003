use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::fixture::replica::{Fault, TestReplica};
use crate::fixture::{self, NOW, Node, Published, Publisher, dir, noise, options};
use vouch_tree::{Blob, Content, Inode};
use vouch_tree_client::{
    Client, ClientOptions, DiskCacheOptions, Error, Position, ResolvedPath, Seek, Tree,
};

const MIB: usize = 1 << 20;

async fn open(publisher: &Publisher, published: &Published) -> Arc<Tree> {
    fixture::open(publisher, &[TestReplica::new(published, Fault::None, 1)]).await.unwrap()
}

fn blob(inode: &Inode) -> &Blob {
    match &inode.content {
        Content::Regular { blob, .. } => blob,
        other => panic!("not a file: {other:?}"),
    }
}

#[tokio::test]
async fn reads_files_of_every_shape() {
    let lens = [0, 1, 1024, 1025, 128 * 1024, 128 * 1024 + 1, 3 * MIB + 5];
    let files: BTreeMap<Vec<u8>, Node> = lens
        .iter()
        .map(|&len| (format!("f{len}").into_bytes(), Node::File(noise(len as u64, len))))
        .collect();
    let mut publisher = Publisher::new(2);
    let published = publisher.publish(&dir([("sub", Node::Dir(files))]), NOW);
    let tree = open(&publisher, &published).await;
    let revision = tree.revision().unwrap();
    for len in lens {
        let whole = noise(len as u64, len);
        let inode =
            tree.lookup_path(revision.root(), format!("/sub/f{len}").as_bytes()).await.unwrap();
        assert_eq!(inode.size(), len as u64);
        assert_eq!(tree.read(blob(&inode), 0, len + 10).await.unwrap(), whole);
        for (offset, n) in [
            (0, 1),
            (1, 8192),
            (len / 2, 100),
            (len.saturating_sub(3), 10),
            (len, 5),
            (130_000, 4000),
        ] {
            let want = &whole[offset.min(len)..(offset + n).min(len)];
            assert_eq!(tree.read(blob(&inode), offset as u64, n).await.unwrap(), want);
            assert_eq!(tree.try_read(blob(&inode), offset as u64, n).unwrap().unwrap(), want);
        }
        let file = tree.open_file(blob(&inode).clone());
        let mut at = 0;
        while at < len {
            let piece = file.read(at as u64, 128 * 1024).await.unwrap();
            assert_eq!(piece, whole[at..(at + 128 * 1024).min(len)]);
            at += piece.len();
        }
        let xattrs = tree.xattrs(&inode).await.unwrap();
        assert_eq!(
            xattrs.get(b"user.len").map(<[u8]>::to_vec),
            (len % 7 == 3).then(|| noise(len as u64, len % 3000))
        );
    }
}

#[tokio::test]
async fn lists_large_directory_from_any_position() {
    let names: BTreeMap<Vec<u8>, Node> = (0..20_000)
        .map(|n| (format!("name-{:07}", n * 2).into_bytes(), Node::File(vec![n as u8; n % 50])))
        .collect();
    let mut publisher = Publisher::new(3);
    let published = publisher.publish(&Node::Dir(names.clone()), NOW);
    let tree = open(&publisher, &published).await;
    let revision = tree.revision().unwrap();
    let (root, mut listed, mut from) = (revision.root(), Vec::new(), Position::Start);
    loop {
        let listing = tree.list(root, from).await.unwrap();
        assert_eq!(listing.number, listed.len() as u64);
        listed.extend(listing.entries().iter().map(|e| e.name.as_bytes().to_vec()));
        if listing.last {
            break;
        }
        from = listing.next();
    }
    assert!(listed.iter().eq(names.keys()));
    for n in [0usize, 1, 777, 9_999, 19_999] {
        let name = format!("name-{:07}", n * 2);
        assert_eq!(
            tree.lookup(root, name.as_bytes()).await.unwrap().unwrap().name.as_bytes(),
            name.as_bytes()
        );
        assert!(
            tree.lookup(root, format!("name-{:07}", n * 2 + 1).as_bytes()).await.unwrap().is_none()
        );
        for from in [Position::Number(n as u64 + 1), Position::After(name.as_bytes())] {
            let listing = tree.list(root, from).await.unwrap();
            assert_eq!(listing.number, n as u64 + 1);
            assert_eq!(
                listing.entries().first().map(|e| e.name.as_bytes()),
                listed.get(n + 1).map(Vec::as_slice)
            );
        }
    }
    for past in [Position::Number(20_000), Position::Number(u64::MAX), Position::After(b"zzz")] {
        let listing = tree.list(root, past).await.unwrap();
        assert!(listing.entries().is_empty() && listing.last);
    }
    assert!(tree.lookup(root, b"a").await.unwrap().is_none());
    assert!(tree.lookup(root, b"zzz").await.unwrap().is_none());
    assert!(matches!(tree.lookup_path(root, b"x/y").await, Err(Error::NotFound { .. })));
    assert!(matches!(
        tree.lookup_path(root, b"name-0000000/y").await,
        Err(Error::NotADirectory { .. })
    ));
    assert!(matches!(tree.lookup_path(root, b"../y").await, Err(Error::Path { .. })));
}

#[tokio::test]
async fn holes_read_as_zeros_without_fetches() {
    let (size, at) = (40u64 << 30, (13u64 << 30) + 5);
    let mut publisher = Publisher::new(4);
    let published = publisher
        .publish(&dir([("sparse", Node::Sparse(size, at)), ("empty", Node::File(vec![]))]), NOW);
    let tree = open(&publisher, &published).await;
    let inode = tree.lookup_path(tree.revision().unwrap().root(), b"sparse").await.unwrap();
    let blob = blob(&inode);
    assert_eq!(tree.read(blob, 1 << 30, MIB).await.unwrap(), vec![0; MIB]);
    let before = tree.counters().network_frames;
    assert_eq!(tree.read(blob, at - 2, 5).await.unwrap(), [0, 0, 1, 0, 0][..]);
    assert!(tree.counters().network_frames - before <= 3);
    assert_eq!(tree.seek(blob, 0, Seek::Data).await.unwrap(), Some(13 << 30));
    assert_eq!(tree.seek(blob, at, Seek::Hole).await.unwrap(), Some((13 << 30) + 128 * 1024));
    assert_eq!(tree.seek(blob, 14 << 30, Seek::Data).await.unwrap(), None);
    assert_eq!(tree.seek(blob, size, Seek::Hole).await.unwrap(), None);
    assert_eq!(tree.seek(blob, 5, Seek::Hole).await.unwrap(), Some(5));
}

#[tokio::test]
async fn resolves_links_inside_and_returns_links_outside() {
    let link = |target: &str| Node::Link(target.as_bytes().to_vec());
    let mut publisher = Publisher::new(5);
    let inner = dir([
        ("file", Node::File(b"x".to_vec())),
        ("up", link("../b/./file2")),
        ("loop", link("loop")),
        ("out", link("../../etc")),
    ]);
    let published = publisher.publish(
        &dir([
            ("a", inner),
            ("b", dir([("file2", Node::File(b"y".to_vec()))])),
            ("abs", link("/vouch/@h,x")),
            ("dir", link("a")),
        ]),
        NOW,
    );
    let tree = open(&publisher, &published).await;
    let revision = tree.revision().unwrap();
    let walk = async |path: &str| tree.resolve_path(revision.root(), path.as_bytes()).await;
    assert!(
        matches!(walk("dir/up").await, Ok(ResolvedPath::Inside { path, .. }) if path == b"b/file2")
    );
    assert!(
        matches!(walk("dir/../b//file2").await, Ok(ResolvedPath::Inside { path, .. }) if path == b"b/file2")
    );
    assert!(matches!(walk("a/loop").await, Err(Error::SymlinkLoop { .. })));
    assert!(
        matches!(walk("dir/out/passwd").await, Ok(ResolvedPath::Outside { link, target, rest }) if link == b"a/out" && target == b"../../etc" && rest == b"passwd")
    );
    assert!(
        matches!(walk("abs/q/r").await, Ok(ResolvedPath::Outside { target, rest, .. }) if target == b"/vouch/@h,x" && rest == b"q/r")
    );
    assert!(matches!(walk("a/nope").await, Err(Error::NotFound { path }) if path == b"a/nope"));
    assert!(matches!(walk("..").await, Err(Error::Path { .. })));
}

#[tokio::test]
async fn cached_reads_need_no_network() {
    let mut publisher = Publisher::new(6);
    let published = publisher.publish(&dir([("f", Node::File(noise(1, 300_000)))]), NOW);
    let tree = open(&publisher, &published).await;
    let root = tree.revision().unwrap().root().clone();
    assert!(tree.try_lookup(&root, b"f").is_none(), "nothing is cached yet");
    let inode = tree.lookup_path(&root, b"f").await.unwrap();
    tree.read(blob(&inode), 0, 300_000).await.unwrap();
    assert!(tree.try_lookup(&root, b"f").unwrap().unwrap().is_some());
    assert!(tree.try_lookup(&root, b"g").unwrap().unwrap().is_none());
    assert_eq!(tree.try_list(&root, Position::Start).unwrap().unwrap().entries().len(), 1);
    assert_eq!(tree.try_read(blob(&inode), 0, 300_000).unwrap().unwrap(), noise(1, 300_000));
    assert_eq!(tree.try_lookup_path(&root, b"f").unwrap().unwrap(), inode);
}

#[tokio::test]
async fn long_reads_from_disk_do_not_evict_each_other() {
    const LEAF: usize = 128 << 10;
    let directory = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::new(8);
    let files =
        [("long", Node::File(noise(1, 128 * LEAF))), ("new", Node::File(noise(2, 8 * LEAF)))];
    let published = publisher.publish(&fixture::dir(files), NOW);
    let (dir, quota_bytes) = (directory.path().join("cache"), 64 << 20);
    let client = Client::new(ClientOptions {
        memory_cache_bytes: 64 * LEAF as u64,
        disk_cache: Some(DiskCacheOptions { dir, quota_bytes }),
        ..options(&publisher.serve(&published).1)
    })
    .unwrap();
    let tree = publisher.opened_by(&client).await.unwrap();
    let root = tree.revision().unwrap().root().clone();
    let mut inodes = Vec::new();
    for name in [&b"long"[..], b"new"] {
        let inode = tree.lookup_path(&root, name).await.unwrap();
        for offset in (0..inode.size()).step_by(8 * LEAF) {
            tree.read(blob(&inode), offset, 8 * LEAF).await.unwrap();
            client.flush().await;
        }
        inodes.push(inode);
    }
    let from_disk = |inode: &Inode| {
        let before = tree.counters().disk_frames;
        for offset in (0..inode.size()).step_by(8 * LEAF) {
            tree.try_read(blob(inode), offset, 8 * LEAF).expect("all is cached").unwrap();
        }
        tree.counters().disk_frames - before
    };
    let of_long: Vec<u64> = (0..4).map(|_| from_disk(&inodes[0])).collect();
    assert!(of_long[1..].iter().all(|&read| read < 128 - 36), "half fits: {of_long:?}");
    let of_new: Vec<u64> = (0..200).map(|_| from_disk(&inodes[1])).collect();
    assert!(of_new[199] <= 2, "what is read again and again is admitted: {of_new:?}");
}

/// Their reader verifies it sooner itself.
#[tokio::test]
async fn reads_over_one_mib_leave_what_disk_cache_holds() {
    const LEAF: usize = 128 << 10;
    let directory = tempfile::tempdir().unwrap();
    let mut publisher = Publisher::new(9);
    let published = publisher.publish(&dir([("f", Node::File(noise(1, 64 * LEAF)))]), NOW);
    let network = publisher.serve(&published).1;
    let open = async || {
        let (dir, quota_bytes) = (directory.path().join("cache"), 64 << 20);
        let client = Client::new(ClientOptions {
            disk_cache: Some(DiskCacheOptions { dir, quota_bytes }),
            is_single_threaded: true,
            ..options(&network)
        });
        let client = client.unwrap();
        let tree = publisher.opened_by(&client).await.unwrap();
        let inode = tree.lookup_path(tree.revision().unwrap().root(), b"f").await.unwrap();
        (client, tree, blob(&inode).clone())
    };
    let (client, tree, blob) = open().await;
    for offset in (0..64 * LEAF).step_by(8 * LEAF) {
        tree.read(&blob, offset as u64, 8 * LEAF).await.unwrap();
        client.flush().await;
    }
    let mut verified_ahead = Vec::new();
    for len in [MIB, MIB + LEAF] {
        let (_client, tree, blob) = open().await;
        let file = tree.open_file(blob);
        let before = tree.counters();
        file.try_read(0, len).expect("all is cached").unwrap();
        let read = tree.counters().disk_frames;
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let after = tree.counters();
        assert_eq!(after.network_frames, before.network_frames);
        verified_ahead.push(after.disk_frames - read);
    }
    assert!(verified_ahead[0] > 0 && verified_ahead[1] == 0, "{verified_ahead:?}");
}

#[tokio::test]
async fn concurrent_readers_share_one_fetch() {
    let mut publisher = Publisher::new(7);
    let published = publisher.publish(&dir([("f", Node::File(noise(1, 100_000)))]), NOW);
    let tree = open(&publisher, &published).await;
    let inode = tree.lookup_path(tree.revision().unwrap().root(), b"f").await.unwrap();
    let before = tree.counters().network_frames;
    let reads = (0..50).map(|_| tree.read(blob(&inode), 0, 100_000));
    assert!(
        futures_util::future::join_all(reads)
            .await
            .into_iter()
            .all(|bytes| bytes.unwrap() == noise(1, 100_000))
    );
    assert_eq!(tree.counters().network_frames - before, 1);
}

#[tokio::test]
async fn second_file_of_a_directory_is_read_with_its_neighbours() {
    let directory = |seed: u64| {
        let file = |n| (format!("f{n:02}").into_bytes(), Node::File(noise(seed + n, 3000)));
        Node::Dir((0..60).map(file).collect())
    };
    let mut publisher = Publisher::new(5);
    let published = publisher
        .publish(&dir([("a", directory(0)), ("b", directory(100)), ("c", directory(200))]), NOW);
    let tree = open(&publisher, &published).await;
    let revision = tree.revision().unwrap();
    let mut fetched = 0;
    // Not in the order of names, as modules of a program import each other.
    for n in (0..60).map(|n| n * 23 % 60) {
        let directory = tree.lookup_path(revision.root(), b"a").await.unwrap();
        let name = format!("f{n:02}");
        let file = tree.lookup(&directory, name.as_bytes()).await.unwrap().unwrap();
        if tree.try_read(blob(&file.inode), 0, 3000).is_none() {
            fetched += 1;
            tree.read_ahead_beside(&directory, name.as_bytes());
        }
        assert_eq!(tree.read(blob(&file.inode), 0, 3000).await.unwrap(), noise(n, 3000));
        // The replica answers at once; what was asked for in the background arrives.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!((3..=8).contains(&fetched), "{fetched} of 60 files were waited for");

    // A single file of a directory is read alone.
    let before = tree.counters().network_frames;
    for (path, seed) in [(b"b", 100), (b"c", 200)] {
        let directory = tree.lookup_path(revision.root(), path).await.unwrap();
        let file = tree.lookup(&directory, b"f30").await.unwrap().unwrap();
        tree.read_ahead_beside(&directory, b"f30");
        assert_eq!(tree.read(blob(&file.inode), 0, 3000).await.unwrap(), noise(seed + 30, 3000));
    }
    assert!(tree.counters().network_frames - before <= 4, "two pages and two files");
}
