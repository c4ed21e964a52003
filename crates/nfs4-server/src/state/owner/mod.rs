//! Open owners and lock owners.

pub(in crate::state) mod sequence;
