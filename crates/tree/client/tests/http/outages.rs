//! A web server, its proxy or its name that is away for a moment: reads wait for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::time::Instant;
use vouch_tree_client::{
    ErrorClass, HttpRequest, HttpResponse, HttpTransport, TransportError, VerifyEvent,
};

use crate::seeded_lies::{Files, files_of, response};
use crate::wrong_slices::{content, open_through, read, site_with_large_files};
use crate::{Site, honest};

#[derive(Debug, Clone, Copy)]
enum Outage {
    Fails(&'static str),
    Answers(u16),
    ResetsBody,
}

const OUTAGES: [Outage; 6] = [
    Outage::Fails("Connection refused (os error 111)"),
    Outage::Fails("the name store does not resolve: Temporary failure in name resolution"),
    Outage::Fails("Connection reset by peer (os error 104)"),
    Outage::Answers(502),
    Outage::Answers(503),
    Outage::ResetsBody,
];

struct Store {
    files: Files,
    outage: Outage,
    away_until: Mutex<Option<Instant>>,
}

impl Store {
    fn start(site: &Site, outage: Outage) -> Arc<Store> {
        Arc::new(Store { files: files_of(site), outage, away_until: Mutex::default() })
    }

    fn leave(&self, s: u64) {
        *self.away_until.lock() = Some(Instant::now() + Duration::from_secs(s));
    }
}

impl HttpTransport for Store {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let is_away = self.away_until.lock().is_some_and(|until| Instant::now() < until);
            let right = honest(&self.files, &request);
            match self.outage {
                _ if !is_away || right.status == 404 => Ok(right),
                Outage::Fails(why) => Err(why.into()),
                Outage::Answers(status) => {
                    Ok(response(status, None, Bytes::from_static(b"<html>try again</html>")))
                }
                Outage::ResetsBody => Ok(HttpResponse {
                    body: stream::iter([Err("Connection reset by peer (os error 104)".into())])
                        .boxed(),
                    ..right
                }),
            }
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn reads_wait_for_server_until_deadline() {
    let site = site_with_large_files(8);
    for outage in OUTAGES {
        for proxy in ["DIRECT", "http://cache:3128"] {
            let store = Store::start(&site, outage);
            let tree = open_through(&site, store.clone(), proxy).await.unwrap();
            store.leave(12);
            let begun = Instant::now();
            let bytes = read(&tree, 0)
                .await
                .unwrap_or_else(|error| panic!("{outage:?} of {proxy}: {error}"));
            assert!(bytes == content(0), "{outage:?} of {proxy}");
            assert!(
                begun.elapsed() <= Duration::from_millis(14_500),
                "{outage:?} of {proxy}: {:?}",
                begun.elapsed()
            );
            // The default limit of an operation is 30 s.
            store.leave(3600);
            for _ in 0..2 {
                let begun = Instant::now();
                let error = read(&tree, 7).await.unwrap_err();
                assert_eq!(
                    error.class(),
                    ErrorClass::Unreachable,
                    "{outage:?} of {proxy}: {error}"
                );
                assert!(
                    (30..=31).contains(&begun.elapsed().as_secs()),
                    "{outage:?} of {proxy}: {:?}",
                    begun.elapsed()
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn opening_waits_for_server_until_deadline() {
    let site = Site::new(32 << 20);
    for outage in OUTAGES {
        let store = Store::start(&site, outage);
        store.leave(25);
        let begun = Instant::now();
        open_through(&site, store.clone(), "DIRECT")
            .await
            .unwrap_or_else(|error| panic!("{outage:?}: {error}"));
        assert!(
            begun.elapsed() <= Duration::from_millis(27_500),
            "{outage:?}: {:?}",
            begun.elapsed()
        );
        store.leave(3600);
        let begun = Instant::now();
        let error = open_through(&site, store, "DIRECT").await.err().unwrap();
        assert_eq!(error.class(), ErrorClass::Unreachable, "{outage:?}: {error}");
        assert!(
            (27..=31).contains(&begun.elapsed().as_secs()),
            "{outage:?}: {:?}",
            begun.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn traversal_waits_for_server_until_deadline() {
    let site = site_with_large_files(8);
    let store = Store::start(&site, OUTAGES[0]);
    for (away_s, ends_well) in [(20, true), (3600, false)] {
        let tree = open_through(&site, store.clone(), "DIRECT").await.unwrap();
        store.leave(away_s);
        let begun = Instant::now();
        let mut verification = tree.verify_all(&tree.revision().unwrap());
        let mut last = None;
        while let Some(event) = verification.next().await {
            last = Some(event);
        }
        assert_eq!(
            matches!(last, Some(Ok(VerifyEvent::Done { bad: 0, .. }))),
            ends_well,
            "{last:?}"
        );
        assert!((20..=33).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
        store.leave(0);
    }
}
