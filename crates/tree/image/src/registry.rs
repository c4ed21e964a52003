//! Manifests and blobs of a registry, with the credentials of podman, buildah or Docker.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use futures_util::{Stream, stream};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Runtime;

use crate::config::{
    DOCKER_MANIFEST_TYPE, INDEX_TYPE, MANIFEST_LIST_TYPE, MANIFEST_TYPE, Manifest,
};
use crate::digest::Sha256Digest;
use crate::download::{Downloads, read};
use crate::error::Error;
use crate::source::MANIFEST_LEN_MAX;

/// Access to registries.
#[derive(Debug, Clone, Default)]
pub struct RegistryOptions {
    /// Without TLS.
    pub plain_http: bool,
    /// Credentials; else those that `podman login` or `docker login` has stored.
    pub auth_file: Option<PathBuf>,
}

pub(crate) struct Registry {
    runtime: Runtime,
    /// For uploads.
    client: Client,
    downloads: Downloads,
    reference: Reference,
}

impl Registry {
    pub(crate) fn new(reference: &str, options: &RegistryOptions) -> Result<Self, Error> {
        let reference: Reference = reference
            .parse()
            .map_err(|error| Error::invalid(reference, format!("{error}; give HOST/NAME:TAG")))?;
        vouch_tls::install_provider();
        let (scheme, protocol) = match options.plain_http {
            true => ("http", ClientProtocol::Http),
            false => ("https", ClientProtocol::Https),
        };
        let config = ClientConfig {
            protocol,
            connect_timeout: Some(TIMEOUT),
            read_timeout: Some(TIMEOUT),
            user_agent: USER_AGENT,
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).map_err(registry_error(&reference))?;
        let auth = credentials(&reference, options)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("runtime"))?;
        runtime.block_on(client.store_auth_if_needed(reference.resolve_registry(), &auth));
        let http = reqwest::Client::builder()
            .connect_timeout(TIMEOUT)
            .read_timeout(TIMEOUT)
            .user_agent(USER_AGENT)
            .build()
            .map_err(|error| registry_error(&reference)(error.into()))?;
        let downloads = Downloads::new(http, scheme, &reference, auth);
        Ok(Self { runtime, client, downloads, reference })
    }

    /// The manifest or index of this digest, or of the reference.
    pub(crate) fn manifest(&self, digest: Option<&Sha256Digest>) -> Result<Vec<u8>, Error> {
        let tag = self.reference.tag().unwrap_or("latest");
        let name = digest.map(ToString::to_string);
        let name = name.as_deref().or(self.reference.digest()).unwrap_or(tag);
        let accept =
            [MANIFEST_TYPE, INDEX_TYPE, DOCKER_MANIFEST_TYPE, MANIFEST_LIST_TYPE].join(", ");
        let download = async {
            let response = self.downloads.get(&format!("manifests/{name}"), &accept).await?;
            read(response, MANIFEST_LEN_MAX as usize).await
        };
        let bytes = self.runtime.block_on(download).map_err(registry_error(&self.reference))?;
        if name.contains(':') && name != Sha256Digest::of(&bytes).to_string() {
            return Err(Error::Digest(name.to_owned()));
        }
        Ok(bytes)
    }

    /// Downloads a blob of `size` bytes to a temporary file, verified.
    pub(crate) fn blob(&self, digest: &Sha256Digest, size: u64) -> Result<File, Error> {
        let mut file = tempfile::tempfile().map_err(Error::io("temporary file"))?;
        let mut hasher = Sha256::new();
        let download = async {
            let mut blob = self.downloads.get(&format!("blobs/{digest}"), "*/*").await?;
            let mut left = size;
            while let Some(bytes) = blob.chunk().await? {
                left = left.checked_sub(bytes.len() as u64).ok_or_else(|| {
                    let longer = format!("blob {digest} is longer than its manifest says");
                    OciDistributionError::GenericError(Some(longer))
                })?;
                hasher.update(&bytes);
                file.write_all(&bytes)?;
            }
            Ok(())
        };
        self.runtime.block_on(download).map_err(registry_error(&self.reference))?;
        if Sha256Digest(hasher.finalize().into()) != *digest {
            return Err(Error::Digest(digest.to_string()));
        }
        file.seek(SeekFrom::Start(0)).map_err(Error::io("temporary file"))?;
        Ok(file)
    }

    /// Uploads an image of a layout: blobs that the registry lacks, then the manifest.
    pub(crate) fn push(&self, layout: &Path, manifest: &Manifest) -> Result<(), Error> {
        let failed = || registry_error(&self.reference);
        for blob in manifest.layers.iter().chain([&manifest.config]) {
            let digest = blob.digest.to_string();
            let exists = self.client.blob_exists(&self.reference, &digest);
            if self.runtime.block_on(exists).map_err(failed())? {
                continue;
            }
            let path = layout.join(blob.digest.path());
            let file = File::open(&path).map_err(Error::io(path.display()))?;
            let upload = self.client.push_blob_stream(
                &self.reference,
                pieces(file),
                &digest,
                Some(blob.size),
            );
            self.runtime.block_on(upload).map_err(failed())?;
        }
        let body = serde_json::to_vec(manifest).map_err(|e| Error::io("manifest")(e.into()))?;
        let kind = reqwest::header::HeaderValue::from_static(MANIFEST_TYPE);
        let push = self.client.push_manifest_raw(&self.reference, body, kind);
        self.runtime.block_on(push).map_err(failed())?;
        Ok(())
    }
}

fn registry_error(reference: &Reference) -> impl FnOnce(OciDistributionError) -> Error {
    let registry = reference.to_string();
    |source| Error::Registry { registry, source: Box::new(source) }
}

fn pieces(file: File) -> impl Stream<Item = Result<Bytes, OciDistributionError>> {
    stream::try_unfold(file, |mut file| async move {
        let mut piece = vec![0; PIECE_LEN];
        let len = file.read(&mut piece)?;
        piece.truncate(len);
        Ok((len > 0).then(|| (Bytes::from(piece), file)))
    })
}

/// containers-auth.json(5), which Docker's config.json resembles.
#[derive(Deserialize)]
struct AuthFile {
    #[serde(default)]
    auths: HashMap<String, AuthEntry>,
}

#[derive(Deserialize)]
struct AuthEntry {
    auth: Option<String>,
}

fn credentials(reference: &Reference, options: &RegistryOptions) -> Result<RegistryAuth, Error> {
    let files = match &options.auth_file {
        Some(file) => vec![file.clone()],
        None => usual_auth_files(),
    };
    for path in files {
        let text = match std::fs::read(&path) {
            Err(error)
                if error.kind() == std::io::ErrorKind::NotFound && options.auth_file.is_none() =>
            {
                continue;
            }
            read => read.map_err(Error::io(path.display()))?,
        };
        let file: AuthFile = serde_json::from_slice(&text)
            .map_err(|error| Error::invalid(path.display(), error.to_string()))?;
        if let Some(auth) = file.find(reference) {
            return auth.ok_or_else(|| {
                Error::invalid(path.display(), "has no user name and password for this registry")
            });
        }
    }
    Ok(RegistryAuth::Anonymous)
}

impl AuthFile {
    /// The longest key that the reference is below: keys may have a path.
    fn find(&self, reference: &Reference) -> Option<Option<RegistryAuth>> {
        let whole = format!("{}/{}", reference.registry(), reference.repository());
        let fits = |key: &str| {
            let host = key.trim_start_matches("https://").trim_end_matches('/');
            let host = host.strip_suffix("/v1").unwrap_or(host);
            let host = host.strip_prefix("index.").unwrap_or(host);
            let fits = whole.strip_prefix(host).is_some_and(|rest| rest.starts_with('/'));
            fits.then_some(host.len())
        };
        let (_, entry) = self
            .auths
            .iter()
            .filter_map(|(key, entry)| Some((fits(key)?, entry)))
            .max_by_key(|(len, _)| *len)?;
        let decode = |auth: &str| {
            let text = String::from_utf8(BASE64.decode(auth.as_bytes()).ok()?).ok()?;
            let (user, password) = text.split_once(':')?;
            Some(RegistryAuth::Basic(user.to_owned(), password.to_owned()))
        };
        Some(entry.auth.as_deref().and_then(decode))
    }
}

/// In the order in which podman looks.
fn usual_auth_files() -> Vec<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    if let Some(file) = var("REGISTRY_AUTH_FILE") {
        return vec![file];
    }
    let home = var("HOME");
    [
        var("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json")),
        var("XDG_CONFIG_HOME")
            .or_else(|| home.as_ref().map(|home| home.join(".config")))
            .map(|dir| dir.join("containers/auth.json")),
        var("DOCKER_CONFIG")
            .or_else(|| home.as_ref().map(|home| home.join(".docker")))
            .map(|dir| dir.join("config.json")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const USER_AGENT: &str = concat!("vouch/", env!("CARGO_PKG_VERSION"));

const TIMEOUT: Duration = Duration::from_secs(30);

const PIECE_LEN: usize = 1 << 20;
