//! An ordered list of proxies: failover, and recovery to the first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use vouch_tree_client::{Client, ClientOptions, HttpConnector, HttpOptions, HttpRequest, HttpResponse, HttpTransport, TreeOptions};

use crate::Site;
use crate::seeded_lies::{Files, files_of, response};

#[derive(Default)]
struct Proxies {
    files: Files,
    first_is_down: AtomicBool,
    answered: Mutex<Vec<String>>,
}

struct Proxy {
    name: String,
    proxies: Arc<Proxies>,
}

impl HttpTransport for Proxy {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, String>> {
        async move {
            if self.name == "http://first:1" && self.proxies.first_is_down.load(Ordering::SeqCst) {
                return Err("connection refused".to_owned());
            }
            self.proxies.answered.lock().push(self.name.clone());
            let whole = self.proxies.files.get(request.url.path().trim_start_matches('/'));
            Ok(match (whole, &request.range) {
                (None, _) => response(404, None, Bytes::new()),
                (Some(whole), None) => response(200, None, whole.clone()),
                (Some(whole), Some(range)) => response(206, Some(range.start), whole.slice(range.start as usize..range.end as usize)),
            })
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn first_proxy_is_used_again_once_it_has_recovered() {
    let site = Site::new(32 << 20);
    let proxies = Arc::new(Proxies { files: files_of(&site), ..Proxies::default() });
    let made = Arc::clone(&proxies);
    let make =
        move |name: &str, _: Duration| Arc::new(Proxy { name: name.to_owned(), proxies: Arc::clone(&made) }) as Arc<dyn HttpTransport>;
    let names = ["http://first:1", "http://second:1"].map(str::to_owned).to_vec();
    let options = HttpOptions { proxies: names, transport: Some(Arc::new(make)), ..HttpOptions::default() };
    let connector = Arc::new(HttpConnector::new(options).unwrap());
    let client = Client::new(ClientOptions { connector, ..ClientOptions::default() }).unwrap();
    let options = TreeOptions { replicas: vec!["http://store/".into()], only_replicas: true, ..TreeOptions::default() };
    let tree = client.open(&site.name, &options).await.unwrap();
    let used = || std::mem::take(&mut *proxies.answered.lock());
    assert!(used().iter().all(|name| name == "http://first:1"));

    proxies.first_is_down.store(true, Ordering::SeqCst);
    tree.refresh().await.unwrap();
    assert_eq!(used(), ["http://second:1"]);
    proxies.first_is_down.store(false, Ordering::SeqCst);
    tree.refresh().await.unwrap();
    assert_eq!(used(), ["http://second:1"], "a proxy that failed is not asked at once");
    tokio::time::sleep(Duration::from_secs(31)).await;
    used();
    tree.refresh().await.unwrap();
    assert_eq!(used(), ["http://first:1"]);
}
