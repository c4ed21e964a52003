//! `libvouch`, the C library of `include/vouch.h`. `script/build-libvouch` links it.

mod ffi; // The functions of the header; all `unsafe` code.
mod status; // Kinds of errors as numbers, and the message of each thread.
