//! Options of registries of images.

use std::path::PathBuf;

use vouch_image::RegistryOptions;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RegistryArgs {
    /// Reach the registry without TLS.
    #[arg(long)]
    plain_http: bool,
    /// Credentials for the registry [default: those of `podman login` or `docker login`].
    #[arg(long, value_name = "FILE")]
    authfile: Option<PathBuf>,
}

impl RegistryArgs {
    pub(crate) fn options(&self) -> RegistryOptions {
        RegistryOptions { plain_http: self.plain_http, auth_file: self.authfile.clone() }
    }
}
