use std::io::Write as _;
use std::path::PathBuf;

use crate::cli::Global;
use crate::exit::{At as _, Outcome};
use crate::output;

/// Write all manual pages into a directory, or one page to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch man --out /usr/local/share/man/man1\n  vouch man publish | man -l -")]
pub(crate) struct Args {
    /// Directory for all pages: vouch.1, vouch-publish.1 and so on; created if missing.
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    out: Option<PathBuf>,
    /// Print the page of this subcommand; without it, the page of vouch itself.
    #[arg(value_name = "COMMAND")]
    page: Option<String>,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let mut root = crate::cli::command().disable_help_subcommand(true);
    root.build();
    if let Some(dir) = args.out {
        std::fs::create_dir_all(&dir).at(dir.display())?;
        return clap_mangen::generate_to(root, &dir).at(dir.display());
    }
    let page = match &args.page {
        None => root,
        Some(name) => root
            .find_subcommand(name)
            .cloned()
            .ok_or_else(|| crate::exit::Failure::usage(name, "no such command").cure("`vouch help` lists the commands"))?,
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).at("manual page")?;
    output::with_stdout(|out| out.write_all(&text))
}
