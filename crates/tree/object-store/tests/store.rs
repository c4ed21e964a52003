//! The interface of object stores on a tree that was published and is read from its database.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _};
use vouch_object_store::TreeStore;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{Iv, TreeName};
use vouch_tree_client::{Client, ClientOptions, LocalConnector, TreeOptions};
use vouch_tree_publish::{Options, Progress, Signer, publish};
use vouch_tree_store::{Database, WriteOptions};

fn publish_into(db: &FilePath, source: &FilePath) {
    let (root, key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
    let cert = SigningCert::issue(&root, key.public(), 1, 0, u64::MAX / 2);
    let name = TreeName::new("localhost", root.public().hostid()).expect("a name");
    Database::create(db, *name.hostid(), Iv::from_bytes([3; 32])).expect("a database");
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let writer = Database::open_write(db, WriteOptions::default()).expect("a writer");
    let options = Options::new(source.to_owned(), name, now, 3600);
    publish(&writer, &Signer { key: &key, cert }, &options, &Progress::default())
        .expect("a revision");
}

/// A large file, files in directories, names that paths do not allow, links.
async fn sample() -> (tempfile::TempDir, TreeStore, Vec<u8>) {
    let dir = tempfile::tempdir().expect("a directory");
    let (source, db) = (dir.path().join("source"), dir.path().join("db"));
    let large: Vec<u8> =
        (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (path, content) in [
        ("large", &large[..]),
        ("t/year=2025/a.csv", b"1,2\n"),
        ("t/year=2026/b.csv", b"3,4\n"),
        ("t2/c", b""),
        ("odd/50% \u{e9}~#", b"odd"),
    ] {
        let path = source.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
        std::fs::write(path, content).expect("a file");
    }
    for n in 0..3000 {
        let below = source.join("many");
        std::fs::create_dir_all(&below).expect("a directory");
        std::fs::write(below.join(format!("{n:04}")), n.to_string()).expect("a file");
    }
    for (target, link) in [
        ("year=2025/a.csv", "t/link"),
        ("year=2025", "t/directory"),
        ("/etc", "t/out"),
        ("none", "t/gone"),
        ("circle", "t/circle"),
    ] {
        std::os::unix::fs::symlink(target, source.join(link)).expect("a link");
    }
    publish_into(&db, &source);
    let connector = LocalConnector::open(&db).expect("a replica");
    let name = connector.name().expect("a name");
    let options = ClientOptions { connector: Arc::new(connector), ..ClientOptions::default() };
    let client = Client::new(options).expect("a client");
    let tree = client.open(&name, &TreeOptions::default()).await.expect("a tree");
    let revision = tree.revision().expect("fresh");
    (dir, TreeStore::new(tree, revision), large)
}

async fn names(store: &TreeStore, prefix: Option<&str>) -> Vec<String> {
    let prefix = prefix.map(Path::from);
    let listed: Vec<_> = store.list(prefix.as_ref()).try_collect().await.expect("a list");
    let mut names: Vec<String> = listed.iter().map(|meta| meta.location.to_string()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn objects_are_the_regular_files() {
    let (_dir, store, _) = sample().await;
    assert_eq!(
        names(&store, Some("t")).await,
        ["t/link", "t/year=2025/a.csv", "t/year=2026/b.csv"]
    );
    assert_eq!(names(&store, None).await.len(), 3000 + 6);
    assert_eq!(names(&store, Some("t/year=2025/a.csv")).await, [""; 0]);
    assert_eq!(names(&store, Some("none")).await, [""; 0]);
    let listed = store.list_with_delimiter(Some(&Path::from("t"))).await.expect("a list");
    let below: Vec<_> = listed.common_prefixes.iter().map(Path::to_string).collect();
    assert_eq!(below, ["t/year=2025", "t/year=2026"]);
    assert_eq!(listed.objects.len(), 1, "the link");
    let many = store.list_with_delimiter(Some(&Path::from("many"))).await.expect("a list");
    assert_eq!(many.objects.len(), 3000, "all pages");
    let odd = names(&store, Some("odd")).await;
    let read = store.get(&Path::parse(&odd[0]).expect("as listed")).await.expect("an object");
    assert_eq!(&read.bytes().await.expect("its bytes")[..], b"odd");
}

#[tokio::test]
async fn ranges_are_those_of_the_file() {
    let (_dir, store, large) = sample().await;
    let path = Path::from("large");
    let whole = store.get(&path).await.expect("an object").bytes().await.expect("its bytes");
    assert!(whole == large);
    for (range, wanted) in [
        (GetRange::Bounded(5..2_000_000), 5..2_000_000),
        (GetRange::Offset(2_999_990), 2_999_990..3_000_000),
        (GetRange::Suffix(8), 2_999_992..3_000_000),
        (GetRange::Bounded(2_999_999..4_000_000), 2_999_999..3_000_000),
    ] {
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        let read = store.get_opts(&path, options).await.expect("an object");
        assert_eq!(read.range, wanted.start as u64..wanted.end as u64);
        assert!(read.bytes().await.expect("its bytes") == large[wanted]);
    }
    let ranges = [0..4, 1_000_000..1_000_003, 2_999_999..3_000_000];
    let read = store.get_ranges(&path, &ranges).await.expect("the ranges");
    for (range, bytes) in ranges.iter().zip(read) {
        assert!(bytes == large[range.start as usize..range.end as usize]);
    }
}

#[tokio::test]
async fn conditions_and_refusals_are_those_of_a_read_only_store() {
    let (_dir, store, large) = sample().await;
    let path = Path::from("large");
    let meta = store.head(&path).await.expect("an object");
    assert_eq!((meta.size, meta.version.as_deref()), (large.len() as u64, Some("1")));
    let tag = meta.e_tag.expect("a tag");
    let same = GetOptions { if_none_match: Some(tag.clone()), ..GetOptions::default() };
    assert!(matches!(store.get_opts(&path, same).await, Err(Error::NotModified { .. })));
    let other = store.head(&Path::from("t/link")).await.expect("an object");
    assert_ne!(other.e_tag, Some(tag));
    for path in ["none", "t", "t/out", "t/gone", "t/circle", "t/year=2025/a.csv/b"] {
        let got = store.get(&Path::from(path)).await;
        assert!(matches!(got, Err(Error::NotFound { .. })), "{path}: {got:?}");
    }
    let refused = [
        store.put(&path, "x".into()).await.err(),
        store.delete(&path).await.err(),
        store.copy(&path, &Path::from("copy")).await.err(),
    ];
    assert!(refused.iter().all(|error| matches!(error, Some(Error::NotSupported { .. }))));
}
