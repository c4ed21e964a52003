use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use vouch_diagnose::bug_report::BugReport;

use crate::cli::Global;
use crate::exit::{At as _, Outcome};
use crate::{cli, output, when};

/// Write a report for the maintainers: versions, kernel, configuration, status, recent log.
///
/// Key files, keytabs and credentials are not read. Of configuration files, only the known options
/// are copied; user names and passwords in URLs are left out. The report names hosts, paths, trees
/// and clients: read it before you send it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch bugreport                  writes vouch-bugreport-TIME.txt here\n  vouch bugreport --out -          prints it\n\n\
                        Root sees all daemons and the system's log; another user only the own ones."
)]
pub(crate) struct Args {
    /// File to write, readable by its owner only; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Most lines of the system's log.
    #[arg(long, value_name = "N", default_value_t = 500)]
    log_lines: u32,
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    let mut options = BTreeSet::new();
    collect_options(&cli::command(), &mut options);
    let report =
        BugReport { options, configuration: global.config.as_deref(), log_lines: args.log_lines }
            .collect()?;
    let out = args.out.unwrap_or_else(|| {
        format!("vouch-bugreport-{}.txt", when::utc(when::now_s()).replace(':', "")).into()
    });
    if out.as_os_str() == "-" {
        return output::text(&report);
    }
    let mut file =
        fs::File::options().write(true).create_new(true).mode(0o600).open(&out).at(out.display())?;
    file.write_all(report.as_bytes()).at(out.display())?;
    output::text(&format!("{}: written; read it before you send it\n", out.display()))
}

fn collect_options(command: &clap::Command, options: &mut BTreeSet<String>) {
    options
        .extend(command.get_arguments().filter_map(|option| option.get_long()).map(str::to_owned));
    command.get_subcommands().for_each(|command| collect_options(command, options));
}
