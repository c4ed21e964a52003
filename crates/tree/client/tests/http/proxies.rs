use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use vouch_tree_client::{
    HttpConnector, HttpOptions, HttpRequest, HttpResponse, HttpTransport, TransportError, Tree,
};

use crate::seeded_lies::{Files, files_of, response};
use crate::web_server::{Fault, WebServer};
use crate::{Site, content, honest, open_at, read_all};

#[derive(Default)]
struct Proxies {
    files: Files,
    first_is_down: AtomicBool,
    first_breaks: AtomicBool,
    first_is_silent: AtomicBool,
    first_sends_its_own_page: AtomicBool,
    answered: Mutex<Vec<String>>,
}

struct Proxy {
    name: String,
    proxies: Arc<Proxies>,
}

impl HttpTransport for Proxy {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            if self.name == "http://first:1" && self.proxies.first_is_down.load(Ordering::SeqCst) {
                return Err("connection refused".into());
            }
            if self.name == "http://first:1" && self.proxies.first_is_silent.load(Ordering::SeqCst)
            {
                return std::future::pending().await;
            }
            if self.name == "http://first:1"
                && self.proxies.first_sends_its_own_page.load(Ordering::SeqCst)
            {
                return Ok(response(200, None, Bytes::from_static(b"<html>Log in first</html>")));
            }
            self.proxies.answered.lock().push(self.name.clone());
            let mut response = honest(&self.proxies.files, &request);
            if self.name == "http://first:1" && self.proxies.first_breaks.load(Ordering::SeqCst) {
                let mut half = response.body.try_collect::<Vec<_>>().await?.concat();
                half.truncate(half.len() / 2);
                response.body =
                    stream::iter([Ok(half.into()), Err("connection reset".into())]).boxed();
            }
            Ok(response)
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn first_proxy_is_used_again_once_it_has_recovered() {
    let site = Site::new(32 << 20);
    let proxies = Arc::new(Proxies { files: files_of(&site), ..Proxies::default() });
    let tree = open_through(
        &site,
        &proxies,
        ["http://first:1", "http://second:1"].map(str::to_owned).to_vec(),
    )
    .await;
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

#[tokio::test(start_paused = true)]
async fn proxy_that_is_silent_or_wants_a_login_is_passed_over() {
    let site = Site::new(32 << 20);
    for (is_silent, wants_login) in [(true, false), (false, true)] {
        let proxies = Arc::new(Proxies {
            files: files_of(&site),
            first_is_silent: is_silent.into(),
            first_sends_its_own_page: wants_login.into(),
            ..Proxies::default()
        });
        // The limit of a connection attempt is the default.
        open_through(&site, &proxies, ["http://first:1", "DIRECT"].map(str::to_owned).to_vec())
            .await;
        assert!(
            !proxies.answered.lock().is_empty()
                && proxies.answered.lock().iter().all(|name| name == "DIRECT")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn next_proxy_goes_on_where_one_breaks_off() {
    let site = Site::new(32 << 20);
    let proxies = Arc::new(Proxies {
        files: files_of(&site),
        first_breaks: AtomicBool::new(true),
        ..Proxies::default()
    });
    let tree = open_through(
        &site,
        &proxies,
        ["http://first:1", "http://second:1"].map(str::to_owned).to_vec(),
    )
    .await;
    for (number, bytes) in read_all(&tree).await.into_iter().enumerate() {
        assert!(bytes.unwrap() == content(number), "file {number}");
    }
}

async fn open_through(site: &Site, proxies: &Arc<Proxies>, names: Vec<String>) -> Arc<Tree> {
    try_open_through(site, proxies, names).await.unwrap()
}

async fn try_open_through(
    site: &Site,
    proxies: &Arc<Proxies>,
    names: Vec<String>,
) -> Result<Arc<Tree>, vouch_tree_client::Error> {
    let made = Arc::clone(proxies);
    let make = move |name: &str, _: Duration| {
        Arc::new(Proxy { name: name.to_owned(), proxies: Arc::clone(&made) })
            as Arc<dyn HttpTransport>
    };
    let options =
        HttpOptions { proxies: names, transport: Some(Arc::new(make)), ..HttpOptions::default() };
    open_at(&site.name, options, vec!["http://store/".into()]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn script_names_the_proxies_in_order() {
    let site = Site::new(32 << 20);
    let dir = tempfile::tempdir().unwrap();
    let script = |body: &str| {
        std::fs::write(
            dir.path().join("proxy.pac"),
            format!("function FindProxyForURL(url, host) {{ {body} }}"),
        )
        .unwrap()
    };
    let server = WebServer::start(dir.path(), Fault::None, 0, 0);
    let by_url = format!("pac:http://{}/proxy.pac", server.address);
    let by_file = format!("pac:{}", dir.path().join("proxy.pac").display());
    let names_store = "if (shExpMatch(url, 'http://store/*') && host === 'store') return 'PROXY first:1; PROXY second:1'; return 'DIRECT';";
    for (place, body, first_is_down, expected) in [
        (&by_url, names_store, false, "http://first:1"),
        (&by_url, names_store, true, "http://second:1"),
        (&by_file, names_store, true, "http://second:1"),
        (&by_file, "throw new Error('no proxy today');", false, "DIRECT"),
        (&by_url, "return 'NOTHING known';", false, "DIRECT"),
    ] {
        script(body);
        let proxies = Arc::new(Proxies {
            files: files_of(&site),
            first_is_down: AtomicBool::new(first_is_down),
            ..Proxies::default()
        });
        open_through(&site, &proxies, vec![place.clone()]).await;
        let answered = proxies.answered.lock();
        assert!(
            !answered.is_empty() && answered.iter().all(|name| name == expected),
            "{place} {body}: {answered:?}"
        );
    }
    // A script that fails must not lead around the proxies of a site that demands them.
    script("throw new Error('no proxy today');");
    for place in [&by_url, &by_file] {
        let proxies = Arc::new(Proxies { files: files_of(&site), ..Proxies::default() });
        let strict = place.replacen("pac:", "pac-strict:", 1);
        let refused = try_open_through(&site, &proxies, vec![strict])
            .await
            .err()
            .map(|error| error.to_string());
        assert!(
            refused.as_ref().is_some_and(|error| error.contains("proxy script")),
            "{refused:?}"
        );
        assert!(proxies.answered.lock().is_empty());
    }
    for place in ["pac:/no/such/file", "pac-strict:/no/such/file", "pac:http://"] {
        assert!(
            HttpConnector::new(HttpOptions {
                proxies: vec![place.into()],
                ..HttpOptions::default()
            })
            .is_err(),
            "{place}"
        );
    }
}
