//! File names, permissions, and protection from overwriting. Formats: `vouch_tree::keyfile`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use vouch_tree::key::{PublicKey, SecretKey, SigningCert};
use vouch_tree::keyfile::{self, Role};
use vouch_xdr::Xdr as _;
use zeroize::Zeroizing;

use crate::exit::{At as _, Failure, Outcome};
use crate::log_keys;
use crate::passphrase::PassphraseArgs;

/// Private root key, 0600; kept off-line.
pub(crate) const ROOT_KEY: &str = "root.key";
pub(crate) const ROOT_PUBLIC: &str = "root.pub";
pub(crate) const ROOT_SERIAL: &str = "root.serial";
/// The demand for witnesses of the newest certificate.
pub(crate) const ROOT_POLICY: &str = "root.policy";
pub(crate) const SIGNING_KEY: &str = "signing.key";
pub(crate) const SIGNING_CERT: &str = "signing.cert";

const ROOT_PUBLIC_HEADER: &str = "vouch root public key v1";

pub(crate) fn create_directory(dir: &Path) -> Outcome {
    if dir.is_dir() {
        return Ok(());
    }
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            io::Error::other("this file system cannot create directories")
        } else {
            error
        }
    })
    .at(dir.display())?;
    sync_directory(parent(dir))
}

/// Never touches an existing file.
pub(crate) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Outcome {
    let written = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).and_then(
        |mut file| {
            file.write_all(bytes).and_then(|()| file.sync_all()).inspect_err(|_| {
                let _ = std::fs::remove_file(path);
            })
        },
    );
    written.at(path.display())?;
    sync_directory(parent(path))
}

/// New keys replace none, and no advice to remove a key is given.
pub(crate) fn require_no_keys(dir: &Path, names: &[&str]) -> Outcome {
    match names.iter().map(|name| dir.join(name)).find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => {
            Err(Failure::input(path.display(), "exists already, and keys are never overwritten")
                .cure("choose another directory"))
        }
        None => Ok(()),
    }
}

/// Atomic and durable.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Outcome {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".new-{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    write_new(&fresh, bytes, 0o644)?;
    std::fs::rename(&fresh, path).at(path.display())?;
    sync_directory(parent(path))
}

pub(crate) fn read_small(path: &Path) -> Outcome<Zeroizing<Vec<u8>>> {
    read_limited(path, SMALL_LEN_MAX)
}

pub(crate) fn read_limited(path: &Path, len_max: usize) -> Outcome<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(len_max + 1));
    let file = File::open(path).at(path.display())?;
    file.take(len_max as u64 + 1).read_to_end(&mut bytes).at(path.display())?;
    if bytes.len() > len_max {
        return Err(Failure::input(
            path.display(),
            "is too long for a key, certificate or statement",
        ));
    }
    Ok(bytes)
}

pub(crate) fn read_secret(
    path: &Path,
    role: Role,
    passphrase: &PassphraseArgs,
) -> Outcome<SecretKey> {
    refuse_exposed(path)?;
    let text = read_small(path)?;
    let sealed = keyfile::is_sealed(role, &text).at(path.display())?;
    let passphrase = if sealed { Some(passphrase.ask(path)?) } else { None };
    keyfile::read_secret(role, &text, passphrase.as_ref().map(|text| text.as_bytes()))
        .at(path.display())
}

pub(crate) fn identities(dir: &Path) -> Vec<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let places =
        [dir.to_owned(), dir.join(ROOT_KEY), dir.join(SIGNING_KEY), dir.join(log_keys::LOG_KEY)];
    places
        .iter()
        .filter_map(|place| std::fs::metadata(place).ok())
        .map(|meta| (meta.dev(), meta.ino()))
        .collect()
}

/// The caller checks the certificate's key.
pub(crate) fn read_cert(path: &Path) -> Outcome<SigningCert> {
    keyfile::read_cert(&read_small(path)?).at(path.display())
}

pub(crate) fn read_signing(
    dir: &Path,
    passphrase: &PassphraseArgs,
) -> Outcome<(SecretKey, SigningCert)> {
    let (key_path, cert_path) = (dir.join(SIGNING_KEY), dir.join(SIGNING_CERT));
    let cert = read_cert(&cert_path)?;
    let key = read_secret(&key_path, Role::Signing, passphrase)?;
    if key.public() != cert.signing {
        return Err(Failure::input(
            key_path.display(),
            format_args!("is not the key of {}", cert_path.display()),
        )
        .cure("use a pair from one run of `vouch certify`"));
    }
    if !cert.is_signed_by(&cert.root.hostid()) {
        return Err(Failure::input(cert_path.display(), "invalid signature")
            .cure("create a new one with `vouch certify`"));
    }
    Ok((key, cert))
}

pub(crate) fn public_text(key: &PublicKey) -> String {
    format!("{ROOT_PUBLIC_HEADER}\n{}\n", data_encoding::BASE64.encode(&key.to_xdr()))
}

/// `None` if the text is no public key.
pub(crate) fn parse_public(text: &[u8]) -> Option<PublicKey> {
    let body = std::str::from_utf8(text).ok()?.strip_prefix(ROOT_PUBLIC_HEADER)?;
    let bytes = data_encoding::BASE64.decode(body.trim().as_bytes()).ok()?;
    PublicKey::from_xdr(&bytes).ok()
}

/// A new key: a pair of Ed25519 and ML-DSA-44, or Ed25519 alone.
pub(crate) fn generate(is_pair: bool) -> Outcome<SecretKey> {
    let seed = random()?;
    Ok(if is_pair {
        SecretKey::from_seeds(&seed, &*random()?)
    } else {
        SecretKey::from_seed(&seed)
    })
}

pub(crate) fn random<const N: usize>() -> Outcome<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(bytes.as_mut())
        .map_err(|error| Failure::new("randomness", io::Error::other(error)))?;
    Ok(bytes)
}

/// Refuses a private key of this user that others may read or change, like ssh(1). A key of another
/// owner, such as a lent secret, only causes a warning.
pub(crate) fn refuse_exposed(path: &Path) -> Outcome {
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::metadata(path).at(path.display())?;
    let Err(exposure) = vouch_trust::check(path, &meta, vouch_trust::Access::Nothing) else {
        return Ok(());
    };
    match exposure.mode {
        Some(mode) if meta.uid() == rustix::process::geteuid().as_raw() => Err(Failure::input(
            path.display(),
            format_args!("this private key is accessible by other users (mode {mode:03o})"),
        )
        .cure("run `chmod 600` on it; if it may have been read, replace it (vouch certify)")),
        _ => {
            tracing::warn!("private key: {exposure}");
            Ok(())
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_directory(dir: &Path) -> Outcome {
    File::open(dir).and_then(|dir| dir.sync_all()).at(dir.display())
}

const SMALL_LEN_MAX: usize = keyfile::FILE_LEN_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_file_is_never_overwritten() {
        let dir = tempfile::tempdir().expect("the system has a temporary directory");
        let path = dir.path().join("key");
        write_new(&path, b"first", 0o600).expect("a new file");
        assert!(write_new(&path, b"second", 0o600).is_err());
        assert_eq!(std::fs::read(&path).expect("the entry exists"), b"first");
    }

    #[test]
    fn private_key_readable_by_others_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("the system has a temporary directory");
        let path = dir.path().join("key");
        write_new(&path, b"secret", 0o600).expect("a new file");
        for (mode, fits) in [
            (0o600, true),
            (0o400, true),
            (0o700, true),
            (0o640, false),
            (0o604, false),
            (0o620, false),
        ] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
                .expect("the value is ours");
            let refused = refuse_exposed(&path);
            assert_eq!(refused.is_ok(), fits, "{mode:o}");
            if let Err(failure) = refused {
                let line = failure.to_string();
                assert!(
                    line.contains(&format!("mode {mode:o}")) && line.contains("chmod 600"),
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn public_keys_round_trip_as_text() {
        for key in [SecretKey::from_seed(&[7; 32]), SecretKey::from_seeds(&[7; 32], &[8; 32])] {
            let key = key.public();
            assert_eq!(parse_public(public_text(&key).as_bytes()), Some(key));
        }
        assert_eq!(parse_public(b"vouch root public key v1\n????"), None);
    }
}
