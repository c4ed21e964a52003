use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use vouch_audit::Record;
use vouch_audit::trail::{Follower, Position, SearchMode};

use super::directory::require_trail;
use super::filter::Filter;
use super::show;
use crate::cli::Global;
use crate::exit::{At as _, Outcome, forgive_closed_pipe};

/// Show records as they are written, across segments, until interrupted.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch audit follow /var/lib/vouch/audit\n  vouch audit follow --result failure --json /var/lib/vouch/audit"
)]
pub(crate) struct Args {
    /// Directory of the trail.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Show existing records first.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    form: show::Form,
}

const PAUSE: Duration = Duration::from_millis(200);

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    require_trail(&args.directory)?;
    let query = args.filter.query(&args.directory, false, SearchMode::Index)?;
    let mut follower = match args.all {
        true => Follower::from_position(&args.directory, Position::default()),
        false => Follower::from_end(&args.directory).at(args.directory.display())?,
    };
    let mut out = std::io::BufWriter::with_capacity(64 * 1024, std::io::stdout().lock());
    let mut scratch = Vec::new();
    loop {
        let mut written = Ok(());
        let any = follower.read(|body, _, boot| {
            let Ok(record) = Record::decode(body, &mut scratch) else { return true };
            if query.matches(&record) {
                written = out.write_all(args.form.of(&record, boot).as_bytes());
            }
            written.is_ok()
        });
        any.at(args.directory.display())?;
        if let Err(error) = written.and_then(|()| out.flush()) {
            return forgive_closed_pipe(Err(error).at("standard output"));
        }
        std::thread::sleep(PAUSE);
    }
}
