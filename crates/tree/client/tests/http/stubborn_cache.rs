//! A cache that ignores `Cache-Control`: a new revision is still seen within a minute.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use tokio::time::Instant;
use vouch_tree_client::{
    Client, ClientOptions, Clock, DatabaseFiles, HttpConnector, HttpOptions, HttpRequest,
    HttpResponse, HttpTransport, TransportError, TreeOptions,
};

use crate::seeded_lies::{Files, files_of, response};
use crate::{FILES, Site, content, read_all, wrong_slices};

type Kept = HashMap<(String, Option<Range<u64>>), (u16, Bytes)>;

struct StubbornCache {
    origin: Mutex<Files>,
    kept: Mutex<Kept>,
}

impl HttpTransport for StubbornCache {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let origin = self.origin.lock();
            let mut kept = self.kept.lock();
            let key = (request.url.to_string(), request.range.clone());
            let (status, body) = kept.entry(key).or_insert_with(|| {
                match origin.get(request.url.path().trim_start_matches('/')) {
                    None => (404, Bytes::new()),
                    Some(whole) => match &request.range {
                        None => (200, whole.clone()),
                        Some(range) => (206, whole.slice(range.start as usize..range.end as usize)),
                    },
                }
            });
            Ok(response(*status, request.range.map(|range| range.start), body.clone()))
        }
        .boxed()
    }
}

#[derive(Debug, Clone, Copy)]
enum Wrong {
    Bytes,
    Shorter,
    Longer,
    Page,
    Status(u16),
}

const WRONG: [Wrong; 9] = [
    Wrong::Bytes,
    Wrong::Shorter,
    Wrong::Longer,
    Wrong::Page,
    Wrong::Status(204),
    Wrong::Status(400),
    Wrong::Status(404),
    Wrong::Status(410),
    Wrong::Status(416),
];

/// Keeps a wrong answer under each first URL, and obeys `Cache-Control` or queries only.
struct PoisonedCache {
    files: Files,
    wrong: Wrong,
    obeys_no_cache: bool,
}

impl HttpTransport for PoisonedCache {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let path = request.url.path().trim_start_matches('/').to_owned();
            let Some(whole) = self.files.get(&path) else {
                return Ok(response(404, None, Bytes::new()));
            };
            let range = request.range.clone().unwrap_or(0..whole.len() as u64);
            let body = whole.slice(range.start as usize..range.end as usize);
            let (status, start) =
                if request.range.is_some() { (206, Some(range.start)) } else { (200, None) };
            let has_other_query =
                request.url.query().is_some_and(|query| path != "manifest" || query.contains('&'));
            if if self.obeys_no_cache { request.is_anew } else { has_other_query } {
                return Ok(response(status, start, body));
            }
            Ok(match self.wrong {
                Wrong::Bytes => response(status, start, body.iter().map(|byte| !byte).collect()),
                Wrong::Shorter => response(status, start, body.slice(..body.len() / 2)),
                Wrong::Longer => response(200, None, [&whole[..], b"more"].concat().into()),
                Wrong::Page => response(
                    200,
                    None,
                    Bytes::from_static(b"<html>Your session has expired.</html>"),
                ),
                Wrong::Status(status) => response(status, None, Bytes::new()),
            })
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_objects_in_a_cache_are_fetched_anew() {
    let site = wrong_slices::site_with_large_files(4);
    for (wrong, obeys_no_cache) in
        WRONG.into_iter().flat_map(|wrong| [(wrong, false), (wrong, true)])
    {
        let what =
            format!("{wrong:?}, {}", if obeys_no_cache { "Cache-Control" } else { "queries" });
        let cache = Arc::new(PoisonedCache { files: files_of(&site), wrong, obeys_no_cache });
        let tree = wrong_slices::open_through(&site, cache.clone(), "http://cache:1")
            .await
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let begun = Instant::now();
        for number in 0..4 {
            let bytes = wrong_slices::read(&tree, number)
                .await
                .unwrap_or_else(|error| panic!("{what}, file {number}: {error}"));
            assert!(bytes == wrong_slices::content(number), "{what}, file {number}");
        }
        // The replica is not at fault, unless only a hash shows the wrong bytes.
        assert!(
            matches!(wrong, Wrong::Bytes | Wrong::Longer) || tree.counters().lies == 0,
            "{what}: {:?}",
            tree.counters()
        );
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}: {:?}", begun.elapsed());

        let make = move |_: &str, _: Duration| Arc::clone(&cache) as Arc<dyn HttpTransport>;
        let options = HttpOptions {
            proxies: vec!["http://cache:1".into()],
            transport: Some(Arc::new(make)),
            ..HttpOptions::default()
        };
        let files = DatabaseFiles::new("http://store/", site.name.hostid(), &options).unwrap();
        let (_, view) = files.manifest().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        for segment in view.segments() {
            let whole = 0..segment.len;
            let is_anew = matches!(wrong, Wrong::Bytes);
            assert!(
                files.read(&segment, &whole, is_anew).await.unwrap()
                    == files_of(&site)[&segment.path],
                "{what}: {}",
                segment.path
            );
        }
    }
}

struct VirtualClock {
    start: i64,
    since: Instant,
}

impl Clock for VirtualClock {
    fn now(&self) -> i64 {
        self.start + self.since.elapsed().as_secs() as i64
    }
}

#[tokio::test(start_paused = true)]
async fn new_revision_is_seen_within_a_minute() {
    let site = Site::new(1 << 20);
    let cache =
        Arc::new(StubbornCache { origin: Mutex::new(files_of(&site)), kept: Mutex::default() });
    let start = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
    let clock = Arc::new(VirtualClock { start, since: Instant::now() });
    let transport = Arc::clone(&cache);
    let make = move |_: &str, _: Duration| Arc::clone(&transport) as Arc<dyn HttpTransport>;
    let options = HttpOptions {
        proxies: vec!["http://cache:1".into()],
        clock: clock.clone(),
        transport: Some(Arc::new(make)),
        ..HttpOptions::default()
    };
    let connector = Arc::new(HttpConnector::new(options).unwrap());
    let client =
        Client::new(ClientOptions { connector, clock, ..ClientOptions::default() }).unwrap();
    let options = TreeOptions {
        replicas: vec!["http://store/".into()],
        only_replicas: true,
        ..TreeOptions::default()
    };
    let tree = client.open(&site.name, &options).await.unwrap();

    std::fs::write(site.dir.path().join("source/dir3/file7"), content(9)).unwrap();
    site.publish(1 << 20);
    *cache.origin.lock() = files_of(&site);
    let published = Instant::now();
    while tree.newest().number() < 2 {
        assert!(published.elapsed() <= Duration::from_secs(61), "the new revision is not seen");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tree.refresh().await.unwrap();
    }
    let numbers = (0..FILES).map(|file| if file == 7 { 9 } else { file });
    for (bytes, number) in read_all(&tree).await.into_iter().zip(numbers) {
        assert!(bytes.unwrap() == content(number), "content {number}");
    }
}
