use vouch_tree::statement::{Body, REASON_LEN_MAX};

use crate::cli::Global;
use crate::exit::{Failure, Outcome};
use crate::statement_file::StatementArgs;

/// Revoke a root key: a statement signed by the key itself that none of its signatures is valid any
/// more.
///
/// A revocation is final and overrides all other statements. It authenticates itself, so it may be
/// distributed in any way: through replicas (--db), in a client's directory of statements
/// (`--statements DIR` of mount, ls and others), by mail.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch revoke /media/root --reason 'stolen laptop' --out revocation\n  \
                  vouch revoke --statement revocation --db /srv/db      hand it out from a replica\n  \
                  cp revocation /etc/vouch/statements/HOSTID.revoked    on a client, read by --statements"
)]
pub(crate) struct Args {
    #[command(flatten)]
    common: StatementArgs,
    /// Reason, for logs.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    if args.reason.len() > REASON_LEN_MAX {
        return Err(Failure::usage(
            "--reason",
            format_args!("is longer than {REASON_LEN_MAX} bytes"),
        ));
    }
    let body = (!args.common.is_given()).then_some(Body::Revocation { reason: args.reason });
    args.common.carry_out(body, |body| matches!(body, Body::Revocation { .. }))
}
