use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use vouch_tree::TreeName;
use vouch_tree_client::{HttpOptions, HttpRequest, HttpResponse, HttpTransport, TransportError};

use crate::seeded_lies::{Files, files_of, response};
use crate::{Site, content, honest, open_at, read_all};

struct WebHost {
    base: String,
    files: Files,
}

impl HttpTransport for WebHost {
    fn get(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let path = request.url.as_str().strip_prefix(&self.base);
            let Some(path) = path.map(str::to_owned) else {
                return Ok(response(404, None, Bytes::new()));
            };
            let mut below = request;
            below.url = format!("http://store/{path}").parse().unwrap();
            Ok(honest(&self.files, &below))
        }
        .boxed()
    }
}

#[tokio::test]
async fn name_with_port_of_web_server_needs_no_replica_option() {
    let site = Site::new(32 << 20);
    for (location, url) in [
        ("store.example:443", "https://store.example/"),
        ("store.example:80", "http://store.example/"),
    ] {
        let name = TreeName::new(location, *site.name.hostid()).unwrap();
        let host =
            Arc::new(WebHost { base: format!("{url}{}/", name.hostid()), files: files_of(&site) });
        let make = move |_: &str, _: Duration| Arc::clone(&host) as Arc<dyn HttpTransport>;
        let options = HttpOptions { transport: Some(Arc::new(make)), ..HttpOptions::default() };
        let tree = open_at(&name, options, Vec::new()).await.unwrap();
        for (number, bytes) in read_all(&tree).await.into_iter().enumerate() {
            assert!(bytes.unwrap() == content(number), "{location}: file {number}");
        }
    }
}
