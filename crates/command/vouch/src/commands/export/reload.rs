use super::{Running, manage};
use crate::exit::{Failure, Outcome};
use crate::output;
use vouch_daemon::status_client::{self, ReloadError};

/// Make the server read its list of exports again.
///
/// Clients stay connected. If the new list has errors, they are printed and the old list stays in
/// force.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First end all changes by `vouch export add`, `set` and `remove` that are not kept.
    #[arg(long)]
    discard: bool,
}

pub(super) fn run(args: &Args, running: Running<'_>) -> Outcome {
    if args.discard {
        return manage::discard(running);
    }
    let socket = super::status::socket(running)?;
    match status_client::reload(&socket) {
        Ok(warnings) => {
            output::text(&warnings.iter().map(|warning| format!("{warning}\n")).collect::<String>())
        }
        Err(ReloadError::Refused(why)) => Err(Failure::input("exports", why)),
        Err(ReloadError::Io(error)) => Err(Failure::new(socket.display(), error)),
    }
}
