use super::SubjectInfo;
use crate::{Case, Error, Sample, Subject};

pub(crate) type Measurement = Box<dyn FnMut(&Case) -> Result<Sample, Error> + Send>;

pub(crate) struct ClosureSubject {
    about: SubjectInfo,
    measure: Measurement,
}

impl ClosureSubject {
    pub(crate) fn new(about: SubjectInfo, measure: Measurement) -> Self {
        Self { about, measure }
    }
}

impl Subject for ClosureSubject {
    fn info(&self) -> SubjectInfo {
        self.about.clone()
    }

    fn unsupported(&self, _case: &Case) -> Option<String> {
        None
    }

    fn prepare(&mut self, _case: &Case) -> Result<(), Error> {
        Ok(())
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        (self.measure)(case)
    }

    fn tidy(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn clean(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
