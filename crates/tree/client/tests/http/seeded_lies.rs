//! A lying store or poisoned cache, in memory on a virtual clock: no wrong byte, no hang, no panic.
//! Environment: `VOUCH_SEEDED_LIE_CASES`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use vouch_tree_client::{
    Client, ClientOptions, HttpConnector, HttpOptions, HttpRequest, HttpResponse, HttpTransport,
    TransportError, TreeOptions,
};

use crate::{FILES, Site, content, read_all, wrong_slices};

const TIMEOUT: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(10);

const LARGE_EVERY: u64 = 32;

pub(crate) type Files = HashMap<String, Bytes>;

#[derive(Debug, Clone, Copy)]
enum Lie {
    FlippedByte,
    Truncated,
    Empty,
    ErrorPage,
    Status(u16),
    OtherRange,
    RangeIgnored,
    RangeOfOtherPlace,
    OtherObject,
    OldHead,
    Endless,
    Stalled,
    StalledBody,
    Broken,
    RedirectLoop,
}

const LIES: [Lie; 18] = [
    Lie::FlippedByte,
    Lie::Truncated,
    Lie::Empty,
    Lie::ErrorPage,
    Lie::Status(404),
    Lie::Status(403),
    Lie::Status(503),
    Lie::Status(206),
    Lie::OtherRange,
    Lie::RangeIgnored,
    Lie::RangeOfOtherPlace,
    Lie::OtherObject,
    Lie::OldHead,
    Lie::Endless,
    Lie::Stalled,
    Lie::StalledBody,
    Lie::Broken,
    Lie::RedirectLoop,
];

type RequestKey = (String, Option<Range<u64>>);

/// Its cache keeps each lie under its URL and range.
struct LyingStore {
    files: Arc<Files>,
    old_manifest: Bytes,
    random: AtomicU64,
    rate: u64,
    is_cache: bool,
    poisoned: Mutex<HashMap<RequestKey, Option<Lie>>>,
}

impl LyingStore {
    fn random(&self) -> u64 {
        let mut z = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn lie(&self, request: &HttpRequest) -> Option<Lie> {
        let random = self.random();
        let new = (random % 256 < self.rate).then(|| LIES[(random >> 8) as usize % LIES.len()]);
        if !self.is_cache {
            return new;
        }
        *self.poisoned.lock().entry((request.url.to_string(), request.range.clone())).or_insert(new)
    }

    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        let lie = self.lie(&request);
        let whole = match lie {
            Some(Lie::OldHead) => Some(&self.old_manifest),
            Some(Lie::OtherObject) => {
                self.files.values().nth(self.random() as usize % self.files.len())
            }
            _ => self.files.get(request.url.path().trim_start_matches('/')),
        };
        let Some(whole) = whole else { return Ok(response(404, None, Bytes::new())) };
        let len = whole.len() as u64;
        let range = request.range.filter(|_| !matches!(lie, Some(Lie::RangeIgnored)));
        let (mut start, mut end) =
            range.as_ref().map_or((0, len), |range| (range.start.min(len), range.end.min(len)));
        let mut named = start;
        match lie {
            Some(Lie::OtherRange) => {
                (start, end) = (start.saturating_sub(1), end.saturating_sub(1));
                named = start;
            }
            Some(Lie::RangeOfOtherPlace) => (start, end) = (len - (end - start), len),
            _ => {}
        }
        let mut body = whole.slice(start as usize..end as usize);
        let status = if range.is_some() { 206 } else { 200 };
        let named = range.is_some().then_some(named);
        match lie {
            Some(Lie::FlippedByte) if !body.is_empty() => {
                let mut bytes = body.to_vec();
                let at = self.random() as usize % bytes.len();
                bytes[at] ^= 1 << (self.random() % 8);
                body = bytes.into();
            }
            Some(Lie::Truncated) => body.truncate(self.random() as usize % body.len().max(1)),
            Some(Lie::Empty) => body.clear(),
            Some(Lie::ErrorPage) => {
                return Ok(response(
                    200,
                    None,
                    Bytes::from_static(b"<html>Your session has expired.</html>"),
                ));
            }
            Some(Lie::Status(status)) => {
                return Ok(response(status, None, Bytes::from_static(b"no")));
            }
            Some(Lie::Endless) => {
                let chunk = Bytes::from_static(&[0x5a; 65_536]);
                return Ok(HttpResponse {
                    status,
                    range_start: named,
                    date: None,
                    body: stream::repeat(chunk).map(Ok).boxed(),
                });
            }
            Some(Lie::Stalled) => {
                sleep(TIMEOUT).await;
                return Err("timed out".into());
            }
            Some(Lie::StalledBody | Lie::Broken) => {
                let pause =
                    if matches!(lie, Some(Lie::StalledBody)) { TIMEOUT } else { Duration::ZERO };
                body.truncate(body.len() / 2);
                let rest = stream::once(async move {
                    sleep(pause).await;
                    Err("the connection broke".into())
                });
                return Ok(HttpResponse {
                    status,
                    range_start: named,
                    date: None,
                    body: stream::iter([Ok(body)]).chain(rest).boxed(),
                });
            }
            Some(Lie::RedirectLoop) => return Err("too many redirects".into()),
            _ => {}
        }
        Ok(response(status, named, body))
    }
}

impl HttpTransport for LyingStore {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        self.answer(request).boxed()
    }
}

pub(crate) fn response(status: u16, range_start: Option<u64>, body: Bytes) -> HttpResponse {
    HttpResponse { status, range_start, date: None, body: stream::iter([Ok(body)]).boxed() }
}

struct TwoRevisions {
    site: Site,
    large_files: usize,
    files: Arc<Files>,
    old_manifest: Bytes,
}

fn number_of(file: usize, revision: u64) -> usize {
    if revision == 2 && file == 7 { 9 } else { file }
}

impl TwoRevisions {
    fn new(pack_len_max: u32) -> Self {
        Self::of(Site::new(pack_len_max), pack_len_max, 0)
    }

    fn with_large_files(large_files: usize) -> Self {
        Self::of(wrong_slices::site_with_large_files(large_files), 32 << 20, large_files)
    }

    fn of(site: Site, pack_len_max: u32, large_files: usize) -> Self {
        let old_manifest = std::fs::read(site.db().join("manifest")).unwrap().into();
        std::fs::write(site.dir.path().join("source/dir3/file7"), content(9)).unwrap();
        site.publish(pack_len_max);
        let files = Arc::new(files_of(&site));
        Self { site, large_files, files, old_manifest }
    }
}

pub(crate) fn files_of(site: &Site) -> Files {
    let mut files = Files::new();
    for dir in ["", "packs", "index"] {
        for entry in std::fs::read_dir(site.db().join(dir)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.strip_prefix(site.db()).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(path).unwrap().into());
            }
        }
    }
    files
}

async fn run(case: u64, tree: &TwoRevisions) -> (usize, usize) {
    let transport = Arc::new(LyingStore {
        files: Arc::clone(&tree.files),
        old_manifest: tree.old_manifest.clone(),
        random: AtomicU64::new(case.wrapping_mul(0xd134_2543_de82_ef95)),
        rate: [8, 32, 100, 256][(case / 2 % 4) as usize],
        is_cache: case % 2 == 1,
        poisoned: Mutex::default(),
    });
    let make = move |_: &str, _: Duration| Arc::clone(&transport) as Arc<dyn HttpTransport>;
    let options = HttpOptions {
        proxies: vec!["DIRECT".into()],
        timeout: TIMEOUT,
        transport: Some(Arc::new(make)),
        ..HttpOptions::default()
    };
    let connector = Arc::new(HttpConnector::new(options).unwrap());
    let options = ClientOptions {
        connector,
        deadline: DEADLINE,
        connect_timeout: TIMEOUT,
        seed: Some(case),
        ..ClientOptions::default()
    };
    let began = Instant::now();
    let options_of_tree = TreeOptions {
        replicas: vec!["http://store/".into()],
        only_replicas: true,
        ..TreeOptions::default()
    };
    let opened = Client::new(options).unwrap().open(&tree.site.name, &options_of_tree).await;
    let Ok(opened) = opened else {
        assert!(
            began.elapsed() <= DEADLINE + TIMEOUT,
            "case {case}: opening took {:?}",
            began.elapsed()
        );
        return (0, 1);
    };
    let before = opened.newest().number();
    let check_time = |began: Instant| {
        assert!(began.elapsed() <= 2 * DEADLINE + TIMEOUT, "case {case}: {:?}", began.elapsed())
    };
    let began = Instant::now();
    let results = read_all(&opened).await;
    check_time(began);
    let after = opened.newest().number();
    let mut counts = (0, 0);
    for (file, result) in results.into_iter().enumerate() {
        match result {
            Ok(bytes) => {
                assert!(
                    [before, after]
                        .iter()
                        .any(|revision| bytes == content(number_of(file, *revision))),
                    "case {case}: file {file}"
                );
                counts.0 += 1;
            }
            Err(_) => counts.1 += 1,
        }
    }
    for file in 0..tree.large_files {
        let began = Instant::now();
        match wrong_slices::read(&opened, file).await {
            Ok(bytes) => {
                assert!(bytes == wrong_slices::content(file), "case {case}: large file {file}");
                counts.0 += 1;
            }
            Err(_) => counts.1 += 1,
        }
        check_time(began);
    }
    counts
}

#[test]
fn seeded_lies_give_no_wrong_byte_and_end_in_time() {
    let cases: u64 = std::env::var("VOUCH_SEEDED_LIE_CASES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(400);
    let (trees, large) = (
        [TwoRevisions::new(32 << 20), TwoRevisions::new(256 << 10)],
        TwoRevisions::with_large_files(6),
    );
    let (next, right, refused) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let case = next.fetch_add(1, Ordering::Relaxed);
                    if case >= cases {
                        return;
                    }
                    // A runtime of its own ends all tasks of the case.
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .start_paused(true)
                        .build()
                        .unwrap();
                    let tree = if case / 8 % LARGE_EVERY == 0 {
                        &large
                    } else {
                        &trees[(case / 8 % 2) as usize]
                    };
                    let counts = runtime.block_on(run(case, tree));
                    right.fetch_add(counts.0 as u64, Ordering::Relaxed);
                    refused.fetch_add(counts.1 as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let (right, refused) = (right.into_inner(), refused.into_inner());
    println!("{cases} cases: {right} files read right, {refused} refused; {FILES} files in a tree");
    assert!(right > cases && refused > cases / 4, "{right} files read, {refused} refused");
}
