pub(crate) mod copy_pair;
pub(crate) mod creation;
pub(crate) mod delegation_conflict;
pub(crate) mod directory;
pub(crate) mod file_ref;
pub(crate) mod name_changes;
pub(crate) mod open_file;
pub(crate) mod open_handle;
