//! Proxy auto-configuration scripts. A script is read again at intervals, and runs on a thread that
//! may block.

mod engine;
pub(crate) mod result; // The list that the script returns.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Url;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::options::HttpOptions;
use super::transport::{HttpRequest, HttpTransport, Network};
use super::url::without_userinfo;
use crate::connector::TransportError;
use crate::{Error, Result};

pub(super) const PREFIX: &str = "pac:";
/// Before the place of a script without which nothing is asked.
pub(super) const PREFIX_STRICT: &str = "pac-strict:";

pub(super) struct ProxyScript {
    place: ScriptSource,
    is_strict: bool,
    timeout: Duration,
    state: Mutex<State>,
}

enum ScriptSource {
    File(PathBuf),
    Url(Url, Network),
}

#[derive(Default)]
struct State {
    script: Option<Arc<str>>,
    read_at: Option<Instant>,
    found: Option<(Instant, Vec<String>)>,
}

impl ProxyScript {
    pub(super) fn new(place: &str, is_strict: bool, options: &HttpOptions) -> Result<Self> {
        let state = Mutex::default();
        if !super::url::is_url(place) {
            let script = read_file(&PathBuf::from(place)).map_err(|what| Error::Damaged {
                what: format!("--proxy {PREFIX}{place}: {what}"),
            })?;
            let state = Mutex::new(State {
                script: Some(script),
                read_at: Some(Instant::now()),
                found: None,
            });
            return Ok(Self {
                place: ScriptSource::File(place.into()),
                is_strict,
                timeout: options.timeout,
                state,
            });
        }
        let why = "not the URL of a script; expected pac:http://HOST/FILE or pac:/FILE";
        let url = Url::parse(place).map_err(|_| Error::Path {
            path: format!("'{}'", without_userinfo(place)).into_bytes(),
            why,
        })?;
        Ok(Self {
            place: ScriptSource::Url(
                url,
                Network::new("DIRECT", options.timeout, options.timeout, &options.tls)?,
            ),
            is_strict,
            timeout: options.timeout,
            state,
        })
    }

    /// A script that fails leads to `DIRECT`, as in browsers, or to no way at all if it is strict.
    pub(super) async fn find(&self, url: &Url) -> Vec<String> {
        // Requests that come together wait for one run.
        let mut state = self.state.lock().await;
        if let Some((_, ways)) =
            state.found.as_ref().filter(|(at, _)| at.elapsed() < RESULT_AGE_MAX)
        {
            return ways.clone();
        }
        if state.read_at.is_none_or(|at| at.elapsed() >= SCRIPT_AGE_MAX) || state.script.is_none() {
            match self.read().await {
                Ok(script) => state.script = Some(script),
                Err(error) => tracing::warn!("the proxy script cannot be read: {error}"),
            }
            state.read_at = Some(Instant::now());
        }
        let ways = match &state.script {
            Some(script) => self.run(script.clone(), url.clone()).await,
            None => Err("there is none".into()),
        };
        let ways = ways.unwrap_or_else(|error| {
            let url = without_userinfo(url.as_str());
            if self.is_strict {
                tracing::warn!(
                    "the proxy script gives no proxies for {url}, which is not asked: {error}"
                );
                return Vec::new();
            }
            tracing::warn!(
                "the proxy script gives no proxies for {url}, which is asked directly: {error}"
            );
            vec!["DIRECT".to_owned()]
        });
        tracing::debug!(url = %without_userinfo(url.as_str()), ?ways, "proxy script");
        state.found = Some((Instant::now(), ways.clone()));
        ways
    }

    async fn run(
        &self,
        script: Arc<str>,
        url: Url,
    ) -> std::result::Result<Vec<String>, TransportError> {
        let run = tokio::task::spawn_blocking(move || engine::find_proxy(&script, &url));
        let late = || format!("no result within {} s", self.timeout.as_secs());
        // The resolver may take longer than the script's own limit.
        let text = timeout(self.timeout, run).await.map_err(|_| late())???;
        let ways = result::parse(&text);
        if ways.is_empty() {
            Err(format!("{:?} names no proxy", text.chars().take(80).collect::<String>()).into())
        } else {
            Ok(ways)
        }
    }

    async fn read(&self) -> std::result::Result<Arc<str>, TransportError> {
        match &self.place {
            ScriptSource::File(path) => read_file(path),
            ScriptSource::Url(url, network) => {
                let limit = self.timeout.min(DOWNLOAD_TIME_MAX);
                let read = timeout(limit, download(url, network)).await;
                read.unwrap_or_else(|_| {
                    Err(format!("no answer within {:.1} s", limit.as_secs_f32()).into())
                })
                .map_err(|what| format!("{}: {what}", without_userinfo(url.as_str())).into())
            }
        }
    }
}

async fn download(url: &Url, network: &Network) -> std::result::Result<Arc<str>, TransportError> {
    let mut response =
        network.get(HttpRequest { url: url.clone(), range: None, is_anew: false }).await?;
    if response.status != 200 {
        return Err(format!("status {}", response.status).into());
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.body.next().await.transpose()? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > SCRIPT_LEN_MAX {
            return Err(format!("longer than {SCRIPT_LEN_MAX} bytes").into());
        }
    }
    String::from_utf8(bytes).map(Arc::from).map_err(|_| "it is not UTF-8".into())
}

fn read_file(path: &PathBuf) -> std::result::Result<Arc<str>, TransportError> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(SCRIPT_LEN_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > SCRIPT_LEN_MAX {
        Err(format!("longer than {SCRIPT_LEN_MAX} bytes").into())
    } else {
        Ok(text.into())
    }
}

/// Leaves time to ask the replica directly.
const DOWNLOAD_TIME_MAX: Duration = Duration::from_secs(2);
const SCRIPT_LEN_MAX: u64 = 1 << 20;
/// After this time, the script is read again.
const SCRIPT_AGE_MAX: Duration = Duration::from_secs(600);
/// After this time, it is run again: results may depend on the time and on names.
const RESULT_AGE_MAX: Duration = Duration::from_secs(60);
