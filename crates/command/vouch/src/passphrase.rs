//! From a file or a terminal prompt; never from an argument, which other users could read.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::exit::{At as _, Failure, Outcome};

/// Options of commands that decrypt or encrypt a private key.
#[derive(Debug, clap::Args)]
pub(crate) struct PassphraseArgs {
    /// Read the passphrase from the first line of this file instead of asking.
    #[arg(long, value_name = "FILE", env = "VOUCH_PASSPHRASE_FILE")]
    passphrase_file: Option<PathBuf>,
}

impl PassphraseArgs {
    /// A file was given; a new key is then encrypted.
    pub(crate) const fn is_given(&self) -> bool {
        self.passphrase_file.is_some()
    }

    pub(crate) fn ask(&self, file: &Path) -> Outcome<Zeroizing<String>> {
        match &self.passphrase_file {
            Some(path) => from_file(path),
            None => prompt(&format!("Passphrase of {}: ", file.display())),
        }
    }

    pub(crate) fn ask_new(&self) -> Outcome<Zeroizing<String>> {
        if let Some(path) = &self.passphrase_file {
            return from_file(path);
        }
        let first = prompt("New passphrase of the root key: ")?;
        if first.is_empty() {
            return Err(Failure::input("passphrase", "is empty")
                .cure("omit --passphrase for an unencrypted key"));
        }
        if *first != *prompt("The same again: ")? {
            return Err(Failure::input("passphrase", "the two differ").cure("try again"));
        }
        Ok(first)
    }
}

fn from_file(path: &Path) -> Outcome<Zeroizing<String>> {
    vouch_trust::warn_if_exposed(path);
    let text = Zeroizing::new(std::fs::read_to_string(path).at(path.display())?);
    let line = Zeroizing::new(text.lines().next().unwrap_or_default().to_owned());
    if line.is_empty() {
        Err(Failure::input(path.display(), "has an empty first line"))
    } else {
        Ok(line)
    }
}

fn prompt(question: &str) -> Outcome<Zeroizing<String>> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::input("passphrase", "required, but there is no terminal to ask on")
            .cure("give a file with --passphrase-file or VOUCH_PASSPHRASE_FILE"));
    }
    rpassword::prompt_password(question).map(Zeroizing::new).at("passphrase")
}
