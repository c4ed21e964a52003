use std::path::Path;

use crate::exit::{Failure, Outcome};
use crate::output;
use vouch_daemon::status_client::{self, ReloadError};

/// Make the server read its list of exports again.
///
/// Clients stay connected. If the new list has errors, they are printed and the old list stays in
/// force.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) fn run(state: Option<&Path>, head: Option<&str>) -> Outcome {
    let socket = super::status::socket(state, head)?;
    match status_client::reload(&socket) {
        Ok(warnings) => {
            output::text(&warnings.iter().map(|warning| format!("{warning}\n")).collect::<String>())
        }
        Err(ReloadError::Refused(why)) => Err(Failure::input("exports", why)),
        Err(ReloadError::Io(error)) => Err(Failure::new(socket.display(), error)),
    }
}
