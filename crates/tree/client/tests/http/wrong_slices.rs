use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use vouch_tree::Content;
use vouch_tree_client::{
    HttpOptions, HttpRequest, HttpResponse, HttpTransport, TransportError, Tree,
};

use crate::seeded_lies::{Files, files_of, response};
use crate::{Site, open_at};

const FILES: usize = 16;
const FILE_LEN: usize = 1 << 20;

const SLICE_LEN: u64 = 2 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lies {
    None,
    AllContent,
    First,
}

struct Store {
    files: Files,
    lies: Lies,
    fetched: Mutex<HashMap<(String, u64), usize>>,
}

impl Store {
    fn count(&self, path: &str, range: &Range<u64>) -> usize {
        let mut fetched = self.fetched.lock();
        let slices = range.start / SLICE_LEN..range.end.div_ceil(SLICE_LEN);
        let before = slices.map(|number| {
            let count = fetched.entry((path.to_owned(), number)).or_default();
            *count += 1;
            *count - 1
        });
        before.max().unwrap_or_default()
    }
}

impl HttpTransport for Store {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let path = request.url.path().trim_start_matches('/').to_owned();
            let Some(whole) = self.files.get(&path) else {
                return Ok(response(404, None, Bytes::new()));
            };
            let range = request.range.clone().unwrap_or(0..whole.len() as u64);
            let is_first = self.count(&path, &range) == 0;
            let mut body = whole.slice(range.start as usize..range.end as usize);
            let is_lie = match self.lies {
                Lies::None => false,
                Lies::AllContent => path.starts_with("packs/d-"),
                Lies::First => is_first && path != "manifest",
            };
            if is_lie {
                body = body.iter().map(|byte| !byte).collect();
            }
            let status = if request.range.is_some() { 206 } else { 200 };
            Ok(response(status, request.range.map(|range| range.start), body))
        }
        .boxed()
    }
}

pub(crate) fn content(number: usize) -> Vec<u8> {
    let mut bytes = vec![0; FILE_LEN];
    blake3::Hasher::new().update(&number.to_be_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

pub(crate) fn site_with_large_files(count: usize) -> Site {
    Site::with_source(32 << 20, |source| {
        for number in 0..count {
            std::fs::write(source.join(format!("large{number}")), content(number)).unwrap();
        }
    })
}

async fn open(
    site: &Site,
    transport: Arc<dyn HttpTransport>,
) -> vouch_tree_client::Result<Arc<Tree>> {
    open_through(site, transport, "DIRECT").await
}

pub(crate) async fn open_through(
    site: &Site,
    transport: Arc<dyn HttpTransport>,
    proxy: &str,
) -> vouch_tree_client::Result<Arc<Tree>> {
    let make = move |_: &str, _: Duration| Arc::clone(&transport);
    let options = HttpOptions {
        proxies: vec![proxy.into()],
        transport: Some(Arc::new(make)),
        ..HttpOptions::default()
    };
    open_at(&site.name, options, vec!["http://store/".into()]).await
}

pub(crate) async fn read(tree: &Tree, number: usize) -> vouch_tree_client::Result<Bytes> {
    let inode =
        tree.lookup_path(tree.revision()?.root(), format!("large{number}").as_bytes()).await?;
    let Content::Regular { blob, .. } = &inode.content else { panic!("not a regular file") };
    tree.read(blob, 0, FILE_LEN).await
}

#[tokio::test(start_paused = true)]
async fn wrong_slice_is_fetched_twice_at_most() {
    let site = site_with_large_files(FILES);
    let store = Arc::new(Store {
        files: files_of(&site),
        lies: Lies::AllContent,
        fetched: Mutex::default(),
    });
    let tree = open(&site, store.clone()).await.unwrap();
    for _ in 0..3 {
        for number in 0..FILES {
            assert!(read(&tree, number).await.is_err());
        }
    }
    let fetched = store.fetched.lock();
    let content: Vec<_> =
        fetched.iter().filter(|((path, _), _)| path.starts_with("packs/d-")).collect();
    assert!(content.len() as u64 >= (FILES * FILE_LEN) as u64 / SLICE_LEN, "{content:?}");
    assert!(content.iter().all(|(_, count)| **count <= 2), "{content:?}");
}

#[tokio::test(start_paused = true)]
async fn slices_that_come_right_the_second_time_are_read() {
    let site = site_with_large_files(FILES);
    let store =
        Arc::new(Store { files: files_of(&site), lies: Lies::First, fetched: Mutex::default() });
    let tree = open(&site, store).await.unwrap();
    for number in 0..FILES {
        assert!(read(&tree, number).await.unwrap() == content(number), "file {number}");
    }
}

/// As `rclone serve s3` does.
struct RangesWithStatus200 {
    store: Store,
    shift: u64,
}

impl HttpTransport for RangesWithStatus200 {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        let answer = self.store.get(request);
        async move {
            let answer = answer.await?;
            let status = if answer.status == 206 { 200 } else { answer.status };
            let range_start = answer.range_start.map(|start| start + self.shift);
            Ok(HttpResponse { status, range_start, ..answer })
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn range_with_status_200_is_read_if_it_is_the_one_asked_for() {
    let site = site_with_large_files(FILES);
    for shift in [0, 1] {
        let store = Store { files: files_of(&site), lies: Lies::None, fetched: Mutex::default() };
        let tree = open(&site, Arc::new(RangesWithStatus200 { store, shift })).await.unwrap();
        for number in 0..FILES {
            match read(&tree, number).await {
                Ok(bytes) => assert!(shift == 0 && bytes == content(number), "file {number}"),
                Err(error) => assert!(
                    shift > 0 && error.to_string().contains("the server sent another range"),
                    "{error}"
                ),
            }
        }
    }
}

struct EndlessManifest(AtomicU64);

impl HttpTransport for EndlessManifest {
    fn get(&self, _: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let chunk = Bytes::from_static(&[0x5a; 65_536]);
        // More than the first chunk would wait for ever.
        let body = stream::once(async move { Ok(chunk) }).chain(stream::pending()).boxed();
        async move { Ok(HttpResponse { status: 200, range_start: None, date: None, body }) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn manifest_that_begins_wrong_is_refused_at_once() {
    let site = Site::new(32 << 20);
    let store = Arc::new(EndlessManifest(AtomicU64::new(0)));
    let began = tokio::time::Instant::now();
    assert!(open(&site, store.clone()).await.is_err());
    assert!(
        store.0.load(Ordering::SeqCst) > 1 && began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}
