use crate::cli::Global;
use crate::exit::Outcome;
use crate::republish::RepublishArgs;

/// Give a tag to a revision, or move it there from another one.
///
/// A tag is signed with its revision, so this makes a revision with that content and the tag, and,
/// if the content is not the newest, one more that brings the newest content back. Clients see both
/// at once. `vouch gc --drop-tag` removes a tag.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch tag stable --db /srv/db --keys keys                 the newest revision\n  \
                  vouch tag stable --db /srv/db --keys keys --revision 7    move the tag to the content of revision 7"
)]
pub(crate) struct Args {
    /// The tag.
    #[arg(value_name = "TAG")]
    tag: String,
    /// Number or tag of the revision; the default is the newest one.
    #[arg(long, value_name = "N|TAG")]
    revision: Option<String>,
    #[command(flatten)]
    republish: RepublishArgs,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let writer = args.republish.open()?;
    let of = args.republish.find(&writer, args.revision.as_deref(), 0)?;
    args.republish.run(&writer, of, Some(&args.tag), true)
}
