use std::path::{Path, PathBuf};

use vouch_audit::keys::Ratchet;
use vouch_audit::trail::{KEY_FILE, SystemDisk, create_key};
use vouch_log::trail::TrailSigners;
use zeroize::Zeroizing;

use super::directory::require_trail;
use super::hex;
use super::log::{LOG_KEY, LOG_PUBLIC};
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::{key_directory as keys, output};

/// Create the key of a new trail, and print its public half. Create the keys of its log too.
///
/// The key signs one seal and is replaced by the next key; each is destroyed after use, so an
/// intruder can't sign altered records of the past. Keep the printed key out of the server's reach:
/// `vouch audit verify` trusts it. `log.key` in the trail's directory signs the heads of the trail's
/// log, if `vouch audit log` writes one; the lines of `log.pub` are for witnesses and policies.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch audit keygen /var/lib/vouch/audit > trail.pub\n  \
                  vouch audit keygen --key /run/credentials/vouch/audit-key /var/lib/vouch/audit > trail.pub   a key kept elsewhere\n  \
                  vouch audit keygen --log /var/lib/vouch/audit                                 the log's keys, for a trail that has none")]
pub(crate) struct Args {
    /// Directory of the trail; created if missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// File of the key, if not `key` in the trail's directory. Rewritten at each seal.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Create the keys of the log alone, for a trail that exists.
    #[arg(long, conflicts_with = "key")]
    log: bool,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    if args.log {
        require_trail(&args.directory)?;
        return create_log_keys(&args.directory);
    }
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
    create_log_keys(&args.directory)?;
    output::text(&format!("{}\n", hex(&key.public())))
}

fn create_log_keys(directory: &Path) -> Outcome {
    let (ed25519, ml_dsa_44) = (keys::random()?, keys::random()?);
    let signers = TrailSigners::from_seeds(&ed25519, &ml_dsa_44)
        .expect("an origin of ours is a name, and a random seed makes a key");
    let public: String = signers.keys().iter().map(|key| key.to_text() + "\n").collect();
    let (secret_path, public_path) = (directory.join(LOG_KEY), directory.join(LOG_PUBLIC));
    keys::write_new(&secret_path, signers.to_text().as_bytes(), 0o600)?;
    keys::write_new(&public_path, public.as_bytes(), 0o644)
}
