//! Whether an address may have a client record: some export must name it. The answer is cached with
//! the connection.

/// The answer for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Some export names it.
    Admitted,
    /// No export names it.
    Refused,
    /// The address's host name is still being looked up.
    Undecided,
}

/// A cached answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) admission: Admission,
    pub(crate) generation: u64,
    pub(crate) made_ms: u64,
}

/// Lifetime of an answer, milliseconds: the same as for a grant.
pub(crate) const AGE_MS_MAX: u64 = 5_000;
