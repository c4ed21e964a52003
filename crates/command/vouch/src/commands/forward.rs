use vouch_tree::TreeName;
use vouch_tree::statement::Body;

use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::statement_file::StatementArgs;

/// Point a tree's old name to its new name, signed by the old root key.
///
/// For planned moves to another key. Clients follow the pointer to the new name, and warn; with
/// `--refuse-forwarding` they refuse the old name. A mount of the whole namespace shows the old name
/// as a symbolic link to the new one.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch forward old-keys --to @pub.example.org,HOSTID --db /srv/db\n  \
                  vouch forward --statement pointer --db /srv/db"
)]
pub(crate) struct Args {
    #[command(flatten)]
    common: StatementArgs,
    /// The new name.
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let body = match (&args.to, args.common.is_given()) {
        (Some(to), false) => Some(Body::Forwarding { to: to.parse::<TreeName>().at("--to")? }),
        (None, false) => {
            return Err(Failure::usage("--to", "missing")
                .cure("give the new name: --to @HOST[:PORT],HOSTID"));
        }
        (None, true) => None,
        (Some(_), true) => {
            return Err(Failure::usage(
                "--to",
                "is for a new statement, but --statement gives an existing one",
            ));
        }
    };
    args.common.carry_out(body, |body| matches!(body, Body::Forwarding { .. }))
}
