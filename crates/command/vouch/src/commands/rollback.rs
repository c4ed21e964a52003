use crate::cli::Global;
use crate::exit::Outcome;
use crate::republish::RepublishArgs;

/// Publish the content of an older revision again.
///
/// Makes a new revision, which clients take as any other one: nothing is read, and only the signed
/// root is stored. The older revision must be kept in the database. The next `vouch publish` brings
/// the directory's content back: mend the directory before, or stop the timer.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch rollback --db /srv/db --keys keys              to the revision before the newest one\n  \
                  vouch rollback --db /srv/db --keys keys --to 7\n  vouch rollback --db /srv/db --keys keys --to v1.2 --message 'v1.3 breaks the login'\n\n\
                  `vouch log --db DB` lists the revisions that are kept."
)]
pub(crate) struct Args {
    /// Number or tag of the older revision; the default is the one before the newest.
    #[arg(long, value_name = "N|TAG")]
    to: Option<String>,
    #[command(flatten)]
    republish: RepublishArgs,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let writer = args.republish.open()?;
    let of = args.republish.find(&writer, args.to.as_deref(), 1)?;
    args.republish.run(&writer, of, None, false)
}
