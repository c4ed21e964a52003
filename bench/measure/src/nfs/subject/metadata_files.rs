use vouch_nfs4::Filehandle;

use super::super::small_files::{FileAction, SmallFiles};
use super::{MAKE_DEPTH, METADATA_FILES, NfsSubject, require_complete};
use crate::Error;
use crate::case::{Content, Copy};

impl NfsSubject {
    pub(super) fn make_metadata_files(&mut self) -> Result<(), Error> {
        let mut tries = 0;
        while self.metadata_files.is_none() {
            tries += 1;
            self.rounds += 1;
            let (working_dir, stop, name) =
                (self.directory()?, self.stop.clone(), format!("repository-{}", self.rounds));
            let made = self.make_files(&working_dir, &name);
            if made.is_err()
                && !stop.is_set()
                && self.sessions[0].remove_all(&working_dir, name.as_bytes(), &stop).is_err()
            {
                self.old.push(name);
            }
            self.metadata_files = match made {
                Ok(directory) => Some(directory),
                Err(Error::Refused(_)) if tries < TRIES && !stop.is_set() => None,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    fn make_files(&mut self, working_dir: &Filehandle, name: &str) -> Result<Filehandle, Error> {
        let (stop, session) = (self.stop.clone(), &mut self.sessions[0]);
        let directory = session.mkdir(working_dir, name, &stop)?;
        let copy = Copy {
            files: METADATA_FILES,
            len: 100,
            content: Content::Random,
            streams: MAKE_DEPTH as u32,
            depth: 1,
        };
        let mut work =
            SmallFiles::new(&self.pages, directory, 0..METADATA_FILES, &copy, FileAction::Create);
        let tally = session.complete(&mut work, MAKE_DEPTH, &stop)?;
        let done = tally.operations;
        require_complete(tally, done, METADATA_FILES, "files", session, &stop).map(|_| directory)
    }
}

const TRIES: u32 = 3;
