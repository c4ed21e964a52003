//! `vouch publish --from-image`.

use vouch_image::{Image, LEN_MAX_DEFAULT, Place, Platform};

use crate::exit::Outcome;
use crate::image_options::RegistryArgs;
use crate::size;

#[derive(Debug, clap::Args)]
pub(super) struct ImageArgs {
    /// Publish an image of OCI or Docker instead of a directory: oci-layout:DIR[:REF],
    /// oci-archive:FILE[:REF], docker-archive:FILE[:REF] or docker://HOST/NAME:TAG. Its layers are
    /// merged; its configuration becomes the file .vouch-image.json.
    #[arg(
        long,
        value_name = "SOURCE",
        conflicts_with_all = [
            "source", "exclude", "rehash", "skip_unreadable", "one_file_system", "from_snapshot", "opaque",
        ],
    )]
    from_image: Option<Place>,
    /// Platform of an image for several [default: this machine's].
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", requires = "from_image")]
    platform: Option<Platform>,
    /// Limit of an image's uncompressed size [default: 64G].
    #[arg(long, value_name = "SIZE", requires = "from_image", value_parser = size::parse)]
    image_max: Option<u64>,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl ImageArgs {
    pub(super) fn place(&self) -> Option<&Place> {
        self.from_image.as_ref()
    }

    /// Reads the manifest.
    pub(super) fn open(&self) -> Outcome<Option<Image>> {
        let Some(place) = &self.from_image else { return Ok(None) };
        let platform = self.platform.as_ref();
        Ok(Some(Image::open(place, platform, self.len_max(), &self.registry.options())?))
    }

    pub(super) fn len_max(&self) -> u64 {
        self.image_max.unwrap_or(LEN_MAX_DEFAULT)
    }
}
