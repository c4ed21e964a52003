pub(crate) mod acl;
mod encode;
mod locations;
pub(crate) mod owner;
mod settings;
pub(crate) mod source;
mod supported;

pub(crate) use encode::encode;
pub(crate) use settings::{Settings, settings};
use supported::OPEN_ARGUMENTS;
pub(crate) use supported::{ABSENT, ACL, EXCLUSIVE_CREATE, LOCATIONS, SPACE, View, supported};
