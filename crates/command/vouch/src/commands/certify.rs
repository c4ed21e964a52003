use std::path::{Path, PathBuf};

use serde::Serialize;
use vouch_log::revision::{CertPolicy, LogKeys};
use vouch_tree::HostId;
use vouch_tree::key::SigningCert;
use vouch_tree::keyfile::{self, Role};

use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::key_directory as keys;
use crate::log_keys::NewLogKeys;
use crate::passphrase::PassphraseArgs;
use crate::validity::ValidityArgs;
use crate::{log_keys, output, when};

/// Create a new signing key and certify it with the root key.
///
/// The certificate has the next serial number. Clients that have seen it reject later signatures of
/// the old signing key. Use this when a signing key is lost, stolen or about to expire. The tree
/// keeps its name. The key of the log of revisions is replaced and certified in the same step.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch certify keys                        replace the files in keys/, where root.key is\n  \
                  vouch certify /media/root --out new-keys  root key on a medium, new files elsewhere\n\n\
                  The replaced pair is kept as signing-SERIAL.key and signing-SERIAL.cert, and the log's as log-SERIAL.key, .pub and .cert. Publish soon afterwards: only a publication \
                  tells clients of the new serial."
)]
pub(crate) struct Args {
    /// Directory with root.key (and root.serial, which counts certificates).
    #[arg(value_name = "KEYS")]
    keys: PathBuf,
    /// Directory for the new signing.key, signing.cert, log.key, log.cert and log.pub, which belong
    /// together. The default is KEYS, where the old files are renamed.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Serial number of the new certificate; needed only if root.serial was lost.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    serial: Option<u64>,
    /// Certify the log's key of this log.cert again, instead of a new one: witnesses need not be told.
    /// log.key and log.pub stay as they are. Not if the key may have been stolen too.
    #[arg(long, value_name = "FILE")]
    keep_log_key: Option<PathBuf>,
    /// Readers must believe no revision without the quorum of this policy (C2SP tlog-policy): the
    /// root key demands it, also in the signing key's certificate, so that no mirror can leave the
    /// demand out. KEYS/root.policy keeps it, as the default of later certificates; a file that says
    /// `quorum none` ends the demand. A reader's own policy may demand more, not less.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    #[command(flatten)]
    validity: ValidityArgs,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let now = when::now_s();
    let not_after = args.validity.not_after(now)?;
    if !args.keys.join(keys::ROOT_KEY).exists() {
        return Err(Failure::not_found(args.keys.join(keys::ROOT_KEY).display(), "no such file")
            .cure("name the directory with the root key"));
    }
    let serial = next_serial(&args)?;
    let root = keys::read_secret(&args.keys.join(keys::ROOT_KEY), Role::Root, &args.passphrase)?;
    let signing = keys::generate(root.public().is_pair())?;
    let mut cert = SigningCert::issue(&root, signing.public(), serial, now, not_after);

    let policy = demanded_policy(&args)?;
    let is_witnessed = policy.as_ref().is_some_and(|policy| policy.policy().has_quorum());
    if is_witnessed {
        cert = cert.witnessed(&root);
    }
    let hostid = root.public().hostid();
    let (new_log, log_keys) = log_keys_of(&args, &hostid)?;
    let (log_cert, cert) = log_keys::certify(&root, cert, log_keys, policy.clone());

    let out = args.out.as_deref().unwrap_or(&args.keys);
    keys::create_directory(out)?;
    if args.out.is_some() {
        keys::require_no_keys(out, &[keys::SIGNING_KEY, keys::SIGNING_CERT, log_keys::LOG_CERT])?;
        if new_log.is_some() {
            keys::require_no_keys(out, &[log_keys::LOG_KEY, log_keys::LOG_PUBLIC])?;
        }
    }
    // The serial number is counted before its use: a crash may skip a number but never repeats one.
    keys::replace(&args.keys.join(keys::ROOT_SERIAL), format!("{serial}\n").as_bytes())?;
    if let Some(policy) = &policy {
        keys::replace(&args.keys.join(keys::ROOT_POLICY), policy.text().as_bytes())?;
    }
    if args.out.is_none() {
        set_aside(out, args.keep_log_key.is_some())?;
    }
    let text = keyfile::write_secret(Role::Signing, &signing, None).at("signing key")?;
    keys::write_new(&out.join(keys::SIGNING_KEY), text.as_bytes(), 0o600)?;
    keys::write_new(&out.join(keys::SIGNING_CERT), keyfile::write_cert(&cert).as_bytes(), 0o644)?;
    if let Some(new) = &new_log {
        keys::write_new(&out.join(log_keys::LOG_KEY), new.secret.as_bytes(), 0o600)?;
        keys::write_new(&out.join(log_keys::LOG_PUBLIC), new.public.as_bytes(), 0o644)?;
    }
    keys::write_new(&out.join(log_keys::LOG_CERT), log_cert.as_bytes(), 0o644)?;

    let hostid = hostid.to_string();
    if args.json {
        return output::json(&Report {
            hostid,
            directory: out.display().to_string(),
            serial,
            not_after: when::utc(not_after),
        });
    }
    let log_key = match new_log {
        Some(_) => {
            format!("{}       new: tell its witnesses", out.join(log_keys::LOG_KEY).display())
        }
        None => "kept: log.key and log.pub stay where they are".to_owned(),
    };
    let demand = if is_witnessed { "demanded of all readers" } else { "not demanded" };
    output::text(&format!(
        "HOSTID       {hostid}\n\
         signing key  {}   certificate {serial}, until {}\n\
         log key      {log_key}\n\
         witnesses    {demand}\n\
         next         install all new files together and publish, which tells clients\n",
        out.join(keys::SIGNING_KEY).display(),
        when::utc(not_after),
    ))
}

/// The number after the newest certificate's, or the one that was asked for.
fn next_serial(args: &Args) -> Outcome<u64> {
    let last = last_serial(&args.keys)?;
    let serial = match (args.serial, last) {
        (Some(serial), Some(last)) if serial <= last => {
            return Err(Failure::usage(
                format_args!("--serial {serial}"),
                format_args!("certificate {last} was issued already"),
            )
            .cure(format_args!("use {} or more", last + 1)));
        }
        (Some(serial), _) => serial,
        (None, Some(last)) => last + 1,
        (None, None) => {
            return Err(Failure::input(
                args.keys.join(keys::ROOT_SERIAL).display(),
                "is missing, so the next serial number is unknown",
            )
            .cure("give a number above all earlier ones with --serial"));
        }
    };
    if serial == u64::MAX {
        return Err(Failure::usage(
            format_args!("serial {serial}"),
            "is the largest serial number, so this key could never be replaced",
        )
        .cure("give the number after the newest certificate's"));
    }
    Ok(serial)
}

/// New keys of the log, or those of `--keep-log-key`.
fn log_keys_of(args: &Args, hostid: &HostId) -> Outcome<(Option<NewLogKeys>, LogKeys)> {
    Ok(match &args.keep_log_key {
        Some(path) => {
            let kept = log_keys::read_cert(path)?;
            if kept.log() != hostid {
                return Err(Failure::input(path.display(), "is about the log of another tree")
                    .cure("give the log.cert of this tree"));
            }
            (None, kept.keys().clone())
        }
        None => {
            let new = log_keys::generate(hostid)?;
            let keys = new.keys.clone();
            (Some(new), keys)
        }
    })
}

/// A rotation of keys keeps the demand: that of the newest certificate.
fn demanded_policy(args: &Args) -> Outcome<Option<CertPolicy>> {
    if let Some(path) = &args.policy {
        return log_keys::read_cert_policy(path).map(Some);
    }
    let kept = args.keys.join(keys::ROOT_POLICY);
    if kept.exists() {
        return log_keys::read_cert_policy(&kept).map(Some);
    }
    // Directories of earlier versions have no such file.
    let newest = args.keys.join(log_keys::LOG_CERT);
    let Some(before) = [Some(&newest), args.keep_log_key.as_ref()]
        .into_iter()
        .flatten()
        .find(|path| path.exists())
    else {
        return Ok(None);
    };
    Ok(log_keys::read_cert(before)?.policy().cloned())
}

fn last_serial(dir: &Path) -> Outcome<Option<u64>> {
    let path = dir.join(keys::ROOT_SERIAL);
    if path.exists() {
        let bytes = keys::read_small(&path)?;
        let serial = std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
            .filter(|&n| n < u64::MAX);
        return serial.map(Some).ok_or_else(|| {
            Failure::input(path.display(), "is not a number")
                .cure("give --serial after removing it")
        });
    }
    let cert = dir.join(keys::SIGNING_CERT);
    if cert.exists() { Ok(Some(keys::read_cert(&cert)?.serial)) } else { Ok(None) }
}

/// Renames the pair by its serial number; nothing is destroyed.
fn set_aside(dir: &Path, keeps_log_key: bool) -> Outcome {
    let (key, cert) = (dir.join(keys::SIGNING_KEY), dir.join(keys::SIGNING_CERT));
    let suffix = if cert.exists() {
        keys::read_cert(&cert)?.serial.to_string()
    } else {
        "without-certificate".to_owned()
    };
    let log = |name| (dir.join(name), "log");
    let mut files = vec![(key, "signing"), (cert, "signing"), log(log_keys::LOG_CERT)];
    if !keeps_log_key {
        files.extend([log(log_keys::LOG_KEY), log(log_keys::LOG_PUBLIC)]);
    }
    for (path, name) in files {
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        let aside = dir.join(format!("{name}-{suffix}.{extension}"));
        if aside.symlink_metadata().is_ok() {
            return Err(Failure::input(
                aside.display(),
                "exists already, and keys are never overwritten",
            )
            .cure("move it away"));
        }
        if path.exists() {
            std::fs::rename(&path, &aside).at(path.display())?;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Report {
    hostid: String,
    directory: String,
    serial: u64,
    not_after: String,
}
