mod data;
mod init;
mod many;

pub use data::{ClientContext, EstablishedClient, OpenError};
pub use init::{InitError, InitStep, Initiated, Initiation, Initiator};
pub use many::{CallWrap, ReplyOpen, ReplyOpener};
