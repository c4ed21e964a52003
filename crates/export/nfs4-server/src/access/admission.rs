//! Some export must name the address before it may create client records.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    Refused,
    Undecided,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedAdmission {
    pub(crate) admission: Admission,
    pub(crate) generation: u64,
    pub(crate) made_ms: u64,
}

pub(crate) const AGE_MS_MAX: u64 = 5_000;
