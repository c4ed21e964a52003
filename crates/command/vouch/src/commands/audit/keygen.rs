use std::path::PathBuf;

use vouch_audit::keys::Ratchet;
use vouch_audit::trail::{KEY_FILE, SystemDisk, create_key};
use zeroize::Zeroizing;

use super::hex;
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::output;

/// Create the key of a new trail, and print its public half.
///
/// The key signs one seal and is replaced by the next key; each is destroyed after use, so an
/// intruder can't sign altered records of the past. Keep the printed key out of the server's reach:
/// `vouch audit verify` trusts it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch audit keygen /var/lib/vouch/audit > trail.pub\n  \
                  vouch audit keygen --key /run/credentials/vouch/audit-key /var/lib/vouch/audit > trail.pub   a key kept elsewhere")]
pub(crate) struct Args {
    /// Directory of the trail; created if missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// File of the key, if not `key` in the trail's directory. Rewritten at each seal.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let path = args.key.unwrap_or_else(|| args.directory.join(KEY_FILE));
    if path.exists() {
        return Err(Failure::input(
            path.display(),
            "the trail's key exists already; use another directory for another trail",
        ));
    }
    std::fs::create_dir_all(&args.directory).at(args.directory.display())?;
    let (mut trail, mut seed) = ([0; 16], Zeroizing::new([0; 32]));
    getrandom::fill(&mut trail)
        .and_then(|()| getrandom::fill(&mut *seed))
        .map_err(std::io::Error::other)
        .at("randomness")?;
    let key = Ratchet::new(trail, &seed);
    create_key(&SystemDisk, &path, &key).at(path.display())?;
    output::text(&format!("{}\n", hex(&key.public())))
}
