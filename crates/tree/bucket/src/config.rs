//! Endpoint, region, credentials, time limits, work directory.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use vouch_tree_store::{BucketError, BucketErrorKind};

use crate::address::Address;

const WORK_DIR_VARIABLE: &str = "VOUCH_BUCKET_DIR";

const CACHE_LEN_VARIABLE: &str = "VOUCH_BUCKET_CACHE";

pub(crate) struct Config {
    pub(crate) store: AmazonS3,
    /// Deletes one object a request: not all servers know `DeleteObjects`.
    pub(crate) single_deletes: AmazonS3,
    pub(crate) endpoint: String,
    pub(crate) work_dir: PathBuf,
    pub(crate) cache_len_max: u64,
}

impl Config {
    pub(crate) fn from_environment(address: &Address) -> io::Result<Self> {
        let invalid =
            |text: String| io::Error::from(BucketError { kind: BucketErrorKind::Invalid, text });
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
            .iter()
            .find_map(|name| set(name));
        let is_plain_http = endpoint.as_ref().is_some_and(|url| url.starts_with("http://"));
        let client = ClientOptions::new()
            .with_allow_http(is_plain_http)
            .with_connect_timeout(CONNECT_MAX)
            .with_read_timeout(SILENCE_MAX)
            .with_timeout(REQUEST_MAX);
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        };
        let retry = RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: RETRY_MAX };
        let mut builder = AmazonS3Builder::from_env()
            .with_client_options(client.clone())
            .with_retry(retry)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_bucket_name(&address.bucket);
        if let Some(url) = &endpoint {
            builder = builder.with_endpoint(url);
        }
        if set("AWS_ACCESS_KEY_ID").is_none()
            && let Some(profile) = Profile::read(set("AWS_PROFILE"))?
        {
            builder = builder.with_access_key_id(profile.id).with_secret_access_key(profile.secret);
            if let Some(token) = profile.token {
                builder = builder.with_token(token);
            }
        }
        if set("AWS_REGION").is_none() && set("AWS_DEFAULT_REGION").is_none() {
            builder = builder.with_region("us-east-1");
        } else if let Some(region) = set("AWS_REGION") {
            builder = builder.with_region(region);
        }
        // Small containers have no certificates of authorities; plain HTTP needs none.
        let without_system = client.with_no_system_certificates(true);
        let build = |builder: AmazonS3Builder| {
            let without = || builder.clone().with_client_options(without_system.clone()).build();
            builder.clone().build().or_else(|_| without()).map_err(|error| {
                invalid(format!("{address}: the configuration of the bucket is not valid: {error}; check the variables AWS_*"))
            })
        };
        let single_deletes = build(builder.clone().with_disable_bulk_delete(true))?;
        let store = build(builder)?;
        let endpoint = endpoint.unwrap_or_else(|| "Amazon S3".to_owned());
        let cache_len_max = match set(CACHE_LEN_VARIABLE) {
            None => CACHE_LEN_MAX,
            Some(text) => text.parse().map_err(|_| {
                invalid(format!("{CACHE_LEN_VARIABLE}: {text} is not a number of bytes"))
            })?,
        };
        Ok(Self {
            store,
            single_deletes,
            work_dir: work_dir(address, &endpoint)?,
            endpoint,
            cache_len_max,
        })
    }
}

/// Each bucket, prefix and endpoint has its own.
fn work_dir(address: &Address, endpoint: &str) -> io::Result<PathBuf> {
    let below = |variable: &str, rest: &str| {
        env::var_os(variable).filter(|dir| !dir.is_empty()).map(|dir| Path::new(&dir).join(rest))
    };
    let parent = below(WORK_DIR_VARIABLE, "").or_else(|| {
        if rustix::process::geteuid().is_root() {
            return Some(PathBuf::from("/var/cache/vouch-buckets"));
        }
        below("XDG_CACHE_HOME", "vouch-buckets").or_else(|| below("HOME", ".cache/vouch-buckets"))
    });
    let parent = parent.ok_or_else(|| BucketError {
        kind: BucketErrorKind::Invalid,
        text: format!("{address}: no directory for local copies: set {WORK_DIR_VARIABLE} or HOME"),
    })?;
    let hash =
        blake3::hash(format!("{endpoint}\n{}\n{}", address.bucket, address.prefix).as_bytes())
            .to_hex();
    Ok(std::path::absolute(parent)?.join(format!("{}-{}", address.bucket, &hash[..16])))
}

struct Profile {
    id: String,
    secret: String,
    token: Option<String>,
}

impl Profile {
    /// `AWS_SHARED_CREDENTIALS_FILE`, else `~/.aws/credentials`.
    fn read(named: Option<String>) -> io::Result<Option<Self>> {
        let path = env::var_os("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        let path = path
            .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".aws/credentials")));
        let text = path.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let found = Self::find(&text, named.as_deref().unwrap_or("default"));
        match (found, named) {
            (None, Some(name)) => {
                let file = path
                    .map_or_else(|| "~/.aws/credentials".into(), |path| path.display().to_string());
                let text = format!(
                    "AWS_PROFILE: {file} has no profile {name} with aws_access_key_id and aws_secret_access_key"
                );
                Err(BucketError { kind: BucketErrorKind::Invalid, text }.into())
            }
            (found, _) => Ok(found),
        }
    }

    fn find(text: &str, name: &str) -> Option<Self> {
        let mut is_inside = false;
        let (mut id, mut secret, mut token) = (None, None, None);
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                is_inside = section.trim() == name;
            } else if let Some((key, value)) = line.split_once('=').filter(|_| is_inside) {
                let value = Some(value.trim().to_owned());
                match key.trim() {
                    "aws_access_key_id" => id = value,
                    "aws_secret_access_key" => secret = value,
                    "aws_session_token" => token = value,
                    _ => {}
                }
            }
        }
        Some(Self { id: id?, secret: secret?, token })
    }
}

const CONNECT_MAX: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A pack of 32 MiB at half a megabit a second.
const REQUEST_MAX: Duration = Duration::from_secs(600);
const RETRIES_MAX: usize = 6;
const RETRY_MAX: Duration = Duration::from_secs(30);
const CACHE_LEN_MAX: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_the_named_profile() {
        let text = "[default]\naws_access_key_id = A\naws_secret_access_key=B\n\n[ other ]\naws_access_key_id=C\naws_secret_access_key = D=\naws_session_token= E\n[half]\naws_access_key_id=F\n";
        let other = Profile::find(text, "other").unwrap();
        assert!(
            (other.id.as_str(), other.secret.as_str(), other.token.as_deref())
                == ("C", "D=", Some("E"))
        );
        assert!(Profile::find(text, "default").is_some_and(|profile| profile.token.is_none()));
        assert!(Profile::find(text, "half").is_none() && Profile::find(text, "none").is_none());
    }
}
