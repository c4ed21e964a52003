use std::path::PathBuf;

use serde::Serialize;
use vouch_tree::key::SigningCert;
use vouch_tree::keyfile::{self, Role, Sealing};

use crate::cli::Global;
use crate::exit::{At as _, Outcome};
use crate::key_directory as keys;
use crate::passphrase::PassphraseArgs;
use crate::validity::ValidityArgs;
use crate::{interrupt, log_keys, output, when};

/// Create the keys of a new tree.
///
/// The root key names the tree: its hash is the HOSTID in every name. It only signs certificates of
/// signing keys, revocations and forwarding pointers, so keep it off-line. The publisher keeps the
/// signing key and the key of the log of revisions; if it is lost or stolen, `vouch certify` makes the next one and the tree keeps its
/// name.
///
/// Root and signing key are pairs of Ed25519 and ML-DSA-44, and readers demand both signatures.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch keygen --out keys\n  vouch keygen --out keys --passphrase --valid-for 90d\n\n\
                  Then move keys/root.key to a medium that is not on the network."
)]
pub(crate) struct Args {
    /// Directory for the keys; created if missing. Existing keys are never overwritten.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Encrypt the root key with a passphrase (Argon2id, XChaCha20-Poly1305), which is asked for.
    #[arg(long)]
    passphrase: bool,
    /// Ed25519 alone, for readers older than the pairs of keys. A quantum computer could forge it.
    #[arg(long)]
    classic: bool,
    #[command(flatten)]
    passphrase_source: PassphraseArgs,
    #[command(flatten)]
    validity: ValidityArgs,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let now = when::now_s();
    let not_after = args.validity.not_after(now)?;
    keys::create_directory(&args.out)?;
    let names = [
        keys::ROOT_KEY,
        keys::ROOT_PUBLIC,
        keys::ROOT_SERIAL,
        keys::SIGNING_KEY,
        keys::SIGNING_CERT,
        log_keys::LOG_KEY,
        log_keys::LOG_PUBLIC,
        log_keys::LOG_CERT,
    ];
    let paths = names.map(|name| args.out.join(name));
    keys::require_no_keys(&args.out, &names)?;

    let (root, signing) = (keys::generate(!args.classic)?, keys::generate(!args.classic)?);
    let cert = SigningCert::issue(&root, signing.public(), FIRST_SERIAL, now, not_after);
    let root_text = if args.passphrase || args.passphrase_source.is_given() {
        let passphrase = args.passphrase_source.ask_new()?;
        let sealing = Sealing {
            passphrase: passphrase.as_bytes(),
            salt: *keys::random()?,
            nonce: *keys::random()?,
        };
        keyfile::write_secret(Role::Root, &root, Some(&sealing)).at("passphrase")?
    } else {
        keyfile::write_secret(Role::Root, &root, None).at("root key")?
    };
    let signing_text = keyfile::write_secret(Role::Signing, &signing, None).at("signing key")?;

    let log = log_keys::generate(&root.public().hostid())?;
    let (log_cert, cert) = log_keys::certify(&root, cert, log.keys, None);

    let half_done = paths.clone();
    let duty = interrupt::on_interrupt(move || {
        half_done.iter().for_each(|path| drop(std::fs::remove_file(path)))
    });
    let written = [
        (root_text.as_bytes(), 0o600),
        (keys::public_text(&root.public()).as_bytes(), 0o644),
        (format!("{FIRST_SERIAL}\n").as_bytes(), 0o644),
        (signing_text.as_bytes(), 0o600),
        (keyfile::write_cert(&cert).as_bytes(), 0o644),
        (log.secret.as_bytes(), 0o600),
        (log.public.as_bytes(), 0o644),
        (log_cert.as_bytes(), 0o644),
    ]
    .into_iter()
    .zip(&paths)
    .try_for_each(|((bytes, mode), path)| keys::write_new(path, bytes, mode));
    drop(duty);
    if let Err(failure) = written {
        // An incomplete set of new keys is useless.
        paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
        return Err(failure);
    }

    let hostid = root.public().hostid().to_string();
    if args.json {
        let report = Report {
            hostid,
            directory: args.out.display().to_string(),
            serial: FIRST_SERIAL,
            not_after: when::utc(not_after),
        };
        return output::json(&report);
    }
    let dir = args.out.display();
    output::text(&format!(
        "HOSTID       {hostid}\n\
         root key     {dir}/{}      keep it off-line; only `certify`, `revoke` and `forward` need it\n\
         signing key  {dir}/{}   certified until {}\n\
         log key      {dir}/{}       signs the log of revisions\n\
         next         vouch publish DIR --db DB --keys {dir} --location HOST\n",
        keys::ROOT_KEY,
        keys::SIGNING_KEY,
        when::utc(not_after),
        log_keys::LOG_KEY
    ))
}

const FIRST_SERIAL: u64 = 1;

#[derive(Serialize)]
struct Report {
    hostid: String,
    directory: String,
    serial: u64,
    not_after: String,
}
