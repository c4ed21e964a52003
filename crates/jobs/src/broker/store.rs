//! The jobs on disk, so that a broker that was killed knows them again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use vouch_trust::Access;

use crate::Error;
use crate::names::JobId;
use crate::registry::{Change, Job};

/// Jobs by their number, as JSON.
const JOBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("jobs");
const FILE: &str = "jobs.redb";

pub(super) struct Store {
    path: PathBuf,
    database: Mutex<Database>,
}

impl Store {
    pub(super) fn open(directory: &Path) -> Result<(Self, BTreeMap<JobId, Job>), Error> {
        let path = directory.join(FILE);
        let failed = |why: String| Error::Store { path: path.clone(), why };
        // A user who can write there can register jobs of any user.
        let exposure = vouch_trust::find_exposure(directory, Access::Read);
        if let Some(exposure) = exposure.map_err(|error| failed(error.to_string()))? {
            return Err(exposure.into());
        }
        let database = Database::create(&path).map_err(|error| failed(error.to_string()))?;
        let jobs = read(&database).map_err(failed)?;
        Ok((Self { path: path.clone(), database: Mutex::new(database) }, jobs))
    }

    /// Durable when it returns.
    pub(super) fn apply(&self, changes: &[Change]) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        write(&self.database.lock(), changes)
            .map_err(|error| Error::Store { path: self.path.clone(), why: error.to_string() })
    }
}

fn read(database: &Database) -> Result<BTreeMap<JobId, Job>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let transaction = database.begin_write().map_err(|error| text(&error))?;
    // Creates the table of a new store.
    transaction.open_table(JOBS).map_err(|error| text(&error))?;
    transaction.commit().map_err(|error| text(&error))?;
    let transaction = database.begin_read().map_err(|error| text(&error))?;
    let table = transaction.open_table(JOBS).map_err(|error| text(&error))?;
    let mut jobs = BTreeMap::new();
    for entry in table.iter().map_err(|error| text(&error))? {
        let (id, job) = entry.map_err(|error| text(&error))?;
        let id = JobId::parse(id.value()).map_err(|error| text(&error))?;
        let job =
            serde_json::from_slice(job.value()).map_err(|error| format!("job {id}: {error}"))?;
        jobs.insert(id, job);
    }
    Ok(jobs)
}

fn write(database: &Database, changes: &[Change]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(JOBS)?;
        for change in changes {
            match change {
                Change::Put(id, job) => {
                    let text = serde_json::to_vec(job).expect("names and numbers serialize");
                    table.insert(id.as_str(), text.as_slice())?;
                }
                Change::Forget(id) => drop(table.remove(id.as_str())?),
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::names::{NodeName, UserName};
    use crate::registry::Registry;

    #[test]
    fn jobs_are_known_after_a_new_start() {
        let directory = tempfile::tempdir().unwrap();
        let (store, jobs) = Store::open(directory.path()).unwrap();
        assert!(jobs.is_empty());
        let mut registry = Registry::new(jobs, Limits::default());
        let user = UserName::parse("alice").unwrap();
        for job in ["1", "2"] {
            let change = registry
                .begin(
                    &JobId::parse(job).unwrap(),
                    (&user, 1000),
                    vec![NodeName::parse("n1").unwrap()],
                    100,
                    1,
                )
                .unwrap();
            store.apply(&[change]).unwrap();
        }
        store.apply(&[Change::Forget(JobId::parse("1").unwrap())]).unwrap();
        drop(store);
        let (_, jobs) = Store::open(directory.path()).unwrap();
        assert_eq!(jobs.keys().map(JobId::as_str).collect::<Vec<_>>(), ["2"]);
        assert_eq!(jobs.values().next(), registry.get(&JobId::parse("2").unwrap()));
    }
}
