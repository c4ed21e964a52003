use super::manage;
use super::running::Running;
use crate::exit::Outcome;
use crate::output;

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
    let warnings = running.connect()?.reload()?;
    output::text(&warnings.iter().map(|warning| format!("{warning}\n")).collect::<String>())
}
