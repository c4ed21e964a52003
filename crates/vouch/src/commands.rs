//! The subcommands. Each file holds one subcommand's options, help and code.

pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod certify;
pub(crate) mod check_proof;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod forward;
pub(crate) mod gateway;
pub(crate) mod gc;
pub(crate) mod get;
pub(crate) mod keygen;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mount;
pub(crate) mod name;
pub(crate) mod prove;
pub(crate) mod publish;
pub(crate) mod pull;
pub(crate) mod revoke;
pub(crate) mod serve;
pub(crate) mod umount;
pub(crate) mod verify;
