//! JSON of images (image-spec): descriptors, indexes, manifests, configurations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::digest::Sha256Digest;

/// File in the root of a tree that came from an image: its configuration without layers and history.
pub const CONFIG_NAME: &[u8] = b".vouch-image.json";

pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST_LIST_TYPE: &str =
    "application/vnd.docker.distribution.manifest.list.v2+json";
pub(crate) const DOCKER_MANIFEST_TYPE: &str =
    "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG_TYPE: &str = "application/vnd.docker.container.image.v1+json";

/// Annotation of an image's name in a layout.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Sha256Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<PlatformJson>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Descriptor {
    pub(crate) fn new(media_type: &str, digest: Sha256Digest, size: u64) -> Self {
        let media_type = media_type.to_owned();
        Self { media_type, digest, size, platform: None, annotations: BTreeMap::new() }
    }

    pub(crate) fn is_image_config(&self) -> bool {
        matches!(self.media_type.as_str(), CONFIG_TYPE | DOCKER_CONFIG_TYPE)
    }
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct PlatformJson {
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) variant: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) schema_version: u32,
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u32,
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// An entry of a Docker archive's manifest.json.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ArchiveImage {
    pub(crate) config: String,
    pub(crate) repo_tags: Option<Vec<String>>,
    pub(crate) layers: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RootFs {
    pub(crate) diff_ids: Vec<Sha256Digest>,
}

/// A configuration whose layers are known.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    pub(crate) rootfs: RootFs,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

impl Config {
    /// Bytes of [`CONFIG_NAME`]: keys in order, so that equal images have equal files.
    pub(crate) fn file(&self) -> Vec<u8> {
        kept(&self.rest).to_string().into_bytes()
    }
}

/// The fields that an image without these layers keeps.
pub(crate) fn kept(config: &Map<String, Value>) -> Value {
    let kept = KEPT.iter().filter_map(|key| Some(((*key).to_owned(), config.get(*key)?.clone())));
    Value::Object(kept.collect())
}

const KEPT: [&str; 8] =
    ["architecture", "author", "config", "created", "os", "os.features", "os.version", "variant"];
