//! Property tests of the scorer.
