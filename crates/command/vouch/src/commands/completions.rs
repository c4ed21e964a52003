use std::io::Write as _;

use clap_complete::Shell;

use crate::cli::Global;
use crate::exit::Outcome;
use crate::output;

/// Write shell completions to standard output.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch completions bash > /etc/bash_completion.d/vouch\n  vouch completions zsh > ~/.zfunc/_vouch\n  \
                  vouch completions fish > ~/.config/fish/completions/vouch.fish"
)]
pub(crate) struct Args {
    /// Shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::cli::command(), "vouch", &mut text);
    output::with_stdout(|out| out.write_all(&text))
}
