//! Whether who connects may be a client at all: some export is for its address. Asked before
//! anything is made of it that others could meet by its name; the kernel's server denies such a
//! host every call. Kept a while with the connection.

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Some export is for it.
    Admitted,
    /// None is.
    Refused,
    /// It can't be told yet: its name is being looked for.
    Undecided,
}

/// The last answer, of a list of exports, and when it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) admission: Admission,
    pub(crate) generation: u64,
    pub(crate) made_ms: u64,
}

/// For how long an answer is believed: as long as a grant is.
pub(crate) const AGE_MS_MAX: u64 = 5_000;
