use std::ffi::OsString;

use serde::Serialize;

use crate::cli::Global;
use crate::config::{self, Choice, Config, Problem};
use crate::exit::{Code, Failure, Outcome};
use crate::output;

mod effective;

/// Show and check the configuration files.
///
/// The files are /etc/vouch/vouch.toml and /etc/vouch/conf.d/*.toml. Every option of the command
/// line can be set in them, by the same name. The command line overrides the environment, which
/// overrides the files.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch config check                         file, line and cure of each fault\n  \
                  vouch config show                          each setting, and the file that it is from\n  \
                  vouch config show mount tools              each option of this command, and where its value is from\n\n\
                  --config FILE or VOUCH_CONFIG chooses another file, or a directory with vouch.toml and conf.d."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print each setting and where it comes from.
    Show(ShowArgs),
    /// Check all files; exits with 3 if any has a fault.
    Check,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// A command with its arguments: prints the value and source of each of its options.
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    line: Vec<OsString>,
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    let choice = global
        .config
        .clone()
        .filter(|path| !path.as_os_str().is_empty())
        .map_or(Choice::System, Choice::ParsedArguments);
    let mut root = crate::cli::command();
    root.build();
    let (files, items, mut problems) = config::read(&choice);
    let (config, more) = config::check(files, items, &root);
    problems.extend(more);
    match args.command {
        Command::Check => check(&config, problems),
        Command::Show(_) if !problems.is_empty() => Err(config::first_of(&problems)),
        Command::Show(args) if args.line.is_empty() => show(&config, args.json),
        Command::Show(args) => effective::show(&config, &args.line, &root, args.json),
    }
}

fn check(config: &Config, mut problems: Vec<Problem>) -> Outcome {
    if problems.is_empty() {
        problems = config::check_together(config, crate::cli::command);
    }
    if problems.is_empty() {
        let files: Vec<_> = config.files.iter().map(|file| file.display().to_string()).collect();
        let files =
            if files.is_empty() { "no configuration file".to_owned() } else { files.join(", ") };
        return output::text(&format!(
            "{files}: {} settings, {} trees, no faults\n",
            config.settings().len(),
            config.trees.len()
        ));
    }
    output::text(&problems.iter().map(|problem| format!("{problem}\n")).collect::<String>())?;
    Err(Failure::silent(Code::BadInput))
}

fn show(config: &Config, as_json: bool) -> Outcome {
    let settings = config.settings();
    let rows = settings.into_iter().map(|(name, setting)| Row {
        name,
        value: setting.value.to_string(),
        source: setting.origin.to_string(),
    });
    print(rows.collect(), as_json)
}

#[derive(Serialize)]
struct Row {
    name: String,
    value: String,
    source: String,
}

fn print(rows: Vec<Row>, as_json: bool) -> Outcome {
    if as_json {
        return output::json(&rows);
    }
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| vec![row.name, row.value, row.source]).collect();
    output::text(&output::table(&rows, &[]))
}
