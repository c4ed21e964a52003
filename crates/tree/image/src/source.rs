//! Where an image comes from: a layout or an archive of OCI, an archive of Docker, or a registry.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::DeserializeOwned;

use crate::config::{ArchiveImage, Config, Descriptor, Index, Manifest, REF_NAME};
use crate::digest::Sha256Digest;
use crate::error::Error;
use crate::layer::{ItemKind, Layer};
use crate::platform::Platform;
use crate::registry::{Registry, RegistryOptions};
use crate::unpack::Decompressor;

/// `oci-layout:DIR[:REF]`, `oci-archive:FILE[:REF]`, `docker-archive:FILE[:REF]` or
/// `docker://HOST/NAME:TAG`, as of podman and skopeo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub(crate) kind: PlaceKind,
    /// A path, or a reference in a registry.
    pub(crate) at: String,
    pub(crate) reference: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    Layout,
    OciArchive,
    DockerArchive,
    Registry,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = match self.kind {
            PlaceKind::Layout => "oci-layout:",
            PlaceKind::OciArchive => "oci-archive:",
            PlaceKind::DockerArchive => "docker-archive:",
            PlaceKind::Registry => "docker://",
        };
        write!(f, "{prefix}{}", self.at)?;
        self.reference.as_ref().map_or(Ok(()), |reference| write!(f, ":{reference}"))
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(reference) = text.strip_prefix("docker://") {
            let at = reference.to_owned();
            return Ok(Self { kind: PlaceKind::Registry, at, reference: None });
        }
        let kinds = [
            ("oci-layout:", PlaceKind::Layout),
            ("oci:", PlaceKind::Layout),
            ("oci-archive:", PlaceKind::OciArchive),
            ("docker-archive:", PlaceKind::DockerArchive),
        ];
        let found =
            kinds.iter().find_map(|(prefix, kind)| Some((text.strip_prefix(prefix)?, *kind)));
        let Some((rest, kind)) = found.filter(|(rest, _)| !rest.is_empty()) else {
            return Err("give oci-layout:DIR[:REF], oci-archive:FILE[:REF], docker-archive:FILE[:REF] or docker://HOST/NAME:TAG".to_owned());
        };
        let (at, reference) = match rest.split_once(':') {
            Some((at, reference)) if !Path::new(rest).exists() => {
                (at.to_owned(), Some(reference.to_owned()))
            }
            _ => (rest.to_owned(), None),
        };
        Ok(Self { kind, at, reference })
    }
}

/// An image whose configuration is read and verified.
pub struct Image {
    blobs: Blobs,
    pub(crate) layers: Vec<LayerPlace>,
    config: Config,
}

pub(crate) struct LayerPlace {
    /// Path in the layout or archive.
    name: String,
    size: u64,
    /// `None`: the archive states only the digest of the uncompressed layer.
    pub(crate) digest: Option<Sha256Digest>,
    pub(crate) diff_id: Sha256Digest,
}

enum Blobs {
    Directory(PathBuf),
    Archive(Archive),
    Registry(Box<Registry>),
}

impl Image {
    /// Reads the manifest and configuration. `platform`: for an image of several platforms.
    pub fn open(
        place: &Place,
        platform: Option<&Platform>,
        len_max: u64,
        registry: &RegistryOptions,
    ) -> Result<Self, Error> {
        let path = Path::new(&place.at);
        let reference = place.reference.as_deref();
        let blobs = match place.kind {
            PlaceKind::Layout => Blobs::Directory(path.to_owned()),
            PlaceKind::OciArchive => Blobs::Archive(Archive::open(path, len_max)?),
            PlaceKind::DockerArchive => {
                return Self::docker_archive(Archive::open(path, len_max)?, place);
            }
            PlaceKind::Registry => Blobs::Registry(Box::new(Registry::new(&place.at, registry)?)),
        };
        let first = match &blobs {
            Blobs::Registry(registry) => Found::parse(registry.manifest(None)?, &place.at)?,
            blobs => {
                let index: Index = json(&place.at, &blobs.read("index.json", MANIFEST_LEN_MAX)?)?;
                let descriptor = named(&index, reference, platform, &place.at)?;
                Found::parse(blobs.manifest(descriptor)?, &place.at)?
            }
        };
        let mut found = first;
        for _ in 0..INDEX_DEPTH_MAX {
            let index = match found {
                Found::Image(manifest) => return Self::of_manifest(blobs, manifest, &place.at),
                Found::Index(index) => index,
            };
            let descriptor = of_platform(&index.manifests, platform, &place.at)?;
            found = Found::parse(blobs.manifest(descriptor)?, &place.at)?;
        }
        Err(Error::invalid(&place.at, "its indexes lead to more indexes"))
    }

    fn of_manifest(blobs: Blobs, manifest: Manifest, what: &str) -> Result<Self, Error> {
        let Manifest { config, layers, .. } = manifest;
        if !config.is_image_config() {
            let why = format!("is an artifact of type {:?}, not an image", config.media_type);
            return Err(Error::invalid(what, why));
        }
        let config: Config = json(what, &blobs.verified(&config, CONFIG_LEN_MAX)?)?;
        let layers =
            layers.into_iter().map(|layer| (layer.digest.path(), layer.size, Some(layer.digest)));
        Self::new(blobs, layers.collect(), config, what)
    }

    fn docker_archive(archive: Archive, place: &Place) -> Result<Self, Error> {
        let blobs = Blobs::Archive(archive);
        let images: Vec<ArchiveImage> =
            json(&place.at, &blobs.read("manifest.json", MANIFEST_LEN_MAX)?)?;
        let tags = |image: &ArchiveImage| image.repo_tags.clone().unwrap_or_default();
        let known = images.iter().flat_map(tags).collect::<Vec<_>>().join(", ");
        let is_wanted = |image: &&ArchiveImage| match &place.reference {
            // Tools write `docker.io/library/app:1` and `localhost/app:1` for `app:1`.
            Some(wanted) => tags(image).iter().any(|tag| {
                tag.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
            }),
            None => images.len() == 1,
        };
        let image = images.iter().find(is_wanted).ok_or_else(|| Error::NotFound {
            what: place.reference.clone().unwrap_or_else(|| "an image without a name".to_owned()),
            known: format!("the archive has: {known}"),
        })?;
        let bytes = blobs.read(&image.config, CONFIG_LEN_MAX)?;
        let stem = image.config.strip_suffix(".json").unwrap_or(&image.config);
        let stem = stem.rsplit('/').next().unwrap_or(stem);
        if let Ok(digest) = format!("sha256:{stem}").parse::<Sha256Digest>()
            && digest != Sha256Digest::of(&bytes)
        {
            return Err(Error::Digest(image.config.clone()));
        }
        let config = json(&place.at, &bytes)?;
        let layers = image.layers.iter().map(|name| (name.clone(), 0, None)).collect();
        Self::new(blobs, layers, config, &place.at)
    }

    fn new(
        blobs: Blobs,
        layers: Vec<(String, u64, Option<Sha256Digest>)>,
        config: Config,
        what: &str,
    ) -> Result<Self, Error> {
        if layers.len() != config.rootfs.diff_ids.len() || layers.len() > LAYERS_MAX {
            let why = "the configuration and the manifest have different layers, or too many";
            return Err(Error::invalid(what, why));
        }
        let layers = layers.into_iter().zip(&config.rootfs.diff_ids);
        let layers = layers
            .map(|((name, size, digest), diff_id)| LayerPlace {
                name,
                size,
                digest,
                diff_id: *diff_id,
            })
            .collect();
        Ok(Self { blobs, layers, config })
    }

    /// The compressed layer, not verified.
    pub(crate) fn open_layer(&self, layer: &LayerPlace) -> Result<Box<dyn Read + '_>, Error> {
        match (&self.blobs, &layer.digest) {
            (Blobs::Registry(registry), Some(digest)) => {
                Ok(Box::new(registry.blob(digest, layer.size)?))
            }
            (blobs, _) => blobs.open(&layer.name),
        }
    }

    pub(crate) fn config_file(&self) -> Vec<u8> {
        self.config.file()
    }
}

enum Found {
    Image(Manifest),
    Index(Index),
}

impl Found {
    fn parse(bytes: Vec<u8>, what: &str) -> Result<Self, Error> {
        // The media type in the document is optional, its fields are not.
        match serde_json::from_slice::<Index>(&bytes) {
            Ok(index) => Ok(Self::Index(index)),
            Err(_) => json(what, &bytes).map(Self::Image),
        }
    }
}

impl Blobs {
    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, Error> {
        match self {
            Self::Directory(dir) => {
                let path = dir.join(name);
                Ok(Box::new(File::open(&path).map_err(Error::io(path.display()))?))
            }
            Self::Archive(archive) => Ok(Box::new(archive.member(name)?)),
            Self::Registry(_) => Err(Error::invalid(name, "is not in a registry")),
        }
    }

    fn read(&self, name: &str, len_max: u64) -> Result<Vec<u8>, Error> {
        read_all(self.open(name)?, name, len_max)
    }

    fn manifest(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        match self {
            Self::Registry(registry) => {
                verify(registry.manifest(Some(&descriptor.digest))?, descriptor)
            }
            blobs => blobs.verified(descriptor, MANIFEST_LEN_MAX),
        }
    }

    fn verified(&self, descriptor: &Descriptor, len_max: u64) -> Result<Vec<u8>, Error> {
        if descriptor.size > len_max {
            return Err(Error::invalid(descriptor.digest, format!("longer than {len_max} bytes")));
        }
        let name = descriptor.digest.path();
        let bytes = match self {
            Self::Registry(registry) => {
                read_all(registry.blob(&descriptor.digest, descriptor.size)?, &name, len_max)?
            }
            blobs => blobs.read(&name, len_max)?,
        };
        verify(bytes, descriptor)
    }
}

fn verify(bytes: Vec<u8>, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
    if Sha256Digest::of(&bytes) == descriptor.digest {
        Ok(bytes)
    } else {
        Err(Error::Digest(descriptor.digest.to_string()))
    }
}

fn read_all(input: impl Read, name: &str, len_max: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    input.take(len_max + 1).read_to_end(&mut bytes).map_err(Error::io(name))?;
    if bytes.len() as u64 > len_max {
        return Err(Error::invalid(name, format!("longer than {len_max} bytes")));
    }
    Ok(bytes)
}

fn json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::invalid(what, error.to_string()))
}

/// By the name, or the only one, or the one of the platform.
fn named<'a>(
    index: &'a Index,
    reference: Option<&str>,
    platform: Option<&Platform>,
    what: &str,
) -> Result<&'a Descriptor, Error> {
    let name = |descriptor: &'a Descriptor| descriptor.annotations.get(REF_NAME);
    let Some(wanted) = reference else {
        return match &index.manifests[..] {
            [only] => Ok(only),
            several => of_platform(several, platform, what),
        };
    };
    index.manifests.iter().find(|one| name(one).is_some_and(|name| name == wanted)).ok_or_else(
        || Error::NotFound {
            what: format!("{what}:{wanted}"),
            known: format!("the layout has: {}", join(index.manifests.iter().filter_map(name))),
        },
    )
}

fn of_platform<'a>(
    manifests: &'a [Descriptor],
    platform: Option<&Platform>,
    what: &str,
) -> Result<&'a Descriptor, Error> {
    let wanted = platform.cloned().unwrap_or_default();
    let matches = |one: &&Descriptor| one.platform.as_ref().is_some_and(|p| wanted.matches(p));
    let mut fitting = manifests.iter().filter(matches);
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one),
        // An index of several variants lists the preferred one first.
        (Some(one), Some(second)) if !second.annotations.contains_key(REF_NAME) => Ok(one),
        _ => Err(Error::NotFound {
            what: format!("{what} for {wanted}"),
            known: format!(
                "it has: {}; give a name, or --platform",
                join(manifests.iter().filter_map(|one| {
                    let platform = one.platform.as_ref().map(Platform::of).map(|p| p.to_string());
                    one.annotations.get(REF_NAME).cloned().or(platform)
                }))
            ),
        }),
    }
}

fn join(names: impl Iterator<Item = impl AsRef<str>>) -> String {
    let names: Vec<_> = names.take(NAMES_SHOWN).map(|name| name.as_ref().to_owned()).collect();
    names.join(", ")
}

/// Members of an archive by name.
struct Archive {
    path: String,
    file: File,
    members: HashMap<Vec<u8>, Member>,
}

enum Member {
    Data(u64, u64),
    Link(Vec<u8>),
}

impl Archive {
    /// A compressed archive is decompressed to a temporary file.
    fn open(path: &Path, len_max: u64) -> Result<Self, Error> {
        let shown = path.display().to_string();
        let failed = || Error::io(&shown);
        let file = File::open(path).map_err(failed())?;
        let decompressed =
            Decompressor::new(file.try_clone().map_err(failed())?).map_err(failed())?;
        let mut file = if decompressed.is_plain() {
            file
        } else {
            let mut plain = tempfile::tempfile().map_err(Error::io("temporary file"))?;
            let mut input = decompressed.take(len_max.saturating_add(1));
            if io::copy(&mut input, &mut plain).map_err(failed())? > len_max {
                return Err(Error::TooLarge(len_max));
            }
            plain
        };
        file.seek(SeekFrom::Start(0)).map_err(failed())?;
        let members =
            members(&file).map_err(|source| Error::invalid(&shown, source.to_string()))?;
        Ok(Self { path: shown, file, members })
    }

    fn member(&self, name: &str) -> Result<Slice<'_>, Error> {
        let mut name = normal(name.as_bytes(), b"");
        for _ in 0..LINKS_MAX {
            match self.members.get(&name) {
                Some(Member::Data(at, len)) => {
                    return Ok(Slice { file: &self.file, at: *at, end: at + len });
                }
                Some(Member::Link(target)) => name.clone_from(target),
                None => break,
            }
        }
        Err(Error::invalid(&self.path, format!("has no file {}", name.escape_ascii())))
    }
}

fn members(file: &File) -> Result<HashMap<Vec<u8>, Member>, crate::error::LayerError> {
    let end = file.metadata()?.len();
    let mut layer = Layer::new(Slice { file, at: 0, end });
    let mut members = HashMap::new();
    while let Some(item) = layer.next_item()? {
        let name = normal(&item.path, b"");
        let directory = name.rsplitn(2, |&byte| byte == b'/').nth(1).unwrap_or(b"").to_vec();
        let member = match item.kind {
            ItemKind::File(len) => Member::Data(layer.input().at, len),
            ItemKind::HardLink(target) => Member::Link(normal(&target, b"")),
            // Older Docker writes equal layers as links: `../ID/layer.tar`.
            ItemKind::Symlink(target) => Member::Link(normal(&target, &directory)),
            _ => continue,
        };
        if members.len() >= MEMBERS_MAX {
            return Err(crate::error::LayerError::TooLarge("archive", MEMBERS_MAX as u64));
        }
        members.insert(name, member);
    }
    Ok(members)
}

/// Resolves `.` and `..` by the text alone.
fn normal(path: &[u8], directory: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in directory.split(|&byte| byte == b'/').chain(path.split(|&byte| byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

pub(crate) struct Slice<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Slice<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let len = self.file.read_at(&mut buffer[..room], self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

pub(crate) const MANIFEST_LEN_MAX: u64 = 4 << 20;

const CONFIG_LEN_MAX: u64 = 8 << 20;

const LAYERS_MAX: usize = 1024;

const INDEX_DEPTH_MAX: usize = 4;

const MEMBERS_MAX: usize = 1 << 16;

const LINKS_MAX: usize = 8;

const NAMES_SHOWN: usize = 16;
