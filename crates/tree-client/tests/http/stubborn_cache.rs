//! A cache that ignores `Cache-Control`: a new revision is still seen within a minute.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use tokio::time::Instant;
use vouch_tree_client::{Client, ClientOptions, Clock, HttpConnector, HttpOptions, HttpRequest, HttpResponse, HttpTransport, TreeOptions};

use crate::seeded_lies::{Files, files_of, response};
use crate::{FILES, Site, content, read_all, wrong_slices};

type Kept = HashMap<(String, Option<Range<u64>>), (u16, Bytes)>;

struct StubbornCache {
    origin: Mutex<Files>,
    kept: Mutex<Kept>,
}

impl HttpTransport for StubbornCache {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, String>> {
        async move {
            let origin = self.origin.lock();
            let mut kept = self.kept.lock();
            let key = (request.url.to_string(), request.range.clone());
            let (status, body) = kept.entry(key).or_insert_with(|| match origin.get(request.url.path().trim_start_matches('/')) {
                None => (404, Bytes::new()),
                Some(whole) => match &request.range {
                    None => (200, whole.clone()),
                    Some(range) => (206, whole.slice(range.start as usize..range.end as usize)),
                },
            });
            Ok(response(*status, request.range.map(|range| range.start), body.clone()))
        }
        .boxed()
    }
}

/// Keeps wrong bytes of each object.
struct PoisonedCache {
    files: Files,
    ignores_no_cache: bool,
    ignores_queries: bool,
}

impl HttpTransport for PoisonedCache {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, String>> {
        async move {
            let path = request.url.path().trim_start_matches('/').to_owned();
            let Some(whole) = self.files.get(&path) else { return Ok(response(404, None, Bytes::new())) };
            let range = request.range.clone().unwrap_or(0..whole.len() as u64);
            let mut body = whole.slice(range.start as usize..range.end as usize);
            let asks_origin = (request.is_anew && !self.ignores_no_cache) || (request.url.query().is_some() && !self.ignores_queries);
            if path != "manifest" && !asks_origin {
                body = body.iter().map(|byte| !byte).collect();
            }
            let status = if request.range.is_some() { 206 } else { 200 };
            Ok(response(status, request.range.map(|range| range.start), body))
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_objects_in_a_cache_are_fetched_anew() {
    let site = wrong_slices::site_with_large_files(4);
    for (ignores_no_cache, ignores_queries) in [(true, false), (false, true)] {
        let cache = Arc::new(PoisonedCache { files: files_of(&site), ignores_no_cache, ignores_queries });
        let tree = wrong_slices::open_through(&site, cache, "http://cache:1").await.unwrap();
        for number in 0..4 {
            assert!(wrong_slices::read(&tree, number).await.unwrap() == wrong_slices::content(number), "file {number}");
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
    let cache = Arc::new(StubbornCache { origin: Mutex::new(files_of(&site)), kept: Mutex::default() });
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
    let client = Client::new(ClientOptions { connector, clock, ..ClientOptions::default() }).unwrap();
    let options = TreeOptions { replicas: vec!["http://store/".into()], only_replicas: true, ..TreeOptions::default() };
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
