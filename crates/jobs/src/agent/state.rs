//! The agent's jobs and caches on disk, so that a new start knows what to renew and to remove.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use vouch_trust::Access;

use super::jobs::Accounts;
use crate::{Error, io_at};

pub(super) struct StateFile {
    path: PathBuf,
}

const FILE: &str = "agent.json";

impl StateFile {
    pub(super) fn open(directory: &Path) -> Result<(Self, Accounts), Error> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(io_at(directory))?;
        let exposure = vouch_trust::find_exposure(directory, Access::Read);
        if let Some(exposure) = exposure.map_err(io_at(directory))? {
            return Err(exposure.into());
        }
        let path = directory.join(FILE);
        let mut accounts = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| Error::Store {
                path: path.clone(),
                why: format!("{error}; remove it when no job runs on this node"),
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Accounts::default(),
            Err(error) => return Err(io_at(&path)(error)),
        };
        if accounts.agent.is_empty() {
            let mut number = [0; 16];
            getrandom::fill(&mut number)
                .map_err(|error| Error::Configuration(format!("randomness: {error}")))?;
            accounts.agent = data_encoding::HEXLOWER.encode(&number);
        }
        let state = Self { path };
        state.write(&accounts)?;
        Ok((state, accounts))
    }

    /// Atomic: a killed agent finds the old or the new state.
    pub(super) fn write(&self, accounts: &Accounts) -> Result<(), Error> {
        let text = serde_json::to_vec(accounts).expect("names and numbers serialize");
        let staged = self.path.with_extension("new");
        let write = || {
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&staged)?;
            file.write_all(&text)?;
            file.sync_data()?;
            std::fs::rename(&staged, &self.path)
        };
        write().map_err(io_at(&self.path))
    }
}
