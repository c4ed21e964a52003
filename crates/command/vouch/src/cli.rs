//! Options shared by all subcommands, and the list of subcommands.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::commands;
use crate::exit::{EXIT_STATUS, Outcome};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "vouch",
    version,
    about = "Published file trees that no mirror can falsify",
    long_about = "Vouch turns a directory into a signed database, serves it from replicas that nobody needs to trust, and reads it \
                  on another machine by a name that contains the key. A reader gets the right bytes, of the newest revision that it \
                  could learn of, or an error; never wrong, stale or older ones.",
    after_help = "First steps:\n  \
                  vouch keygen --out keys                                       make the keys (once)\n  \
                  vouch publish /srv/tree --db /srv/db --keys keys --location host.example   sign a directory\n  \
                  vouch serve --db /srv/db                                      on each replica\n  \
                  vouch mount @host.example,HOSTID /mnt                         on each client\n\n\
                  `vouch help COMMAND` explains one command; the exit codes are the same for all of them.",
    after_long_help = after_long_help(),
    propagate_version = true,
    disable_help_subcommand = false,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn after_long_help() -> String {
    let first_steps = concat!(
        "First steps:\n",
        "  vouch keygen --out keys                                        make the keys (once)\n",
        "  vouch publish /srv/tree --db /srv/db --keys keys --location host.example\n",
        "                                                                 sign a directory\n",
        "  vouch serve --db /srv/db                                       on each replica\n",
        "  vouch mount @host.example,HOSTID /mnt                          on each client\n",
        "\n",
        "Exit codes (the same for all commands):\n",
    );
    EXIT_STATUS.iter().fold(first_steps.to_owned(), |text, (code, meaning)| {
        text + &format!("  {:>3}  {meaning}\n", *code as i32)
    })
}

/// For completions, man pages and tests.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Options of every subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Log level: off, error, warn, info, debug, trace, or a filter such as
    /// vouch_tree_client=debug. The default is info for services of systemd, else warn.
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "VOUCH_LOG",
        help_heading = "Common options"
    )]
    pub(crate) log_level: Option<String>,
    /// Log format.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Common options"
    )]
    pub(crate) log_format: LogFormat,
    /// Append the log to this file instead of standard error.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Common options")]
    pub(crate) log_file: Option<PathBuf>,
    /// Configuration file, or directory with vouch.toml and conf.d, instead of /etc/vouch.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "VOUCH_CONFIG",
        help_heading = "Common options"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Show no progress bars, even on a terminal.
    #[arg(long, short, global = true, help_heading = "Common options")]
    pub(crate) quiet: bool,
}

/// Log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line for each message, for people.
    Text,
    /// One JSON object on each line, for log collectors.
    Json,
}

pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address and a port: 192.0.2.1:4340, or [::]:4340 for all addresses".to_owned()
    })
}

macro_rules! subcommands {
    ($($variant:ident => $module:ident,)*) => {
        /// Subcommands in the order of the help. The help text of each is above its own `Args`.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($variant(Box<commands::$module::Args>),)*
        }

        impl Command {
            pub(crate) fn run(self, global: &Global) -> Outcome {
                match self {
                    $(Command::$variant(args) => commands::$module::run(*args, global),)*
                }
            }

            /// As users type it.
            pub(crate) fn name(&self) -> String {
                let module = match self {
                    $(Command::$variant(_) => stringify!($module),)*
                };
                module.replace('_', "-")
            }
        }
    };
}

subcommands! {
    Keygen => keygen,
    Certify => certify,
    Name => name,
    Revoke => revoke,
    Forward => forward,
    Publish => publish,
    Rollback => rollback,
    Tag => tag,
    Witness => witness,
    Gc => gc,
    Serve => serve,
    Gateway => gateway,
    Export => export,
    Csi => csi,
    Audit => audit,
    Jobs => jobs,
    Pull => pull,
    Monitor => monitor,
    Mount => mount,
    NfsMount => nfs_mount,
    Umount => umount,
    Refresh => refresh,
    Upgrade => upgrade,
    Status => status,
    Check => check,
    Bugreport => bugreport,
    Ls => ls,
    Cat => cat,
    Get => get,
    AptMethod => apt_method,
    Log => log,
    Diff => diff,
    Verify => verify,
    Prove => prove,
    CheckProof => check_proof,
    Bench => bench,
    Config => config,
    Completions => completions,
    Man => man,
    Version => version,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    #[test]
    fn definitions_are_consistent() {
        super::command().debug_assert();
    }

    #[test]
    fn help_texts_name_their_subject() {
        fn walk(command: &clap::Command) {
            for option in command.get_arguments() {
                let help = option.get_help().map(ToString::to_string).unwrap_or_default();
                let starts_well = ["What", "Who", "Whoever"]
                    .iter()
                    .all(|word| help.split(' ').next() != Some(word));
                assert!(starts_well, "{} {}: {help:?}", command.get_name(), option.get_id());
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&super::command());
    }

    /// A command that fetches from replicas, or exports trees, obeys the reader's policies.
    #[test]
    fn every_reader_of_trees_takes_a_policy() {
        fn walk(command: &clap::Command, without: &mut Vec<String>) {
            let has = |long| command.get_arguments().any(|arg| arg.get_long() == Some(long));
            let exports = has("dir") && has("pseudo");
            if (has("replica") || exports) && !has("policy") {
                without.push(command.get_name().to_owned());
            }
            command.get_subcommands().for_each(|below| walk(below, without));
        }
        let mut without = Vec::new();
        walk(&super::command(), &mut without);
        assert!(without.is_empty(), "{without:?}");
    }

    #[test]
    fn wrong_addresses_name_the_form() {
        for listen in [":4340", "4340", "localhost:4340", "127.0.0.1"] {
            let error =
                super::Cli::try_parse_from(["vouch", "serve", "--db", "db", "--listen", listen])
                    .expect_err(listen);
            assert!(error.to_string().contains("[::]:4340"), "{error}");
        }
    }

    #[test]
    fn name_in_messages_is_name_on_command_line() {
        let cli = super::Cli::try_parse_from(["vouch", "check-proof", "@host,id", "tool.proof"])
            .expect("valid arguments");
        assert_eq!(cli.command.name(), "check-proof");
    }
}
